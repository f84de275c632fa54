"""A grid of learning rates, penalties and seeds as one program, beside the same trainings one by one.

    python -m benchmarks.grid [--steps 500] [--batch-size 128] [--double] [--out out/bench]

emotions, MLP, Algorithm 1: 4 rates x 3 penalties x 3 seeds, on all cores. One by one is a loop over `fit`, which
compiles once for all of them. "first" is a run of 400 steps with compilation, of the whole grid or of one training.
The final losses are the same but for rounding, which the largest rate blows up in float32: `--double` shows that it is
nothing else.
"""

import argparse
from pathlib import Path

import jax
import numpy as np

import partita as pt
from benchmarks.report import show
from benchmarks.timing import timed, write
from partita import sweep
from partita.batches import Rows
from partita.paper.protocol import standardized

GRID = sweep.Grid((1e-4, 1e-3, 3e-3, 1e-2), (1e-3, 1e-2, 1e-1), (0, 1, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--double", action="store_true", help="in float64")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.double)
    x, y, _, _ = standardized(pt.datasets.split(pt.datasets.load("emotions")))
    rows = Rows(x, y, batch_size=options.batch_size)
    objective = pt.objectives.MinMin(200, "shared", proposal=None)

    def make(key: jax.Array) -> pt.EBM:
        h_key, tau_key = jax.random.split(key)
        h = pt.networks.MLP(x.shape[1], y.shape[1], key=h_key)
        tau = pt.partition.Network(pt.networks.MLP(x.shape[1], (), key=tau_key))
        coupling = pt.couplings.Bilinear(pt.polytopes.Cube(y.shape[1]))
        return pt.EBM(pt.Energy(h, coupling), tau, surrogate=False)

    def together(points: list[sweep.Point], steps: int) -> np.ndarray:
        return sweep.train(make, objective, rows, points, steps=steps, every=100).losses[-1]

    def alone(points: list[sweep.Point], steps: int) -> np.ndarray:
        """The grid's own program for one, so that orders of rows and draws are the same."""
        return np.concatenate([together([point], steps) for point in points])

    def by_fit(points: list[sweep.Point], steps: int) -> None:
        for point in points:
            key = jax.random.key(point.seed)
            solver = pt.Solver(objective, learning_rate=point.rate, penalty=point.penalty)
            pt.fit(solver, make(key), rows, steps=steps, key=key)

    points, found = GRID.points(), {}
    row = {"trainings": len(points), "batch": options.batch_size}
    for name, train, first in [
        ("together", together, points),
        ("alone", alone, points[:1]),
        ("fit", by_fit, points[:1]),
    ]:
        _, row[f"{name}: first s"] = timed(lambda train=train, first=first: train(first, 400))
        found[name], row[f"{name}: s"] = timed(lambda train=train: train(points, options.steps))
    row["fit / together"] = row["fit: s"] / row["together: s"]
    row["largest difference of losses"] = float(np.max(np.abs(found["together"] / found["alone"] - 1)))
    write(options.out / "grid.jsonl", row)
    show(f"emotions, {options.steps} steps, {'float64' if options.double else 'float32'}", [row])


if __name__ == "__main__":
    main()
