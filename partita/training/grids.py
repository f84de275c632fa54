"""Many trainings: a grid of learning rates, penalties and seeds as one stack of models."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..model import EBM
from ..objectives import AbstractObjective
from ..types import Key
from . import ensembles, loop
from .data import AbstractSource
from .engine import BRIEF_STEPS
from .optimizer import BOTH, AbstractTraining, OptimizerLike, Schedule, Solver
from .runs import Run

__all__ = ["Grid", "Point", "fit_grid"]


class Point(NamedTuple):
    """One training of a grid.

    Parameters
    ----------
    rate
        The learning rate.
    penalty
        On the squared weights.
    seed
        Of the first weights and of the draws.
    """

    rate: float
    penalty: float
    seed: int


class Grid(NamedTuple):
    """All combinations of learning rates, penalties and seeds.

    Parameters
    ----------
    rates
        The learning rates.
    penalties
        The penalties.
    seeds
        The seeds.
    """

    rates: Sequence[float]
    penalties: Sequence[float]
    seeds: Sequence[int]

    def points(self) -> list[Point]:
        """All points of the grid.

        Returns
        -------
        list of Point
            Those of one seed are neighbors, so that they make their draws together.
        """
        combinations = itertools.product(self.seeds, self.rates, self.penalties)
        return [Point(rate, penalty, seed) for seed, rate, penalty in combinations]


def fit_grid(
    make: Callable[[Key], EBM],
    objective: AbstractObjective | Callable[[Point], AbstractObjective],
    data: AbstractSource,
    points: Sequence[Point],
    *,
    steps: int,
    every: int = 100,
    weights: Any = None,
    optimizer: OptimizerLike | None = None,
    schedule: Schedule | None = None,
    tau_factor: float = 1.0,
    train: AbstractTraining = BOTH,
    callbacks: loop.Callbacks = (),
) -> Run:
    """Train a model for each point, all together: one compilation, and every matrix product is of all of them.

    A point's seed decides its first weights and its draws, not the order of the rows, which all points share. So a
    point is trained to the same end whatever the other points are.

    Parameters
    ----------
    make
        Makes a model of a key.
    objective
        One for all points, or a function that makes that of each.
    data
        The rows.
    points
        The trainings.
    steps
        How many steps each does.
    every
        Steps of a chunk: callbacks come after each chunk.
    weights
        Of the rows, for each point; None: all are 1.
    optimizer
        That of `Solver`, the same for all points.
    schedule
        That of `Solver`, the same for all points.
    tau_factor
        tau learns at this factor times the learning rate of g.
    train
        That of `Solver`, the same for all points.
    callbacks
        Called with a `Progress` of the stack after each chunk.

    Returns
    -------
    Run
        The stack of models, in the order of the points.

    Raises
    ------
    KeyboardInterrupt
        Half a training is no result of its point.
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
    first_models = {seed: make(key) for seed, key in keys.items()}
    solver, models = ensembles.stack(solvers), ensembles.stack([first_models[point.seed] for point in points])
    model_keys = jnp.stack([keys[point.seed] for point in points])
    run = loop.fit_stack(
        solver,
        models,
        data,
        steps=steps,
        resume=loop.start(solver, models, keys=model_keys, data_key=loop.stack_keys(jax.random.key(0), 0).data),
        weights=weights,
        every=every,
        callbacks=callbacks,
        brief=steps <= BRIEF_STEPS,
    )
    if run.interrupted:
        raise KeyboardInterrupt
    return run
