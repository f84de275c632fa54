"""From checked rows to one model: cross-fitted members, the penalty that suits rows they have not seen, their mean."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from .. import members
from ..batches import CheckedRows, Features
from ..model import EBM
from ..objectives import MCMC, AbstractObjective, ExactMLE, MinMax
from ..solver import ONLY_TAU, AbstractTraining, HeldOut, Progress, Solver, cosine
from ..types import Array, Batch, Key, PyTree
from .names import cheap

MAX_HELD = 1000
MIN_ROWS = 10
LEAST_STEPS, MOST_STEPS, EPOCHS = 600, 3000, 10
VALIDATIONS = 30
# Factors on the energy that calibration may choose from.
SCALES = np.geomspace(0.1, 2, 14)


class Data(NamedTuple):
    """Checked rows: scaled features, outputs, what of them is missing, weights, a reference for each; of triplets the
    worse outputs or the scores, as `target`."""

    x: Features
    y: np.ndarray
    mask: np.ndarray | None = None
    weight: np.ndarray | None = None
    reference: PyTree = None
    target: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> "Data":
        reference = jax.tree.map(lambda leaf: leaf[rows], self.reference)
        parts = (self.mask, self.weight, self.target)
        mask, weight, target = (None if part is None else part[rows] for part in parts)
        return Data(self.x[rows], self.y[rows], mask, weight, reference, target)

    def rows(self, batch_size: int) -> CheckedRows:
        """As rows to train on."""
        return CheckedRows(
            self.x,
            self.y,
            weight=self.weight,
            reference=self.reference,
            batch_size=min(batch_size, len(self.y)),
            mask=None if self.mask is None or not self.mask.any() else jnp.asarray(self.mask, int),
            target=self._target(),
        )

    def batch(self) -> Batch:
        """As a batch that is not trained on."""
        x = self.x.values
        return Batch(
            jnp.asarray(x.toarray() if scipy.sparse.issparse(x) else x, float),
            jnp.asarray(self.y, int),
            None,
            None if self.weight is None else jnp.asarray(self.weight, float),
            self.reference,
            self._target(),
            None if self.mask is None else jnp.asarray(self.mask, int),
        )

    def _target(self) -> Array | None:
        return None if self.target is None else jnp.asarray(self.target, float if self.target.ndim == 1 else int)


class Plan(NamedTuple):
    """How to train: by what, how often, and what is held out of whom."""

    objective: AbstractObjective
    learning_rate: float
    penalties: tuple[float, ...]
    batch_size: int
    steps: int
    patience: int | None
    folds: list[np.ndarray]
    size: int
    pairs: float
    train: AbstractTraining

    def solver(self, penalties: Sequence[float]) -> Solver:
        """One solver per member: all members of the first penalty, then of the next.

        Pairs of labels that are few beside the rows are penalized less, by that ratio.
        """
        same = {"learning_rate": self.learning_rate, "schedule": cosine(self.steps), "train": self.train}
        result = [Solver(self.objective, penalty=p, coupling_penalty=self.pairs * p, **same) for p in penalties]
        return members.stacked([solver for solver in result for _ in range(self.size)])

    @property
    def every(self) -> int:
        return min(self.steps, max(10, self.steps // VALIDATIONS))


class Endings(NamedTuple):
    """How many of the `size` members failed (an infinite loss), diverged, or were never better than at their start."""

    size: int
    failed: int
    diverged: int
    unimproved: int


class Trained(NamedTuple):
    """The members to keep, the rows each has not seen, the losses on the way, and how the members ended."""

    models: EBM
    unseen: list[np.ndarray]
    losses: np.ndarray
    measures: list[tuple[int, float]]
    penalty: float
    endings: Endings
    interrupted: bool = False


def num_steps(n: int, batch_size: int) -> int:
    """Enough for small data, and some passes over large ones."""
    passes = 100 * math.ceil(EPOCHS * n / min(batch_size, n) / 100)
    return min(max(LEAST_STEPS, passes), MOST_STEPS)


def folds_of(n: int, num: int, rng: np.random.RandomState) -> list[np.ndarray]:
    """The rows in parts of nearly equal size; none where there are too few to leave any out."""
    if n < MIN_ROWS:
        return []
    return [np.sort(part) for part in np.array_split(rng.permutation(n), min(num, n // 2))]


def cross_fit(
    plan: Plan,
    models: EBM,
    data: Data,
    *,
    judged_on: Data | None = None,
    key: Key,
    worth: Callable[[EBM, Data], float] | None = None,
    callbacks: Sequence[Callable[[Progress], bool | None]] = (),
    keep: Callable[[members.Members], None] | None = None,
    resume: Callable[[members.Members], members.Members | None] = lambda _: None,
) -> Trained:
    """Member i of every penalty leaves out fold i, is stopped on it, and the best penalty's members are kept.

    Best is the least held-out loss, or the largest `worth` on the rows that the members have not seen.
    """
    solver, num = plan.solver(plan.penalties), len(plan.penalties)
    judge = judge_of(plan.objective, members.member(models, 0))
    models = members.member(models, np.tile(np.arange(plan.size), num))
    folds = plan.folds[: plan.size] if judged_on is None and len(plan.folds) >= plan.size else []
    held = None
    if judge is not None and (folds or judged_on is not None):
        judged = [data.take(rows) for rows in _equal(folds)] if judged_on is None else [judged_on] * plan.size
        held = members.stacked([rows.batch() for rows in judged] * num)
    begun = members.start(solver, models, key=key)
    resumed = resume(begun)
    now = members.fit(
        solver,
        models,
        data.rows(plan.batch_size),
        weights=np.tile(_without(folds, len(data.y)), (num, 1)) if folds else None,
        held=held,
        judge=judge,
        steps=plan.steps,
        key=key,
        every=plan.every,
        patience=plan.patience if held is not None else None,
        callbacks=callbacks,
        keep=keep,
        resume=begun if resumed is None else resumed,
    )
    # A run that ends too soon has its best behind it or ahead, not at its end.
    result = now.models if plan.patience is not None or now.interrupted else now.state.model
    price = now.best
    if folds and worth is not None and num > 1:
        unseen = [data.take(fold) for fold in folds] * num
        price = np.array([-worth(members.member(result, i), rows) for i, rows in enumerate(unseen)])
    best = 0 if held is None else int(np.argmin(price.reshape(num, plan.size).mean(axis=1)))
    chosen = slice(best * plan.size, (best + 1) * plan.size)
    measures = [(step, float(row[chosen].mean())) for step, row in zip(now.steps, now.measures, strict=True)]
    ended = endings(now, plan.objective, chosen, validated=held is not None and plan.patience is not None)
    kept = members.member(result, chosen)
    return Trained(kept, folds, now.losses[:, chosen], measures, plan.penalties[best], ended, now.interrupted)


def refit(plan: Plan, models: EBM, data: Data, penalty: float, *, key: Key, callbacks: Sequence[Any] = ()) -> Trained:
    """Members that have seen all rows."""
    solver, rows = plan.solver([penalty]), data.rows(plan.batch_size)
    now = members.fit(solver, models, rows, steps=plan.steps, key=key, every=plan.every, callbacks=callbacks)
    if now.interrupted:
        raise KeyboardInterrupt
    return Trained(now.models, [], now.losses, [], penalty, endings(now, plan.objective))


def fit_tau(plan: Plan, models: EBM, data: Data, objective: AbstractObjective, *, key: Key, callbacks: Any) -> Trained:
    """The same energies with trained normalizers. y has no part in it: -g(x, y) does not depend on tau."""
    plan = plan._replace(objective=objective, train=ONLY_TAU)
    return refit(plan, models, data._replace(target=None), 0.0, key=key, callbacks=callbacks)


def worth_by_loss(objective: AbstractObjective, key: Key) -> Callable[[EBM, Data], float]:
    """A model's worth on rows that it has not seen: minus the objective's loss."""

    def worth(model: EBM, rows: Data) -> float:
        return -HeldOut(objective, rows.batch(), key)(model)

    return worth


def endings(
    now: members.Members, objective: AbstractObjective, chosen: slice = slice(None), validated: bool = False
) -> Endings:
    """How the chosen members ended; `validated` members are kept at their best validation."""
    failed, diverged = np.asarray(now.state.failed)[chosen], now.ran_away(objective)[chosen]
    unimproved = now.stale()[chosen] == len(now.measures) - 1 if validated else np.zeros(len(failed), bool)
    return Endings(len(failed), int(failed.sum()), int(diverged.sum()), int(unimproved.sum()))


def calibrated(trained: Trained, data: Data, score: Callable[[EBM, Data], float]) -> float:
    """The factor on the energy under which rows that the members have not seen are most probable."""
    result = []
    for i, fold in enumerate(trained.unseen):
        model, rows = members.member(trained.models, i), data.take(fold)
        result.append([score(members.scaled(model, factor), rows) for factor in SCALES])
    return float(SCALES[int(np.argmax(np.mean(result, axis=0)))]) if result else 1.0


def judge_of(objective: AbstractObjective, model: EBM) -> AbstractObjective | None:
    """What measures held-out rows: the objective where its value tells, else exact likelihood where it is cheap."""
    if isinstance(objective, ExactMLE) or not (isinstance(objective, MCMC | MinMax) or model.tau.table is not None):
        return objective
    return ExactMLE() if cheap(model) else None


def _equal(folds: list[np.ndarray]) -> list[np.ndarray]:
    """Equally many rows of each fold, so that they can be stacked."""
    size = min(min(map(len, folds)), MAX_HELD)
    return [fold[:size] for fold in folds]


def _without(folds: list[np.ndarray], n: int) -> np.ndarray:
    """Member i counts no row of fold i; each member's weights have mean one."""
    counted = np.ones((len(folds), n))
    for row, fold in zip(counted, folds, strict=True):
        row[fold] = 0
    return counted / counted.mean(axis=1, keepdims=True)
