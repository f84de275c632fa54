"""Where rows come from: arrays, scipy sparse matrices, or an iterator on the host. Everything is checked here, once.

A source brings the rows of a few steps at a time, so that sparse and streamed features are never dense as a whole.
"""

import abc
import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from .model import EBM
from .structures import AbstractSpace
from .types import Array, Batch, Key, PyTree

__all__ = [
    "AbstractRows",
    "AbstractSource",
    "CheckedRows",
    "Chunk",
    "Features",
    "Preferences",
    "Rows",
    "Scores",
    "Stream",
    "batch",
]


class Chunk(NamedTuple):
    """Data for the next steps: step i works on `rows[i]` of `data`, on all of it if `rows` is None.

    `rows` is padded to the size of a whole chunk by repeating its last row; only the first `steps` steps count.
    """

    data: Batch
    rows: np.ndarray | None
    steps: int


class AbstractSource(abc.ABC):
    """Brings chunks of checked rows for a model."""

    @abc.abstractmethod
    def open(self, model: EBM, *, key: Key) -> "AbstractReader":
        """Check everything that can be checked now, against the model, and start reading."""


class AbstractReader(abc.ABC):
    """Brings the rows of a run, chunk by chunk."""

    @abc.abstractmethod
    def read(self, start: int, steps: int, size: int) -> Chunk | None:
        """Rows for steps start, ..., start + steps - 1 in a chunk of `size` steps; None where the rows have run out."""


class AbstractRows(AbstractSource):
    """A data set in memory. x: array or scipy sparse matrix; y: array; `batch_size` None is the full batch.

    `mask` says what is not observed of y, missing labels or ties: see `Batch`.

    Mini-batches go through a new random order every epoch (what does not fill a batch waits for the next order).
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        *,
        weight: Any = None,
        reference: PyTree = None,
        batch_size: int | None = None,
        mask: Any = None,
    ):
        self.x, self.y, self.mask, self.weight = x, y, mask, weight
        self.reference, self.batch_size = reference, batch_size

    @abc.abstractmethod
    def target(self, space: AbstractSpace, y: np.ndarray) -> PyTree:
        """What the rows bring besides y, checked."""

    def open(self, model, *, key):
        x, y, weight = _check_rows(model.space, self.x, self.y, self.weight)
        rows = CheckedRows(
            Features(x),
            y,
            weight=weight,
            reference=self.reference,
            batch_size=self.batch_size,
            mask=check_mask(model.space, self.mask, y.shape[0]),
            target=self.target(model.space, y),
        )
        return rows.open(model, key=key)


class CheckedRows(AbstractSource):
    """Rows whose x, y, weights and targets have been checked: only what depends on the model still is.

    The estimators check at their own border, and make these.
    """

    def __init__(
        self,
        x: "Features",
        y: np.ndarray,
        *,
        weight: Any = None,
        reference: PyTree = None,
        batch_size: int | None = None,
        mask: Any = None,
        target: PyTree = None,
    ):
        self.x, self.y, self.mask, self.weight = x, y, mask, weight
        self.reference, self.batch_size, self.target = reference, batch_size, target

    def open(self, model, *, key):
        x, y, n = check_features(self.x), self.y, self.y.shape[0]
        if n == 1:
            raise ValueError("The data have one row; p(y|x) cannot be learned from a single example. Give at least 2.")
        table = model.tau.table
        if table is not None and (values := table.values.shape[0]) != n:
            raise ValueError(f"model.Table holds {values} values, but the data have {n} rows: it needs one per row.")
        check_reference(model, self.reference, n)
        _check_possible(model, self.reference, y, self.mask)
        _check_batch_size(self.batch_size, n, x)
        check_model(model, x.shape[1:])
        # Mean one, so that a batch's loss is a plain mean of weighted losses.
        weight = None if self.weight is None else jnp.asarray(self.weight / self.weight.mean(), float)
        # Sparse features stay on the host, apart from the arrays of the batch.
        features = jnp.zeros((n, 0)) if scipy.sparse.issparse(x) else jnp.asarray(x)
        data = Batch(features, jnp.asarray(y, int), jnp.arange(n), weight, self.reference, self.target, self.mask)
        return _RowsReader(data, x if scipy.sparse.issparse(x) else None, self.batch_size, key)


class _RowsReader(AbstractReader):
    def __init__(self, data: Batch, sparse: Any, batch_size: Any, key: Key):
        self.data, self.sparse = data, sparse
        self.n, self.batch_size = data.y.shape[0], batch_size
        self.seed = np.asarray(jax.random.key_data(key)).ravel()
        self.epoch, self.order = -1, np.arange(self.n)

    def read(self, start, steps, size):
        if self.batch_size is None:
            return Chunk(self.data, None, steps)
        rows = np.stack([self._rows(start + min(i, steps - 1)) for i in range(size)])
        if self.sparse is None:
            return Chunk(self.data, rows, steps)
        flat = rows.ravel()
        data = jax.tree.map(lambda a: a[flat], self.data)
        data = eqx.tree_at(lambda b: b.x, data, jnp.asarray(self.sparse[flat].toarray()))
        return Chunk(data, np.arange(flat.size).reshape(rows.shape), steps)

    def _rows(self, step):
        """The rows of one step: a function of the key and the step alone, so that a run can be taken up anywhere."""
        epoch, turn = divmod(step, self.n // self.batch_size)
        if epoch != self.epoch:
            self.epoch, self.order = epoch, np.random.default_rng([*self.seed, epoch]).permutation(self.n)
        return self.order[turn * self.batch_size : (turn + 1) * self.batch_size]


class Rows(AbstractRows):
    __doc__ = AbstractRows.__doc__

    def target(self, space, y):
        return None


class Preferences(AbstractRows):
    """Pairs of outputs: given x, the first is preferred to the second."""

    def __init__(self, x: Any, preferred: Any, rejected: Any, **options: Any):
        super().__init__(x, preferred, **options)
        self.rejected = rejected

    def target(self, space, y):
        rejected = check_outputs(space, self.rejected, y.shape[0])
        check_pairs(y, rejected)
        return jnp.asarray(rejected)


class Scores(AbstractRows):
    """Outputs with a score t each: how good y is for x."""

    def __init__(self, x: Any, y: Any, scores: Any, **options: Any):
        super().__init__(x, y, **options)
        self.scores = scores

    def target(self, space, y):
        return jnp.asarray(check_scores(self.scores, y.shape[0]), float)


class Stream(AbstractSource):
    """An iterator on the host that yields (x, y) or `Batch` objects, all of one size. It is read once, in order.

    What it yields is checked as it comes; a `Batch` brings its own weights as they are.
    """

    def __init__(self, batches: Iterable[tuple[Any, Any] | Batch]):
        self.batches = batches

    def open(self, model, *, key):
        if model.tau.table is not None:
            raise ValueError("model.Table needs a data set of known length; with a Stream use model.Network.")
        return _StreamReader(model, iter(self.batches))


class _StreamReader(AbstractReader):
    def __init__(self, model: EBM, iterator: Iterator):
        self.model, self.iterator, self.shape = model, iterator, None

    def read(self, start, steps, size):
        found = [self._checked(item) for item in itertools.islice(self.iterator, steps)]
        if not found:
            if self.shape is None:
                raise ValueError("The stream brought no rows at all; it must yield (x, y) pairs or Batch objects.")
            return None
        padded = found + [found[-1]] * (size - len(found))
        data = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *padded)
        return Chunk(data, np.arange(data.y.shape[0]).reshape(size, -1), len(found))

    def _checked(self, item):
        if isinstance(item, Batch):
            made = batch(self.model, item.x, item.y, weight=item.weight, reference=item.reference, mask=item.mask)
            made = made if item.mask is None else alike(made)
        else:
            made = batch(self.model, *item)
        shapes = [leaf.shape for leaf in jax.tree.leaves(made)]
        if self.shape is not None and shapes != self.shape:
            raise ValueError(f"A stream must yield batches of one shape; got {shapes} after {self.shape}.")
        self.shape = shapes
        return made


def batch(model: EBM, x: Any, y: Any, *, weight: Any = None, reference: PyTree = None, mask: Any = None) -> Batch:
    """Checked rows that are not training rows: for validation, or to call an objective by hand."""
    dense = x.toarray() if scipy.sparse.issparse(x) else x
    dense, y, weight = _check_rows(model.space, dense, y, weight)
    weight = None if weight is None else jnp.asarray(weight, float)
    check_reference(model, reference, y.shape[0])
    check_model(model, dense.shape[1:])
    mask = check_mask(model.space, mask, y.shape[0])
    return Batch(jnp.asarray(dense), jnp.asarray(y), None, weight, reference, mask=mask)


def alike(made: Batch) -> Batch:
    """The batch with a `mask` even if its rows are whole, so that it has the shape of batches whose rows are not."""
    return dataclasses.replace(made, mask=jnp.zeros_like(made.y)) if made.mask is None else made


class Features:
    """Rows of x that have been checked: finite numbers, an array or csr. Whatever takes x takes them, unchecked."""

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
    whole = y.astype(jnp.arange(1).dtype) if np.isfinite(y).all() else None
    if whole is None or (whole != y).any():
        raise ValueError(f"y must hold integers; got {y.dtype} with fractions, NaN or infinity. {space.describe()}")
    inside = np.asarray(_contains(space, whole))
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


def _check_rows(space, x, y, weight):
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


def _check_possible(model: EBM, reference: PyTree, y: np.ndarray, mask: Array | None) -> None:
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


def _check_batch_size(batch_size: int | None, n: int, x: Any) -> None:
    if batch_size is None and scipy.sparse.issparse(x):
        raise ValueError("A full batch would make all of the sparse x dense; give a batch_size.")
    if batch_size is not None and not 1 <= batch_size <= n:
        raise ValueError(f"batch_size must be between 1 and the number of rows, {n}; got {batch_size}.")


_FITTING: set[tuple] = set()


def check_model(model: EBM, features: tuple[int, ...]) -> None:
    """h and tau must take these features and give the right shapes: found out by shapes alone, nothing is compiled.

    Tracing takes 80 ms for a ranking's model, so what has been found to fit is remembered.
    """
    leaves, structure = jax.tree.flatten(model)
    parts = tuple((leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf for leaf in leaves)
    if (known := (structure, parts, features)) in _FITTING:
        return
    x = jax.ShapeDtypeStruct(features, jnp.zeros(0).dtype)
    expected = model.g.coupling.theta_shape
    theta = _shape_of(model.g.h, x, f"h does not take x of shape {features}")
    if theta != expected:
        raise ValueError(f"h gives logits of shape {theta}, but {type(model.g.coupling).__name__} needs {expected}.")
    _shape_of(lambda x: model.tau(model.row(x, jnp.asarray(0))), x, f"tau does not take x of shape {features}")
    _FITTING.add(known)


def _shape_of(fn: Any, x: jax.ShapeDtypeStruct, trouble: str) -> tuple[int, ...]:
    try:
        return jax.eval_shape(fn, x).shape
    except (TypeError, ValueError) as error:
        raise ValueError(f"{trouble}: {error}") from error
