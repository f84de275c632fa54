"""The paper in one command: everything that is asked for, computed once, and the page that shows it."""

import contextlib
import importlib.metadata
import itertools
import os
import platform
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import jax
from rich.progress import MofNCompleteColumn

from .. import progress, sweep
from . import alternating, beyond, claims, convergence, figures, printed, protocol, report, tables
from .document import Report

__all__ = ["NAMES", "document", "reproduce"]

NAMES = (*tables.TABLES, *figures.FIGURES)
RESULTS = "results.jsonl"
COMPUTE = {
    "score": protocol.score,
    "partition": protocol.partitions,
    "curve": figures.curve,
    "other": beyond.score,
    "convergence": convergence.compute,
    "alternating": alternating.compute,
}
# Programs of one result seldom serve another. In company they fill the memory: 30 MB each, and joblib ends a process
# that has grown by 300.
PROGRAMS_OF = 8
_computed = itertools.count(1)
TITLE = "Joint Learning of Energy-based Models and their Partition Function: the paper's results"


def reproduce(
    names: Collection[str],
    *,
    datasets: Collection[str] = (),
    models: Collection[str] = (),
    quick: bool = False,
    jobs: int | None = None,
    out: Any,
) -> dict[str, Path]:
    """Compute what is missing of the named results, and write the report of all that is there into the folder `out`.

    Every result is stored as soon as it is there, so a run that was interrupted goes on where it stopped.
    """
    _check(names, datasets, models)
    effort = protocol.QUICK if quick else protocol.FULL
    store = _store(Path(out) / RESULTS)
    wanted = []
    for name in names:
        if name in tables.TABLES:
            wanted += tables.wanted(name, effort, datasets, models)
        elif not models:
            wanted += figures.wanted(name, effort, datasets)
    # Tables have cells in common.
    wanted = sweep.distinct(wanted)
    with _progress(len(wanted), "" if models else _left_empty(names)) as told:
        sweep.run(wanted, compute, store, jobs=jobs, told=told, notes=_noted)
    return report.write(document(out), Path(out))


def compute(given: Mapping[str, Any]) -> dict[str, Any]:
    """The result of one configuration, and its seconds."""
    began = time.perf_counter()
    found = COMPUTE[given["kind"]](given)
    if next(_computed) % PROGRAMS_OF == 0:
        jax.clear_caches()
    return {**found, "seconds": round(time.perf_counter() - began, 2)}


def document(out: Any) -> Report:
    """All that the folder holds; of results that were computed in full and quickly, the full ones."""
    path = Path(out) / RESULTS
    if not path.exists():
        raise ValueError(f"{path} does not exist: run `partita reproduce` with --out {out} first.")
    store = _store(path)
    quick = not any(_is_full(entry["config"]) for entry in store.entries())
    effort = protocol.QUICK if quick else protocol.FULL

    def scores(given: Mapping[str, Any]) -> tuple[float, ...]:
        return tuple(map(float, found["test"])) if (found := store.get(given)) is not None else ()

    made = [tables.build(name, scores, effort) for name in tables.TABLES]
    drawn = [figures.build(name, store.get, effort) for name in figures.FIGURES]
    return Report(
        TITLE,
        _about(store, quick),
        tuple(table for table in made if any(cell.values for row in table.rows for cell in row.cells.values())),
        tuple(figure for figure in drawn if figure.panels),
        claims.build(scores, store.get, effort),
        _NOTES,
    )


def _store(path: Path) -> sweep.Store:
    """The results of this protocol; a file that holds others is refused."""
    store = sweep.Store(path)
    others = [entry for entry in store.entries() if entry["config"].get("protocol") != protocol.PROTOCOL]
    if others:
        known = sorted({str(entry["config"].get("protocol", 1)) for entry in others})
        raise ValueError(
            f"{path} holds {len(others)} results of protocol {', '.join(known)}, and this version of partita runs "
            f"protocol {protocol.PROTOCOL}: other models, grids and rows, which are not mixed. Give another folder "
            "with --out, or move this file away to run everything again."
        )
    return store


def _is_full(given: Mapping[str, Any]) -> bool:
    return len(given.get("seeds", ())) == len(protocol.FULL.seeds)


def _check(names: Collection[str], chosen: Collection[str], models: Collection[str]) -> None:
    known = {
        "result": NAMES,
        "data set": (*printed.SETS, *printed.RANKINGS, figures.LARGE, figures.REDUCED),
        "model": ("linear", "mlp", "resnet"),
    }
    for (what, allowed), given in zip(known.items(), (names, chosen, models), strict=True):
        if unknown := sorted(set(given) - set(allowed)):
            raise ValueError(f"There is no {what} {unknown[0]!r}; choose from {', '.join(allowed)}.")


def _left_empty(names: Collection[str]) -> str:
    """Which rows have no figures for want of another library."""
    missing = [other for other in beyond.OTHERS if not other.installed]
    if not missing or not any(name in tables.TABLES for name in names):
        return ""
    packages = " ".join(sorted({other.needs for other in missing}))
    return f"Left empty: {'; '.join(other.title for other in missing)}. `pip install {packages}` lets them be run."


@contextlib.contextmanager
def _progress(total: int, first: str = ""):
    """Tells of every configuration that is done; the time left is by those that were computed."""
    with progress.bar(MofNCompleteColumn()) as bar:
        if first:
            bar.console.print(first, markup=False, highlight=False)
        task = bar.add_task("training", total=total)

        def told(given: Mapping[str, Any]) -> None:
            words = [
                str(given[name]) for name in ("dataset", "name", "objective", "model", "coupling") if given.get(name)
            ]
            bar.update(task, advance=1, description=" ".join(words))

        yield told


def _about(store: sweep.Store, quick: bool) -> dict[str, str]:
    entries = store.entries()
    times = sorted(entry["time"] for entry in entries if "time" in entry)
    spent = sum(entry["result"].get("seconds", 0) for entry in entries)
    return {
        "effort": "quick: one seed, a small grid, few steps" if quick else "full: three seeds",
        "run": f"{times[0]} to {times[-1]}" if times else "unknown",
        "computed": f"{len(entries)} results in {spent / 60:.0f} minutes of one process",
        **(entries[-1].get("versions", {}) if entries else {}),
    }


def _noted() -> dict[str, Any]:
    """By what a result was computed, and when."""
    versions = {
        **{name: importlib.metadata.version(name) for name in ("partita", "jax", "scikit-learn")},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    return {"versions": versions, "time": time.strftime("%FT%TZ", time.gmtime())}


_NOTES = (
    tables.CAL500,
    claims.RULES,
    "Everything is chosen on dev rows: learning rate, penalty, number of steps, and the variants of MCMC and min-max. "
    "They are a quarter of the training rows, or four folds where that is fewer than 50. Then the model is trained "
    "again on all training rows. The spread is over three seeds; of rankings, over three splits. "
    "partita/paper/README.md gives the whole protocol and its reasons.",
)
