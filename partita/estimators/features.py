"""X at the border of the estimators: converted and checked once, and brought to one scale."""

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

import equinox as eqx
import numpy as np
import scipy.sparse
from sklearn.utils.validation import validate_data

from ..training import Features
from .codecs.tables import absent, is_frame

__all__ = ["Scaler", "check_columns", "read_features", "scaled"]

# Deviations below this part of a column's largest value are the rounding of float32, not a signal.
ROUNDING = 1e-7


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


def scaled(x: Any, scaler: "Scaler | None", dtype: Literal["float32", "float64"]) -> Features:
    """Features that have been read, as the model takes them."""
    if scaler is not None:
        return Features(scaler(x))
    with refusing_overflow(dtype):
        return Features(x.astype(dtype))


@contextlib.contextmanager
def refusing_overflow(dtype: str) -> Iterator[None]:
    """Finite values become infinite only by overflow, which the processor notices: no other pass is needed."""
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError as error:
        raise ValueError(f"X has values that are too large for {dtype}. Scale or clip them first.") from error


class Scaler(eqx.Module):
    """Brings finite features to one scale: (x - mean) / scale, then within +-clip, so that no absurd value reaches the
    logits.

    Dense x (n, d): mean and standard deviation of each column; a constant one is only centered. Sparse x: not centered
    nor clipped, each column divided by its root mean square, as csr. Tensors (more than two axes) stay as they are.

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
        """Scales of the rows x, each counting by its weight."""
        if not clip > 0:
            raise ValueError(f"clip must be positive; got {clip}. Use float('inf') not to clip.")
        sparse = scipy.sparse.issparse(x)
        x = _double(x)
        kept = _shares(weight, x.shape[0])
        if x.ndim > 2:
            mean, scale, clip = np.zeros(()), np.ones(()), np.inf
        elif sparse:
            mean, scale, clip = np.zeros(x.shape[1]), _root_mean_square(x, kept), np.inf
        else:
            mean, scale = _mean_and_scale(x[kept > 0], kept[kept > 0])
        return cls(mean, scale, x.shape[1:], sparse, float(clip), np.dtype(dtype).name)

    def __call__(self, x: Any) -> Any:
        x = _double(x)
        if x.shape[1:] != self.shape:
            raise ValueError(f"x must have features of shape {self.shape}, as in fit; got {x.shape[1:]}.")
        if scipy.sparse.issparse(x):
            if not self.sparse:
                raise ValueError("The features were dense in fit; sparse ones cannot be centered. Give x.toarray().")
            with refusing_overflow(self.dtype):
                x.data /= self.scale[x.indices]
                return x.astype(self.dtype)
        # What overflows is clipped, where anything is.
        with refusing_overflow(self.dtype) if np.isinf(self.clip) else np.errstate(over="ignore"):
            # Each by itself: of two huge numbers the difference may overflow.
            scaled = x / self.scale - self.mean / self.scale
            return np.clip(scaled, -self.clip, self.clip).astype(self.dtype)


def _is_number(dtype: Any, frame: Any, i: int) -> bool:
    """Numbers and truth values, of pandas (which has kinds) or polars; of columns of objects the values tell."""
    if not hasattr(dtype, "kind"):
        return dtype.is_numeric() or str(dtype) == "Boolean"
    if str(dtype) == "object":
        values = frame.iloc[:, i]
        return all(absent(value) or isinstance(value, bool | int | float | np.number | np.bool_) for value in values)
    return dtype.kind in "fiub"


def _double(x: Any) -> Any:
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
    # Noise on a constant: divided by the constant it stays as small as it is.
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
    # Below, a product with a deviation would underflow: such columns are as good as zero.
    return np.where(largest > 1e-290, largest, 1)
