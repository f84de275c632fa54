"""From checked rows to an ensemble: folds, penalties chosen on unseen rows, the fit on all rows."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .. import training
from ..model import EBM
from ..objectives import MCMC, AbstractObjective, ExactMLE, MinMax
from ..shapes import bucket, pad_rows, pad_weights
from ..training import (
    ONLY_TAU,
    AbstractTraining,
    Features,
    Progress,
    Run,
    Solver,
    TrainState,
    ValidationLoss,
    ValidationLosses,
)
from ..training.data import CheckedRows, batch_of
from ..training.engine import BRIEF_STEPS
from ..types import Batch, Key, PyTree
from .names import cheap

MAX_VALIDATION_ROWS = 1000
MIN_ROWS = 10
LEAST_STEPS, MOST_STEPS, EPOCHS = 600, 3000, 10
VALIDATIONS = 30
# Numbers of steps between validations.
CHUNKS = (10, 20, 50, 100)
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
        reference = training.take(self.reference, rows)
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
            batch_size=batch_size,
            mask=None if self.mask is None or not self.mask.any() else np.asarray(self.mask, int),
            target=self._target(),
            padded=True,
        )

    def batch(self, size: int | None = None) -> Batch:
        """As a batch that is not trained on, with padded rows of weight 0 up to a size."""
        x, n = self.x.values, len(self.y)
        size = bucket(n) if size is None else size
        dense = x.toarray() if scipy.sparse.issparse(x) else x
        mask = None if self.mask is None else np.asarray(self.mask, int)
        # A loss is a mean over all rows, the padded ones included.
        weight = pad_weights(self.weight, n, size, size / n)
        x, y, *rest = pad_rows((dense, self.y, self.reference, self._target(), mask), size)
        return batch_of(x, y, None, weight, *rest)

    def _target(self) -> np.ndarray | None:
        return None if self.target is None else np.asarray(self.target, float if self.target.ndim == 1 else int)


class Plan(NamedTuple):
    """How to train: the solver's settings, the steps, and the folds that the models leave out."""

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
        """One solver per model: all models of the first penalty, then of the next.

        Pairs of labels that are few beside the rows are penalized less, by that ratio.
        """
        same = {"learning_rate": self.learning_rate, "schedule": training.cosine(self.steps), "train": self.train}
        solvers = [Solver(self.objective, penalty=p, coupling_penalty=self.pairs * p, **same) for p in penalties]
        return training.stack([solver for solver in solvers for _ in range(self.size)])

    @property
    def every(self) -> int:
        # One of few: a chunk of steps is a shape too.
        wanted = max(CHUNKS[0], self.steps // VALIDATIONS)
        return min(self.steps, max(size for size in CHUNKS if size <= wanted))


class Endings(NamedTuple):
    """How many of the `size` models failed (an infinite loss), diverged, or were never better than at their start."""

    size: int
    failed: int
    diverged: int
    unimproved: int


class Trained(NamedTuple):
    """The models to keep, the rows each has not seen, losses and validations, and how the models ended."""

    models: EBM
    unseen: list[np.ndarray]
    losses: np.ndarray
    validation: list[tuple[int, float]]
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
    validation: Data | None = None,
    key: Key,
    score: Callable[[EBM, Data], float] | None = None,
    callbacks: Sequence[Callable[[Progress], bool | None]] = (),
    keep: Callable[[Run], None] | None = None,
    resume: Callable[[Run], Run | None] = lambda _: None,
) -> Trained:
    """Model i of every penalty leaves out fold i, is stopped on it, and the models of the best penalty are kept.

    Best is the least validation loss, or the largest `score` on the rows that the models have not seen. Rows given as
    `validation` stop all models in place of the folds.
    """
    solver, num = plan.solver(plan.penalties), len(plan.penalties)
    models = training.take(models, np.tile(np.arange(plan.size), num))
    folds = plan.folds[: plan.size] if validation is None and len(plan.folds) >= plan.size else []
    keys = training.stack_keys(key, plan.size * num)
    losses = _validation_losses(plan, models, data, folds, validation, keys.validation)
    begun = training.start(solver, models, keys=keys.models, data_key=keys.data)
    resumed = resume(begun)
    run = training.fit_stack(
        solver,
        models,
        data.rows(plan.batch_size),
        steps=plan.steps,
        resume=begun if resumed is None else resumed,
        weights=np.tile(_without(folds, len(data.y), plan.size), (num, 1)),
        every=plan.every,
        validation=losses,
        # At the start p is q: a model that never improves stays there.
        validate_start=True,
        patience=plan.patience if losses is not None else None,
        callbacks=callbacks,
        keep=keep,
        brief=plan.steps <= BRIEF_STEPS,
    )
    if run.interrupted and not run.done:
        raise KeyboardInterrupt
    # An interrupted run has its best model behind it, not at its end.
    trained = run.models if plan.patience is not None or run.interrupted else run.state.model
    costs = run.best
    if folds and score is not None and num > 1:
        unseen = [data.take(fold) for fold in folds] * num
        costs = np.array([-score(training.take(trained, i), rows) for i, rows in enumerate(unseen)])
    best = 0 if losses is None else int(np.argmin(costs.reshape(num, plan.size).mean(axis=1)))
    chosen = slice(best * plan.size, (best + 1) * plan.size)
    values = [(step, float(row[chosen].mean())) for step, row in zip(run.validated_at, run.validation, strict=True)]
    ended = endings(run, plan.objective, chosen, validated=losses is not None and plan.patience is not None)
    kept = training.take(trained, chosen)
    return Trained(kept, folds, run.losses[:, chosen], values, plan.penalties[best], ended, run.interrupted)


def _validation_losses(
    plan: Plan, models: EBM, data: Data, folds: list[np.ndarray], validation: Data | None, key: Key
) -> ValidationLosses | None:
    """What stops the models: their losses on the rows they have not seen, if there are any that tell."""
    objective = validation_objective(plan.objective, training.take(models, 0))
    if objective is None or not (folds or validation is not None):
        return None
    rows = [data.take(fold) for fold in _equal(folds)] if validation is None else [validation] * plan.size
    # The same for all numbers of rows of a bucket: their folds need not have a bucket in common.
    size = min(math.ceil(bucket(len(data.y)) / len(folds)), MAX_VALIDATION_ROWS) if folds else None
    batches = training.stack([part.batch(size) for part in rows] * len(plan.penalties))
    return ValidationLosses(objective, batches, key)


def refit(plan: Plan, models: EBM, data: Data, penalty: float, *, key: Key, callbacks: Sequence[Any] = ()) -> Trained:
    """Models that have seen all rows."""
    run = fit_all_rows(plan.solver([penalty]), models, data, plan.batch_size, plan.steps, plan.every, key, callbacks)
    return Trained(run.models, [], run.losses, [], penalty, endings(run, plan.objective))


def fit_all_rows(
    solver: Solver,
    models: EBM,
    data: Data,
    batch_size: int,
    steps: int,
    every: int,
    key: Key,
    callbacks: Sequence[Any] = (),
    state: TrainState | None = None,
) -> Run:
    """All models on all rows, from the start or from the state of an earlier run; an interruption is raised."""
    keys = training.stack_keys(key, training.size(models))
    run = training.fit_stack(
        solver,
        models,
        data.rows(batch_size),
        steps=steps,
        resume=training.start(solver, models, keys=keys.models, data_key=keys.data, state=state),
        # As in `cross_fit`: one program for both.
        weights=np.ones((len(keys.models), len(data.y))),
        every=every,
        callbacks=callbacks,
        brief=steps <= BRIEF_STEPS,
    )
    if run.interrupted:
        raise KeyboardInterrupt
    return run


def fit_tau(plan: Plan, models: EBM, data: Data, objective: AbstractObjective, *, key: Key, callbacks: Any) -> Trained:
    """The same energies with trained normalizers. y has no part in it: -g(x, y) does not depend on tau."""
    plan = plan._replace(objective=objective, train=ONLY_TAU)
    return refit(plan, models, data._replace(target=None), 0.0, key=key, callbacks=callbacks)


def score_by_loss(objective: AbstractObjective, key: Key) -> Callable[[EBM, Data], float]:
    """A model's score on rows that it has not seen: minus the objective's loss."""

    def score(model: EBM, rows: Data) -> float:
        return -ValidationLoss(objective, rows.batch(), key)(model)

    return score


def endings(run: Run, objective: AbstractObjective, chosen: slice = slice(None), validated: bool = False) -> Endings:
    """How the chosen models ended; `validated` models are kept at their best validation."""
    failed, diverged = np.asarray(run.state.failed)[chosen], run.diverged(objective)[chosen]
    unimproved = run.stale[chosen] == len(run.validation) - 1 if validated else np.zeros(len(failed), bool)
    return Endings(len(failed), int(failed.sum()), int(diverged.sum()), int(unimproved.sum()))


def calibrate_scale(trained: Trained, data: Data, score: Callable[[EBM, Data], float]) -> float:
    """The factor on the energy under which rows that the models have not seen are most probable."""
    scores = []
    for i, fold in enumerate(trained.unseen):
        model, rows = training.take(trained.models, i), data.take(fold)
        scores.append([score(training.scale(model, factor), rows) for factor in SCALES])
    return float(SCALES[int(np.argmax(np.mean(scores, axis=0)))]) if scores else 1.0


def validation_objective(objective: AbstractObjective, model: EBM) -> AbstractObjective | None:
    """What scores unseen rows: the objective where its value tells, else exact likelihood where it is cheap."""
    if isinstance(objective, ExactMLE) or not (isinstance(objective, MCMC | MinMax) or model.tau.table is not None):
        return objective
    return ExactMLE() if cheap(model) else None


def _equal(folds: list[np.ndarray]) -> list[np.ndarray]:
    """Equally many rows of each fold, so that they can be stacked."""
    size = min(min(map(len, folds)), MAX_VALIDATION_ROWS)
    return [fold[:size] for fold in folds]


def _without(folds: list[np.ndarray], n: int, size: int) -> np.ndarray:
    """Weights by which model i leaves out fold i, those of each model with mean one."""
    weights = np.ones((size, n))
    for row, fold in zip(weights, folds, strict=False):
        row[fold] = 0
    return weights / weights.mean(axis=1, keepdims=True)
