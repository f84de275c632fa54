"""How every answer goes over the rows of x."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import budget
from .._types import Array, Int, PyTree
from ..batches import check_features, check_model, check_reference
from ..divergences import KL
from ..model import EBM, UnseenRowError

SHAPES = (16, 256)


def sum_over_rows(
    fn: Callable,
    model: EBM,
    x: Any,
    *args: PyTree,
    reference: PyTree = None,
    width: int = 1,
    sharpen: bool = True,
) -> Any:
    """`over_rows` for exact sums; `width` is the number of outputs that a row answers with.

    For f other than KL in double precision: there probabilities depend on g - tau, not on ratios, and densities of
    Jensen-Shannon and reverse KL need more digits the more outputs there are. `sharpen=False` keeps the bound that f
    has in float32, with which a learned tau was trained.
    """
    many = budget.sums_many_terms(budget.method(model), width)
    if isinstance(model.f, KL):
        return over_rows(fn, model, x, *args, reference=reference, small=many)
    with jax.enable_x64(True):
        precise, reference, args = _double((model, reference, args))
        if sharpen:
            precise = eqx.tree_at(lambda model: model.f, precise, model.f.sharpened())
        found = over_rows(fn, precise, x, *args, reference=reference, small=many)
    return jax.tree.map(lambda a: jax.device_put(np.asarray(a)), found)


def _double(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if eqx.is_inexact_array(a) else a, tree)


def over_rows(fn: Callable, model: EBM, x: Any, *args: PyTree, reference: PyTree = None, small: bool = False) -> Any:
    """fn(model, x_i, reference_i, *args_i) for every row, in padded chunks of one of `SHAPES`, the `small` one say."""
    x = check_features(x)
    n = x.shape[0]
    check_model(model, x.shape[1:])
    check_reference(model, reference, n)
    shape = SHAPES[0] if small else next((s for s in SHAPES if n <= s), SHAPES[-1])
    found = []
    for start in range(0, n, shape):
        rows = np.minimum(np.arange(start, start + shape), n - 1)
        # Sparse features become dense one chunk at a time.
        dense = x[rows] if isinstance(x, np.ndarray) else x[rows].toarray()
        rest = jax.tree.map(lambda a, rows=rows: a[rows], (reference, *args))
        found.append(_vmapped(fn, model, jnp.asarray(dense), *rest))
    # By numpy: jax would compile a slice for every n, and jnp.asarray a copy.
    return jax.tree.map(lambda *parts: jax.device_put(np.concatenate([np.asarray(p) for p in parts])[:n]), *found)


@eqx.filter_jit
def _vmapped(fn: Callable, model: EBM, x: Array, *args: PyTree) -> PyTree:
    return jax.vmap(lambda x, *args: fn(model, x, *args))(x, *args)


def check_index(model: EBM, index: Any, rows: tuple[int, ...], *, learned: bool) -> Int[Array, " n"] | None:
    """Positions in the training set, which only a `model.Table` needs."""
    table = model.tau.table
    if index is None:
        if learned and table is not None:
            raise UnseenRowError(
                "tau is a model.Table: it knows training rows only. Pass their `index`, use method='exact', or "
                "train with model.Network."
            )
        return None
    index = np.asarray(index)
    if index.shape != rows or index.dtype.kind not in "iu":
        raise ValueError(f"index must hold integers, one per row of x; got {index.dtype} of shape {index.shape}.")
    if table is not None and not ((index >= 0) & (index < table.values.shape[0])).all():
        known = table.values.shape[0]
        raise ValueError(f"index must be between 0 and {known - 1}: model.Table knows {known} rows; got {index}.")
    return jnp.asarray(index)
