"""Answers of a model about given x: mode, marginals, samples, log-probabilities, log-partitions.

Each takes a matrix of x, uses the exact method where there is one, and says so where there is none. Work is done in
chunks of fixed shapes, so that another number of rows does not recompile.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from . import exact
from ._types import Array, Float, Int, Key, PyTree
from .batches import check_features, check_model, check_outputs, check_reference
from .divergences import KL
from .measures import Uniform
from .model import EBM
from .partition import Table, UnseenRowError

__all__ = ["log_partition", "log_prob", "marginals", "mode", "sample"]

SHAPES = (16, 256)


def mode(model: EBM, x: Any, *, reference: PyTree = None) -> Int[Array, " n *y"]:
    """A most probable y for each x."""
    return _over_rows(_mode, model, x, reference=reference)


def marginals(model: EBM, x: Any, *, reference: PyTree = None) -> Float[Array, " n *stat"]:
    """P(y_j = 1 | x) for label sets, shape (n, k); P(label j has rank p | x) for rankings, shape (n, k, k)."""
    return _over_rows(_marginals, model, x, reference=reference)


def sample(model: EBM, x: Any, num: int, *, key: Key, reference: PyTree = None) -> Int[Array, " n num *y"]:
    """`num` independent draws from p(.|x) for each x."""
    if num < 1:
        raise ValueError(f"num must be at least 1 draw per row; got {num}.")
    keys = jax.random.split(key, np.shape(x)[0])
    return _over_rows(_Sample(num), model, x, keys, reference=reference)


def log_prob(
    model: EBM,
    x: Any,
    y: Any,
    *,
    method: str = "exact",
    index: Any = None,
    reference: PyTree = None,
) -> Float[Array, " n"]:
    """log p(y|x), normalized exactly, or by the learned tau with method="learned"."""
    y = check_outputs(model.space, y, np.shape(x)[0])
    tau = log_partition(model, x, method=method, index=index, reference=reference)
    return _over_rows(_log_prob, model, x, jnp.asarray(y), tau, reference=reference)


def log_partition(
    model: EBM,
    x: Any,
    *,
    method: str = "exact",
    counting: bool = False,
    index: Any = None,
    reference: PyTree = None,
) -> Float[Array, " n"]:
    """The tau that normalizes p(.|x): exact, or as the model learned it.

    It is relative to q, a probability. `counting=True` gives the sum over Y without q (the paper's sum of softplus),
    tau + log |Y|, for KL and uniform q. A `partition.Table` knows training rows only: give their `index`.
    """
    _check_method(method)
    if counting and not (isinstance(model.f, KL) and isinstance(model.q, Uniform)):
        raise ValueError("counting=True needs f = KL and a uniform q; other models have no counting-measure value.")
    if method == "learned" and isinstance(model.tau, Table) and index is None:
        raise UnseenRowError(
            "tau is a partition.Table: it knows training rows only. Pass their `index`, use method='exact', or train "
            "with partition.Network."
        )
    index = None if index is None else _check_index(model, index, np.shape(x)[:1])
    tau = _over_rows(_exact_tau if method == "exact" else _learned_tau, model, x, index, reference=reference)
    return tau + model.space.log_size if counting else tau


def _mode(model, x, reference):
    return exact.mode(model, model.row(x, reference=reference))


def _marginals(model, x, reference):
    return exact.marginals(model, model.row(x, reference=reference))


def _exact_tau(model, x, reference, index):
    return exact.log_partition(model, model.row(x, index, reference))


def _learned_tau(model, x, reference, index):
    return model.tau(model.row(x, index, reference))


def _log_prob(model, x, reference, y, tau):
    return model.log_prob(model.row(x, reference=reference), y, tau)


class _Sample(eqx.Module):
    num: int = eqx.field(static=True)

    def __call__(self, model, x, reference, key):
        return exact.sample(model, model.row(x, reference=reference), self.num, key=key)


def _over_rows(fn: Callable, model: EBM, x: Any, *args: PyTree, reference: PyTree = None) -> Array:
    """fn(model, x_i, reference_i, *args_i) for every row, in padded chunks of one of `SHAPES`."""
    x = check_features(x)
    n = x.shape[0]
    check_model(model, x.shape[1:])
    check_reference(model, reference, n)
    shape = next((s for s in SHAPES if n <= s), SHAPES[-1])
    found = []
    for start in range(0, n, shape):
        rows = np.minimum(np.arange(start, start + shape), n - 1)
        # Sparse features become dense one chunk at a time.
        dense = x[rows] if isinstance(x, np.ndarray) else x[rows].toarray()
        rest = jax.tree.map(lambda a, rows=rows: a[rows], (reference, *args))
        found.append(_vmapped(fn, model, jnp.asarray(dense), *rest))
    return jnp.concatenate(found)[:n]


@eqx.filter_jit
def _vmapped(fn: Callable, model: EBM, x: Array, *args: PyTree) -> Array:
    return jax.vmap(lambda x, *args: fn(model, x, *args))(x, *args)


def _check_index(model: EBM, index: Any, rows: tuple[int, ...]) -> Int[Array, " n"]:
    index = np.asarray(index)
    if index.shape != rows or index.dtype.kind not in "iu":
        raise ValueError(f"index must hold integers, one per row of x; got {index.dtype} of shape {index.shape}.")
    if isinstance(model.tau, Table) and not ((index >= 0) & (index < model.tau.values.shape[0])).all():
        known = model.tau.values.shape[0]
        raise ValueError(f"index must be between 0 and {known - 1}: partition.Table knows {known} rows; got {index}.")
    return jnp.asarray(index)


def _check_method(method: str) -> None:
    if method not in ("exact", "learned"):
        raise ValueError(f"method must be 'exact' or 'learned'; got {method!r}.")
