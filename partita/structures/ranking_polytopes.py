"""Hulls of rankings, exact sums by the subset program, and a surrogate by balancing."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.optimize

from ..divergences import KL
from ..numerics import logsumexp
from ..types import Array, Float
from . import subset_dp
from .couplings import AbstractSurrogate, SurrogateRow
from .matrices import TINY, balance, best_assignments, invariants, project_birkhoff, tail_mass
from .methods import AbstractAssignments, AbstractMethod, Best
from .polytopes import AbstractPolytope
from .rank_vectors import allowed_ranks, isotonic_decreasing, ranks
from .rankings import Permutations, Sequential
from .sequential import AbstractSequentialMeasure

__all__ = ["AbstractRankingPolytope", "Assignments", "Balanced", "Birkhoff", "Permutahedron", "SubsetDP"]


class AbstractRankingPolytope(AbstractPolytope):
    """A hull of rankings on which <theta, phi(y)> is a sum over labels of the score of the label at its rank."""

    k: eqx.AbstractVar[int]

    @property
    def space(self):
        return Permutations(self.k)

    def matrix(self, theta: Float[Array, " *shape"]) -> Float[Array, "k k"]:
        """The score of each label at each rank.

        Parameters
        ----------
        theta
            The logits.
        """
        raise NotImplementedError

    def mode(self, theta, q):
        if q.is_uniform or not q.only_excludes:
            return super().mode(theta, q)
        # The algorithm takes no -inf: excluded entries get a score with which a ranking is worse than any other one.
        scores = self.matrix(theta)
        excluded = scores.min() - self.k * jnp.ptp(scores) - 1
        return _assign(jnp.where(jnp.isneginf(_rank_scores(q)), excluded, scores))

    def assignments(self, q):
        return Assignments(self) if q.only_excludes else None

    def exact(self, q, f, interaction=None):
        is_sequential = q.is_uniform or isinstance(q, AbstractSequentialMeasure)
        return SubsetDP(self) if interaction is None and is_sequential and isinstance(f, KL) else None

    def surrogate(self, q, f, interaction=None):
        is_scored = interaction is None and isinstance(f, KL) and q.rank_scores() is not None
        return Balanced() if is_scored else None


class Permutahedron(AbstractRankingPolytope):
    """The hull of the vectors phi(y) = (w(y_1), ..., w(y_k)), with w decreasing from 1 at rank 0 to -1 at rank k - 1.

    A large theta_j means that label j is preferred.

    Parameters
    ----------
    k
        The number of labels.

    Examples
    --------
    >>> Permutahedron(3).argmax(jnp.array([0.1, 2.0, -1.0])).tolist()
    [1, 0, 2]
    """

    k: int = eqx.field(static=True)

    def encode(self, y):
        return 1 - 2 * y / (self.k - 1)

    def argmax(self, theta):
        return ranks(theta)

    def matrix(self, theta):
        return theta[:, None] * self.encode(jnp.arange(self.k)).astype(theta.dtype)

    def project(self, theta):
        order = jnp.argsort(-theta)
        theta_sorted = theta[order]
        excess = isotonic_decreasing(theta_sorted - self.encode(jnp.arange(self.k)))
        return jnp.zeros_like(theta).at[order].set(theta_sorted - excess)


class Birkhoff(AbstractRankingPolytope):
    """The doubly stochastic matrices, the hull of the permutation matrices phi(y), with a 1 at (j, y_j).

    Parameters
    ----------
    k
        The number of labels.

    Examples
    --------
    >>> Birkhoff(2).encode(jnp.array([1, 0])).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    k: int = eqx.field(static=True)

    @property
    def shape(self):
        return (self.k, self.k)

    def encode(self, y):
        return self.space.indicators(y)

    def argmax(self, theta):
        return _assign(theta)

    @property
    def argmax_is_on_host(self):
        return True

    def matrix(self, theta):
        return theta

    def project(self, theta):
        return project_birkhoff(theta)

    def entropy_argmax(self, eta):
        return balance(eta, tolerance=1e-6)

    def score(self, theta, y):
        return jnp.take_along_axis(theta, y[:, None], axis=1).sum()


def _assign(scores: Float[Array, "k k"]) -> Array:
    """The ranking y with the largest sum_j scores[j, y_j]."""
    labels, best = optax.assignment.hungarian_algorithm(-scores)
    return jnp.zeros(len(scores), int).at[labels].set(best)


def _rank_scores(q: Any) -> Float[Array, "k k"]:
    """`rank_scores` of a measure that has them."""
    return q.rank_scores()


class Assignments(AbstractAssignments):
    """The best rankings by scipy's assignment algorithm: on a CPU about 8 times as fast as inside jit at k = 32.

    Parameters
    ----------
    polytope
        A hull of rankings.
    """

    polytope: AbstractRankingPolytope

    def scores(self, theta, q):
        scores = self.polytope.matrix(theta)
        return scores if q.is_uniform else scores + _rank_scores(q)

    def argmax(self, scores):
        return np.stack([scipy.optimize.linear_sum_assignment(row, maximize=True)[1] for row in scores])

    def top_k(self, scores, num):
        y, score = zip(*(best_assignments(row, num) for row in scores), strict=True)
        return np.stack(y), np.stack(score)


class SubsetDP(AbstractMethod):
    """Exact sums for rankings scored by sum_j theta[j, y_j], a permanent, over the sets of labels placed so far.

    a(S) = log sum_{j in S} exp(a(S - j) + theta[j, |S| - 1] + log q(j | S - j)): one layer per rank, k 2^(k-1) terms.
    The permutahedron is the case theta[j, p] = theta_j w(p).

    Parameters
    ----------
    polytope
        A hull of rankings.
    """

    polytope: AbstractRankingPolytope

    @property
    def space(self):
        return self.polytope.space

    @property
    def work(self):
        return subset_dp.program_work(self.polytope.k)

    def softmax(self, theta, q, tilt):
        return self._log_sum(self.polytope.matrix(theta) + tilt, q)

    def sample(self, theta, q, num, *, key):
        scores = self.polytope.matrix(theta)
        sums = jnp.concatenate(subset_dp.layers(scores, self._choice(q), logsumexp))
        noise = jax.random.gumbel(key, (num, *scores.shape), theta.dtype)
        return jax.vmap(lambda z: subset_dp.trace_back(scores, self._choice_back(q), sums, z))(noise)

    def mode(self, theta, q):
        scores = self.polytope.matrix(theta)
        sums = jnp.concatenate(subset_dp.layers(scores, self._choice(q), jnp.max))
        return subset_dp.trace_back(scores, self._choice_back(q), sums, jnp.zeros_like(scores))

    def top_k(self, theta, q, num):
        return Best(*subset_dp.best_rankings(self.polytope.matrix(theta), self._choice(q), num))

    def before(self, theta, q):
        return subset_dp.order_probabilities(self.polytope.matrix(theta), self._choice(q))

    @property
    def has_partial(self):
        return True

    def partial(self, theta, q, y, mask):
        tilt = jnp.where(allowed_ranks(y, mask), 0, -jnp.inf).astype(theta.dtype)
        log_q = self.space.condition_uniform(y, mask).log_mass if q.is_uniform else self._log_sum(tilt, q)
        return self.softmax(theta, q, tilt) - log_q, log_q

    def _log_sum(self, scores, q):
        total = subset_dp.layers(scores, self._choice(q), logsumexp)[-1][0]
        return total if q.is_uniform else total - q.log_total()

    def _choice(self, q) -> subset_dp.Choice:
        k = self.polytope.k
        if q.is_uniform:
            # The same number for all sets of one size.
            return lambda placed, num: jnp.full(placed.shape, -np.log(k - num))
        return q.log_choices

    def _choice_back(self, q) -> subset_dp.Choice | None:
        return None if q.is_uniform else q.log_choices


class Balanced(AbstractSurrogate):
    """The surrogate of rankings scored by sum_j theta[j, y_j]: exp(theta) balanced to a doubly stochastic matrix b.

    r gives rank p to label j by the odds b[j, p] / (mass of label j at later ranks under b). tau_0 is the Bethe bound,
    sum b theta - sum b log b + sum (1 - b) log(1 - b), which holds for every doubly stochastic b. When balancing ends,
    b is rounded to a doubly stochastic matrix, so that the bound holds for any theta.

    Parameters
    ----------
    tolerance
        The largest error of the sums of rows at which balancing ends.
    max_steps
        The largest number of steps of balancing.
    rounds
        The number of iterations for the tangent points of a q that is not uniform.

    Notes
    -----
    Under a uniform q the error of the bound is a function of b alone, invariant to the order of labels and of ranks.
    The summary consists of such functions. (A correction that reads b itself overfits: on vowel its error on unseen
    rows was 0.35 nats, with these functions 0.2.)

    A reference q that fills rank p by scores s divides by the mass Z_p of the labels not yet placed. -log Z_p is convex
    in Z_p and so above its tangent at any z_p, which is a sum over labels: with the tangent in place of it q becomes a
    part of theta, and the bound still holds. z_p is the mean of Z_p under b.
    """

    tolerance: float = eqx.field(static=True, default=1e-4)
    max_steps: int = eqx.field(static=True, default=100)
    rounds: int = eqx.field(static=True, default=3)

    def __call__(self, coupling, theta, q):
        scores = coupling.polytope.matrix(theta)
        if q.is_uniform:
            constant = jnp.asarray(-q.space.log_size, scores.dtype)
            b = jax.lax.stop_gradient(self._balance(scores))
        else:
            b, slope, constant = jax.lax.stop_gradient(self._linearize(scores, q.rank_scores()))
            scores = scores + slope
        later = tail_mass(b) - b
        odds = jnp.log(jnp.maximum(b, TINY)) - jnp.log(jnp.maximum(later, TINY))
        # If q excludes a label from a rank, so do b and r.
        excluded = jnp.isneginf(scores)
        odds, scores = jnp.where(excluded, -jnp.inf, odds), jnp.where(excluded, 0, scores)
        free, chosen = jax.scipy.special.xlogy(1 - b, 1 - b), -jax.scipy.special.xlogy(b, b)
        tau = jnp.vdot(b, scores) + jnp.sum(chosen) + jnp.sum(free) + constant
        summary = invariants(b, free, chosen)
        if not q.is_uniform:
            summary = jnp.concatenate([summary, b.ravel()])
        return SurrogateRow(Sequential(odds), tau, summary)

    def _linearize(self, scores, s):
        """(b, slope, constant): b balances scores and q together, and log q(y) >= sum_j slope[j, y_j] + constant."""
        top = s.max(axis=0)
        weight = jnp.exp(s - top)

        def others(b):
            expected = weight * tail_mass(b)
            return jnp.sum(expected, axis=0) - expected

        def update(_, b):
            # The change of log Z_p by label j if it is not yet placed, with the mean of the others under b: closer than
            # the tangent if one label has most of Z_p.
            changes = jnp.log1p(weight / jnp.maximum(others(b), TINY))
            return self._balance(scores + s - jnp.cumsum(changes, axis=1))

        k = scores.shape[0]
        b = jax.lax.fori_loop(0, self.rounds, update, jnp.full((k, k), 1 / k, scores.dtype))
        z = jnp.sum(weight * tail_mass(b), axis=0)
        return b, s - jnp.cumsum(weight / z, axis=1), jnp.sum(1 - jnp.log(z) - top)

    def _balance(self, scores):
        return balance(scores, self.tolerance, self.max_steps)
