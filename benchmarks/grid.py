"""A grid of learning rates, penalties and seeds as one program, beside the same trainings one by one.

    python -m benchmarks.grid [--steps 500] [--out out/bench]

emotions, MLP, Algorithm 1: 4 rates x 3 penalties x 3 seeds. Both compile once, and that is counted. One by one is one
training after the other, by the same program for one. The final losses should be the same.
"""

import argparse
from pathlib import Path

import jax
import numpy as np

import partita as pt
from benchmarks.report import show
from benchmarks.timing import pin, timed, write
from partita import sweep
from partita.batches import Rows
from partita.paper.protocol import standardized

GRID = sweep.Grid((1e-4, 1e-3, 3e-3, 1e-2), (1e-3, 1e-2, 1e-1), (0, 1, 2))


def main() -> None:
    pin()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    x, y, _, _ = standardized(pt.datasets.split(pt.datasets.load("emotions")))
    rows = Rows(x, y, batch_size=128)
    objective = pt.objectives.MinMin(200, "shared", proposal=None)

    def make(key: jax.Array) -> pt.EBM:
        h_key, tau_key = jax.random.split(key)
        h = pt.networks.MLP(x.shape[1], y.shape[1], key=h_key)
        tau = pt.partition.Network(pt.networks.MLP(x.shape[1], (), key=tau_key))
        return pt.EBM(pt.Energy(h, pt.couplings.Bilinear(pt.polytopes.Cube(y.shape[1]))), tau)

    def train(points: list[sweep.Point]) -> np.ndarray:
        return sweep.train(make, objective, rows, points, steps=options.steps, every=100).losses[-1]

    points = GRID.points()
    together, seconds = timed(lambda: train(points))
    alone, seconds_alone = timed(lambda: np.concatenate([train([point]) for point in points]))
    row = {
        "trainings": len(points),
        "together s": seconds,
        "one by one s": seconds_alone,
        "ratio": seconds_alone / seconds,
        "largest relative difference of losses": float(np.max(np.abs(together - alone) / np.abs(alone))),
    }
    write(options.out / "grid.jsonl", row)
    show(f"emotions, {options.steps} steps, one core", [row])


if __name__ == "__main__":
    main()
