"""Rankings of k labels: the space, and measures on it. `ranking_polytopes` has the hulls and the exact sums."""

import abc
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .. import budget
from ..numerics import logsumexp
from ..types import Array, Bool, Float, Int, Key, Scalar
from . import subset_dp
from .base import AbstractMeasure, AbstractRankings, Conditioned, whole_number

__all__ = [
    "AbstractScoredMeasure",
    "AbstractSequentialMeasure",
    "Completions",
    "Mallows",
    "Permutations",
    "PlackettLuce",
    "Restricted",
    "Sequential",
    "allowed_ranks",
    "permutation",
    "program_work",
    "ranks",
    "sample_rankings",
]

# Up to here comparing all pairs of labels, in vector operations, takes less time than sorting them, which has none.
FEW_LABELS = 32
# Where a likelihood grows for ever: odds of e^-20 are below one output in 10^8.
WIDEST = 20.0


class Permutations(AbstractRankings):
    """Rankings of k labels as rank vectors: y[j] is the rank of label j, 0 is best.

    A mask of rankings numbers groups of tied labels: labels of a row with the same positive number share the ranks that
    y gives them, in unknown order. So a list of the first m labels has all others in one group.

    Parameters
    ----------
    k : int
        The number of labels, at least 2.

    Examples
    --------
    >>> Permutations(4).size
    24
    """

    k: int = eqx.field(static=True, converter=whole_number)

    def __check_init__(self):
        if self.k < 2:
            raise ValueError(f"Permutations needs k >= 2 labels; got k = {self.k}. One label has only one ranking.")

    @property
    def size(self):
        return math.factorial(self.k)

    def sample(self, num, *, key):
        return sample_rankings(self.k, num, key=key)

    def contains(self, y):
        return jnp.all(jnp.sort(y) == jnp.arange(self.k))

    def element(self, i):
        # Lehmer code: digit j says how many of the ranks still free are passed over for label j. Only spaces of fewer
        # than 2^31 elements are ever enumerated.
        radix = [min(math.factorial(self.k - 1 - j), 2**31 - 1) for j in range(self.k)]
        return permutation(jnp.stack([i // radix[j] % (self.k - j) for j in range(self.k)]))

    def describe(self):
        return f"For rankings row i holds the rank of each label: a permutation of 0..{self.k - 1}, 0 is best."

    def indicators(self, y):
        """The permutation matrix: entry (j, p) is 1 where label j has rank p."""
        return jax.nn.one_hot(y, self.k)

    @property
    def max_degree(self):
        return self.k * (self.k - 1) // 2

    def move(self, y, i):
        """Two labels change their ranks."""
        pairs = jnp.asarray(np.triu_indices(self.k, 1))[:, i]
        return y.at[pairs].set(y[pairs[::-1]])

    def check_mask(self, mask):
        if mask.min() < 0 or mask.max() > self.k:
            raise ValueError(
                f"A mask is 0 where y is observed, else a number per tied group, up to {self.k}; got {mask.min()} to "
                f"{mask.max()}."
            )
        # A label that is tied with no other is observed.
        return np.where((mask[:, :, None] == mask[:, None, :]).sum(axis=2) > 1, mask, 0)

    def agrees(self, y, mask, outputs):
        return allowed_ranks(y, mask)[jnp.arange(self.k), outputs].all(axis=1)

    def complete(self, known):
        """The ranks that are left, in order."""
        y = known.copy()
        for row in y:
            row[row < 0] = np.setdiff1d(np.arange(self.k), row)
        return y

    def contradicts(self, known):
        in_order = np.sort(known, axis=1)
        return ((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)).any(axis=1)

    def condition_uniform(self, y, mask):
        # The orders within the groups: for each label a factor, the labels of its group up to itself.
        tied = jnp.tril((mask[:, None] == mask) & (mask > 0)).sum(axis=1)
        orders = jnp.sum(jnp.log(jnp.maximum(tied, 1.0)))
        measure = Completions(jnp.where(allowed_ranks(y, mask), 0.0, -jnp.inf))
        return Conditioned(measure, orders - self.log_size)

    def rank_scores(self):
        return jnp.zeros((self.k, self.k))

    def generator_shape(self):
        return self.shape

    def generator(self, parameters):
        return PlackettLuce(parameters)

    def proposal_shape(self):
        return (self.k, self.k)

    def proposal(self, parameters):
        return Sequential(parameters)


class AbstractSequentialMeasure(AbstractMeasure):
    """A measure on rankings that fills ranks 0, 1, ... in turn, each choice given the set of labels already placed."""

    @abc.abstractmethod
    def log_choice(self, placed: Bool[Array, " k"]) -> Float[Array, " k"]:
        """log-weight of each label for the next rank; the next rank is the number of labels placed."""

    def log_total(self) -> Scalar | float:
        """log of the sum over all rankings of the product of the weights: 0 where each choice is normalized."""
        return 0.0

    def condition(self, y, mask):
        if not budget.affords_answer(program_work(y.shape[-1])):
            return None
        allowed = allowed_ranks(y, mask)
        whole = Restricted(self, allowed, jnp.zeros(()))
        scores = jnp.zeros(allowed.shape)
        log_mass = subset_dp.layers(scores, whole.log_choices, logsumexp)[-1][0]
        return Conditioned(Restricted(self, allowed, log_mass), log_mass - self.log_total())

    def log_choices(self, placed: Bool[Array, "sets k"], _: object = None) -> Float[Array, "sets k"]:
        """`log_choice` of several sets."""
        return jax.vmap(self.log_choice)(placed)


class AbstractScoredMeasure(AbstractSequentialMeasure):
    """A sequential measure that fills rank p in proportion to exp(score of label j at rank p), its `rank_scores`."""

    def log_choice(self, placed):
        by_rank = self.rank_scores()
        assert by_rank is not None
        scores = jnp.take(by_rank, jnp.sum(placed), axis=1, mode="clip")
        total = logsumexp(jnp.where(placed, -jnp.inf, scores))
        # Where no label may come next, as after labels that exclude it, nothing is chosen.
        return jnp.where(jnp.isneginf(total), -jnp.inf, scores - jnp.where(jnp.isneginf(total), 0, total))


class Restricted(AbstractSequentialMeasure):
    """A sequential measure given which label may have which rank, by the subset program.

    Parameters
    ----------
    q : AbstractSequentialMeasure
    allowed : array of shape (k, k)
        Whether label j may have rank p.
    log_mass : scalar
        log of the sum of q's weights over the rankings that are allowed.
    """

    q: AbstractSequentialMeasure
    allowed: Bool[Array, " *rows k k"]
    log_mass: Float[Array, " *rows"]

    @property
    def space(self):
        return self.q.space

    def log_choice(self, placed):
        column = jnp.take(self.allowed, jnp.sum(placed), axis=1, mode="clip")
        return jnp.where(column, self.q.log_choice(placed), -jnp.inf)

    def log_total(self):
        return self.log_mass

    def log_prob(self, y):
        inside = self.allowed[jnp.arange(len(y)), y].all()
        return jnp.where(inside, self.q.log_prob(y) + self.q.log_total() - self.log_mass, -jnp.inf)

    def sample(self, num, *, key):
        if self.log_mass.ndim:
            keys = jax.random.split(key, self.log_mass.shape[0])
            return jax.vmap(lambda measure, key: measure.sample(num, key=key))(self, keys)
        k = self.allowed.shape[-1]
        scores = jnp.zeros((k, k), self.log_mass.dtype)
        sums = jnp.concatenate(subset_dp.layers(scores, self.log_choices, logsumexp))
        noise = jax.random.gumbel(key, (num, k, k), scores.dtype)
        return jax.vmap(lambda z: subset_dp.unwind(scores, self.log_choices, sums, z))(noise)

    def check(self):
        self.q.check()


class PlackettLuce(AbstractScoredMeasure):
    """Each rank goes to a label not yet placed, with probability proportional to exp(score).

    Parameters
    ----------
    scores : array of shape (k,), or (n, k) for one measure per row
    """

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

    def rank_scores(self):
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

    Parameters
    ----------
    center : array of shape (k,), or (n, k) for one measure per row
        A rank vector.
    spread : float, or array of shape (n,)

    Notes
    -----

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
    """Rank p goes to a label not yet placed, with probability proportional to exp(scores[label, p]).

    Parameters
    ----------
    scores : array of shape (k, k), or (n, k, k) for one measure per row
    """

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

    def rank_scores(self):
        return self.scores

    def mode(self):
        """The ranking that gives each rank in turn to the best label left."""

        def place(taken, by_label):
            label = jnp.argmax(jnp.where(taken, -jnp.inf, by_label))
            return taken.at[label].set(True), label

        return jnp.argsort(jax.lax.scan(place, jnp.zeros(self.scores.shape[0], bool), self.scores.T)[1])


class Completions(AbstractScoredMeasure):
    """Uniform over the rankings that agree with what is known: scores are 0 where a label may be, else -inf.

    Labels that share several ranks are allowed in blocks: a group of labels at as many ranks.
    """

    scores: Float[Array, " *rows k k"]

    @property
    def space(self):
        return Permutations(self.scores.shape[-1])

    def sample(self, num, *, key):
        return Sequential(self.scores).sample(num, key=key)

    def log_prob(self, y):
        return Sequential(self.scores).log_prob(y)

    def rank_scores(self):
        return self.scores

    @property
    def only_excludes(self):
        return True

    def check(self):
        if np.isnan(self.scores).any():
            raise ValueError(
                "The scores of a reference are NaN in places; they must be numbers, or infinite to exclude outputs."
            )


def program_work(k: int) -> budget.Work:
    """What the subset program of k labels does."""
    terms = k * 2 ** (k - 1)
    return budget.Work(budget.Kind.PROGRAM, terms, terms)


def sample_rankings(k: int, num: int, *, key: Key) -> Int[Array, "num k"]:
    """Uniform rank vectors."""
    # The order of random words is uniform up to ties, which 32 bits make rarer than k^2 / 2^33.
    return jnp.argsort(jax.random.bits(key, (num, k), jnp.uint32), axis=-1)


def allowed_ranks(y: Int[Array, " k"], mask: Int[Array, " k"]) -> Bool[Array, "k k"]:
    """Of a ranking y with tied groups `mask`: entry (j, p) says whether label j may have rank p."""
    at_rank = jnp.argsort(y)
    tied = (mask[:, None] == mask[at_rank]) & (mask[:, None] > 0)
    return tied | (y[:, None] == jnp.arange(y.shape[0]))


def permutation(digits: Int[Array, " *rows k"]) -> Int[Array, " *rows k"]:
    """The permutation with this Lehmer code: entry j is the digits[j]-th number that no earlier entry has taken."""
    y = digits
    for j in range(digits.shape[-1] - 2, -1, -1):
        y = y.at[..., j + 1 :].add(y[..., j + 1 :] >= y[..., j : j + 1])
    return y


def ranks(scores: Float[Array, " *rows k"]) -> Int[Array, " *rows k"]:
    """The rank of each, 0 for the largest; of equal ones the first is better."""
    k = scores.shape[-1]
    if k > FEW_LABELS:
        return jnp.argsort(jnp.argsort(-scores))
    mine, other, label = scores[..., :, None], scores[..., None, :], jnp.arange(k)
    better = (other > mine) | ((other == mine) & (label < label[:, None]))
    return jnp.sum(better, axis=-1)


def in_order(scores: Float[Array, " k"], y: Int[Array, " k"]) -> Float[Array, " k"]:
    """The scores of the labels in the order of their ranks."""
    if len(y) > FEW_LABELS:
        return scores[jnp.argsort(y)]
    return jnp.sum(jnp.where(y == jnp.arange(len(y))[:, None], scores, 0), axis=1)


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
