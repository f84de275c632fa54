"""Stacks of models: many models as one tree whose arrays have a leading axis, and their mean, one model again."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..model import EBM, Bound, Energy, Network, Residual
from ..networks import Mean, Scaled
from ..shapes import on_device
from ..types import PyTree

__all__ = ["average", "scale", "size", "stack", "take"]


def stack(trees: Sequence[PyTree]) -> PyTree:
    """One tree of many, its arrays with a leading axis.

    Parameters
    ----------
    trees
        Trees of one structure; what is no array must be the same in all.

    Returns
    -------
    PyTree
        The stack.
    """
    return _gather(trees, np.stack, jnp.stack)


def concatenate(trees: Sequence[PyTree]) -> PyTree:
    """One stack of several."""
    return _gather(trees, np.concatenate, jnp.concatenate)


def take(tree: PyTree, i: int | slice | np.ndarray) -> PyTree:
    """The i-th tree of a stack.

    Parameters
    ----------
    tree
        The stack.
    i
        A position, or several.

    Returns
    -------
    PyTree
        The tree; of several positions, a stack of them.
    """

    def cut(leaf):
        if not eqx.is_array(leaf):
            return leaf
        return leaf[i] if _is_key(leaf) else on_device(np.asarray(leaf)[i])

    return jax.tree.map(cut, tree)


def size(models: PyTree) -> int:
    """The number of trees in a stack.

    Parameters
    ----------
    models
        The stack.

    Returns
    -------
    int
        The length of its leading axis.
    """
    return jax.tree.leaves(eqx.filter(models, eqx.is_array))[0].shape[0]


def average(models: EBM) -> EBM:
    """The model whose energy is the mean of the energies of a stack.

    Parameters
    ----------
    models
        The stack. A stack of one is its own mean, whatever its coupling.

    Returns
    -------
    EBM
        The mean; its tau is the mean of the networks, or of the corrections of a `Residual` tau.

    Raises
    ------
    ValueError
        Where the mean has no such coupling.
    """
    if size(models) == 1:
        return take(models, 0)
    if not models.g.coupling.can_average:
        name = type(models.g.coupling).__name__
        raise ValueError(f"The mean of several energies with a {name} coupling has no such coupling; use one model.")
    tau = models.tau
    if isinstance(tau, Residual | Network):
        tau = eqx.tree_at(lambda tau: tau.body, tau, Mean(tau.body))
    elif not isinstance(tau, Bound):
        tau = take(tau, 0)
    coupling = jax.tree.map(lambda leaf: leaf.mean(axis=0) if eqx.is_array(leaf) else leaf, models.g.coupling)
    g = Energy(Mean(models.g.h), coupling)
    return EBM(g, tau, q=take(models.q, 0), f=models.f, surrogate=take(models.surrogate, 0))


def scale(model: EBM, factor: float) -> EBM:
    """The model with g times a factor, where its coupling is linear in theta and in its own parameters.

    Parameters
    ----------
    model
        One model.
    factor
        On its energy.

    Returns
    -------
    EBM
        The scaled model.
    """
    if factor == 1.0:
        return model
    coupling = jax.tree.map(lambda leaf: factor * leaf if eqx.is_array(leaf) else leaf, model.g.coupling)
    g = Energy(Scaled(model.g.h, jnp.asarray(factor, float)), coupling)
    return eqx.tree_at(lambda model: model.g, model, g)


def _gather(trees: Sequence[PyTree], arrays: Callable, keys: Callable) -> PyTree:
    """By numpy, which compiles nothing; random keys are no arrays to it."""

    def together(*leaves: Any) -> Any:
        if not eqx.is_array(leaves[0]):
            return leaves[0]
        return keys(leaves) if _is_key(leaves[0]) else on_device(arrays(leaves))

    return jax.tree.map(together, *trees)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
