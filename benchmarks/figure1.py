"""The paper's Figure 1 on cal500: Algorithm 1 with B' = 10, 100, 1000 draws a step moves toward exact MLE.

Linear unary energy, MLP tau(x) of width 128, full batch, Adam, 5,000 steps; all losses are the exact negative
log-likelihood relative to the uniform reference. Then the same at larger learning rates: every step must stay finite.

    python -m benchmarks.figure1 [--draws per-row|shared] [--steps 5000] [--out out/bench]

cal500 has no official split: rows are the 401 training rows of train_test_split(test_size=0.2, random_state=0).
"""

import argparse
import time
from pathlib import Path

import jax
import matplotlib
import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import train_test_split

import partita as pt
from benchmarks.data import cal500, data_dir
from benchmarks.report import non_finite
from benchmarks.timing import write

matplotlib.use("Agg")
import matplotlib.pyplot as plt

WIDTH = 128


def model(key: jax.Array, features: int, labels: int) -> pt.EBM:
    """Linear unary energy, MLP tau(x)."""
    h_key, tau_key = jax.random.split(key)
    g = pt.Energy(pt.networks.Linear(features, labels, key=h_key), pt.couplings.Bilinear(pt.structures.Cube(labels)))
    return pt.EBM(g, pt.partition.Network(pt.networks.MLP(features, (), width=WIDTH, key=tau_key)))


def run(objective: pt.objectives.AbstractObjective, rate: float, data: tuple, steps: int) -> dict:
    """One training run, with the exact loss every 100 steps."""
    x, y = data
    key = jax.random.key(0)
    start = model(key, x.shape[1], y.shape[1])
    exact = pt.solver.HeldOut(pt.objectives.ExactMLE(), pt.batches.batch(start, x, y), key)
    curve, began = [], time.perf_counter()

    def record(told: pt.solver.Progress) -> None:
        curve.append((told.step, exact(told.model)))

    solver = pt.Solver(objective, learning_rate=rate)
    with pt.progress.ProgressBar(f"{type(objective).__name__} rate {rate:g}") as bar:
        solution = pt.fit(solver, start, data, steps=steps, key=key, callbacks=[bar, record])
    history = solution.history.steps
    return {
        "rate": rate,
        "samples": getattr(objective, "num_samples", None),
        "result": solution.result.name,
        "exact_loss": curve[-1][1],
        "non_finite": non_finite(solution),
        "largest_gradient": float(history["gradient_norm"].max()),
        "seconds": time.perf_counter() - began,
        "curve": curve,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", default="per-row", choices=["per-row", "shared"])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    x, y = cal500(data_dir())
    train, _ = train_test_split(np.arange(len(x)), test_size=0.2, random_state=0)
    data = x[train], y[train]

    runs = [("exact MLE", pt.objectives.ExactMLE(), 1e-4)]
    runs += [(f"B' = {b}", pt.objectives.MinMin(b, options.draws, proposal=None), 1e-4) for b in (10, 100, 1000)]
    runs += [("B' = 100", pt.objectives.MinMin(100, options.draws, proposal=None), rate) for rate in (1e-3, 1e-2, 1e-1)]
    table = Table(title=f"cal500, 401 training rows, {options.draws} draws, {options.steps} steps")
    for column in ("estimator", "rate", "exact train loss", "non-finite", "largest |gradient|", "seconds", "result"):
        table.add_column(column, justify="right")
    figure, axis = plt.subplots(figsize=(6, 4))
    for name, objective, rate in runs:
        found = run(objective, rate, data, options.steps)
        write(options.out / "figure1.jsonl", {"name": name, "draws": options.draws, **found})
        table.add_row(
            name,
            f"{rate:g}",
            f"{found['exact_loss']:.3f}",
            str(found["non_finite"]),
            f"{found['largest_gradient']:.3g}",
            f"{found['seconds']:.0f}",
            found["result"],
        )
        if rate == 1e-4:
            axis.plot(*zip(*found["curve"], strict=True), label=name)
    axis.set(xlabel="step", ylabel="exact train loss", title="cal500, Adam 1e-4, full batch")
    axis.legend()
    figure.tight_layout()
    figure.savefig(options.out / "figure1.png", dpi=120)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
