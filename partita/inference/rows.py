"""A function of one row applied to all rows of x, under vmap and jit, in chunks of fixed shapes."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import budget
from ..divergences import KL
from ..model import EBM, UnseenRowError
from ..shapes import on_device
from ..training import take
from ..training.checks import check_features, check_model, check_reference
from ..types import Array, Int, Key, PyTree

SHAPES = (16, 256)


def sum_over_rows(
    fn: Callable,
    model: EBM,
    x: Any,
    *args: PyTree,
    index: Int[Array, " n"] | None = None,
    reference: PyTree = None,
    width: int = 1,
    sharpen: bool = True,
) -> Any:
    """Call a function for every row as `over_rows` does, for exact sums.

    For f other than KL it computes in double precision: probabilities then depend on g - tau, not on ratios, and
    densities of Jensen-Shannon and reverse KL need more digits the more outputs there are.

    Parameters
    ----------
    fn, model, x, *args, index, reference
        As for `over_rows`.
    width
        The number of outputs in the result of a row.
    sharpen
        False keeps the bound that f has in float32, with which a learned tau was trained.

    Returns
    -------
    pytree
        As of `over_rows`.
    """
    small = budget.sums_many_terms(budget.method(model), width)
    if isinstance(model.f, KL):
        return over_rows(fn, model, x, *args, index=index, reference=reference, small=small)
    with jax.enable_x64(True):
        precise, reference, args = jax.tree.map(
            lambda a: jnp.asarray(a, jnp.float64) if eqx.is_inexact_array(a) else a, (model, reference, args)
        )
        if sharpen:
            precise = eqx.tree_at(lambda model: model.f, precise, model.f.sharpened())
        results = over_rows(fn, precise, x, *args, index=index, reference=reference, small=small)
    return jax.tree.map(lambda a: jax.device_put(np.asarray(a)), results)


def over_rows(
    fn: Callable,
    model: EBM,
    x: Any,
    *args: PyTree,
    index: Int[Array, " n"] | None = None,
    reference: PyTree = None,
    small: bool = False,
) -> Any:
    """Call fn(model, row_i, *args_i) for every row, in padded chunks of one of `SHAPES`.

    Parameters
    ----------
    fn
        A function at the level of a module, or an `eqx.Partial` of one: it is a key of the compiled programs.
    model
        The model.
    x
        Features, an array or a sparse matrix with one row each.
    *args
        Pytrees whose arrays have the rows as leading axis.
    index
        Positions of the rows in the training set.
    reference
        A measure q(.|x) whose arrays have the rows as leading axis; None: the model's own q.
    small
        Whether a row takes so long that chunks have the smallest shape.

    Returns
    -------
    pytree
        The results, with the rows as leading axis.
    """
    x = check_features(x)
    n = x.shape[0]
    check_model(model, x.shape[1:])
    check_reference(model, reference, n)
    shape = SHAPES[0] if small else next((s for s in SHAPES if n <= s), SHAPES[-1])
    chunks = []
    for start in range(0, n, shape):
        rows = np.minimum(np.arange(start, start + shape), n - 1)
        # Sparse features become dense one chunk at a time.
        dense = x[rows] if isinstance(x, np.ndarray) else x[rows].toarray()
        chunks.append(_vmapped(fn, model, on_device(dense), *take((index, reference, *args), rows)))
    # By numpy: jax would compile a slice for every n, and jnp.asarray a copy.
    return jax.tree.map(lambda *parts: jax.device_put(np.concatenate([np.asarray(p) for p in parts])[:n]), *chunks)


@eqx.filter_jit
def _vmapped(fn: Callable, model: EBM, x: Array, index: Any, reference: PyTree, *args: PyTree) -> PyTree:
    return jax.vmap(lambda x, index, q, *args: fn(model, model.row(x, index, q), *args))(x, index, reference, *args)


def row_keys(key: Key | None, x: Any, method: Any) -> Array:
    """Split a key into one for each row.

    Parameters
    ----------
    key
        The key; None is refused.
    x
        Features, one row each.
    method
        What draws, for the message.

    Returns
    -------
    array of shape (n,)
        The keys.
    """
    if key is None:
        raise ValueError(f"method={method!r} draws: give a key, as in key=jax.random.key(0).")
    return jax.random.split(key, np.shape(x)[0])


def check_index(model: EBM, index: Any, x: Any, *, learned: bool) -> Int[Array, " n"] | None:
    """Check positions in the training set, which only a `model.Table` needs.

    Parameters
    ----------
    model
        The model.
    index
        One position per row of x, or None.
    x
        Features, one row each.
    learned
        Whether the learned tau is evaluated, for which a table needs the positions.

    Returns
    -------
    array of shape (n,) or None
        The positions.
    """
    table = model.tau.table
    if index is None:
        if learned and table is not None:
            raise UnseenRowError(
                "tau is a model.Table: it knows training rows only. Pass their `index`, use method='exact', or "
                "train with model.Network."
            )
        return None
    index = np.asarray(index)
    if index.shape != np.shape(x)[:1] or index.dtype.kind not in "iu":
        raise ValueError(f"index must hold integers, one per row of x; got {index.dtype} of shape {index.shape}.")
    if table is not None and not ((index >= 0) & (index < table.values.shape[0])).all():
        known = table.values.shape[0]
        raise ValueError(f"index must be between 0 and {known - 1}: model.Table knows {known} rows; got {index}.")
    return jnp.asarray(index)
