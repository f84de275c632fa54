"""Outputs known in part: the labels that are missing are summed over, and p is conditioned on those that are known.

What is known of y is (y, mask), the entries of y where the mask is 0 (see `Batch`). All outputs that agree with it
count as one output, whose energy is the log of the mean of exp g over them, under q conditioned on them; its likelihood
is that of the known part. And p(y | x, known part) has the same density relative to the conditioned q as p has relative
to q, so to condition p is to exchange the reference. Both hold for f = KL only.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from . import budget
from .divergences import KL
from .model import EBM, Bound
from .structures import AbstractMeasure, AbstractSpace, Conditioned, condition
from .types import Array, Bool, Float, Int, PyTree, Row, Scalar

__all__ = ["ConditionalModel", "PartialEnergy", "condition_model", "energy", "is_summed_exactly"]

Sums = Callable[[Row, Array, Array], tuple[Scalar, Scalar]]


class PartialEnergy(NamedTuple):
    """The energy and the reference probability of an output known in part.

    Parameters
    ----------
    g
        The log of the mean of exp g over the outputs that agree, under q conditioned on them.
    log_q
        The log of the sum of q over these outputs.
    """

    g: Scalar
    log_q: Scalar


class ConditionalModel(NamedTuple):
    """A model of p(y | x, known part of y), and the reference that every function of `inference` needs with it.

    Parameters
    ----------
    model
        The model. Its tau is not learned, but the surrogate's bound.
    reference
        The reference of each row, which excludes the outputs that do not agree with what is known.
    """

    model: EBM
    reference: PyTree


def is_summed_exactly(model: EBM) -> bool:
    """Tell whether missing labels of this model are summed over exactly.

    Parameters
    ----------
    model
        The model.

    Returns
    -------
    bool
        False where the surrogate's lower bound replaces the sum.

    Raises
    ------
    ValueError
        If there is neither an affordable sum nor a surrogate, or f is not KL.
    """
    return _choose_sums(model, model.q)[0]


def energy(model: EBM, row: Row, y: Int[Array, " *y"], mask: Int[Array, " *y"] | None = None) -> PartialEnergy:
    """Evaluate g and log q of an output known in part.

    Parameters
    ----------
    model, row
        The model and one x, from `EBM.row`.
    y, mask
        The output and its mask, as in `Batch`; None or 0: all of y is known.

    Returns
    -------
    PartialEnergy
        For a y that is known completely g(x, y) and log q(y).
    """
    complete = PartialEnergy(model.g.coupling(row.theta, y), row.q.log_prob(y))
    if mask is None:
        return complete
    _, sums = _choose_sums(model, row.q)
    is_partial = jnp.any(mask > 0)
    pairs = zip(sums(row, y, mask), complete, strict=True)
    return PartialEnergy(*(jnp.where(is_partial, summed, single) for summed, single in pairs))


def is_fully_masked(mask: Int[Array, " *y"]) -> Bool[Array, ""]:
    """Tell whether nothing of y is known: every label missing, or all tied."""
    first = mask.ravel()[0]
    return (first > 0) & jnp.all(mask == first)


def condition_model(
    model: EBM, y: Array, mask: Array, reference: PyTree = None
) -> tuple[ConditionalModel, Float[Array, " n"]]:
    """Condition a model on what is known of the output of each row.

    Parameters
    ----------
    model
        The model, with f = KL.
    y, mask
        Outputs and their masks, one row each, as in `Batch`.
    reference
        Measures q(.|x) of the rows; None: the model's q.

    Returns
    -------
    conditional : ConditionalModel
        The model of p(y | x, known part of y), and the references of the rows.
    log_q : array of shape (n,)
        The log-probability of what is known under the reference of the row, -inf where it is excluded.
    """
    if not isinstance(model.f, KL):
        raise ValueError(
            f"Known labels restrict the reference, which gives p(y | known) for f = KL only; f is "
            f"{type(model.f).__name__}. Filter draws of `inference.sample`, or the outputs of `decisions.joint`."
        )
    unrestricted = _condition(model.q, y[0], jnp.ones_like(mask[0])).measure
    per_row = (None if reference is None else 0, 0, 0)
    measures, log_q = eqx.filter_jit(jax.vmap(_condition, in_axes=per_row))(
        model.q if reference is None else reference, y, mask
    )
    return ConditionalModel(EBM(model.g, Bound(), q=unrestricted, f=model.f), measures), log_q


def check_known(space: AbstractSpace, known: Any, n: int) -> tuple[Array, Array]:
    """Check what is known of y, -1 where a label is not, for n rows or one for all; return (y, mask) of n rows."""
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
            f"A {type(q).__name__} on {q.space} cannot be conditioned on known labels: it has no `condition`, and "
            "there are too many outputs to list. Filter draws of `inference.sample` instead."
        )
    return conditioned


def _choose_sums(model: EBM, q: AbstractMeasure) -> tuple[bool, Sums]:
    """Whether sums over missing labels are exact, and the sums: the method's, else those of the conditioned q."""
    coupling, space, f = model.g.coupling, model.space, model.f
    if not isinstance(f, KL):
        raise ValueError(
            f"Missing labels and ties are summed over, which gives a likelihood for f = KL only; f is "
            f"{type(f).__name__}. Use KL, or leave out the rows that are not whole."
        )
    method = budget.find_method(model, q)
    if method is not None and method.has_partial and budget.affords_partial(method.work):
        return True, lambda row, y, mask: method.partial(row.theta, row.q, y, mask)
    full_mask = jnp.ones(space.shape, int)
    conditioned = condition(q, jnp.zeros_like(full_mask), full_mask)
    if conditioned is not None:
        conditional = coupling.exact(conditioned.measure, f)
        if conditional is not None and (not conditional.has_partial or budget.affords_partial(conditional.work)):
            return True, _ConditionedSums(conditional.log_partition)
        surrogate = coupling.surrogate(conditioned.measure, f)
        if surrogate is not None:
            return False, _ConditionedSums(lambda theta, q: surrogate(coupling, theta, q).tau)
    raise ValueError(
        f"Missing labels and ties can be summed over where there are few outputs, or by a surrogate, and none serves a "
        f"{type(coupling).__name__} coupling on {space} with a {type(q).__name__} reference. Leave out the rows that "
        "are not whole."
    )


class _ConditionedSums(eqx.Module):
    """The log-partition relative to q conditioned on what is known, and the log-probability of that under q."""

    log_partition: Callable

    def __call__(self, row: Row, y: Array, mask: Array) -> tuple[Scalar, Scalar]:
        measure, log_q = _condition(row.q, y, mask)
        return self.log_partition(row.theta, measure), log_q
