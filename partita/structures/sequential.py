"""Measures on rankings that fill the ranks in turn, and these measures given which ranks labels may have."""

import abc

import jax
import jax.numpy as jnp

from .. import budget
from ..numerics import logsumexp
from ..types import Array, Bool, Float, Scalar
from . import subset_dp
from .measures import AbstractMeasure, Conditioned
from .rank_vectors import allowed_ranks

__all__ = ["AbstractScoredMeasure", "AbstractSequentialMeasure", "Restricted"]


class AbstractSequentialMeasure(AbstractMeasure):
    """A measure on rankings that fills ranks 0, 1, ... in turn, each choice given the set of labels already placed.

    The subset program sums over the rankings under such a measure.
    """

    @abc.abstractmethod
    def log_choice(self, placed: Bool[Array, " k"]) -> Float[Array, " k"]:
        """The log-weight of each label for the next rank.

        Parameters
        ----------
        placed
            Which labels are placed; the next rank is their number.
        """

    def log_total(self) -> Scalar | float:
        """The log-sum over all rankings of the product of the weights.

        Returns
        -------
        Scalar
            0 if each choice is normalized.
        """
        return 0.0

    def condition(self, y, mask):
        if not budget.affords_answer(subset_dp.program_work(y.shape[-1])):
            return None
        allowed = allowed_ranks(y, mask)
        unnormalized = Restricted(self, allowed, jnp.zeros(()))
        scores = jnp.zeros(allowed.shape)
        log_mass = subset_dp.layers(scores, unnormalized.log_choices, logsumexp)[-1][0]
        return Conditioned(Restricted(self, allowed, log_mass), log_mass - self.log_total())

    def log_choices(self, placed: Bool[Array, "sets k"], num: object = None) -> Float[Array, "sets k"]:
        """`log_choice` of several sets, a `subset_dp.Choice`.

        Parameters
        ----------
        placed
            Which labels are placed, in each set.
        num
            Their number; not used.

        Returns
        -------
        Array
            The log-weights for each set.
        """
        return jax.vmap(self.log_choice)(placed)


class AbstractScoredMeasure(AbstractSequentialMeasure):
    """A sequential measure in which rank p goes to label j with probability proportional to exp(rank_scores[j, p])."""

    def log_choice(self, placed):
        by_rank = self.rank_scores()
        assert by_rank is not None
        scores = jnp.take(by_rank, jnp.sum(placed), axis=1, mode="clip")
        total = logsumexp(jnp.where(placed, -jnp.inf, scores))
        # If all labels that are left are excluded from the next rank, so is every choice.
        return jnp.where(jnp.isneginf(total), -jnp.inf, scores - jnp.where(jnp.isneginf(total), 0, total))


class Restricted(AbstractSequentialMeasure):
    """A sequential measure given which ranks each label may have, by the subset program.

    Parameters
    ----------
    q
        The sequential measure.
    allowed
        Entry (j, p): whether label j may have rank p.
    log_mass
        The log-sum of the weights of q over the rankings that are allowed.
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
        is_allowed = self.allowed[jnp.arange(len(y)), y].all()
        return jnp.where(is_allowed, self.q.log_prob(y) + self.q.log_total() - self.log_mass, -jnp.inf)

    def sample(self, num, *, key):
        if self.log_mass.ndim:
            keys = jax.random.split(key, self.log_mass.shape[0])
            return jax.vmap(lambda measure, key: measure.sample(num, key=key))(self, keys)
        k = self.allowed.shape[-1]
        scores = jnp.zeros((k, k), self.log_mass.dtype)
        sums = jnp.concatenate(subset_dp.layers(scores, self.log_choices, logsumexp))
        noise = jax.random.gumbel(key, (num, k, k), scores.dtype)
        return jax.vmap(lambda z: subset_dp.trace_back(scores, self.log_choices, sums, z))(noise)

    def check(self):
        self.q.check()
