"""Numerical functions that several modules share: sums of exponentials with excluded terms, and bisection."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .types import Array, Bool, Float, Scalar

__all__ = ["bisect", "logaddexp", "logsumexp"]

# More than the digits of float64; float32 ends after about 30.
BISECTION_STEPS = 60


def logsumexp(terms: Float[Array, " ..."], axis: int | None = None) -> Float[Array, " ..."]:
    """Log of the sum of exp(terms), where a term of -inf is excluded.

    Unlike `jax.nn.logsumexp`, the gradient is 0, not NaN, where all terms are excluded.

    Parameters
    ----------
    terms
        The terms, any of which may be -inf.
    axis
        The axis to sum over; None sums over all.

    Returns
    -------
    Array
        The log-sum; -inf where all terms are excluded.

    Examples
    --------
    >>> float(logsumexp(jnp.array([0.0, 0.0, -jnp.inf]))) == float(jnp.log(2.0))
    True
    """
    top = jax.lax.stop_gradient(jnp.max(terms, axis=axis, keepdims=True))
    top = jnp.where(jnp.isfinite(top), top, 0)
    total = jnp.sum(jnp.exp(terms - top), axis=axis)
    return jnp.where(total > 0, jnp.log(jnp.where(total > 0, total, 1)) + top.reshape(total.shape), -jnp.inf)


def logaddexp(a: Float[Array, " ..."], b: Float[Array, " ..."]) -> Float[Array, " ..."]:
    """log(exp(a) + exp(b)), with gradient 0 where both terms are excluded.

    Parameters
    ----------
    a, b
        The terms, any of which may be -inf.

    Returns
    -------
    Array
        The log-sum of each pair.
    """
    excluded = jnp.isneginf(a) & jnp.isneginf(b)
    return jnp.where(excluded, -jnp.inf, jnp.logaddexp(jnp.where(excluded, 0, a), b))


def bisect(
    holds: Callable[[Scalar], Bool[Array, ""]], low: Scalar, high: Scalar, max_steps: int = BISECTION_STEPS
) -> Scalar:
    """The point where a condition changes from True to False, by bisection, without gradient.

    Ends early when no number lies between the two ends of the bracket.

    Parameters
    ----------
    holds
        The condition of a number: True below the point, False above it.
    low, high
        The ends of the bracket.
    max_steps
        The largest number of halvings.

    Returns
    -------
    Scalar
        The middle of the last bracket.

    Examples
    --------
    >>> round(float(bisect(lambda x: x**2 < 2, jnp.array(0.0), jnp.array(2.0))), 6)
    1.414214
    """

    def halve(state):
        low, high, i, _ = state
        middle = (low + high) / 2
        below = holds(middle)
        low, high = jnp.where(below, middle, low), jnp.where(below, high, middle)
        middle = (low + high) / 2
        return low, high, i + 1, (low < middle) & (middle < high) & (i + 1 < max_steps)

    low, high = jax.lax.stop_gradient((low, high))
    # The condition is part of the state: under vmap a loop evaluates its condition twice, and rounding may differ.
    low, high, *_ = jax.lax.while_loop(lambda state: state[-1], halve, (low, high, 0, low < high))
    return jax.lax.stop_gradient((low + high) / 2)
