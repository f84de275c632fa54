"""Rankings of k labels: the space and measures on it. `ranking_polytopes` has the hulls and the exact sums."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..numerics import bisect, logsumexp
from ..types import Array, Bool, Float, Int, Scalar
from .measures import Conditioned
from .rank_vectors import allowed_ranks, decode_lehmer, ranks, sample_rankings, sort_by_rank
from .sequential import AbstractScoredMeasure, AbstractSequentialMeasure
from .spaces import AbstractSpace, whole_number

__all__ = ["AbstractRankings", "Completions", "Mallows", "Permutations", "PlackettLuce", "Sequential"]

# Largest log-odds where the maximum likelihood estimate is infinite: odds of e^-20 are below one output in 10^8.
MAX_LOG_ODDS = 20.0


class AbstractRankings(AbstractSpace):
    """Spaces whose outputs are rankings of k labels, as rank vectors: y[j] is the rank of label j, 0 is best."""

    k: eqx.AbstractVar[int]

    @property
    def shape(self):
        return (self.k,)

    @property
    def largest(self):
        return self.k - 1

    def order(self, y: Int[Array, " num k"]) -> Bool[Array, "num k k"]:
        """Which labels are ranked before which.

        Parameters
        ----------
        y
            Several rankings.

        Returns
        -------
        Array
            Entry (a, b) of each: whether label a is ranked before label b.
        """
        return y[:, :, None] < y[:, None, :]


class Permutations(AbstractRankings):
    """Rankings of k labels as rank vectors: y[j] is the rank of label j, 0 is best.

    The mask of a ranking known in part numbers groups of tied labels: labels with the same positive number share the
    ranks that y gives them, in unknown order. A list of the first m labels has all other labels in one group.

    Parameters
    ----------
    k
        The number of labels, at least 2.

    Examples
    --------
    >>> space = Permutations(4)
    >>> space.size, space.element(1).tolist()
    (24, [0, 1, 3, 2])
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
        # Lehmer code: digit j is the number of free ranks below that of label j. Only spaces of fewer than 2^31 outputs
        # are enumerated.
        radix = [min(math.factorial(self.k - 1 - j), 2**31 - 1) for j in range(self.k)]
        return decode_lehmer(jnp.stack([i // radix[j] % (self.k - j) for j in range(self.k)]))

    def describe(self):
        return f"For rankings row i holds the rank of each label: a permutation of 0..{self.k - 1}, 0 is best."

    def indicators(self, y):
        # The permutation matrix: entry (j, p) is 1 where label j has rank p.
        return jax.nn.one_hot(y, self.k)

    @property
    def max_degree(self):
        return self.k * (self.k - 1) // 2

    def move(self, y, i):
        # Two labels exchange their ranks.
        pair = jnp.asarray(np.triu_indices(self.k, 1))[:, i]
        return y.at[pair].set(y[pair[::-1]])

    def check_mask(self, mask):
        if mask.min() < 0 or mask.max() > self.k:
            raise ValueError(
                f"A mask is 0 where y is observed, else a number per tied group, up to {self.k}; got {mask.min()} to "
                f"{mask.max()}."
            )
        # A label that is tied with no other label is observed.
        return np.where((mask[:, :, None] == mask[:, None, :]).sum(axis=2) > 1, mask, 0)

    def agrees(self, y, mask, outputs):
        return allowed_ranks(y, mask)[jnp.arange(self.k), outputs].all(axis=1)

    def complete(self, known):
        # Unknown labels get the ranks that are left, in order.
        y = known.copy()
        for row in y:
            row[row < 0] = np.setdiff1d(np.arange(self.k), row)
        return y

    def contradicts(self, known):
        in_order = np.sort(known, axis=1)
        return ((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)).any(axis=1)

    def condition_uniform(self, y, mask):
        # The number of orders within the groups: one factor per label, the number of labels of its group up to itself.
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


class PlackettLuce(AbstractScoredMeasure):
    """Plackett-Luce: each rank in turn goes to a label not yet placed with probability proportional to exp(score).

    Parameters
    ----------
    scores
        An array of shape (k,), or (n, k) for one measure per row.

    Examples
    --------
    >>> q = PlackettLuce(jnp.log(jnp.array([3.0, 1.0])))
    >>> round(float(jnp.exp(q.log_prob(jnp.array([0, 1])))), 4)
    0.75
    """

    scores: Float[Array, " *rows k"]

    @property
    def space(self):
        return Permutations(self.scores.shape[-1])

    def sample(self, num, *, key):
        # The order of the labels by score plus Gumbel noise follows Plackett-Luce.
        *rows, k = self.scores.shape
        noise = jax.random.gumbel(key, (*rows, num, k), self.scores.dtype)
        return ranks(self.scores[..., None, :] + noise)

    def log_prob(self, y):
        by_rank = sort_by_rank(self.scores, y)
        remaining = jax.lax.cumlogsumexp(by_rank, reverse=True)
        return jnp.sum(by_rank - remaining)

    def rank_scores(self):
        return jnp.broadcast_to(self.scores[:, None], (*self.scores.shape, *self.scores.shape))

    @staticmethod
    def fit_scale(scores: Float[Array, "n k"], y: Int[Array, "n k"]) -> Scalar:
        """The maximum likelihood estimate of a >= 0 in PlackettLuce(a scores).

        Parameters
        ----------
        scores, y
            The scores and the observed rankings, one row each.

        Returns
        -------
        Scalar
            The estimate, such that scores of neighbors in rank differ by at most 20 on average: if all y are in the
            order of their scores, the likelihood has no maximum.
        """
        steps = jnp.ptp(scores, axis=1).mean() / (scores.shape[1] - 1)
        largest = MAX_LOG_ODDS / jnp.where(steps > 0, steps, 1)
        return _most_likely(lambda a: jax.vmap(lambda s, y: PlackettLuce(a * s).log_prob(y))(scores, y), largest)


class Mallows(AbstractSequentialMeasure):
    """The Mallows measure, q(y) proportional to exp(-spread d), with d the Kendall distance of y to a central ranking.

    d is the number of pairs of labels that y and the center order differently.

    Parameters
    ----------
    center
        The central ranking, a rank vector of shape (k,), or (n, k) for one measure per row.
    spread
        A number >= 0, or one per row; 0 is the uniform measure, and larger ones are more concentrated.

    Notes
    -----
    The next rank goes to a label not yet placed with probability proportional to exp(-spread b), where b is the number
    of labels not yet placed that the center puts before it. All b are independent, so the normalizer is a product.
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
        # b = 0, ..., left - 1 by its inverse distribution function; that of spread 0 is that of 1e-6, up to rounding.
        spread = jnp.maximum(self.spread, 1e-6)[..., None, None]
        b = jnp.floor(-jnp.log1p(noise * jnp.expm1(-spread * left)) / spread).astype(int)
        rank_of = jnp.argsort(decode_lehmer(jnp.clip(b, 0, left - 1)))
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
        """The maximum likelihood estimate of the spread.

        Parameters
        ----------
        center, y
            The central and the observed rankings, one row each.

        Returns
        -------
        Scalar
            The estimate, at most 20: if all y are equal to their centers, the likelihood has no maximum.
        """
        log_prob = jax.vmap(lambda center, y, spread: Mallows(center, spread).log_prob(y), in_axes=(0, 0, None))
        return _most_likely(lambda spread: log_prob(center, y, spread), jnp.asarray(MAX_LOG_ODDS))


class Sequential(AbstractScoredMeasure):
    """Each rank p in turn goes to a label j not yet placed with probability proportional to exp(scores[j, p]).

    Parameters
    ----------
    scores
        An array of shape (k, k), or (n, k, k) for one measure per row.
    """

    scores: Float[Array, " *rows k k"]

    @property
    def space(self):
        return Permutations(self.scores.shape[-1])

    def sample(self, num, *, key):
        # One random number per rank, with sums as a matrix product: three times as fast as Gumbel noise per label.
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
        # Each rank in turn goes to the best label that is left.
        def place(taken, by_label):
            label = jnp.argmax(jnp.where(taken, -jnp.inf, by_label))
            return taken.at[label].set(True), label

        return jnp.argsort(jax.lax.scan(place, jnp.zeros(self.scores.shape[0], bool), self.scores.T)[1])


class Completions(AbstractScoredMeasure):
    """The uniform measure on the rankings that agree with what is known.

    Parameters
    ----------
    scores
        Entry (j, p) is 0 if label j may have rank p, else -inf, of shape (k, k), or (n, k, k) for one measure per row.
        Labels are allowed in blocks: a group of labels at as many ranks.
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


def _most_likely(log_prob: Callable[[Scalar], Float[Array, " n"]], largest: Scalar) -> Scalar:
    """The argmax of the mean of a concave log_prob from 0 to `largest`."""
    slope = jax.grad(lambda a: log_prob(a).mean())
    return bisect(lambda a: slope(a) > 0, jnp.zeros_like(largest), largest)
