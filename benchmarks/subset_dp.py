"""Exact log-partition of rankings by the subset program: a row costs k 2^(k-1) terms, a gradient a few times that.

    python -m benchmarks.subset_dp [--repeats 5] [--out out/bench]

Birkhoff logits, uniform q, float32, one core. Compilation is timed apart; times are medians, with the least and the
largest of the repeats.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

import partita as pt
from benchmarks.timing import in_turn, pin, spread, timed, write

# (labels, rows): a call takes some milliseconds.
SIZES = ((11, 16), (13, 8), (16, 2))


def log_partition(k: int) -> Callable[[jax.Array], jax.Array]:
    """The log-partition of one row of logits."""
    coupling = pt.couplings.Bilinear(pt.structures.Birkhoff(k))
    model = pt.EBM(pt.Energy(None, coupling), pt.model.Table(1))
    method = pt.budget.method(model)
    if not isinstance(method, pt.structures.SubsetDP):
        raise TypeError(f"This measures structures.SubsetDP, but {type(method).__name__} serves k = {k}.")
    return lambda theta: method.log_partition(theta, model.q)


def measure(fn: Callable, theta: jax.Array, repeats: int) -> dict:
    """Seconds to compile, and seconds per row: median, least and largest."""
    compiled, compile_seconds = timed(lambda: jax.jit(jax.vmap(fn)).lower(theta).compile())
    found = in_turn({"call": lambda: compiled(theta)}, repeats)["call"]
    return {"compile": compile_seconds, **spread([s / len(theta) for s in found])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    pin()
    table = Table(title=f"Subset program, one core, {options.repeats} repeats")
    for column in ("k", "rows", "what", "compile s", "ms per row", "least - largest", "terms", "ns per term"):
        table.add_column(column, justify="right")
    for k, rows in SIZES:
        theta = jax.random.normal(jax.random.key(k), (rows, k, k))
        terms = k * 2 ** (k - 1)
        value = log_partition(k)
        for what, fn in {"value": value, "gradient": jax.grad(value)}.items():
            found = measure(fn, theta, options.repeats)
            per_term = 1e9 * found["median"] / terms
            record = {"k": k, "rows": rows, "what": what, "terms": terms, "ns_per_term": per_term, **found}
            write(options.out / "subset_dp.jsonl", record)
            table.add_row(
                str(k),
                str(rows),
                what,
                f"{found['compile']:.1f}",
                f"{1e3 * found['median']:.2f}",
                f"{1e3 * found['least']:.2f} - {1e3 * found['largest']:.2f}",
                f"{terms:,}",
                f"{per_term:.1f}",
            )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
