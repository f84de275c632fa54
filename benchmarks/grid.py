"""A grid of learning rates, penalties and seeds as one program, beside the same trainings one by one.

    python -m benchmarks.grid [--steps 500] [--shapes 128x128 64x64 32x32] [--repeats 5] [--double] [--out out/bench]

emotions, MLP, Algorithm 1: 4 rates x 3 penalties x 3 seeds, on all cores, for several batch sizes and widths. One by
one is a loop over `fit`, which compiles once for all of them. The final losses are the same bit for bit, but where the
smallest products are summed in another order: large rates blow that up in float32, and `--double` shows that it is
nothing else.

Two cores can gain a factor of two and what a single training spends beside arithmetic. Of 128 rows and units a step
alone takes 0.3 ms, of which 0.12 are products at the peak of a core, and in company 0.24: the factor is below three.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np

import partita as pt
from benchmarks.report import show
from benchmarks.timing import in_turn, shown, spread, timed, write
from paper.protocol import standardize
from partita import training
from partita.training import Rows

GRID = training.Grid((1e-4, 1e-3, 3e-3, 1e-2), (1e-3, 1e-2, 1e-1), (0, 1, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--shapes", nargs="+", default=["128x128", "64x64", "32x32"], help="batch size x width")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--double", action="store_true", help="in float64")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.double)
    rows = []
    for shape in options.shapes:
        batch_size, width = map(int, shape.split("x"))
        rows.append({"rows x units": shape, **measured(batch_size, width, options.steps, options.repeats)})
        write(options.out / "grid.jsonl", rows[-1])
    show(f"emotions, {options.steps} steps, {'float64' if options.double else 'float32'}", rows)


def measured(batch_size: int, width: int, steps: int, repeats: int) -> dict[str, Any]:
    """Seconds of the grid in company and one by one, and how far apart the final losses are at each rate."""
    x, y, _, _ = standardize(pt.datasets.split(pt.datasets.load("emotions")))
    rows = Rows(x, y, batch_size=batch_size)
    objective = pt.objectives.MinMin(200, "shared", proposal=None)

    def make(key: jax.Array) -> pt.EBM:
        h_key, tau_key = jax.random.split(key)
        h = pt.networks.MLP(x.shape[1], y.shape[1], width=width, key=h_key)
        tau = pt.model.Network(pt.networks.MLP(x.shape[1], (), width=width, key=tau_key))
        coupling = pt.couplings.Bilinear(pt.structures.Cube(y.shape[1]))
        return pt.EBM(pt.Energy(h, coupling), tau, surrogate=False)

    def together(points: list[training.Point]) -> np.ndarray:
        return training.fit_grid(make, objective, rows, points, steps=steps, every=100).losses[-1]

    def one_by_one() -> None:
        for point in points:
            key = jax.random.key(point.seed)
            solver = pt.Solver(objective, learning_rate=point.rate, penalty=point.penalty)
            pt.fit(solver, make(key), rows, steps=steps, key=key)

    points = GRID.points()
    losses, first = timed(lambda: together(points))
    seconds = in_turn({"together": lambda: together(points), "one by one": one_by_one}, repeats)
    ratio = spread([slow / fast for fast, slow in zip(seconds["together"], seconds["one by one"], strict=True)])
    # The grid's own program for one: rows and draws come in the same order.
    alone = np.concatenate([together([point]) for point in points])
    off = np.abs(losses / alone - 1)
    return {
        "first s": first,
        **{f"{name} s": spread(values)["median"] for name, values in seconds.items()},
        "ratio": shown(ratio),
        **{f"off, rate {rate:g}": f"{max(off[[p.rate == rate for p in points]]):.0e}" for rate in GRID.rates},
    }


if __name__ == "__main__":
    main()
