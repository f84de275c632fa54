"""Where rows come from: arrays, scipy sparse matrices, or an iterator on the host.

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

from ..model import EBM
from ..shapes import bucket, on_device, pad_rows, pad_weights
from ..structures import AbstractSpace
from ..types import Batch, Key, PyTree
from .checks import (
    Features,
    check_batch_size,
    check_features,
    check_mask,
    check_model,
    check_outputs,
    check_pairs,
    check_possible,
    check_reference,
    check_rows,
    check_scores,
)
from .ensembles import take

__all__ = [
    "AbstractRows",
    "AbstractSource",
    "CheckedRows",
    "Chunk",
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
        """Check everything that can be checked now, against the model, and start reading.

        Parameters
        ----------
        model
            The model to train.
        key
            Of the order of the rows.

        Returns
        -------
        AbstractReader
            Brings the rows, chunk by chunk.
        """


class AbstractReader(abc.ABC):
    """Brings the rows of a run, chunk by chunk."""

    @abc.abstractmethod
    def read(self, start: int, steps: int, size: int) -> Chunk | None:
        """Rows for steps start, ..., start + steps - 1 in a chunk of `size` steps; None where the rows have run out."""


class AbstractRows(AbstractSource):
    """A data set in memory.

    Mini-batches go through a new random order every epoch (what does not fill a batch waits for the next order).

    Parameters
    ----------
    x
        Features, an array or a scipy sparse matrix of shape (n, d).
    y
        Outputs, an array of shape (n, ...).
    weight
        One per row; None: all are 1.
    reference
        A measure q(y|x) whose arrays have the rows as leading axis; None: the model's own q serves all rows.
    batch_size
        Rows of a step; None: all of them.
    mask
        What is not observed of y, missing labels or ties: see `types.Batch`.
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
        """What the rows bring besides y, checked.

        Parameters
        ----------
        space
            The outputs of the model.
        y
            The checked outputs of the rows.

        Returns
        -------
        PyTree
            The `target` of a `Batch`.
        """

    def open(self, model, *, key):
        x, y, weight = check_rows(model.space, self.x, self.y, self.weight)
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

    The estimators check at their own border, and make these. With `padded` there are as many rows as a bucket has, with
    weight 0 for those that are not there: another number of rows compiles nothing. Batches then have the same size
    whatever the number of rows is.
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
        padded: bool = False,
    ):
        self.x, self.y, self.mask, self.weight = x, y, mask, weight
        self.reference, self.batch_size, self.target, self.padded = reference, batch_size, target, padded

    def open(self, model, *, key):
        x, y, n = check_features(self.x), self.y, self.y.shape[0]
        if n == 1:
            raise ValueError("The data have one row; p(y|x) cannot be learned from a single example. Give at least 2.")
        table = model.tau.table
        if table is not None and (values := table.values.shape[0]) != n:
            raise ValueError(f"model.Table holds {values} values, but the data have {n} rows: it needs one per row.")
        check_reference(model, self.reference, n)
        check_possible(model, self.reference, y, self.mask)
        if not self.padded:
            check_batch_size(self.batch_size, n, x)
        check_model(model, x.shape[1:])
        # Mean one, so that a batch's loss is a plain mean of weighted losses.
        weight = None if self.weight is None else self.weight / self.weight.mean()
        # Sparse features stay on the host, apart from the arrays of the batch.
        features = np.zeros((n, 0)) if scipy.sparse.issparse(x) else x
        rest, batch_size = (self.reference, self.target, self.mask), self.batch_size
        if self.padded:
            size = bucket(n)
            batch_size = min(self.batch_size or n, size)
            # A step's loss is a mean over its rows, the padded ones included.
            weight = pad_weights(weight, n, size, max(1.0, batch_size / n))
            features, y, rest = pad_rows((features, y, rest), size)
        data = batch_of(features, y, np.arange(len(y)), weight, *rest)
        return _RowsReader(data, n, x if scipy.sparse.issparse(x) else None, batch_size, key)


class _RowsReader(AbstractReader):
    def __init__(self, data: Batch, n: int, sparse: Any, batch_size: Any, key: Key):
        self.data, self.sparse = data, sparse
        self.n, self.batch_size = n, batch_size
        self.seed = np.asarray(jax.random.key_data(key)).ravel()
        self.epoch, self.order = -1, np.arange(self.n)

    def read(self, start, steps, size):
        if self.batch_size is None:
            return Chunk(self.data, None, steps)
        rows = np.stack([self._rows(start + min(i, steps - 1)) for i in range(size)])
        if self.sparse is None:
            return Chunk(self.data, rows, steps)
        flat = rows.ravel()
        data = take(self.data, flat)
        dense = self.sparse[np.minimum(flat, self.n - 1)].toarray()
        data = eqx.tree_at(lambda b: b.x, data, on_device(dense))
        return Chunk(data, np.arange(flat.size).reshape(rows.shape), steps)

    def _rows(self, step):
        """The rows of one step: a function of the key and the step alone, so that a run can be taken up anywhere."""
        epoch, turn = divmod(step, max(1, self.n // self.batch_size))
        if epoch != self.epoch:
            self.epoch, self.order = epoch, np.random.default_rng([*self.seed, epoch]).permutation(self.n)
        rows = self.order[turn * self.batch_size : (turn + 1) * self.batch_size]
        # Padded rows, of weight 0, where there are fewer rows than a batch has.
        return np.concatenate([rows, np.arange(self.n, self.n + self.batch_size - len(rows))])


class Rows(AbstractRows):
    __doc__ = AbstractRows.__doc__

    def target(self, space, y):
        return None


class Preferences(AbstractRows):
    """Pairs of outputs: for x, the first is preferred to the second.

    Parameters
    ----------
    x
        Features.
    preferred
        The better outputs.
    rejected
        The worse outputs.
    **options
        Those of `Rows`.
    """

    def __init__(self, x: Any, preferred: Any, rejected: Any, **options: Any):
        super().__init__(x, preferred, **options)
        self.rejected = rejected

    def target(self, space, y):
        rejected = check_outputs(space, self.rejected, y.shape[0])
        check_pairs(y, rejected)
        return jnp.asarray(rejected)


class Scores(AbstractRows):
    """Outputs with a score t each: how good y is for x.

    Parameters
    ----------
    x
        Features.
    y
        Outputs.
    scores
        One number per row.
    **options
        Those of `Rows`.
    """

    def __init__(self, x: Any, y: Any, scores: Any, **options: Any):
        super().__init__(x, y, **options)
        self.scores = scores

    def target(self, space, y):
        return jnp.asarray(check_scores(self.scores, y.shape[0]), float)


class Stream(AbstractSource):
    """Rows from an iterator on the host, which is read once, in order.

    Parameters
    ----------
    batches
        Yields (x, y) or `Batch` objects, all of one size. They are checked as they come; a `Batch` brings its weights
        as they are.
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
        batches = [self._checked(item) for item in itertools.islice(self.iterator, steps)]
        if not batches:
            if self.shape is None:
                raise ValueError("The stream brought no rows at all; it must yield (x, y) pairs or Batch objects.")
            return None
        padded = batches + [batches[-1]] * (size - len(batches))
        data = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *padded)
        return Chunk(data, np.arange(data.y.shape[0]).reshape(size, -1), len(batches))

    def _checked(self, item):
        if isinstance(item, Batch):
            result = batch(self.model, item.x, item.y, weight=item.weight, reference=item.reference, mask=item.mask)
            result = result if item.mask is None else with_mask(result)
        else:
            result = batch(self.model, *item)
        shapes = [leaf.shape for leaf in jax.tree.leaves(result)]
        if self.shape is not None and shapes != self.shape:
            raise ValueError(f"A stream must yield batches of one shape; got {shapes} after {self.shape}.")
        self.shape = shapes
        return result


def batch(model: EBM, x: Any, y: Any, *, weight: Any = None, reference: PyTree = None, mask: Any = None) -> Batch:
    """Checked rows that are not training rows: for validation, or to call an objective by hand.

    Parameters
    ----------
    model
        The model that the rows are for.
    x
        Features, an array or a scipy sparse matrix.
    y
        Outputs.
    weight
        One per row; None: all are 1.
    reference
        A measure q(y|x) per row; None: the model's own q serves all rows.
    mask
        What is not observed of y: see `types.Batch`.

    Returns
    -------
    Batch
        The rows as arrays.
    """
    dense = x.toarray() if scipy.sparse.issparse(x) else x
    dense, y, weight = check_rows(model.space, dense, y, weight)
    weight = None if weight is None else jnp.asarray(weight, float)
    check_reference(model, reference, y.shape[0])
    check_model(model, dense.shape[1:])
    mask = check_mask(model.space, mask, y.shape[0])
    return Batch(jnp.asarray(dense), jnp.asarray(y), None, weight, reference, mask=mask)


def batch_of(x: Any, y: Any, index: Any, weight: Any, reference: PyTree, target: PyTree, mask: Any) -> Batch:
    """A batch of numpy arrays, which are put on the device without a compilation."""

    def put(tree: PyTree, dtype: Any = None) -> PyTree:
        return jax.tree.map(lambda leaf: on_device(leaf, dtype) if isinstance(leaf, np.ndarray) else leaf, tree)

    return Batch(
        put(x, float), put(y, int), put(index), put(weight, float), put(reference), put(target), put(mask, int)
    )


def with_mask(rows: Batch) -> Batch:
    """The batch with a `mask` even if its rows are whole, so that it has the shape of batches whose rows are not."""
    return dataclasses.replace(rows, mask=jnp.zeros_like(rows.y)) if rows.mask is None else rows
