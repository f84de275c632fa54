"""All results of the paper: compute what is missing, store it, and write the report."""

import importlib.metadata
import itertools
import os
import platform
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

import partita
from partita.progress import ProgressBar

from . import alternating, claims, convergence, figures, methods, printed_values, protocol, report, store, tables
from .document import Report
from .settings import FULL, PROTOCOL, QUICK

__all__ = ["NAMES", "compute", "document", "reproduce"]

NAMES = (*tables.TABLES, *figures.FIGURES)
RESULTS = "results.jsonl"
# A paragraph about the results of a folder, written by hand and shown on top of the report.
SUMMARY = "summary.txt"
COMPUTE = {
    "score": protocol.score,
    "partition": protocol.partitions,
    "curve": figures.curve,
    "other": methods.score,
    "convergence": convergence.compute,
    "alternating": alternating.compute,
}
# Compiled programs of one result seldom serve another and take 30 MB each; joblib ends a process that has grown by 300.
# So they are dropped after this many results.
RESULTS_PER_CACHE = 8
_count = itertools.count(1)
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
    """Compute the missing results of tables and figures, and write the report of all results in the folder `out`.

    Each result is stored at once: the same call continues an interrupted run.

    Parameters
    ----------
    names
        Of `NAMES`.
    datasets, models
        Only results of these; empty: of all.
    quick
        With one seed, a smaller grid and fewer steps.
    jobs
        Number of processes.
    out
        Folder of the results and of the report.

    Returns
    -------
    dict
        The paths of the files of the report, by their names.
    """
    _check(names, datasets, models)
    effort = QUICK if quick else FULL
    results = _open(Path(out) / RESULTS)
    configs = []
    for name in names:
        if name in tables.TABLES:
            configs += tables.configurations(name, effort, datasets, models)
        elif not models:
            configs += figures.configurations(name, effort, datasets)
    # Tables have cells in common.
    configs = store.distinct(configs)
    absent = [] if models else [method for method in methods.METHODS if not method.installed]
    if absent and any(name in tables.TABLES for name in names):
        titles, packages = "; ".join(method.title for method in absent), sorted({method.needs for method in absent})
        print(f"Left empty: {titles}. `pip install {' '.join(packages)}` lets them be run.", file=sys.stderr)
    completed = itertools.count(1)
    with ProgressBar("paper", text="starting") as bar:

        def show(config: Mapping[str, Any]) -> None:
            words = [config.get(name) for name in ("dataset", "name", "objective", "model", "coupling")]
            number = next(completed)
            text = " ".join([f"{number}/{len(configs)}", *(str(word) for word in words if word)])
            bar.update(number, len(configs), text)

        store.run(configs, compute, results, jobs=jobs, on_result=show, notes=_notes)
    return report.write(document(out), Path(out))


def compute(config: Mapping[str, Any]) -> dict[str, Any]:
    """The result of one configuration, and its seconds."""
    start = time.perf_counter()
    result = COMPUTE[config["kind"]](config)
    if next(_count) % RESULTS_PER_CACHE == 0:
        jax.clear_caches()
    return {**result, "seconds": round(time.perf_counter() - start, 2)}


def document(out: Any) -> Report:
    """The report of all results in a folder; where it has full and quick ones, of the full ones."""
    path = Path(out) / RESULTS
    if not path.exists():
        raise ValueError(f"{path} does not exist: run `python -m paper` with --out {out} first.")
    results = _open(path)
    is_full = any(len(entry["config"].get("seeds", ())) == len(FULL.seeds) for entry in results.entries())
    effort = FULL if is_full else QUICK

    def scores(config: Mapping[str, Any]) -> tuple[float, ...]:
        return tuple(map(float, result["test"])) if (result := results.get(config)) is not None else ()

    all_tables = [tables.build(name, scores, effort) for name in tables.TABLES]
    all_figures = [figures.build(name, results.get, effort) for name in figures.FIGURES]
    return Report(
        TITLE,
        _about(results.entries(), is_full),
        tuple(table for table in all_tables if any(cell.values for row in table.rows for cell in row.cells.values())),
        tuple(figure for figure in all_figures if figure.panels),
        claims.build(scores, results.get, effort),
        _REPORT_NOTES,
        summary.read_text("utf-8") if (summary := path.with_name(SUMMARY)).exists() else "",
    )


def _open(path: Path) -> store.Store:
    """The results of this protocol; a file that holds others is refused."""
    results = store.Store(path)
    others = [entry for entry in results.entries() if entry["config"].get("protocol") != PROTOCOL]
    if others:
        protocols = sorted({str(entry["config"].get("protocol", 1)) for entry in others})
        raise ValueError(
            f"{path} holds {len(others)} results of protocol {', '.join(protocols)}, and this version of partita runs "
            f"protocol {PROTOCOL}: other models, grids and rows, which are not mixed. Give another folder "
            "with --out, or move this file away to run everything again."
        )
    return results


def _check(names: Collection[str], sets: Collection[str], models: Collection[str]) -> None:
    """Refuse names that do not exist."""
    known = {
        "result": NAMES,
        "data set": (*printed_values.SETS, *printed_values.RANKINGS, figures.LARGE, figures.REDUCED),
        "model": ("linear", "mlp", "resnet"),
    }
    for (kind, allowed), values in zip(known.items(), (names, sets, models), strict=True):
        if unknown := sorted(set(values) - set(allowed)):
            raise ValueError(f"There is no {kind} {unknown[0]!r}; choose from {', '.join(allowed)}.")


def _about(entries: Sequence[Mapping[str, Any]], is_full: bool) -> dict[str, str]:
    times = sorted(entry["time"] for entry in entries if "time" in entry)
    seconds = sum(entry["result"].get("seconds", 0) for entry in entries)
    return {
        "effort": "full: three seeds" if is_full else "quick: one seed, a small grid, few steps",
        "run": f"{times[0]} to {times[-1]}" if times else "unknown",
        "computed": f"{len(entries)} results in {seconds / 60:.0f} minutes of one process",
        **(entries[-1].get("versions", {}) if entries else {}),
    }


def _notes() -> dict[str, Any]:
    """The versions by which a result was computed, and the time."""
    versions = {
        "partita": partita.__version__,
        **{name: importlib.metadata.version(name) for name in ("jax", "scikit-learn")},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    return {"versions": versions, "time": time.strftime("%FT%TZ", time.gmtime())}


_REPORT_NOTES = (
    tables.CAL500,
    claims.RULES,
    "Everything is chosen on dev rows: learning rate, penalty, number of steps, and the variants of MCMC and min-max. "
    "They are a quarter of the training rows, or four folds where that is fewer than 50. Then the model is trained "
    "again on all training rows. The spread is over three seeds; of rankings, over three splits. "
    "paper/README.md gives the whole protocol and its reasons.",
)
