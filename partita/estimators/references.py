"""A fitted classifier or regressor of scikit-learn as the reference q(y|x).

The energy is trained on what the estimator says of rows that it was not fitted on: with probabilities of its own
training rows the energy would learn to trust them, and find none such at prediction.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from ..structures import AbstractLabels, AbstractMeasure, AbstractRankings, AbstractSpace, Uniform
from ..types import PyTree
from .names import LABEL_FAMILY, RANKING_FAMILIES, is_one_class

# Least probabilities that a classifier may give, of which the one is taken that suits unseen rows best.
FLOORS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)


class Reference(eqx.Module):
    """What makes a measure of each row: a fitted estimator, and how to read its answers. Without one, `q` for all."""

    q: AbstractMeasure
    fitted: Any = None
    floor: float = 0.0
    scale: float = 1.0
    family: str = eqx.field(static=True, default="plackett-luce")

    def __call__(self, x: Any) -> PyTree:
        """One measure per row of x, or None where one q serves all rows."""
        if self.fitted is None:
            return None
        k = self.q.space.shape[0]
        if isinstance(self.q, LABEL_FAMILY):
            return _bernoulli(probabilities(self.fitted, x, k), self.floor)
        return _ranked(ranks(self.fitted, x, k), self.scale, self.family)


def fit_reference(
    reference: Any,
    x: Any,
    y: np.ndarray,
    space: AbstractSpace,
    *,
    mask: np.ndarray | None = None,
    folds: Sequence[np.ndarray] = (),
    weight: np.ndarray | None = None,
    family: str = "plackett-luce",
    rng: np.random.RandomState | None = None,
) -> tuple[Reference, PyTree]:
    """The reference, and the measures of the training rows, from estimators that have not seen them."""
    if isinstance(reference, str | AbstractMeasure):
        return Reference(Uniform(space) if isinstance(reference, str) else reference), None
    rng = np.random.RandomState(0) if rng is None else rng
    ranked = isinstance(space, AbstractRankings)
    targets, drawn = _completed(y, mask, rng) if ranked else (y, y)
    # A missing label says neither on nor off: such rows are predicted, but not learned from.
    whole = np.arange(len(y)) if ranked or mask is None else np.flatnonzero(~mask.any(axis=1))
    _check(space, folds, whole)
    answer = ranks if ranked else probabilities
    unseen = np.zeros(y.shape)
    for fold in folds:
        fitted = _fitted(reference, x, targets, weight, np.setdiff1d(whole, fold), rng)
        unseen[fold] = answer(fitted, x[fold], y.shape[1])
    fitted = _fitted(reference, x, targets, weight, whole, rng)
    if ranked:
        scale = _scale(unseen, drawn, family)
        measures = _ranked(unseen, scale, family)
        return Reference(_first(measures), fitted, scale=scale, family=family), measures
    floor = max(FLOORS, key=lambda floor: _likelihood(unseen[whole], y[whole], floor))
    measures = _bernoulli(unseen, floor)
    return Reference(_first(measures), fitted, floor=floor), measures


def probabilities(classifier: Any, x: Any, k: int) -> np.ndarray:
    """P(label j is on), (n, k), whichever way a multilabel classifier says it."""
    message = classifier.predict_proba(x)
    if isinstance(message, list):
        # One table per label, whose columns are the classes seen: a label that was always on has no column for off.
        seen = getattr(classifier, "classes_", [np.arange(2)] * k)
        message = np.stack([_of_one(table, classes) for table, classes in zip(message, seen, strict=True)], axis=1)
    message = np.asarray(message, float)
    if message.shape != (x.shape[0], k) or not ((message >= 0) & (message <= 1)).all():
        raise ValueError(
            f"The reference's predict_proba must give probabilities of shape {(x.shape[0], k)}, or a table for each "
            f"label; got shape {message.shape}, values from {message.min()} to {message.max()}."
        )
    return message


def ranks(regressor: Any, x: Any, k: int) -> np.ndarray:
    """Predicted ranks (n, k), real numbers."""
    message = np.asarray(regressor.predict(x), float)
    if message.shape != (x.shape[0], k) or not np.isfinite(message).all():
        raise ValueError(f"The reference must predict finite ranks of shape {(x.shape[0], k)}; got {message.shape}.")
    return message


def _of_one(table: np.ndarray, classes: np.ndarray) -> np.ndarray:
    on = np.flatnonzero(np.asarray(classes) == 1)
    return table[:, on[0]] if on.size else np.zeros(len(table))


def _completed(y: np.ndarray, mask: np.ndarray | None, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Rankings with the mean rank for tied labels, which a regressor learns; and with ties broken by chance."""
    means, drawn = y.astype(float), y.copy()
    if mask is None:
        return means, drawn
    for i in np.flatnonzero(mask.any(axis=1)):
        for group in np.unique(mask[i][mask[i] > 0]):
            tied = np.flatnonzero(mask[i] == group)
            means[i, tied], drawn[i, tied] = y[i, tied].mean(), rng.permutation(y[i, tied])
    return means, drawn


def _scale(predicted: np.ndarray, y: np.ndarray, family: str) -> float:
    """How sharply rankings follow the predicted ranks."""
    if family == "plackett-luce":
        return float(RANKING_FAMILIES[family].fit_scale(jnp.asarray(-predicted, float), jnp.asarray(y)))
    return float(RANKING_FAMILIES[family].fit_spread(_centers(predicted), jnp.asarray(y)))


def _fitted(
    reference: Any, x: Any, y: np.ndarray, weight: np.ndarray | None, rows: np.ndarray, rng: np.random.RandomState
) -> Any:
    result: Any = clone(reference)
    # Seeds that were left open come from ours: the same random_state gives the same reference.
    seeds = {
        name: rng.randint(2**31 - 1) for name, value in sorted(result.get_params().items()) if _is_open(name, value)
    }
    result.set_params(**seeds)
    options = (
        {"sample_weight": weight[rows]} if weight is not None and has_fit_parameter(result, "sample_weight") else {}
    )
    return result.fit(x[rows], y[rows], **options)


def _is_open(name: str, value: Any) -> bool:
    return name.split("__")[-1] == "random_state" and value is None


def _bernoulli(p: np.ndarray, floor: float) -> AbstractMeasure:
    return LABEL_FAMILY(jnp.asarray(scipy.special.logit(np.clip(p, floor, 1 - floor)), float))


def _likelihood(p: np.ndarray, y: np.ndarray, floor: float) -> float:
    p = np.clip(p, floor, 1 - floor)
    return float(np.where(y == 1, np.log(p), np.log1p(-p)).sum())


def _ranked(predicted: np.ndarray, scale: float, family: str) -> AbstractMeasure:
    if family == "plackett-luce":
        return RANKING_FAMILIES[family](jnp.asarray(-scale * predicted, float))
    return RANKING_FAMILIES[family](_centers(predicted), jnp.full(len(predicted), scale))


def _centers(predicted: np.ndarray) -> Any:
    return jnp.asarray(np.argsort(np.argsort(predicted, axis=1, kind="stable"), axis=1), int)


def _first(measures: AbstractMeasure) -> AbstractMeasure:
    """One row's measure, which stands for its family in the model."""
    return jax.tree.map(lambda leaf: leaf[0], measures)


def check_reference(reference: Any, needed: str, family: str = "plackett-luce") -> None:
    """What can be said before the data are seen."""
    fine = reference == "uniform" if isinstance(reference, str) else isinstance(reference, AbstractMeasure)
    if not fine and not (hasattr(reference, "fit") and hasattr(reference, needed)):
        raise ValueError(
            f"reference must be 'uniform', a measure of partita, or an estimator with {needed}; got {reference!r}."
        )
    if family not in RANKING_FAMILIES:
        raise ValueError(f"reference_family must be one of {tuple(RANKING_FAMILIES)}; got {family!r}.")


def _check(space: AbstractSpace, folds: Sequence[np.ndarray], whole: np.ndarray) -> None:
    if is_one_class(space) or not isinstance(space, AbstractLabels | AbstractRankings):
        raise ValueError("A reference from an estimator serves label sets and rankings, not one class per row.")
    if len(folds) < 2 or any(np.isin(whole, fold).all() for fold in folds):
        raise ValueError(
            f"A reference from an estimator is fitted out of fold, which needs at least 10 rows, and more than one "
            f"without missing labels; got {len(whole)} whole rows."
        )
