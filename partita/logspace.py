"""Sums of exponentials in which terms may be excluded: -inf is a term that is not there, also for gradients."""

import jax
import jax.numpy as jnp

from .types import Array, Float

__all__ = ["logaddexp", "logsumexp"]


def logsumexp(terms: Float[Array, " ..."], axis: int | None = None) -> Float[Array, " ..."]:
    """log of the sum of exp(terms). Of none but excluded ones it is -inf, with gradient 0 where jax.nn's is NaN."""
    top = jax.lax.stop_gradient(jnp.max(terms, axis=axis, keepdims=True))
    top = jnp.where(jnp.isfinite(top), top, 0)
    total = jnp.sum(jnp.exp(terms - top), axis=axis)
    return jnp.where(total > 0, jnp.log(jnp.where(total > 0, total, 1)) + top.reshape(total.shape), -jnp.inf)


def logaddexp(a: Float[Array, " ..."], b: Float[Array, " ..."]) -> Float[Array, " ..."]:
    """log(exp(a) + exp(b)), with gradient 0 where both are excluded."""
    excluded = jnp.isneginf(a) & jnp.isneginf(b)
    return jnp.where(excluded, -jnp.inf, jnp.logaddexp(jnp.where(excluded, 0, a), b))
