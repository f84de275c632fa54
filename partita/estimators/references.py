"""A fitted classifier or regressor of scikit-learn as the reference q(y|x).

The energy is trained with predictions for rows that the estimator was not fitted on. Predictions for its own training
rows are more certain than those for new rows, and the energy would rely on them.
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

# Probabilities of a classifier are clipped to at least one of these, whichever suits unseen rows best.
FLOORS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)


class Reference(eqx.Module):
    """Maps rows to measures q: by a fitted estimator, or one `q` for all rows where `fitted` is None."""

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
            return _label_measures(probabilities(self.fitted, x, k), self.floor)
        return _ranking_measures(ranks(self.fitted, x, k), self.scale, self.family)


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
    """The reference, and the measures of the training rows by estimators that were not fitted on them."""
    if isinstance(reference, str | AbstractMeasure):
        return Reference(Uniform(space) if isinstance(reference, str) else reference), None
    rng = np.random.RandomState(0) if rng is None else rng
    ranked = isinstance(space, AbstractRankings)
    targets, completed = _complete_ranks(y, mask, rng) if ranked else (y, y)
    # Rows with missing labels are predicted, but not learned from.
    whole = np.arange(len(y)) if ranked or mask is None else np.flatnonzero(~mask.any(axis=1))
    _check(space, folds, whole)
    predict = ranks if ranked else probabilities
    predictions = np.zeros(y.shape)
    for fold in folds:
        estimator = _fit(reference, x, targets, weight, np.setdiff1d(whole, fold), rng)
        predictions[fold] = predict(estimator, x[fold], y.shape[1])
    estimator = _fit(reference, x, targets, weight, whole, rng)
    if ranked:
        scale = _fit_scale(predictions, completed, family)
        measures = _ranking_measures(predictions, scale, family)
        return Reference(_first(measures), estimator, scale=scale, family=family), measures
    floor = max(FLOORS, key=lambda floor: _likelihood(predictions[whole], y[whole], floor))
    measures = _label_measures(predictions, floor)
    return Reference(_first(measures), estimator, floor=floor), measures


def probabilities(classifier: Any, x: Any, k: int) -> np.ndarray:
    """P(label j is on), (n, k), from a table of all labels or a list of one table per label."""
    p = classifier.predict_proba(x)
    if isinstance(p, list):
        # The columns of a label's table are the classes in its training rows: off, on, or only one of them.
        classes = getattr(classifier, "classes_", [np.arange(2)] * k)
        p = np.stack([_column_on(table, values) for table, values in zip(p, classes, strict=True)], axis=1)
    p = np.asarray(p, float)
    if p.shape != (x.shape[0], k) or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(
            f"The reference's predict_proba must return probabilities of shape {(x.shape[0], k)}, or a table for each "
            f"label; got shape {p.shape}, values from {p.min()} to {p.max()}."
        )
    return p


def ranks(regressor: Any, x: Any, k: int) -> np.ndarray:
    """Predicted ranks (n, k), real numbers."""
    values = np.asarray(regressor.predict(x), float)
    if values.shape != (x.shape[0], k) or not np.isfinite(values).all():
        raise ValueError(f"The reference must predict finite ranks of shape {(x.shape[0], k)}; got {values.shape}.")
    return values


def _column_on(table: np.ndarray, classes: np.ndarray) -> np.ndarray:
    on = np.flatnonzero(np.asarray(classes) == 1)
    return table[:, on[0]] if on.size else np.zeros(len(table))


def _complete_ranks(
    y: np.ndarray, mask: np.ndarray | None, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Rankings with the mean rank for tied labels, which a regressor learns; and with ties broken at random."""
    means, completed = y.astype(float), y.copy()
    if mask is None:
        return means, completed
    for i in np.flatnonzero(mask.any(axis=1)):
        for group in np.unique(mask[i][mask[i] > 0]):
            tied = np.flatnonzero(mask[i] == group)
            means[i, tied], completed[i, tied] = y[i, tied].mean(), rng.permutation(y[i, tied])
    return means, completed


def _fit_scale(predicted: np.ndarray, y: np.ndarray, family: str) -> float:
    """The concentration of rankings around the predicted ranks."""
    if family == "plackett-luce":
        return float(RANKING_FAMILIES[family].fit_scale(jnp.asarray(-predicted, float), jnp.asarray(y)))
    return float(RANKING_FAMILIES[family].fit_spread(_centers(predicted), jnp.asarray(y)))


def _fit(
    reference: Any, x: Any, y: np.ndarray, weight: np.ndarray | None, rows: np.ndarray, rng: np.random.RandomState
) -> Any:
    estimator: Any = clone(reference)
    # Seeds that are None are drawn from ours: the same random_state gives the same reference.
    parameters = sorted(estimator.get_params().items())
    unset = [name for name, value in parameters if name.split("__")[-1] == "random_state" and value is None]
    estimator.set_params(**{name: rng.randint(2**31 - 1) for name in unset})
    if weight is None or not has_fit_parameter(estimator, "sample_weight"):
        return estimator.fit(x[rows], y[rows])
    return estimator.fit(x[rows], y[rows], sample_weight=weight[rows])


def _label_measures(p: np.ndarray, floor: float) -> AbstractMeasure:
    return LABEL_FAMILY(jnp.asarray(scipy.special.logit(np.clip(p, floor, 1 - floor)), float))


def _likelihood(p: np.ndarray, y: np.ndarray, floor: float) -> float:
    p = np.clip(p, floor, 1 - floor)
    return float(np.where(y == 1, np.log(p), np.log1p(-p)).sum())


def _ranking_measures(predicted: np.ndarray, scale: float, family: str) -> AbstractMeasure:
    if family == "plackett-luce":
        return RANKING_FAMILIES[family](jnp.asarray(-scale * predicted, float))
    return RANKING_FAMILIES[family](_centers(predicted), jnp.full(len(predicted), scale))


def _centers(predicted: np.ndarray) -> Any:
    return jnp.asarray(np.argsort(np.argsort(predicted, axis=1, kind="stable"), axis=1), int)


def _first(measures: AbstractMeasure) -> AbstractMeasure:
    """The measure of one row, which stands for its family in the model."""
    return jax.tree.map(lambda leaf: leaf[0], measures)


def check_reference(reference: Any, needed: str, family: str = "plackett-luce") -> None:
    """Raise for a reference that suits no data; `needed` is the method that an estimator must have."""
    is_measure = reference == "uniform" if isinstance(reference, str) else isinstance(reference, AbstractMeasure)
    if not is_measure and not (hasattr(reference, "fit") and hasattr(reference, needed)):
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
