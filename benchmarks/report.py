"""What the benchmarks of learning share: models, one training run, tables on the screen."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import partita as pt
from benchmarks.timing import write

WIDTH = 128


def unary_model(key: jax.Array, features: int, labels: int) -> pt.EBM:
    """Linear unary energy and tau(x) an MLP, as in the paper's Figure 1."""
    h_key, tau_key = jax.random.split(key)
    g = pt.Energy(pt.networks.Linear(features, labels, key=h_key), pt.couplings.Bilinear(pt.structures.Cube(labels)))
    return pt.EBM(g, pt.model.Network(pt.networks.MLP(features, (), width=WIDTH, key=tau_key)))


def residual_tau(coupling: pt.couplings.AbstractCoupling, **options: Any) -> pt.model.Residual:
    """The bound of the coupling's surrogate, corrected by an MLP; `options` are the MLP's."""
    size = pt.structures.surrogate(coupling).summary_size(coupling)
    return pt.model.Residual(pt.networks.MLP(size, (), **options))


def train(
    model: pt.EBM, objective: pt.objectives.AbstractObjective, data: tuple, *, name: str, steps: int, **options: Any
) -> tuple[pt.training.Solution, float]:
    """A solution and its seconds, compilation included; rates fall along a cosine to 0. `options`: rate, tau_rate,
    penalty, batch_size, callbacks, seed, decay."""
    decay = pt.training.cosine(steps) if options.get("decay", True) else None
    solver = pt.Solver(
        objective,
        learning_rate=options.get("rate", 1e-3),
        tau_learning_rate=options.get("tau_rate"),
        penalty=options.get("penalty", 0.0),
        schedule=decay,
    )
    rows = pt.training.Rows(*data, batch_size=options.get("batch_size"))
    key = jax.random.key(options.get("seed", 0))
    began = time.perf_counter()
    with pt.progress.ProgressBar(name) as bar:
        calls = [bar, *options.get("callbacks", ())]
        solution = pt.fit(solver, model, rows, steps=steps, key=key, callbacks=calls)
    return solution, time.perf_counter() - began


def non_finite(solution: pt.training.Solution) -> int:
    """How many numbers of the history are not finite."""
    return int(sum((~np.isfinite(values)).sum() for values in solution.history.steps.values()))


def each(names: list[str], compare: Callable[[str], dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """The row of every name, written and shown as soon as it is there."""
    rows = []
    for name in names:
        rows.append(compare(name))
        write(path, rows[-1])
        show(name, rows[-1:])
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """A table of rows of equal keys; floats with three decimals."""
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=140).print(table)
