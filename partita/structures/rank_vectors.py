"""Functions of rank vectors, in which y[j] is the rank of label j and 0 is best, and of vectors of scores."""

import jax
import jax.numpy as jnp

from ..types import Array, Bool, Float, Int, Key

__all__ = ["allowed_ranks", "decode_lehmer", "isotonic_decreasing", "ranks", "sample_rankings", "sort_by_rank"]

# Up to this number of labels comparing all pairs, in vector operations, is faster than sorting.
FEW_LABELS = 32


def sample_rankings(k: int, num: int, *, key: Key) -> Int[Array, "num k"]:
    """Uniform rank vectors."""
    # The order of random words is uniform up to ties, whose probability is below k^2 / 2^33 with 32 bits.
    return jnp.argsort(jax.random.bits(key, (num, k), jnp.uint32), axis=-1)


def allowed_ranks(y: Int[Array, " k"], mask: Int[Array, " k"]) -> Bool[Array, "k k"]:
    """Whether label j may have rank p, entry (j, p), in a ranking y with the groups of tied labels of `mask`."""
    at_rank = jnp.argsort(y)
    tied = (mask[:, None] == mask[at_rank]) & (mask[:, None] > 0)
    return tied | (y[:, None] == jnp.arange(y.shape[0]))


def decode_lehmer(digits: Int[Array, " *rows k"]) -> Int[Array, " *rows k"]:
    """The permutation with this Lehmer code: entry j is the digits[j]-th number that no earlier entry has taken."""
    y = digits
    for j in range(digits.shape[-1] - 2, -1, -1):
        y = y.at[..., j + 1 :].add(y[..., j + 1 :] >= y[..., j : j + 1])
    return y


def ranks(scores: Float[Array, " *rows k"]) -> Int[Array, " *rows k"]:
    """The rank of each score, 0 for the largest; among equal scores the first has the better rank."""
    k = scores.shape[-1]
    if k > FEW_LABELS:
        return jnp.argsort(jnp.argsort(-scores))
    mine, other, label = scores[..., :, None], scores[..., None, :], jnp.arange(k)
    better = (other > mine) | ((other == mine) & (label < label[:, None]))
    return jnp.sum(better, axis=-1)


def sort_by_rank(scores: Float[Array, " k"], y: Int[Array, " k"]) -> Float[Array, " k"]:
    """The scores of the labels in the order of their ranks."""
    if len(y) > FEW_LABELS:
        return scores[jnp.argsort(y)]
    return jnp.sum(jnp.where(y == jnp.arange(len(y))[:, None], scores, 0), axis=1)


def isotonic_decreasing(s: Float[Array, " k"]) -> Float[Array, " k"]:
    """The least-squares fit of s by a non-increasing vector: v_i = min_{a <= i} max_{b >= i} mean(s_a, ..., s_b).

    >>> isotonic_decreasing(jnp.array([3.0, 1.0, 2.0])).tolist()
    [3.0, 1.5, 1.5]
    """
    k = s.shape[0]
    a, b = jnp.arange(k)[:, None], jnp.arange(k)[None, :]
    # Cumulative sums of the centered s have less cancellation in float32.
    center = s.mean()
    total = jnp.concatenate([jnp.zeros(1, s.dtype), jnp.cumsum(s - center)])
    mean = (total[b + 1] - total[a]) / jnp.maximum(b - a + 1, 1)
    best_b = jax.lax.cummax(jnp.where(b >= a, mean, -jnp.inf), axis=1, reverse=True)
    return jnp.min(jnp.where(a <= b, best_b, jnp.inf), axis=0) + center
