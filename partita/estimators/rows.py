"""Rows at the border of the estimators: X and y as users give them become checked data."""

import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_consistent_length

from ..structures import AbstractRankings
from ..training import Features
from .arguments import AbstractArguments, Codec
from .cross_fitting import Data
from .features import Scaler, read_features, scaled
from .triplets import AbstractTriplets


class Rows(NamedTuple):
    """Checked rows, and their X before it was scaled, which the reference takes."""

    data: Data
    raw: Any


class RowReader(NamedTuple):
    """Reads rows as the training rows were read: `columns` is where scikit-learn noted the number and names of the
    features, the codec knows the labels, the scaler the scale of each feature."""

    columns: AbstractArguments
    codec: Codec
    scaler: Scaler | None

    def features(self, X: Any) -> tuple[Features, Any]:
        """X as the model takes it, and before it was scaled."""
        raw = read_features(X, self.columns)
        return scaled(raw, self.scaler, self.columns.dtype), raw

    def rows(self, X: Any, y: Any, weight: Any = None, triplets: AbstractTriplets | None = None) -> Rows:
        """More rows than those that were learned from."""
        x, raw = self.features(X)
        check_consistent_length(raw, y)
        y, mask = self.codec.encode(y)
        weight = self.columns._row_weights(weight, raw, y, self.codec)
        target = None if triplets is None else triplets.target(self.codec, y, mask)
        return Rows(Data(x, y, mask, weight, target=target), raw)

    def validation(self, eval_set: tuple[Any, ...], triplets: AbstractTriplets | None) -> Rows:
        """The rows of `eval_set`, which have what the training rows have."""
        parts = ("X", "y") if triplets is None else ("X", "y", triplets.keyword)
        if len(eval_set) != len(parts):
            raise ValueError(f"eval_set must be ({', '.join(parts)}), as the rows of fit; got {len(eval_set)} parts.")
        X, y, *values = eval_set
        return self.rows(X, y, triplets=None if triplets is None else type(triplets)(*values))


def read_first(
    estimator: AbstractArguments, X: Any, y: Any, weight: Any, classes: Any, triplets: AbstractTriplets | None = None
) -> tuple[RowReader, Rows]:
    """The training rows without those of weight 0, and what was learned from them: columns, labels and scales."""
    # scikit-learn notes what it learns of the columns on the estimator that it is given.
    columns = copy.copy(estimator)
    x = read_features(X, columns, fitting=True)
    if y is None:
        raise ValueError(f"This {type(estimator).__name__} requires y to be passed, but the target y is None.")
    check_consistent_length(x, y)
    codec, (y, mask) = estimator._codec.fit_encode(y, classes)
    weight = estimator._row_weights(weight, x, y, codec)
    target = None if triplets is None else triplets.target(codec, y, mask)
    if weight is not None and not weight.all():
        rows = np.flatnonzero(weight)
        x, y, weight = x[rows], y[rows], weight[rows]
        mask, target = (None if part is None else part[rows] for part in (mask, target))
    scaler = Scaler.fit(x, weight, dtype=estimator.dtype) if estimator.standardize else None
    data = Data(scaled(x, scaler, estimator.dtype), y, mask, weight, target=target)
    return RowReader(columns, codec, scaler), Rows(data, x)


def read_known(given: Any, codec: Codec, n: int) -> np.ndarray:
    """What is `given` of the outputs of n rows, as integers, -1 where nothing is."""
    labels = codec.classes
    if isinstance(given, dict):
        place = {label: j for j, label in enumerate(labels)}
        if unknown := set(given) - set(place):
            raise ValueError(f"given names {sorted(map(str, unknown))}, but the labels are {list(place)[:20]}.")
        known = np.full(len(labels), np.nan)
        known[[place[label] for label in given]] = _numbers(list(given.values()))
    else:
        known = _numbers(given)
        if known.shape != (n, len(labels)):
            raise ValueError(f"given must be a dict by label or a table of shape {(n, len(labels))}.")
    largest = len(labels) - 1 if isinstance(codec.space, AbstractRankings) else 1
    bad = ~np.isnan(known) & ~np.isin(known, np.arange(largest + 1))
    if bad.any():
        value, label = known[bad][0], labels[np.argwhere(bad)[0][-1]]
        raise ValueError(
            f"What is given of a label is a whole number from 0 to {largest}, or NaN where nothing is known; got "
            f"{value:g} for {label!r}."
        )
    return np.where(np.isnan(known), -1, known).astype(int)


def _numbers(values: Any) -> np.ndarray:
    try:
        return np.asarray(values, float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"What is given of labels must be numbers; got {values!r}.") from None
