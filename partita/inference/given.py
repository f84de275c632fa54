"""Questions about y given that some of its labels are known."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Array, Float, Key, PyTree
from ..divergences import KL
from ..measures import restricted
from ..model import EBM
from ..partition import Bound
from ..spaces import AbstractSpace, KSubsets, Permutations
from ..surrogates import find
from .partitions import Method, log_partition


def given(model: EBM, x: Any, known: Any, *, reference: PyTree = None) -> tuple[EBM, PyTree]:
    """The model of p(y | x, what is known of y), and the reference of each row that holds it: every answer takes them.

        held, reference = inference.given(model, x, known)
        inference.marginals(held, x, reference=reference)  # also mode, sample, before, log_prob, decisions.joint, ...

    `known` has one row per x, or one for all: -1 where a label is not known, else its y_j, 0 or 1 for sets and the rank
    for rankings. Labels are held by a reference that excludes other outputs, and so the surrogate holds them too. The
    normalizer of the held model is not learned: its tau is the surrogate's bound.
    """
    held, reference, log_q = _hold(model, *_check_known(model.space, known, np.shape(x)[0]), reference)
    if (impossible := np.flatnonzero(np.isneginf(log_q))).size:
        raise ValueError(
            f"What is known of {impossible.size} rows has probability 0 under the reference, the first is row "
            f"{impossible[0]}: nothing can be said given that."
        )
    return held, reference


def evidence(
    model: EBM, x: Any, known: Any, *, method: Method = "exact", key: Key | None = None, reference: PyTree = None
) -> Float[Array, " n"]:
    """log P(the known labels | x): the sum of p over all y that agree with them.

    `method` is that of `log_partition`, asked with the labels held and without; "learned" has no value with them held.
    """
    y, free = _check_known(model.space, known, np.shape(x)[0])
    return agreeing(model, x, y, free, method=method, key=key, reference=reference)


def agreeing(
    model: EBM, x: Any, y: Array, free: Array, *, method: Method, key: Key | None, reference: PyTree
) -> Float[Array, " n"]:
    """log of the sum of p over all outputs that agree with (y, free) as in `Batch`, by holding them."""
    if method == "learned":
        raise ValueError("The normalizer given known labels is not learned; use 'exact', 'importance' or 'annealed'.")
    held, references, log_q = _hold(model, y, free, reference)
    held_key, free_key = (None, None) if key is None else jax.random.split(key)
    inside = log_partition(held, x, method=method, key=held_key, reference=references)
    return log_q + inside - log_partition(model, x, method=method, key=free_key, reference=reference)


def _hold(model: EBM, y: Array, free: Array, reference: PyTree) -> tuple[EBM, PyTree, Float[Array, " n"]]:
    """The held model, its references, and log q of what is known."""
    if not isinstance(model.f, KL):
        raise ValueError(
            f"Known labels are held in the reference, which gives p(y | known) for f = KL only; f is "
            f"{type(model.f).__name__}. Filter draws of `inference.sample`, or the outputs of `decisions.joint`."
        )
    rows = (None if reference is None else 0, 0, 0)
    nothing, _ = restricted(model.q, y[0], jnp.ones_like(free[0]))
    measures, log_q = eqx.filter_jit(jax.vmap(restricted, in_axes=rows))(
        model.q if reference is None else reference, y, free
    )
    surrogate = find(model.g.coupling, nothing, model.f)
    return EBM(model.g, Bound(), q=nothing, f=model.f, surrogate=surrogate), measures, log_q


def _check_known(space: AbstractSpace, known: Any, n: int) -> tuple[Array, Array]:
    """What is known, one row per x, in the range of y and without contradiction, as (y, free)."""
    known = np.asarray(known)
    if known.dtype.kind not in "iu" or known.shape not in (space.shape, (n, *space.shape)):
        raise ValueError(
            f"known must hold integers, of shape {space.shape} or {(n, *space.shape)}, with -1 where a label is not "
            f"known; got {known.dtype} of shape {known.shape}."
        )
    known = np.broadcast_to(known, (n, *space.shape))
    largest = space.shape[0] - 1 if isinstance(space, Permutations) else 1
    if known.min() < -1 or known.max() > largest:
        raise ValueError(f"Known values of {space} are from 0 to {largest}, or -1; got {known.min()} to {known.max()}.")
    bad = np.flatnonzero(_contradicts(space, known))
    if bad.size:
        raise ValueError(
            f"No y of {space} agrees with what is known of {bad.size} rows, the first is row {bad[0]}: "
            f"{known[bad[0]].tolist()}."
        )
    return jnp.asarray(_completed(space, known)), jnp.asarray(known < 0, int)


def _completed(space: AbstractSpace, known: np.ndarray) -> np.ndarray:
    """The ranks that are left, in order; sets are read at the known labels only."""
    if not isinstance(space, Permutations):
        return np.maximum(known, 0)
    y = known.copy()
    for row in y:
        row[row < 0] = np.setdiff1d(np.arange(space.k), row)
    return y


def _contradicts(space: AbstractSpace, known: np.ndarray) -> np.ndarray:
    if isinstance(space, Permutations):
        ranks = np.sort(known, axis=1)
        return ((ranks[:, 1:] == ranks[:, :-1]) & (ranks[:, 1:] >= 0)).any(axis=1)
    if isinstance(space, KSubsets):
        on, off = (known == 1).sum(axis=1), (known == 0).sum(axis=1)
        return (on > space.m) | (space.k - off < space.m)
    return np.zeros(len(known), bool)
