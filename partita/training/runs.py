"""What a run of training leaves: models, histories, how it ended; and what is measured on the way."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..divergences import KL
from ..model import EBM
from ..objectives import AbstractObjective
from ..types import RESULTS, Array, Batch, Bool, Float, Int, Key, Keys, PyTree, Scalar
from . import ensembles

__all__ = [
    "AbstractValidation",
    "History",
    "Progress",
    "Run",
    "Solution",
    "TrainState",
    "ValidationLoss",
    "ValidationLosses",
    "has_diverged",
]

# Nats of log p that rounding of g may cost.
MAX_ROUNDING = 0.1
# Programs are little optimized: they run no slower, and compile in 6 s in place of 21 on yeast.
OPTIONS: Any = {"xla_backend_optimization_level": 1}


class TrainState(eqx.Module):
    """Everything a step needs; of a stack of models, every array has a leading axis.

    Parameters
    ----------
    model
        The current model.
    good
        The last one whose loss was seen to be finite.
    optimizer
        The optimizer states of g, of tau and of the surrogate.
    objective
        What the objective carries from step to step.
    step
        How many steps were done.
    failed
        Whether a loss, a gradient or a weight became infinite or NaN.
    key
        Of all random numbers of the run.
    """

    model: EBM
    good: EBM
    optimizer: PyTree
    objective: PyTree
    step: Int[Array, " *models"]
    failed: Bool[Array, " *models"]
    key: Key | Keys


class History(eqx.Module):
    """Values of every step and of every validation.

    Parameters
    ----------
    steps
        By name, a value for every step: the loss, the gradient norm, what the objective adds.
    validation
        (step, score) of every validation; lower is better.
    """

    steps: dict[str, np.ndarray]
    validation: list[tuple[int, float]]

    @property
    def loss(self) -> np.ndarray:
        """The training loss of every step, without the penalty."""
        return self.steps["loss"]


class Solution(eqx.Module):
    """What `fit` returns.

    Parameters
    ----------
    model
        The best model seen by the validation; without one the last model.
    result
        How the run ended.
    history
        Losses and validations.
    state
        From which the run can continue.
    data_key
        Of the order of the rows.
    """

    model: EBM
    result: RESULTS
    history: History
    state: TrainState
    data_key: Key


class Progress(NamedTuple):
    """What a callback gets between chunks of steps.

    Parameters
    ----------
    step
        How many steps were done.
    steps
        How many there will be at most.
    loss
        The last training loss; of a stack, the mean.
    validation
        The last validation score; of a stack, the mean. None: there is no validation.
    model
        The current model, or stack of models.
    """

    step: int
    steps: int
    loss: float
    validation: float | None
    model: EBM


class AbstractValidation(eqx.Module):
    """Scores models on rows that are not training rows; lower is better."""

    @abc.abstractmethod
    def scores(self, models: EBM) -> Float[np.ndarray, " models"]:
        """The score of each model of a stack.

        Parameters
        ----------
        models
            The stack.

        Returns
        -------
        ndarray
            One number per model.
        """

    def check(self, model: EBM) -> None:
        """Raise what the first validation would raise, before any work.

        Parameters
        ----------
        model
            One model.
        """


class ValidationLoss(AbstractValidation):
    """The loss of an objective on a batch of rows, always with the same draws.

    Parameters
    ----------
    objective
        Whose loss is taken.
    batch
        Rows as `training.batch` makes them.
    key
        Of the draws.
    """

    objective: AbstractObjective
    batch: Batch
    key: Key

    def __check_init__(self):
        if not isinstance(self.batch, Batch):
            raise TypeError(
                f"ValidationLoss needs a Batch, as training.batch makes it; got a {type(self.batch).__name__}."
            )

    def __call__(self, model: EBM) -> float:
        """The loss of one model."""
        return float(_jitted_loss(self.objective, model, self.batch, self.key))

    def scores(self, models):
        return _score_each(self, models)

    def check(self, model):
        self.objective.check(model)
        eqx.filter_eval_shape(validation_loss, self.objective, model, self.batch, self.key)


class ValidationLosses(AbstractValidation):
    """The loss of an objective, for each model of a stack on a batch of its own.

    Parameters
    ----------
    objective
        Whose loss is taken.
    batches
        A stack of batches.
    key
        Of the draws, which all models share.
    """

    objective: AbstractObjective
    batches: Batch
    key: Key

    def scores(self, models):
        return np.asarray(_jitted_losses(self.objective, models, self.batches, self.key), float)


class CallableValidation(AbstractValidation):
    """A user's function from one model to a number."""

    function: Callable[[EBM], float]

    def scores(self, models):
        return _score_each(self.function, models)


class Run(eqx.Module):
    """A stack of models between two chunks of steps, and at the end.

    Parameters
    ----------
    models
        Of each model the best seen by the validation; without validation the last.
    state
        That of all models.
    data_key
        Of the order of the rows, which all models share.
    steps
        By name, a row for every step and a column for every model, NaN where the model did no step.
    validation
        A row for every validation, a column for every model.
    validated_at
        The steps of the validations.
    done
        How many steps were done.
    ending
        Why the run ended, where it was not for the models themselves.
    """

    models: EBM
    state: TrainState
    data_key: Key
    steps: dict[str, np.ndarray]
    validation: np.ndarray
    validated_at: tuple[int, ...] = eqx.field(static=True, default=())
    done: int = eqx.field(static=True, default=0)
    ending: RESULTS = eqx.field(static=True, default=RESULTS.completed)

    @property
    def losses(self) -> np.ndarray:
        """The training losses, a row for every step and a column for every model."""
        return self.steps["loss"]

    @property
    def interrupted(self) -> bool:
        """Whether KeyboardInterrupt ended the run."""
        return self.ending is RESULTS.interrupted

    @property
    def best(self) -> Float[np.ndarray, " models"]:
        """The least validation score of each model, infinite where there is none."""
        return _or_inf(self.validation).min(axis=0, initial=np.inf)

    @property
    def stale(self) -> Int[np.ndarray, " models"]:
        """How many validations ago each model was at its best."""
        scores = _or_inf(self.validation)
        return np.zeros(scores.shape[1], int) if not len(scores) else len(scores) - 1 - scores.argmin(axis=0)

    def active(self, patience: int | None) -> Bool[np.ndarray, " models"]:
        """Which models continue: those that have not failed, and improved within `patience` validations.

        Parameters
        ----------
        patience
            None: validations stop no model.

        Returns
        -------
        ndarray
            One bool per model.
        """
        alive = ~np.asarray(self.state.failed)
        return alive if patience is None else alive & (self.stale < patience)

    def diverged(self, objective: AbstractObjective) -> Bool[np.ndarray, " models"]:
        """Which models diverged with finite losses, by `has_diverged`.

        Parameters
        ----------
        objective
            By which they were trained.

        Returns
        -------
        ndarray
            One bool per model.
        """
        model, scales = ensembles.take(self.state.model, 0), self.steps.get("scale", np.full_like(self.losses, np.nan))
        columns = zip(self.losses.T, scales.T, strict=True)
        verdicts = [has_diverged(objective, model, *(part[np.isfinite(part)] for part in parts)) for parts in columns]
        return np.array(verdicts) & ~np.asarray(self.state.failed)

    def results(self, objective: AbstractObjective, patience: int | None) -> list[RESULTS]:
        """How each model ended.

        Parameters
        ----------
        objective
            By which they were trained.
        patience
            With which they were trained.

        Returns
        -------
        list of RESULTS
            One per model.
        """
        results = []
        failed, active, diverged = np.asarray(self.state.failed), self.active(patience), self.diverged(objective)
        for i in range(len(failed)):
            result = self.ending if active[i] else RESULTS.stopped_early
            if diverged[i] and result in (RESULTS.completed, RESULTS.stopped_early, RESULTS.exhausted):
                result = RESULTS.diverged
            results.append(RESULTS.non_finite if failed[i] else result)
        return results


def has_diverged(
    objective: AbstractObjective, model: EBM, losses: Float[np.ndarray, " n"], scales: Float[np.ndarray, " m"]
) -> bool:
    """Whether a run whose losses are finite has diverged all the same.

    It has where the loss ends outside of what is `credible` to the objective: too low, or too far above its start and
    above 0, the loss of q. For KL it has also where rounding of |g| moves log p by more than 0.1 nats: beyond 8e5 in
    float32. The median of the last tenth of the steps counts, because single steps of few draws say little.

    Parameters
    ----------
    objective
        By which the model was trained.
    model
        The model at the end.
    losses
        Of every step.
    scales
        The largest |g| of every step, if the objective records it.

    Returns
    -------
    bool
        True where it has.
    """
    if not len(losses):
        return False
    last = max(1, len(losses) // 10)
    (least, rise), end = objective.credible(model), np.median(losses[-last:])
    precision = jnp.finfo(jnp.zeros(0).dtype).eps
    rounding = precision * np.median(scales[-last:]) if len(scales) and isinstance(model.f, KL) else 0.0
    return bool(end < least or end - max(losses[0], 0.0) > rise or rounding > MAX_ROUNDING)


def validation_loss(objective: AbstractObjective, model: EBM, batch: Batch, key: Key) -> Scalar:
    """The loss of rows that are not training rows."""
    state_key, loss_key = jax.random.split(key)
    return objective.loss(model, objective.init(model, key=state_key), batch, key=loss_key)[0]


def _score_each(function: Callable[[EBM], float], models: EBM) -> Float[np.ndarray, " models"]:
    return np.array([float(function(ensembles.take(models, i))) for i in range(ensembles.size(models))])


_jitted_loss = eqx.filter_jit(validation_loss)


def _or_inf(scores: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(scores), np.inf, scores)


@eqx.filter_jit(compiler_options=OPTIONS)  # pyright: ignore
def _jitted_losses(objective: AbstractObjective, models: EBM, batches: Batch, key: Any) -> Float[Array, " models"]:
    return eqx.filter_vmap(lambda model, batch: validation_loss(objective, model, batch, key))(models, batches)
