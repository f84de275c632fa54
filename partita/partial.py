"""Outputs known in part: what is missing is summed over, and what is known is held.

What is known of y is (y, mask): y where the mask is 0. The outputs that agree with it count as one output, whose energy
is the log of the mean of exp g over them, under q given that; its likelihood is that of what is observed. And p(y | x,
what is known) has the density of p relative to q given that, so holding what is known is another reference. Both need
f = KL.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from . import budget
from .divergences import KL
from .model import EBM, Bound
from .structures import AbstractMeasure, AbstractSpace, Conditioned, condition
from .types import Array, Bool, Float, Int, PyTree, Row, Scalar

__all__ = ["check_known", "energy", "hold", "is_summed_exactly", "nothing_observed"]

Sums = Callable[[Row, Array, Array], tuple[Scalar, Scalar]]


def is_summed_exactly(model: EBM) -> bool:
    """Whether outputs known in part are summed exactly, not by a bound from below; an error where neither serves."""
    return _choose(model, model.q)[0]


def energy(model: EBM, row: Row, y: Int[Array, " *y"], mask: Int[Array, " *y"] | None = None) -> tuple[Scalar, Scalar]:
    """(g, log q) of what is observed; of a whole y, without a mask or where it is 0, g(x, y) and log q(y)."""
    whole = model.g.coupling(row.theta, y), row.q.log_prob(y)
    if mask is None:
        return whole
    _, sums = _choose(model, row.q)
    partly = jnp.any(mask > 0)
    g, log_q = (jnp.where(partly, part, one) for part, one in zip(sums(row, y, mask), whole, strict=True))
    return g, log_q


def nothing_observed(mask: Int[Array, " *y"]) -> Bool[Array, ""]:
    """Whether nothing at all is observed: every label missing, or all tied."""
    first = mask.ravel()[0]
    return (first > 0) & jnp.all(mask == first)


def hold(model: EBM, y: Array, mask: Array, reference: PyTree = None) -> tuple[EBM, PyTree, Float[Array, " n"]]:
    """The model of p(y | x, what is known), the reference of each row that holds it, and log q of what is known.

    The normalizer of that model is not learned: its tau is the surrogate's bound.
    """
    if not isinstance(model.f, KL):
        raise ValueError(
            f"Known labels are held in the reference, which gives p(y | known) for f = KL only; f is "
            f"{type(model.f).__name__}. Filter draws of `inference.sample`, or the outputs of `decisions.joint`."
        )
    nothing = _condition(model.q, y[0], jnp.ones_like(mask[0])).measure
    per_row = (None if reference is None else 0, 0, 0)
    measures, log_q = eqx.filter_jit(jax.vmap(_condition, in_axes=per_row))(
        model.q if reference is None else reference, y, mask
    )
    return EBM(model.g, Bound(), q=nothing, f=model.f), measures, log_q


def check_known(space: AbstractSpace, known: Any, n: int) -> tuple[Array, Array]:
    """What is known, -1 where nothing is, in the range of y and without contradiction, as (y, mask) of n rows."""
    known = np.asarray(known)
    if known.dtype.kind not in "iu" or known.shape not in (space.shape, (n, *space.shape)):
        raise ValueError(
            f"known must hold integers, of shape {space.shape} or {(n, *space.shape)}, with -1 where a label is not "
            f"known; got {known.dtype} of shape {known.shape}."
        )
    known = np.broadcast_to(known, (n, *space.shape))
    largest = known.max() if space.largest is None else space.largest
    if known.min() < -1 or known.max() > largest:
        raise ValueError(f"Known values of {space} are from 0 to {largest}, or -1; got {known.min()} to {known.max()}.")
    bad = np.flatnonzero(space.contradicts(known))
    if bad.size:
        raise ValueError(
            f"No y of {space} agrees with what is known of {bad.size} rows, the first is row {bad[0]}: "
            f"{known[bad[0]].tolist()}."
        )
    return jnp.asarray(space.complete(known)), jnp.asarray(known < 0, int)


def _condition(q: AbstractMeasure, y: Array, mask: Array) -> Conditioned:
    conditioned = condition(q, y, mask)
    if conditioned is None:
        raise ValueError(
            f"Labels cannot be held known under a {type(q).__name__} on {q.space}: it has no conditional measure, and "
            "there are too many outputs to list. Filter draws of `inference.sample` instead."
        )
    return conditioned


def _choose(model: EBM, q: AbstractMeasure) -> tuple[bool, Sums]:
    """Whether the sums are exact, and the sums: the method's own, else those of q given what is observed."""
    coupling, space, f = model.g.coupling, model.space, model.f
    if not isinstance(f, KL):
        raise ValueError(
            f"Missing labels and ties are summed over, which gives a likelihood for f = KL only; f is "
            f"{type(f).__name__}. Use KL, or leave out the rows that are not whole."
        )
    method = budget.find_method(model, q)
    if method is not None and method.has_partial and budget.affords_partial(method.work):
        return True, lambda row, y, mask: method.partial(row.theta, row.q, y, mask)
    nothing = jnp.ones(space.shape, int)
    conditioned = condition(q, jnp.zeros_like(nothing), nothing)
    if conditioned is not None:
        own = coupling.exact(conditioned.measure, f)
        if own is not None and (not own.has_partial or budget.affords_partial(own.work)):
            return True, _Restricted(own.log_partition)
        surrogate = coupling.surrogate(conditioned.measure, f)
        if surrogate is not None:
            return False, _Restricted(lambda theta, held: surrogate(coupling, theta, held).tau)
    raise ValueError(
        f"Missing labels and ties can be summed over where there are few outputs, or by a surrogate, and none serves a "
        f"{type(coupling).__name__} coupling on {space} with a {type(q).__name__} reference. Leave out the rows that "
        "are not whole."
    )


class _Restricted(eqx.Module):
    """The log-partition relative to q given what is observed."""

    log_partition: Callable

    def __call__(self, row: Row, y: Array, mask: Array) -> tuple[Scalar, Scalar]:
        measure, log_q = _condition(row.q, y, mask)
        return self.log_partition(row.theta, measure), log_q
