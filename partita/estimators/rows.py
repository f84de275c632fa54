"""X and y as users pass them, read into checked data: converted, checked once, and brought to one scale."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import equinox as eqx
import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_consistent_length, validate_data

from ..structures import AbstractRankings
from ..training import Features
from .arguments import AbstractArguments, AbstractTriplets
from .codecs import AbstractCodec
from .codecs.tables import is_frame, is_missing
from .cross_fitting import Data

# Deviations below this part of a column's largest value are the rounding of float32, not a signal.
ROUNDING = 1e-7


class Scaler(eqx.Module):
    """Brings finite features to one scale: (x - mean) / scale, clipped to +-clip against outliers in new rows.

    Dense x (n, d): mean and standard deviation of each column; a constant one is only centered. Sparse x: not centered
    nor clipped, each column divided by its root mean square, as csr. Tensors (more than two axes) are not scaled.

    >>> Scaler.fit([[1.0, 5.0], [3.0, 5.0]])([[1.0, 5.0], [4.0, 6.0]]).tolist()
    [[-1.0, 0.0], [2.0, 1.0]]
    """

    mean: np.ndarray
    scale: np.ndarray
    shape: tuple[int, ...] = eqx.field(static=True)
    sparse: bool = eqx.field(static=True)
    clip: float = eqx.field(static=True)
    dtype: str = eqx.field(static=True)

    @classmethod
    def fit(
        cls, x: Any, weight: Any = None, *, clip: float = 10.0, dtype: Literal["float32", "float64"] = "float32"
    ) -> "Scaler":
        """Learn the scales of the rows x, weighted if need be."""
        if not clip > 0:
            raise ValueError(f"clip must be positive; got {clip}. Use float('inf') not to clip.")
        sparse = scipy.sparse.issparse(x)
        x = _to_double(x)
        share = _shares(weight, x.shape[0])
        if x.ndim > 2:
            mean, scale, clip = np.zeros(()), np.ones(()), np.inf
        elif sparse:
            mean, scale, clip = np.zeros(x.shape[1]), _root_mean_square(x, share), np.inf
        else:
            mean, scale = _mean_and_scale(x[share > 0], share[share > 0])
        return cls(mean, scale, x.shape[1:], sparse, float(clip), np.dtype(dtype).name)

    def __call__(self, x: Any) -> Any:
        x = _to_double(x)
        if x.shape[1:] != self.shape:
            raise ValueError(f"x must have features of shape {self.shape}, as in fit; got {x.shape[1:]}.")
        if scipy.sparse.issparse(x):
            if not self.sparse:
                raise ValueError("The features were dense in fit; sparse ones cannot be centered. Pass x.toarray().")
            with _raise_on_overflow(self.dtype):
                x.data /= self.scale[x.indices]
                return x.astype(self.dtype)
        # With a finite clip, values that overflow are clipped.
        with _raise_on_overflow(self.dtype) if np.isinf(self.clip) else np.errstate(over="ignore"):
            # Divided first: the difference of two huge numbers may overflow.
            scaled = x / self.scale - self.mean / self.scale
            return np.clip(scaled, -self.clip, self.clip).astype(self.dtype)


class Rows(NamedTuple):
    """Checked rows, and their X before scaling, which the reference takes."""

    data: Data
    raw: Any


class RowReader(NamedTuple):
    """Reads rows as the training rows were read.

    `columns` is an estimator on which scikit-learn has set the number and names of the features.
    """

    columns: AbstractArguments
    codec: AbstractCodec
    scaler: Scaler | None

    def features(self, X: Any) -> tuple[Features, Any]:
        """X as the model takes it, and before scaling."""
        raw = read_features(X, self.columns)
        return scale_features(raw, self.scaler, self.columns.dtype), raw

    def rows(self, X: Any, y: Any, weight: Any = None, triplets: AbstractTriplets | None = None) -> Rows:
        """Read rows other than the training rows."""
        x, raw = self.features(X)
        check_consistent_length(raw, y)
        y, mask = self.codec.encode(y)
        weight = self.columns._row_weights(weight, raw, y, self.codec)
        target = None if triplets is None else triplets.target(self.codec, y, mask)
        return Rows(Data(x, y, mask, weight, target=target), raw)

    def validation(self, eval_set: tuple[Any, ...], triplets: AbstractTriplets | None) -> Rows:
        """Read the rows of `eval_set`, which have the same parts as the training rows."""
        parts = ("X", "y") if triplets is None else ("X", "y", triplets.keyword)
        if len(eval_set) != len(parts):
            raise ValueError(f"eval_set must be ({', '.join(parts)}), as the rows of fit; got {len(eval_set)} parts.")
        X, y, *values = eval_set
        return self.rows(X, y, triplets=None if triplets is None else type(triplets)(*values))


def read_first(
    estimator: AbstractArguments, X: Any, y: Any, weight: Any, classes: Any, triplets: AbstractTriplets | None = None
) -> tuple[RowReader, Rows]:
    """Read the training rows, without those of weight 0; and the reader with the columns, labels and scales of them."""
    # scikit-learn sets the number and names of the features on the estimator that it validates for.
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
    data = Data(scale_features(x, scaler, estimator.dtype), y, mask, weight, target=target)
    return RowReader(columns, codec, scaler), Rows(data, x)


def read_known(given: Any, codec: AbstractCodec, n: int) -> np.ndarray:
    """The argument `given` for n rows as integers (n, k) or (k,), -1 where nothing is known."""
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
            f"given must hold whole numbers from 0 to {largest}, or NaN where nothing is known; got {value:g} for "
            f"{label!r}."
        )
    return np.where(np.isnan(known), -1, known).astype(int)


def check_columns(X: Any) -> None:
    """Raise where columns of a frame hold no numbers, and name them.

    Everything else about X is checked by scikit-learn's `check_array`, which names no column.
    """
    if is_frame(X):
        kinds = enumerate(zip(X.columns, X.dtypes, strict=True))
        bad = {name: str(dtype) for i, (name, dtype) in kinds if not _is_number(dtype, X, i)}
        if bad:
            raise ValueError(
                f"x must hold numbers; got columns of text, categories or dates: {bad}. Encode them first, "
                "with sklearn.preprocessing.OneHotEncoder for instance."
            )


def read_features(X: Any, estimator: Any, fitting: bool = False) -> Any:
    """X as an array or csr of finite numbers: the one place where the estimators convert X and check its values.

    When `fitting`, the number and names of the features are set on the estimator; else they must be the same.
    """
    check_columns(X)
    return validate_data(
        estimator,
        X,
        reset=fitting,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        allow_nd=True,
        ensure_min_samples=2 if fitting else 1,
    )


def scale_features(x: Any, scaler: "Scaler | None", dtype: Literal["float32", "float64"]) -> Features:
    """Features as the model takes them: scaled, in its precision."""
    if scaler is not None:
        return Features(scaler(x))
    with _raise_on_overflow(dtype):
        return Features(x.astype(dtype))


@contextlib.contextmanager
def _raise_on_overflow(dtype: str) -> Iterator[None]:
    """Raise where finite values overflow; the processor reports it, so that no second pass over x is needed."""
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError as error:
        raise ValueError(f"X has values that are too large for {dtype}. Scale or clip them first.") from error


def _numbers(values: Any) -> np.ndarray:
    try:
        return np.asarray(values, float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"given must hold numbers; got {values!r}.") from None


def _is_number(dtype: Any, frame: Any, i: int) -> bool:
    """Whether a column of pandas (whose types have kinds) or polars holds numbers or booleans."""
    if not hasattr(dtype, "kind"):
        return dtype.is_numeric() or str(dtype) == "Boolean"
    if str(dtype) == "object":
        values = frame.iloc[:, i]
        return all(
            is_missing(value) or isinstance(value, bool | int | float | np.number | np.bool_) for value in values
        )
    return dtype.kind in "fiub"


def _to_double(x: Any) -> Any:
    """x in double precision, as a copy if it is sparse."""
    if scipy.sparse.issparse(x):
        x = x.tocsr().astype(float, copy=True)
        x.sum_duplicates()
    else:
        x = np.asarray(x, float)
    if x.ndim < 2 or not x.shape[0]:
        raise ValueError(f"x must have rows and features, shape (n, d); got shape {x.shape}.")
    return x


def _shares(weight: Any, n: int) -> np.ndarray:
    """Weights that sum to one."""
    if weight is None:
        return np.full(n, 1 / n)
    weight = np.asarray(weight, float)
    if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise ValueError(f"weight must be {n} finite numbers, not negative nor all zero; got shape {weight.shape}.")
    weight = weight / weight.max()
    return weight / weight.sum()


def _mean_and_scale(x: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each column. Squares are taken of parts of the largest value, so that 1e300 does not overflow."""
    peak = _peak(np.abs(x).max(axis=0))
    part = x / peak
    mean = share @ part
    deviation = np.sqrt(share @ (part - mean) ** 2)
    constant = x.min(axis=0) == x.max(axis=0)
    # Noise on a constant is divided by the constant, so that it stays small.
    scale = np.where(deviation > ROUNDING, deviation * peak, np.maximum(peak, 1))
    return np.where(constant, x[0], mean * peak), np.where(constant, 1, scale)


def _root_mean_square(x: Any, share: np.ndarray) -> np.ndarray:
    d = x.shape[1]
    largest = np.zeros(d)
    np.maximum.at(largest, x.indices, np.abs(x.data))
    peak = _peak(largest)
    row = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    square = np.bincount(x.indices, share[row] * (x.data / peak[x.indices]) ** 2, minlength=d)
    return np.where(square > 0, np.sqrt(square), 1) * peak


def _peak(largest: np.ndarray) -> np.ndarray:
    # Products of smaller values with a deviation would underflow: such columns count as zero.
    return np.where(largest > 1e-290, largest, 1)
