"""A step of Algorithm 1: against eager torch, against the machine's own limit, its growth and its peak memory.

    python -m benchmarks.steps [--repeats 5] [--out out/bench] [--only times|growth|memory]

Linear unary energy, MLP tau(x), KL, Adam, full batch, float32, one core; random data of the shapes of cal500 and yeast.
Partita runs `Solver.step` in the compiled loop of `fit`; compilation is timed apart. The limit of shared draws is one
product (n x k)(k x B') and one exponential of the n x B' scores: a step needs two such products, the draws and tau
besides. Times are medians, with the least and the largest of the repeats; what is compared is timed in turn, and a
ratio is that of one turn. Peak memory is that of a process of its own, compilation included, less what it had after its
imports.
"""

import argparse
import functools
import importlib.util
import multiprocessing
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import partita as pt
from benchmarks.report import WIDTH, unary_model
from benchmarks.timing import in_turn, pin, shown, spread, timed, write
from partita.training.engine import Steps, run_stack

# A call takes some tenths of a second.
STEPS = 20
FACTORS = (1 / 4, 1 / 2, 1, 2, 4)
PEERS = ("partita", "torch", "torch, packed coins")
MISSING = "not installed: pip install torch"


class Case(NamedTuple):
    """Rows, features, labels, and draws of y'."""

    n: int
    d: int
    k: int
    draws: str
    num_samples: int

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(0)
        return rng.standard_normal((self.n, self.d)).astype(np.float32), rng.integers(0, 2, (self.n, self.k))


CASES = {
    ("cal500", "shared"): Case(401, 68, 174, "shared", 1000),
    ("cal500", "per-row"): Case(401, 68, 174, "per-row", 100),
    ("yeast", "shared"): Case(1500, 103, 14, "shared", 1000),
    ("yeast", "per-row"): Case(1500, 103, 14, "per-row", 100),
}


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def partita_steps(case: Case) -> Callable[[], Any]:
    """A compiled chunk of steps, from the first one."""
    start = unary_model(jax.random.key(0), case.d, case.k)
    solver = pt.Solver(pt.objectives.MinMin(case.num_samples, case.draws, proposal=None), learning_rate=1e-4)
    key = jax.random.key(1)
    data = pt.training.Rows(*case.data()).open(start, key=key).read(0, STEPS, STEPS).data
    chunk = Steps(data, None, np.ones(STEPS, bool), np.ones(STEPS, np.float32), np.asarray(0))
    models, solvers = pt.training.stack([start]), pt.training.stack([solver])
    state = pt.training.start(solver, models, keys=key[None], data_key=key).state
    arguments = 1, solvers, state, None, np.ones(1, bool), chunk
    compiled = run_stack.lower(*arguments).compile()
    # The record of the steps alone is returned: all of it is computed together.
    return lambda: compiled(*arguments)[1]


def torch_steps(case: Case, packed: bool) -> Callable[[], Any]:
    from benchmarks.torch_step import Run

    return functools.partial(Run(*case.data(), WIDTH, case.num_samples, case.draws == "shared", packed).steps, STEPS)


def steps(peer: str, case: Case) -> Callable[[], Any]:
    """A call that does STEPS steps."""
    return partita_steps(case) if peer == "partita" else torch_steps(case, packed="packed" in peer)


def limit(case: Case) -> Callable[[], Any]:
    """STEPS times one product and one exponential of the scores."""
    theta, y = jnp.full((case.n, case.k), 1e-3), jnp.ones((case.k, case.num_samples))
    compiled = jax.jit(lambda theta, y: jnp.exp(theta @ y)).lower(theta, y).compile()

    def call():
        for _ in range(STEPS):
            jax.block_until_ready(compiled(theta, y))

    return call


def times(repeats: int, out: Path) -> Table:
    """Every case against torch and, for shared draws, against the limit."""
    table = Table(title=f"A step of Algorithm 1, one core, {repeats} repeats of {STEPS} steps")
    for column in ("shape", "draws", "B'", "what", "compile s", "ms a step", "torch / partita", "partita / limit"):
        table.add_column(column, justify="right")
    for (shape, draws), case in CASES.items():
        compile_seconds, calls = {}, {}
        for peer in PEERS if has_torch() else PEERS[:1]:
            calls[peer], compile_seconds[peer] = timed(functools.partial(steps, peer, case))
        if draws == "shared":
            calls["limit"], compile_seconds["limit"] = timed(functools.partial(limit, case))
        found = {name: [s / STEPS for s in values] for name, values in in_turn(calls, repeats).items()}
        for name, values in found.items():
            pair = (found["partita"], values) if name == "limit" else (values, found["partita"])
            ms, ratio = spread([1e3 * s for s in values]), spread([a / b for a, b in zip(*pair, strict=True)])
            row = {"part": "times", "shape": shape, **case._asdict(), "what": name, "ms": ms, "ratio": ratio}
            write(out / "steps.jsonl", row | {"compile": compile_seconds[name]})
            compiled = "" if "torch" in name else f"{compile_seconds[name]:.1f}"
            ratios = (shown(ratio) if "torch" in name else "", shown(ratio) if name == "limit" else "")
            table.add_row(shape, draws, str(case.num_samples), name, compiled, shown(ms), *ratios)
        if not has_torch():
            table.add_row(shape, draws, str(case.num_samples), "torch", "", MISSING, "", "")
        table.add_section()
    return table


def growth(repeats: int, out: Path) -> Table:
    """n, k and B' varied one at a time around the shape of cal500, and a picture of it."""
    table = Table(title=f"ms a step around the shape of cal500, one core, {repeats} repeats")
    for column in ("draws", "varied", *(f"x {factor:g}" for factor in FACTORS)):
        table.add_column(column, justify="right")
    figure = Figure(figsize=(10, 4))
    axes = figure.subplots(1, 2, sharey=True)
    for axis, draws in zip(axes, ("shared", "per-row"), strict=True):
        center = CASES["cal500", draws]
        cases = {
            (name, factor): center._replace(**{name: round(factor * getattr(center, name))})
            for name in ("n", "k", "num_samples")
            for factor in FACTORS
        }
        # The center is in all three, and compiled once.
        made = {case: partita_steps(case) for case in set(cases.values())}
        found = in_turn(made, repeats)
        ms = {key: spread([1e3 * s / STEPS for s in found[case]]) for key, case in cases.items()}
        for key, case in cases.items():
            write(out / "steps.jsonl", {"part": "growth", "varied": key[0], **case._asdict(), "ms": ms[key]})
        for name, label in {"n": "n", "k": "k", "num_samples": "B'"}.items():
            medians = [ms[name, factor]["median"] for factor in FACTORS]
            table.add_row(draws, label, *(f"{median:.2f}" for median in medians))
            axis.plot(
                [getattr(cases[name, f], name) / getattr(center, name) for f in FACTORS], medians, "o-", label=label
            )
        _guides(axis, ms["n", 1]["median"])
        axis.set(xlabel="times the size of cal500", title=f"{draws} draws, B' = {center.num_samples}")
    axes[0].set_ylabel("ms a step")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(out / "steps_growth.png", dpi=120)
    return table


def _guides(axis: Any, middle: float) -> None:
    """Logarithmic axes, and lines of slope 1 below, through and above the middle."""
    axis.set(xscale="log", yscale="log")
    axis.autoscale(False)
    for shift in (1 / 4, 1, 4):
        axis.plot(FACTORS, [shift * middle * factor for factor in FACTORS], ":", color="gray", zorder=0)
    axis.set_xticks(FACTORS, [f"{factor:g}" for factor in FACTORS])
    axis.minorticks_off()


def memory(repeats: int, out: Path) -> Table:
    """The peak of every case, each in a process of its own."""
    table = Table(title="Peak memory above that after the imports, compilation included, each in a process of its own")
    for column in ("shape", "draws", "B'", "what", "after imports MB", "compiled above MB", "peak above MB"):
        table.add_column(column, justify="right")
    spawn = multiprocessing.get_context("spawn")
    for (shape, draws), case in CASES.items():
        for peer in PEERS[:2]:
            labels = shape, draws, str(case.num_samples), peer
            if peer != "partita" and not has_torch():
                table.add_row(*labels, MISSING, "", "")
                continue
            with ProcessPoolExecutor(1, mp_context=spawn) as process:
                start, made, peak = process.submit(_peak, peer, case).result()
            row = {
                "part": "memory",
                "shape": shape,
                **case._asdict(),
                "what": peer,
                "start": start,
                "made": made,
                "peak": peak,
            }
            write(out / "steps.jsonl", row)
            table.add_row(*labels, f"{start / 1e6:.0f}", *(f"{(then - start) / 1e6:.0f}" for then in (made, peak)))
    return table


def _peak(peer: str, case: Case) -> tuple[int, int, int]:
    """Peak bytes of this process after its imports, when compiled, and after the steps."""
    if peer == "partita":
        # Starts JAX and loads what the package loads on first use.
        jax.block_until_ready(jnp.zeros(1))
        importlib.import_module("partita.training")
    else:
        importlib.import_module("benchmarks.torch_step")
    start = _peak_bytes()
    call = steps(peer, case)
    made = _peak_bytes()
    jax.block_until_ready(call())
    return start, made, _peak_bytes()


def _peak_bytes() -> int:
    # On Linux ru_maxrss begins with the peak of the process that started this one; the peak in /proc is its own.
    if (status := Path("/proc/self/status")).exists():
        return 1024 * next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


PARTS = {"times": times, "growth": growth, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    pin()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, part in PARTS.items():
        if options.only in (None, name):
            Console(width=140).print(part(options.repeats, options.out))


if __name__ == "__main__":
    main()
