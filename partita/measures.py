"""Probability measures over Y that can be drawn from: references q, generators p, proposals r."""

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ._types import Array, Bool, Float, Int, Key, Scalar
from .logspace import logaddexp, logsumexp
from .spaces import AbstractSpace, Hypercube, KSubsets, Permutations, in_order, permutation, ranks

__all__ = [
    "AbstractMeasure",
    "AbstractScoredMeasure",
    "AbstractSequentialMeasure",
    "Completions",
    "Components",
    "ConditionalBernoulli",
    "Mallows",
    "Mixture",
    "PlackettLuce",
    "ProductBernoulli",
    "Sequential",
    "Uniform",
    "agree",
    "allowed",
    "by_label",
    "defended",
    "log_sums",
    "restricted",
]

# Where a likelihood grows for ever: odds of e^-20 are below one output in 10^8.
WIDEST = 20.0


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
        """log of the probability of one y, for one row; -inf of an output that is excluded."""

    def log_probs(self, ys: Int[Array, " num *shape"]) -> Float[Array, " num"]:
        """log of the probability of each of several outputs, for one row."""
        return jax.vmap(self.log_prob)(ys)

    def check(self) -> None:
        """Raise where a parameter is no number that the measure can have: NaN or infinite, unless a class allows it."""
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(self)):
            raise ValueError(f"A {type(self).__name__} has parameters that are NaN or infinite; they must be numbers.")


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
        total = logsumexp(jnp.where(placed, -jnp.inf, scores))
        # Where no label may come next, as after labels that exclude it, nothing is chosen.
        return jnp.where(jnp.isneginf(total), -jnp.inf, scores - jnp.where(jnp.isneginf(total), 0, total))


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
    """Independent labels: P(y_j = 1) = sigmoid(logits_j); a logit of inf or -inf holds a label on or off."""

    logits: Float[Array, " *rows k"]

    @property
    def space(self):
        return Hypercube(self.logits.shape[-1])

    def sample(self, num, *, key):
        *rows, k = self.logits.shape
        noise = jax.random.uniform(key, (*rows, num, k), self.logits.dtype)
        return (noise < jax.nn.sigmoid(self.logits)[..., None, :]).astype(int)

    def log_prob(self, y):
        off, on = by_label(self)
        return jnp.sum(jnp.where(y == 1, on, off), axis=-1)

    def log_probs(self, ys):
        # Two matrix products in place of a sum for each y; what is excluded is counted, since 0 inf is no number.
        off, on = by_label(self)
        ys = ys.astype(self.logits.dtype)
        excluded = jnp.isneginf(on).astype(ys.dtype) @ ys.T + jnp.isneginf(off).astype(ys.dtype) @ (1 - ys).T
        off, on = (jnp.where(jnp.isneginf(part), 0, part) for part in (off, on))
        return jnp.where(excluded > 0, -jnp.inf, (on - off) @ ys.T + off.sum())

    def check(self):
        _check_not_nan(self.logits, "logits")


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
        return ranks(self.scores[..., None, :] + noise)

    def log_prob(self, y):
        by_rank = in_order(self.scores, y)
        remaining = jax.lax.cumlogsumexp(by_rank, reverse=True)
        return jnp.sum(by_rank - remaining)

    def by_rank(self):
        return jnp.broadcast_to(self.scores[:, None], (*self.scores.shape, *self.scores.shape))

    @staticmethod
    def fit_scale(scores: Float[Array, "n k"], y: Int[Array, "n k"]) -> Scalar:
        """The a >= 0 with which PlackettLuce(a scores) makes the rankings y most likely.

        Where every y follows its scores, a ends where those of neighbors in rank differ by `WIDEST` on average.
        """
        steps = jnp.ptp(scores, axis=1).mean() / (scores.shape[1] - 1)
        largest = WIDEST / jnp.where(steps > 0, steps, 1)
        return _most_likely(lambda a: jax.vmap(lambda s, y: PlackettLuce(a * s).log_prob(y))(scores, y), largest)


class Mallows(AbstractSequentialMeasure):
    """q(y) in proportion to exp(-spread d), d the number of pairs of labels that y and the rank vector `center` order
    differently; spread >= 0, and 0 is uniform.

    The next rank goes to a label not yet placed in proportion to exp(-spread b), b the number of labels not yet placed
    that center puts before it: so every b is independent of the others, and the normalizer a product.
    """

    center: Int[Array, " *rows k"]
    spread: Float[Array, " *rows"]

    def __init__(self, center: Array, spread: Array | float):
        self.center = jnp.asarray(center)
        self.spread = jnp.broadcast_to(jnp.asarray(spread, float), self.center.shape[:-1])

    def __check_init__(self):
        if isinstance(self.center, Tracer) or isinstance(self.spread, Tracer):
            return
        k = self.center.shape[-1]
        if (np.sort(self.center) != np.arange(k)).any() or not (np.asarray(self.spread) >= 0).all():
            raise ValueError(
                f"Mallows needs a center that holds the rank of each label, a permutation of 0..{k - 1}, and a spread "
                f">= 0; got {self.center.tolist()} and {self.spread.tolist()}. Scores have ranks argsort(argsort(-s))."
            )

    @property
    def space(self):
        return Permutations(self.center.shape[-1])

    def sample(self, num, *, key):
        *rows, k = self.center.shape
        left, noise = k - jnp.arange(k), jax.random.uniform(key, (*rows, num, k), self.spread.dtype)
        # b = 0, ..., left - 1 by its inverse distribution function; spread 0 has that of 1e-6, up to rounding.
        spread = jnp.maximum(self.spread, 1e-6)[..., None, None]
        b = jnp.floor(-jnp.log1p(noise * jnp.expm1(-spread * left)) / spread).astype(int)
        rank_of = jnp.argsort(permutation(jnp.clip(b, 0, left - 1)))
        return jnp.take_along_axis(rank_of, self.center[..., None, :], axis=-1)

    def log_prob(self, y):
        before, after = self.center[:, None] < self.center, y[:, None] > y
        log_sums = jax.lax.cumlogsumexp(-self.spread * jnp.arange(y.shape[-1]))
        return -self.spread * jnp.sum(before & after) - jnp.sum(log_sums)

    def log_choice(self, placed):
        b = jnp.sum((self.center[:, None] > self.center) & ~placed, axis=1)
        return -self.spread * b - jax.nn.logsumexp(jnp.where(placed, -jnp.inf, -self.spread * b))

    @staticmethod
    def fit_spread(center: Int[Array, "n k"], y: Int[Array, "n k"]) -> Scalar:
        """The spread with which Mallows(center, spread) makes the rankings y most likely, at most `WIDEST`."""
        each = jax.vmap(lambda center, y, spread: Mallows(center, spread).log_prob(y), in_axes=(0, 0, None))
        return _most_likely(lambda spread: each(center, y, spread), jnp.asarray(WIDEST))


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
        normalizer = logsumexp(jnp.where(free, self.scores, -jnp.inf), axis=0)
        chosen = jnp.take_along_axis(self.scores, y[:, None], axis=1)[:, 0]
        excluded = jnp.isneginf(chosen).any() | jnp.isneginf(normalizer).any()
        return jnp.where(excluded, -jnp.inf, jnp.sum(chosen) - jnp.sum(jnp.where(excluded, 0, normalizer)))

    def by_rank(self):
        return self.scores


class Completions(AbstractScoredMeasure):
    """Uniform over the rankings that agree with what is known: scores are 0 where a label may be, else -inf."""

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

    def check(self):
        _check_not_nan(self.scores, "scores")


class ConditionalBernoulli(AbstractMeasure):
    """Independent labels given that exactly m of them are on; its normalizer is an elementary symmetric polynomial.

    A logit of inf or -inf holds a label on or off.
    """

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
        sums, (_, on) = self.log_sums(), self.weights()

        def decide(left, label):
            # P(y_j = 1 | `left` labels are to be chosen among labels 0..j)
            log_take = on[label] + sums[label, left - 1] - sums[label + 1, left]
            take = (left > 0) & (noise[:, label] < log_take)
            return left - take, take

        chosen = jax.lax.scan(decide, jnp.full(num, self.m), jnp.arange(k), reverse=True)[1]
        return chosen.T.astype(int)

    def log_prob(self, y):
        off, on = self.weights()
        return jnp.sum(jnp.where(y == 1, on, off)) - self.log_sums()[-1, -1]

    def weights(self) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """The log-weight of each label off and on: 0 and its logit; where it is held, 0 and -inf for the other."""
        held_on, held_off = jnp.isposinf(self.logits), jnp.isneginf(self.logits)
        logits = jnp.where(held_on | held_off, 0, self.logits)
        return jnp.where(held_on, -jnp.inf, jnp.zeros_like(logits)), jnp.where(held_off, -jnp.inf, logits)

    def log_sums(self) -> Float[Array, "j r"]:
        """Entry (j, r): log of the sum of the weights of the sets of r of the first j labels, in k m steps."""
        return log_sums(*self.weights(), self.m)

    def check(self):
        _check_not_nan(self.logits, "logits")


def log_sums(off: Float[Array, " k"], on: Float[Array, " k"], m: int) -> Float[Array, "j r"]:
    """Entry (j, r): log of the sum of exp(sum_i on_i or off_i) over the sets of r of the first j labels, r <= m."""
    empty = jnp.where(jnp.arange(m + 1) == 0, 0, -jnp.inf).astype(on.dtype)

    def add(sums, label):
        off, on = label
        longer = jnp.concatenate([jnp.full(1, -jnp.inf, sums.dtype), sums[:-1] + on])
        sums = logaddexp(sums + off, longer)
        return sums, sums

    return jnp.concatenate([empty[None], jax.lax.scan(add, empty, (off, on))[1]])


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

    def check(self):
        self.first.check()
        self.second.check()


class Components(AbstractMeasure):
    """Measures of one family, each with a share: the arrays of `members` carry one leading axis for them, and the
    exponentials of `log_share` sum to one."""

    members: AbstractMeasure
    log_share: Float[Array, " num"]

    @property
    def space(self):
        return self.members.space

    def sample(self, num, *, key):
        choose_key, draw_key = jax.random.split(key)
        chosen = jax.random.categorical(choose_key, self.log_share, shape=(num,))
        return jax.tree.map(lambda a: a[chosen], self.members).sample(1, key=draw_key)[:, 0]

    def log_prob(self, y):
        log_prob = jax.vmap(lambda measure: measure.log_prob(y))(self.members)
        return jax.nn.logsumexp(self.log_share + log_prob)


def defended(r: AbstractMeasure, q: AbstractMeasure, share: float) -> AbstractMeasure:
    """r with a share of q, which bounds the weights q/r by 1 / share; r itself where the share is 0."""
    return Mixture(r, q, share) if share else r


def allowed(y: Int[Array, " k"], free: Int[Array, " k"]) -> Bool[Array, "k k"]:
    """Of a ranking y with tied groups `free` (see `Batch`): entry (j, p) says whether label j may have rank p."""
    at_rank = jnp.argsort(y)
    tied = (free[:, None] == free[at_rank]) & (free[:, None] > 0)
    return tied | (y[:, None] == jnp.arange(y.shape[0]))


def agree(
    space: AbstractSpace, y: Int[Array, " k"], free: Int[Array, " k"], outputs: Int[Array, "num k"]
) -> Bool[Array, " num"]:
    """Which outputs agree with what is observed, (y, free) as in `Batch`."""
    if isinstance(space, Permutations):
        return allowed(y, free)[jnp.arange(space.k), outputs].all(axis=1)
    return ((free > 0) | (outputs == y)).all(axis=1)


def restricted(q: AbstractMeasure, y: Int[Array, " k"], free: Int[Array, " k"]) -> tuple[AbstractMeasure, Scalar]:
    """(q given what is observed, log q of that), (y, free) as in `Batch`. Outputs that do not agree are excluded."""
    held = jnp.where(y == 1, jnp.inf, -jnp.inf)
    if isinstance(q, Uniform | ProductBernoulli) and isinstance(q.space, Hypercube):
        off, on = by_label(q)
        log_q = jnp.where(free > 0, 0, jnp.where(y == 1, on, off))
        return ProductBernoulli(jnp.where(free > 0, on - off, held)), log_q.sum()
    if isinstance(q, Uniform) and isinstance(q.space, KSubsets):
        subsets = ConditionalBernoulli(jnp.where(free > 0, 0.0, held), q.space.m)
        return subsets, subsets.log_sums()[-1, -1] - q.space.log_size
    if isinstance(q, Uniform) and isinstance(q.space, Permutations):
        # The orders within the groups: for each label a factor, the labels of its group up to itself.
        tied = jnp.tril((free[:, None] == free) & (free > 0)).sum(axis=1)
        orders = jnp.sum(jnp.log(jnp.maximum(tied, 1.0)))
        return Completions(jnp.where(allowed(y, free), 0.0, -jnp.inf)), orders - q.space.log_size
    raise ValueError(
        f"Labels can be held known under a uniform q on sets or rankings, or independent labels; not under a "
        f"{type(q).__name__} on {q.space}. Filter draws of `inference.sample` instead."
    )


def by_label(q: AbstractMeasure) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """log q(y_j = 0) and log q(y_j = 1) of every label, where labels are independent: uniform or product Bernoulli.

    Apart, so that a label that is held, one of them -inf, costs no digits.
    """
    logits = q.logits if isinstance(q, ProductBernoulli) else jnp.zeros(q.space.shape)
    return jax.nn.log_sigmoid(-logits), jax.nn.log_sigmoid(logits)


def _check_not_nan(values: Any, what: str) -> None:
    if np.isnan(values).any():
        raise ValueError(
            f"The {what} of a reference are NaN in places; they must be numbers, or infinite to exclude outputs."
        )


def _most_likely(log_prob: Callable[[Scalar], Float[Array, " n"]], largest: Scalar) -> Scalar:
    """The number from 0 to `largest` with the highest mean of a concave log_prob, by bisection on its slope."""
    slope = jax.grad(lambda a: log_prob(a).mean())

    def halve(_, bracket):
        low, high = bracket
        middle = (low + high) / 2
        rising = slope(middle) > 0
        return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

    low, high = jax.lax.fori_loop(0, 50, halve, (jnp.zeros_like(largest), largest))
    return (low + high) / 2
