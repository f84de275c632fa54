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
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import has_fit_parameter

from .._types import PyTree
from ..measures import AbstractMeasure, Mallows, PlackettLuce, ProductBernoulli, Uniform
from ..spaces import AbstractSpace, Hypercube, Permutations

# Least probabilities that a classifier may give, of which the one is taken that suits unseen rows best.
FLOORS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
FAMILIES = ("plackett-luce", "mallows")


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
        if isinstance(self.q, ProductBernoulli):
            return _bernoulli(probabilities(self.fitted, x, self.q.space.k), self.floor)
        return _ranked(ranks(self.fitted, x, self.q.space.k), self.scale, self.family)


def fit_reference(
    reference: Any,
    x: Any,
    y: np.ndarray,
    space: AbstractSpace,
    *,
    folds: Sequence[np.ndarray] = (),
    weight: np.ndarray | None = None,
    family: str = "plackett-luce",
    rng: np.random.RandomState | None = None,
) -> tuple[Reference, PyTree]:
    """The reference, and the measures of the training rows, from estimators that have not seen them."""
    if isinstance(reference, AbstractMeasure):
        return Reference(reference), None
    if isinstance(reference, str):
        if reference != "uniform":
            raise ValueError(f"reference must be 'uniform', a measure of partita, or an estimator; got {reference!r}.")
        return Reference(Uniform(space)), None
    _check(reference, space, family, folds)
    ranked = isinstance(space, Permutations)
    answer = ranks if ranked else probabilities
    unseen = np.zeros(y.shape)
    for fold in folds:
        seen = np.setdiff1d(np.arange(len(y)), fold)
        unseen[fold] = answer(_fitted(reference, x, y, weight, seen, rng), x[fold], space.k)
    fitted = _fitted(reference, x, y, weight, np.arange(len(y)), rng)
    if ranked:
        scale = (
            PlackettLuce.fit_scale(-unseen, y) if family == "plackett-luce" else Mallows.fit_spread(_centers(unseen), y)
        )
        measures = _ranked(unseen, float(scale), family)
        return Reference(_first(measures), fitted, scale=float(scale), family=family), measures
    floors = [-_likelihood(unseen, y, floor) for floor in FLOORS]
    measures = _bernoulli(unseen, FLOORS[int(np.argmin(floors))])
    return Reference(_first(measures), fitted, floor=FLOORS[int(np.argmin(floors))]), measures


def probabilities(classifier: Any, x: Any, k: int) -> np.ndarray:
    """P(label j is on), (n, k), whichever way a multilabel classifier says it."""
    said = classifier.predict_proba(x)
    if not isinstance(said, list):
        said = np.asarray(said)
        if said.shape != (x.shape[0], k):
            raise ValueError(f"The reference's predict_proba must give shape {(x.shape[0], k)}; got {said.shape}.")
        return said
    # One table per label, whose columns are the classes seen: a label that was always on has no column for off.
    seen = getattr(classifier, "classes_", [np.arange(2)] * k)
    return np.stack([_of_one(table, classes) for table, classes in zip(said, seen, strict=True)], axis=1)


def ranks(regressor: Any, x: Any, k: int) -> np.ndarray:
    """Predicted ranks (n, k), real numbers."""
    said = np.asarray(regressor.predict(x), float)
    if said.shape != (x.shape[0], k) or not np.isfinite(said).all():
        raise ValueError(f"The reference must predict finite ranks of shape {(x.shape[0], k)}; got {said.shape}.")
    return said


def _of_one(table: np.ndarray, classes: np.ndarray) -> np.ndarray:
    on = np.flatnonzero(np.asarray(classes) == 1)
    return table[:, on[0]] if on.size else np.zeros(len(table))


def _fitted(reference: Any, x: Any, y: np.ndarray, weight: Any, rows: np.ndarray, rng: Any) -> Any:
    made = clone(reference)
    # Seeds that were left open come from ours: the same random_state gives the same reference.
    seeds = {name: rng.randint(2**31 - 1) for name, value in sorted(made.get_params().items()) if _is_open(name, value)}
    made.set_params(**seeds)
    options = {"sample_weight": weight[rows]} if weight is not None and has_fit_parameter(made, "sample_weight") else {}
    return made.fit(x[rows], y[rows], **options)


def _is_open(name: str, value: Any) -> bool:
    return name.split("__")[-1] == "random_state" and value is None


def _bernoulli(p: np.ndarray, floor: float) -> ProductBernoulli:
    return ProductBernoulli(jnp.asarray(scipy.special.logit(np.clip(p, floor, 1 - floor)), float))


def _likelihood(p: np.ndarray, y: np.ndarray, floor: float) -> float:
    p = np.clip(p, floor, 1 - floor)
    return float(np.where(y == 1, np.log(p), np.log1p(-p)).sum())


def _ranked(predicted: np.ndarray, scale: float, family: str) -> AbstractMeasure:
    if family == "plackett-luce":
        return PlackettLuce(jnp.asarray(-scale * predicted, float))
    return Mallows(_centers(predicted), jnp.full(len(predicted), scale))


def _centers(predicted: np.ndarray) -> Any:
    return jnp.asarray(np.argsort(np.argsort(predicted, axis=1, kind="stable"), axis=1), int)


def _first(measures: AbstractMeasure) -> AbstractMeasure:
    """One row's measure, which stands for its family in the model."""
    return jax.tree.map(lambda leaf: leaf[0], measures)


def _check(reference: Any, space: AbstractSpace, family: str, folds: Sequence[np.ndarray]) -> None:
    ranked = isinstance(space, Permutations)
    needed = "predict" if ranked else "predict_proba"
    if not (isinstance(reference, BaseEstimator) or hasattr(reference, "fit")) or not hasattr(reference, needed):
        raise ValueError(
            f"reference must be 'uniform', a measure of partita, or an estimator with {needed}; got {reference!r}."
        )
    if not isinstance(space, Hypercube | Permutations):
        raise ValueError("A reference from an estimator serves label sets and rankings, not one class per row.")
    if family not in FAMILIES:
        raise ValueError(f"reference_family must be one of {FAMILIES}; got {family!r}.")
    if len(folds) < 2:
        raise ValueError("A reference from an estimator is fitted out of fold, which needs at least 2 folds of rows.")
