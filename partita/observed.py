"""What is observed of y: g and log q of all outputs that agree with it, taken together.

For KL an output observed in part, (y, free) as in `Batch`, has the likelihood of the set of outputs that agree with it:
one output with log q = log sum q(y') and g = log sum q(y') exp g(x, y') - log q. Exactly where that is cheap enough to
do for every row of a step, otherwise by the surrogate of q restricted to that set, whose bound lies below g.
"""

import functools
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp

from . import exact
from ._types import Array, Bool, Int, Row, Scalar
from .divergences import KL
from .logspace import logsumexp
from .measures import AbstractMeasure, Uniform, agree, allowed, restricted
from .model import EBM
from .spaces import TooLargeError
from .surrogates import find

__all__ = ["completion", "energy", "nothing"]

# Subsets of labels, or outputs, that are summed for a row.
MAX_STATES = 2**12

Sums = Callable[[Row, Array, Array], tuple[Scalar, Scalar]]


def completion(model: EBM) -> str:
    """How outputs observed in part are summed: "exact", or by a "bound" from below; an error where neither serves."""
    return _choose(model, model.q)[0]


def energy(model: EBM, row: Row, y: Int[Array, " *y"], free: Int[Array, " *y"] | None = None) -> tuple[Scalar, Scalar]:
    """(g, log q) of what is observed; of a whole y, without `free` or where it is 0, g(x, y) and log q(y)."""
    whole = model.g.coupling(row.theta, y), row.q.log_prob(y)
    if free is None:
        return whole
    _, sums = _choose(model, row.q)
    partly = jnp.any(free > 0)
    g, log_q = (jnp.where(partly, part, one) for part, one in zip(sums(row, y, free), whole, strict=True))
    return g, log_q


def nothing(free: Int[Array, " k"]) -> Bool[Array, ""]:
    """Whether nothing at all is observed: every label missing, or all tied."""
    return (free[0] > 0) & jnp.all(free == free[0])


def _choose(model: EBM, q: AbstractMeasure) -> tuple[str, Sums]:
    coupling, space, f = model.g.coupling, model.space, model.f
    if not isinstance(f, KL):
        raise ValueError(
            f"Missing labels and ties are summed over, which gives a likelihood for f = KL only; f is "
            f"{type(f).__name__}. Use KL, or leave out the rows that are not whole."
        )
    try:
        method = exact.method(model, q)
    except TooLargeError:
        method = None
    if isinstance(method, exact.SubsetDP) and 2 ** space.shape[0] <= MAX_STATES:
        return "exact", functools.partial(_by_program, method)
    if isinstance(method, exact.Enumeration) and space.size <= MAX_STATES:
        return "exact", functools.partial(_by_enumeration, model)
    k = jnp.arange(space.shape[0])
    held, _ = eqx.filter_eval_shape(restricted, q, k, k)
    if isinstance(method, exact.Unary | exact.ElementarySymmetric):
        return "exact", functools.partial(_by_restriction, method.log_partition)
    near = find(coupling, held, f)
    if near is None:
        raise ValueError(
            f"Missing labels and ties can be summed over up to {MAX_STATES:,} outputs, or by a surrogate, and none "
            f"serves a {type(coupling).__name__} coupling on {space} with a {type(held).__name__}. Leave out the rows "
            "that are not whole."
        )
    return "bound", functools.partial(_by_restriction, lambda theta, held: near(coupling, theta, held).tau)


def _by_program(method: exact.SubsetDP, row: Row, y: Array, free: Array) -> tuple[Scalar, Scalar]:
    tilt = jnp.where(allowed(y, free), 0, -jnp.inf).astype(row.theta.dtype)
    if isinstance(row.q, Uniform):
        log_q = restricted(row.q, y, free)[1]
    else:
        log_q = method.softmax(jnp.zeros_like(row.theta), row.q, tilt)
    return method.softmax(row.theta, row.q, tilt) - log_q, log_q


def _by_enumeration(model: EBM, row: Row, y: Array, free: Array) -> tuple[Scalar, Scalar]:
    every = model.space.elements()
    log_q, g = row.q.log_probs(every), model.g.coupling.scores(row.theta, every)
    inside = jnp.where(agree(model.space, y, free, every), log_q, -jnp.inf)
    total = logsumexp(inside)
    return logsumexp(inside + g) - total, total


def _by_restriction(log_partition: Callable, row: Row, y: Array, free: Array) -> tuple[Scalar, Scalar]:
    held, log_q = restricted(row.q, y, free)
    return log_partition(row.theta, held), log_q
