"""Sums of exponentials in which terms may be excluded: -inf is a term that is not there, also for gradients."""

import jax
import jax.numpy as jnp

from ._types import Array, Float

__all__ = ["logaddexp", "logsumexp"]


def logsumexp(terms: Float[Array, " ..."], axis: int | None = None) -> Float[Array, " ..."]:
    """log of the sum of exp(terms). Of none but excluded ones it is -inf, with gradient 0 where jax.nn's is NaN."""
    excluded = jnp.all(jnp.isneginf(terms), axis=axis, keepdims=True)
    total = jax.nn.logsumexp(jnp.where(excluded, 0, terms), axis=axis)
    return jnp.where(excluded.reshape(total.shape), -jnp.inf, total)


def logaddexp(a: Float[Array, " ..."], b: Float[Array, " ..."]) -> Float[Array, " ..."]:
    """log(exp(a) + exp(b)), with gradient 0 where both are excluded."""
    excluded = jnp.isneginf(a) & jnp.isneginf(b)
    return jnp.where(excluded, -jnp.inf, jnp.logaddexp(jnp.where(excluded, 0, a), b))
