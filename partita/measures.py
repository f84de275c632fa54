"""Probability measures over Y that can be drawn from: references q, generators p, proposals r."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from ._types import Array, Bool, Float, Int, Key, Scalar
from .spaces import AbstractSpace, Hypercube, Permutations

__all__ = ["AbstractMeasure", "AbstractSequentialMeasure", "PlackettLuce", "ProductBernoulli", "Uniform"]


class AbstractMeasure(eqx.Module):
    """A probability over Y for one x; its arrays may carry a leading axis, one measure per row of a batch."""

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """Y."""

    @abc.abstractmethod
    def sample(self, num: int, *, key: Key) -> Int[Array, " ..."]:
        """`num` draws for each row, all in one call; without a leading axis, `num` draws."""

    @abc.abstractmethod
    def log_prob(self, y: Int[Array, " *shape"]) -> Scalar:
        """log of the probability of one y, for one row."""


class AbstractSequentialMeasure(AbstractMeasure):
    """A measure on rankings that fills ranks 0, 1, ... in turn, each choice given the set of labels already placed."""

    @abc.abstractmethod
    def log_choice(self, placed: Bool[Array, " k"]) -> Float[Array, " k"]:
        """log-probability of each label for the next rank; the next rank is the number of labels placed."""


class Uniform(AbstractSequentialMeasure):
    """q(y) = 1 / |Y|."""

    outputs: AbstractSpace

    @property
    def space(self):
        return self.outputs

    def sample(self, num, *, key):
        return self.outputs.sample(num, key=key)

    def log_prob(self, y):
        return jnp.asarray(-self.outputs.log_size, float)

    def log_choice(self, placed):
        return jnp.broadcast_to(-jnp.log(jnp.sum(~placed)), placed.shape)


class ProductBernoulli(AbstractMeasure):
    """Independent labels: P(y_j = 1) = sigmoid(logits_j)."""

    logits: Float[Array, " *rows k"]

    @property
    def space(self):
        return Hypercube(self.logits.shape[-1])

    def sample(self, num, *, key):
        *rows, k = self.logits.shape
        noise = jax.random.logistic(key, (*rows, num, k), self.logits.dtype)
        return (noise < self.logits[..., None, :]).astype(int)

    def log_prob(self, y):
        return jnp.sum(y * self.logits - jax.nn.softplus(self.logits), axis=-1)


class PlackettLuce(AbstractSequentialMeasure):
    """Each rank goes to a label not yet placed, with probability proportional to exp(score)."""

    scores: Float[Array, " *rows k"]

    @property
    def space(self):
        return Permutations(self.scores.shape[-1])

    def sample(self, num, *, key):
        # The labels ordered by score + Gumbel noise follow Plackett-Luce; the rank vector is that order inverted.
        *rows, k = self.scores.shape
        noise = jax.random.gumbel(key, (*rows, num, k), self.scores.dtype)
        return jnp.argsort(jnp.argsort(-(self.scores[..., None, :] + noise)))

    def log_prob(self, y):
        by_rank = self.scores[jnp.argsort(y)]
        remaining = jax.lax.cumlogsumexp(by_rank, reverse=True)
        return jnp.sum(by_rank - remaining)

    def log_choice(self, placed):
        return self.scores - jax.nn.logsumexp(jnp.where(placed, -jnp.inf, self.scores))
