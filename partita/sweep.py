"""Many trainings: a grid of rates, penalties and seeds as one program."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from . import members
from .batches import AbstractRows
from .model import EBM
from .objectives import AbstractObjective
from .solver import BOTH, AbstractTraining, Progress, Solver
from .types import Key

__all__ = ["Grid", "Point", "train"]


class Point(NamedTuple):
    """One training of a grid."""

    rate: float
    penalty: float
    seed: int


class Grid(NamedTuple):
    """All combinations of learning rates, penalties and seeds."""

    rates: Sequence[float]
    penalties: Sequence[float]
    seeds: Sequence[int]

    def points(self) -> list[Point]:
        """Those of one seed side by side, so that they make their draws together."""
        found = itertools.product(self.seeds, self.rates, self.penalties)
        return [Point(rate, penalty, seed) for seed, rate, penalty in found]


def train(
    make: Callable[[Key], EBM],
    objective: AbstractObjective | Callable[[Point], AbstractObjective],
    data: AbstractRows,
    points: Sequence[Point],
    *,
    steps: int,
    every: int = 100,
    weights: Any = None,
    optimizer: Callable[[Any], optax.GradientTransformation] | None = None,
    schedule: Callable[[Any], Any] | None = None,
    tau_factor: float = 1.0,
    train: AbstractTraining = BOTH,
    callbacks: Sequence[Callable[[Progress], bool | None]] = (),
) -> members.Members:
    """A model for each point, trained together: one compilation, and every matrix product is of all of them.

    `make` gives a model for a key, `objective` is one for all points or makes that of each. A point's seed decides its
    weights and draws, not the order of the rows, which all points share; so a point is trained to the same end in any
    company. `weights` has a row for each point. tau learns at `tau_factor` times the rate of g. `optimizer` and `train`
    are those of `Solver`, the same for all points.
    """
    if not points:
        raise ValueError("A grid needs at least one point.")
    solvers = [
        Solver(
            objective if isinstance(objective, AbstractObjective) else objective(point),
            learning_rate=point.rate,
            tau_learning_rate=tau_factor * point.rate,
            penalty=point.penalty,
            optimizer=optimizer,
            schedule=schedule,
            train=train,
        )
        for point in points
    ]
    keys = {point.seed: jax.random.key(point.seed) for point in points}
    made = {seed: make(key) for seed, key in keys.items()}
    solver, models = members.stacked(solvers), members.stacked([made[point.seed] for point in points])
    trained = members.fit(
        solver,
        models,
        data,
        weights=weights,
        steps=steps,
        key=jax.random.key(0),
        every=every,
        callbacks=callbacks,
        resume=members.start(solver, models, key=jnp.stack([keys[point.seed] for point in points])),
    )
    if trained.interrupted:
        # Half a training is no result of its configuration.
        raise KeyboardInterrupt
    return trained
