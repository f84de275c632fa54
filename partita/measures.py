"""Probability measures over Y that can be drawn from: references q, generators p, proposals r."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp

from ._types import Array, Bool, Float, Int, Key, Scalar
from .spaces import AbstractSpace, Hypercube, KSubsets, Permutations

__all__ = [
    "AbstractMeasure",
    "AbstractScoredMeasure",
    "AbstractSequentialMeasure",
    "Completions",
    "ConditionalBernoulli",
    "Mixture",
    "PlackettLuce",
    "ProductBernoulli",
    "Sequential",
    "Uniform",
    "defended",
    "restricted",
    "with_reference",
]

NOTHING = -1e30
HELD = 1e3


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


class AbstractScoredMeasure(AbstractSequentialMeasure):
    """A sequential measure that fills rank p in proportion to exp(score of label j at rank p)."""

    @abc.abstractmethod
    def by_rank(self) -> Float[Array, "k k"]:
        """The score of each label at each rank."""

    def log_choice(self, placed):
        scores = jnp.take(self.by_rank(), jnp.sum(placed), axis=1, mode="clip")
        return scores - jax.nn.logsumexp(jnp.where(placed, -jnp.inf, scores))


class Uniform(AbstractScoredMeasure):
    """q(y) = 1 / |Y|."""

    outputs: AbstractSpace

    @property
    def space(self):
        return self.outputs

    def sample(self, num, *, key):
        return self.outputs.sample(num, key=key)

    def log_prob(self, y):
        return jnp.asarray(-self.outputs.log_size, float)

    def by_rank(self):
        return jnp.zeros((*self.outputs.shape, *self.outputs.shape))


class ProductBernoulli(AbstractMeasure):
    """Independent labels: P(y_j = 1) = sigmoid(logits_j)."""

    logits: Float[Array, " *rows k"]

    @property
    def space(self):
        return Hypercube(self.logits.shape[-1])

    def sample(self, num, *, key):
        *rows, k = self.logits.shape
        noise = jax.random.uniform(key, (*rows, num, k), self.logits.dtype)
        return (noise < jax.nn.sigmoid(self.logits)[..., None, :]).astype(int)

    def log_prob(self, y):
        return jnp.sum(y * self.logits - jax.nn.softplus(self.logits), axis=-1)


class PlackettLuce(AbstractScoredMeasure):
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

    def by_rank(self):
        return jnp.broadcast_to(self.scores[:, None], (*self.scores.shape, *self.scores.shape))


class Sequential(AbstractScoredMeasure):
    """Rank p goes to a label not yet placed, with probability proportional to exp(scores[label, p])."""

    scores: Float[Array, " *rows k k"]

    @property
    def space(self):
        return Permutations(self.scores.shape[-1])

    def sample(self, num, *, key):
        # One random number per rank, and sums as a matrix product: a third of the time of Gumbel noise on every label.
        *rows, k, _ = self.scores.shape
        by_rank = jnp.moveaxis(self.scores, -1, 0)[..., None, :]
        noise = jax.random.uniform(key, (k, *rows, num), self.scores.dtype)
        up_to = jnp.triu(jnp.ones((k, k), self.scores.dtype))

        def place(y, at):
            rank, scores, noise = at
            free = jnp.where(y < 0, scores, -jnp.inf)
            total = jnp.exp(free - free.max(axis=-1, keepdims=True)) @ up_to
            label = jnp.argmax(total > (noise * total[..., -1])[..., None], axis=-1)
            return jnp.where(jnp.arange(k) == label[..., None], rank, y), None

        nowhere = jnp.full((*rows, num, k), -1)
        return jax.lax.scan(place, nowhere, (jnp.arange(k), by_rank, noise))[0]

    def log_prob(self, y):
        ranks = jnp.arange(y.shape[-1])
        free = y[:, None] >= ranks
        normalizer = jax.nn.logsumexp(jnp.where(free, self.scores, -jnp.inf), axis=0)
        return jnp.sum(jnp.take_along_axis(self.scores, y[:, None], axis=1)) - jnp.sum(normalizer)

    def by_rank(self):
        return self.scores


class Completions(AbstractScoredMeasure):
    """Uniform over the rankings that agree with what is known: scores hold those labels, the others have 0."""

    scores: Float[Array, " *rows k k"]

    @property
    def space(self):
        return Permutations(self.scores.shape[-1])

    def sample(self, num, *, key):
        return Sequential(self.scores).sample(num, key=key)

    def log_prob(self, y):
        return Sequential(self.scores).log_prob(y)

    def by_rank(self):
        return self.scores


class ConditionalBernoulli(AbstractMeasure):
    """Independent labels given that exactly m of them are on; its normalizer is an elementary symmetric polynomial."""

    logits: Float[Array, " *rows k"]
    m: int = eqx.field(static=True)

    @property
    def space(self):
        return KSubsets(self.logits.shape[-1], self.m)

    def sample(self, num, *, key):
        *rows, k = self.logits.shape
        noise = jnp.log(jax.random.uniform(key, (*rows, num, k), self.logits.dtype))
        return jax.vmap(ConditionalBernoulli._choose)(self, noise) if rows else self._choose(noise)

    def _choose(self, noise):
        """The sets that log-uniform noise chooses, from the last label to the first."""
        num, k = noise.shape
        sums = self.log_sums()

        def decide(left, label):
            # P(y_j = 1 | `left` labels are to be chosen among labels 0..j)
            log_take = self.logits[label] + sums[label, left - 1] - sums[label + 1, left]
            take = (left > 0) & (noise[:, label] < log_take)
            return left - take, take

        chosen = jax.lax.scan(decide, jnp.full(num, self.m), jnp.arange(k), reverse=True)[1]
        return chosen.T.astype(int)

    def log_prob(self, y):
        return jnp.vdot(y, self.logits) - self.log_sums()[-1, -1]

    def log_sums(self) -> Float[Array, "j r"]:
        """Entry (j, r): log of the sum of exp <logits, y> over the sets y of r of the first j labels, in k m steps."""
        # NOTHING, not -inf: the gradient of logaddexp(-inf, -inf) is nan.
        empty = jnp.where(jnp.arange(self.m + 1) == 0, 0, NOTHING).astype(self.logits.dtype)

        def add(sums, score):
            longer = jnp.concatenate([jnp.full(1, NOTHING, sums.dtype), sums[:-1] + score])
            sums = jnp.logaddexp(sums, longer)
            return sums, sums

        return jnp.concatenate([empty[None], jax.lax.scan(add, empty, self.logits)[1]])


class Mixture(AbstractMeasure):
    """(1 - share) first + share second: with second = q and first a proposal, weights q/r stay below 1 / share."""

    first: AbstractMeasure
    second: AbstractMeasure
    share: float = eqx.field(static=True)

    def __check_init__(self):
        if not 0 < self.share < 1:
            raise ValueError(f"Mixture needs a share of the second measure between 0 and 1; got {self.share}.")

    @property
    def space(self):
        return self.first.space

    def sample(self, num, *, key):
        first_key, second_key, coin_key = jax.random.split(key, 3)
        first = self.first.sample(num, key=first_key)
        axes = len(self.space.shape)
        rows = first.shape[: -axes - 1]
        one_for_all = jax.eval_shape(lambda: self.second.sample(num, key=second_key)).ndim < first.ndim
        # One measure for all rows: each row still gets draws of its own.
        each = num * math.prod(rows) if one_for_all else num
        second = self.second.sample(each, key=second_key).reshape(first.shape)
        coin = jax.random.bernoulli(coin_key, self.share, (*rows, num, *[1] * axes))
        return jnp.where(coin, second, first)

    def log_prob(self, y):
        first = math.log1p(-self.share) + self.first.log_prob(y)
        return jnp.logaddexp(first, math.log(self.share) + self.second.log_prob(y))


def defended(r: AbstractMeasure, q: AbstractMeasure, share: float) -> AbstractMeasure:
    """r with a share of q, which bounds the weights q/r by 1 / share; r itself where the share is 0."""
    return Mixture(r, q, share) if share else r


def restricted(q: AbstractMeasure, known: Int[Array, " k"]) -> tuple[AbstractMeasure, Scalar]:
    """(q given that some labels are known, log q of that). `known` has -1 where nothing is, else the label's y_j.

    It holds labels in place by scores of +-1000: as long as scores differ by less, nothing else has a probability.
    """
    free = known < 0
    if isinstance(q, Uniform | ProductBernoulli) and isinstance(q.space, Hypercube):
        logits = q.logits if isinstance(q, ProductBernoulli) else jnp.zeros(known.shape)
        log_q = jnp.where(free, 0, -jax.nn.softplus(jnp.where(known == 1, -logits, logits)))
        return ProductBernoulli(jnp.where(free, logits, jnp.where(known == 1, HELD, -HELD))), log_q.sum()
    if isinstance(q, Uniform) and isinstance(q.space, KSubsets):
        held = ConditionalBernoulli(jnp.where(free, 0.0, jnp.where(known == 1, HELD, -HELD)), q.space.m)
        # HELD for each label that is on is all that a set which agrees with `known` has.
        return held, held.log_sums()[-1, -1] - HELD * jnp.sum(known == 1) - q.space.log_size
    if isinstance(q, Uniform) and isinstance(q.space, Permutations):
        ranks = jnp.arange(q.space.k)
        scores = jnp.where(free[:, None], 0.0, jnp.where(known[:, None] == ranks, HELD, -HELD))
        return Completions(scores), jax.lax.lgamma(1.0 + free.sum()) - q.space.log_size
    raise ValueError(
        f"Labels can be held known under a uniform q on sets or rankings, or independent labels; not under a "
        f"{type(q).__name__} on {q.space}. Filter draws of `inference.sample` instead."
    )


def with_reference(u: Float[Array, " k"], q: AbstractMeasure) -> tuple[Float[Array, " k"], Scalar]:
    """Where log q is linear in the labels, uniform or product Bernoulli: u with its slope added, and its constant."""
    if isinstance(q, ProductBernoulli):
        return u + q.logits, -jnp.sum(jax.nn.softplus(q.logits))
    return u, jnp.asarray(-q.space.log_size, u.dtype)
