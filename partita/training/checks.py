"""Rows at the border: x, y, weights, masks and references are checked here, and nowhere else.

Bad input gets an exception that says what was expected, what came, and what to do.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from ..model import EBM
from ..shapes import bucket, pad_rows
from ..structures import AbstractSpace
from ..types import Array, PyTree

__all__ = ["Features"]


class Features:
    """Rows of x that have been checked: whatever takes x takes them without another check.

    Parameters
    ----------
    values
        Finite numbers, an array or a csr matrix.
    """

    def __init__(self, values: Any):
        self.values, self.shape = values, values.shape

    def __getitem__(self, rows: Any) -> "Features":
        return Features(self.values[rows])


def check_features(x: Any) -> Any:
    """x as float, sparse or dense, or an error that says what is wrong. `Features` have been checked before."""
    if isinstance(x, Features):
        return x.values.astype(jnp.zeros(0).dtype, copy=False)
    if scipy.sparse.issparse(x):
        x = x.tocsr()
        values, shape = x.data, x.shape
    else:
        x = np.asarray(x)
        values, shape = x, x.shape
    if values.dtype.kind not in "fiub":
        raise TypeError(f"x must hold numbers; got dtype {values.dtype}. Encode text and categories first.")
    if len(shape) < 2:
        raise ValueError(f"x must have rows and features, shape (n, d); got shape {shape}. Use x[:, None] for d = 1.")
    if shape[0] == 0:
        raise ValueError(f"The data are empty: x has shape {shape}.")
    dtype = jnp.zeros(0).dtype
    # After the cast: 1e300 is finite, but not in float32.
    with np.errstate(over="ignore"):
        x, values = x.astype(dtype), values.astype(dtype)
    bad = int(values.size - np.isfinite(values).sum())
    if bad:
        raise ValueError(f"x has {bad} values that are NaN or infinite as {dtype}; impute, drop or rescale them.")
    return x


def check_outputs(space: AbstractSpace, y: Any, n: int) -> np.ndarray:
    """y as integers in the space, or an error that says what is wrong."""
    y = y.toarray() if scipy.sparse.issparse(y) else np.asarray(y)
    if y.dtype.kind not in "fiub":
        raise TypeError(f"y must hold integers; got dtype {y.dtype}. {space.describe()}")
    if y.shape != (n, *space.shape):
        raise ValueError(
            f"y must have shape {(n, *space.shape)}, a row for each of x; got {y.shape}. {space.describe()}"
        )
    whole = y.astype(jax.dtypes.canonicalize_dtype(int)) if np.isfinite(y).all() else None
    if whole is None or (whole != y).any():
        raise ValueError(f"y must hold integers; got {y.dtype} with fractions, NaN or infinity. {space.describe()}")
    inside = np.asarray(_contains(space, pad_rows(whole, bucket(n))))[:n]
    if not inside.all():
        first = int(np.argmin(inside))
        raise ValueError(
            f"{n - int(inside.sum())} of {n} rows of y are not in {space}, the first is row {first}: "
            f"{whole[first].tolist()}. {space.describe()}"
        )
    return whole


def check_pairs(preferred: np.ndarray, rejected: np.ndarray) -> None:
    """Raise where a pair holds one output twice."""
    n = len(preferred)
    same = (rejected == preferred).reshape(n, -1).all(axis=1)
    if same.any():
        first = int(np.argmax(same))
        raise ValueError(
            f"{int(same.sum())} of {n} pairs hold the same output twice, the first is row {first}: "
            f"{preferred[first].tolist()}. Such a pair says nothing; leave it out."
        )


def check_scores(scores: Any, n: int | None = None) -> np.ndarray:
    """Scores as float, one for each of n rows, or an error that says what is wrong."""
    rows = "a vector of" if n is None else n
    if scipy.sparse.issparse(scores):
        raise TypeError(
            f"scores must be {rows} finite numbers, one per row; got a sparse matrix. Use toarray().ravel()."
        )
    scores = np.asarray(scores)
    if scores.dtype.kind not in "fiub":
        raise TypeError(f"scores must be {rows} finite numbers, one per row; got dtype {scores.dtype}.")
    if scores.ndim != 1 or (n is not None and len(scores) != n):
        raise ValueError(f"scores must be {rows} finite numbers, one per row; got shape {scores.shape}.")
    # After the cast: 1e300 is finite, but not in float32.
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(scores.astype(jnp.zeros(0).dtype))
    if bad.any():
        raise ValueError(
            f"scores must be {rows} finite numbers, one per row; got {int(bad.sum())} that are NaN or infinite, the "
            f"first in row {int(np.argmax(bad))}. Leave these rows out."
        )
    return scores.astype(float)


def check_mask(space: AbstractSpace, mask: Any, n: int) -> Array | None:
    """What is not observed of y as `Batch` has it, nothing where every y is whole, or an error that says what is wrong.

    A label that is tied with no other is observed.
    """
    if mask is None:
        return None
    mask = np.asarray(mask)
    if mask.dtype.kind not in "biu" or mask.shape != (n, *space.shape):
        raise ValueError(
            f"mask must hold integers of shape {(n, *space.shape)}, 0 where y is observed; got {mask.dtype} of shape "
            f"{mask.shape}."
        )
    mask = space.check_mask(mask)
    return jnp.asarray(mask, int) if mask.any() else None


@eqx.filter_jit
def _contains(space: AbstractSpace, y):
    return jax.vmap(space.contains)(y)


def check_rows(space: AbstractSpace, x: Any, y: Any, weight: Any) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """x, y and the weights of rows as arrays, or an error that says what is wrong."""
    x = check_features(x)
    n = x.shape[0]
    y = check_outputs(space, y, n)
    if weight is None:
        return x, y, None
    weight = np.asarray(weight, float)
    if weight.shape != (n,):
        raise ValueError(f"weight must have shape {(n,)}, one per row; got {weight.shape}.")
    if not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise ValueError(f"weight must be finite, non-negative and not all zero; got values from {weight.min()}.")
    return x, y, weight


def check_reference(model: EBM, reference: PyTree, n: int) -> None:
    """Raise where the rows' reference is not one set of parameters per row, of the model's kind of measure."""
    if reference is None:
        return
    if type(reference) is not type(model.q):
        got, expected = type(reference).__name__, type(model.q).__name__
        raise TypeError(f"The rows' reference is a {got}, but the model's q is a {expected}: they must be the same.")
    if reference.space != model.space:
        raise ValueError(f"The reference is a measure on {reference.space}, but the model is on {model.space}.")
    reference.check()
    shapes = [leaf.shape for leaf in jax.tree.leaves(reference)]
    if any(shape[:1] != (n,) for shape in shapes):
        raise ValueError(f"The reference needs one set of parameters for each of {n} rows; got shapes {shapes}.")


def check_possible(model: EBM, reference: PyTree, y: np.ndarray, mask: Array | None) -> None:
    """Raise where q excludes what is observed: its likelihood would be 0 whatever is learned."""
    q = model.q if reference is None else reference
    infinite = any(np.isinf(leaf).any() for leaf in jax.tree.leaves(eqx.filter(q, eqx.is_array)))
    if mask is not None or q.is_uniform or not (infinite or q.only_excludes):
        return
    log_q = jax.vmap(lambda q, y: q.log_prob(y), in_axes=(None if reference is None else 0, 0))(q, jnp.asarray(y))
    if (excluded := np.flatnonzero(np.isneginf(log_q))).size:
        raise ValueError(
            f"The reference gives probability 0 to the y of {excluded.size} rows, the first is row {excluded[0]}: "
            f"{y[excluded[0]].tolist()}. Leave these rows out, or give the reference a least probability."
        )


def check_batch_size(batch_size: int | None, n: int, x: Any) -> None:
    if batch_size is None and scipy.sparse.issparse(x):
        raise ValueError("A full batch would make all of the sparse x dense; give a batch_size.")
    if batch_size is not None and not 1 <= batch_size <= n:
        raise ValueError(f"batch_size must be between 1 and the number of rows, {n}; got {batch_size}.")


_CHECKED_MODELS: set[tuple] = set()


def check_model(model: EBM, features: tuple[int, ...]) -> None:
    """Raise where h or tau do not take these features or give other shapes: by shapes alone, nothing is compiled.

    Tracing takes 80 ms for a ranking's model, so models that passed are remembered.
    """
    leaves, structure = jax.tree.flatten(model)
    parts = tuple((leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf for leaf in leaves)
    if (signature := (structure, parts, features)) in _CHECKED_MODELS:
        return
    x = jax.ShapeDtypeStruct(features, jnp.zeros(0).dtype)
    expected = model.g.coupling.theta_shape
    theta = _shape_of(model.g.h, x, f"h does not take x of shape {features}")
    if theta != expected:
        raise ValueError(f"h gives logits of shape {theta}, but {type(model.g.coupling).__name__} needs {expected}.")
    _shape_of(lambda x: model.tau(model.row(x, jnp.asarray(0))), x, f"tau does not take x of shape {features}")
    _CHECKED_MODELS.add(signature)


def _shape_of(fn: Any, x: jax.ShapeDtypeStruct, message: str) -> tuple[int, ...]:
    try:
        return jax.eval_shape(fn, x).shape
    except (TypeError, ValueError) as error:
        raise ValueError(f"{message}: {error}") from error
