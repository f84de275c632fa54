"""Learning by comparison: noise-contrastive estimation, pseudo-likelihood, ratio matching."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp

from .._types import Array, Float, Scalar
from ..measures import AbstractMeasure
from ..spaces import Hypercube
from .base import AbstractEnergyObjective, AbstractObjective, check_kl, check_whole, credible_likelihood, mean
from .proposals import Neighboring, Proposal, check_proposal

COMPARES = "compares densities q exp(g)"


class NCE(AbstractObjective):
    """Tell the observed y from `num_samples` draws of noise by logistic regression on log p - log(num_samples r).

    log p = log q + g - tau with the learned tau, which is trained like any other weight. Noise r: q by default, the
    neighbor of p (`Neighboring()`, near maximum likelihood already with few draws), or any measure. As the number of
    draws grows, the gradient becomes that of the likelihood.
    """

    num_samples: int = eqx.field(static=True, default=16)
    noise: Neighboring | AbstractMeasure | None = None

    def __check_init__(self):
        if not isinstance(self.num_samples, int) or self.num_samples < 1:
            raise ValueError(f"NCE needs num_samples >= 1 draws of noise per row; got {self.num_samples}.")

    def check(self, model):
        check_kl(self, model, COMPARES)
        check_proposal(self.noise, model)

    def credible(self, model):
        return credible_likelihood(model)

    def loss(self, model, state, batch, *, key):
        check_whole(self, batch)
        rows = jax.vmap(model.row)(batch.x, batch.index, batch.reference)
        r = Proposal.of(self.noise, model, rows, batch)
        draws = r.draw(self.num_samples, model, rows, shared=False, key=key)

        def of_row(row, y, log_r, noise, log_weight):
            score = lambda y: model.g.coupling(row.theta, y) - model.tau(row) - math.log(self.num_samples)  # noqa: E731
            observed = score(y) + row.q.log_prob(y) - log_r
            drawn = jax.vmap(score)(noise) + log_weight
            told = jnp.mean(drawn < 0)
            return jax.nn.softplus(-observed) + jnp.sum(jax.nn.softplus(drawn)), told

        losses, told = jax.vmap(of_row)(rows, batch.y, r.log_prob(batch.y), draws.y, draws.log_weight)
        return mean(losses, batch), (state, {"told_apart": told.mean()})


class AbstractLocal(AbstractEnergyObjective):
    """Compares the observed y with every output one local move away: no normalizer is needed, and none is learned."""

    @abc.abstractmethod
    def penalize(self, odds: Float[Array, " moves"]) -> Scalar:
        """The loss of one row, from the log-odds log p(y') / p(y) of its neighbors y'."""

    def check(self, model):
        check_kl(self, model, COMPARES)
        if not isinstance(model.space, Hypercube):
            name = type(self).__name__
            raise ValueError(f"{name} flips one label at a time: it needs label sets (Hypercube), not {model.space}.")

    def credible(self, model):
        return credible_likelihood(model)

    def loss(self, model, state, batch, *, key):
        check_whole(self, batch)
        coupling = model.g.coupling

        def of_row(x, y, index, reference):
            row = model.row(x, index, reference)
            log_p = jax.vmap(row.q.log_prob)(model.space.moves(y)) + coupling.around(row.theta, y)
            return self.penalize(log_p - row.q.log_prob(y) - coupling(row.theta, y))

        losses = jax.vmap(of_row)(batch.x, batch.y, batch.index, batch.reference)
        return mean(losses, batch), (state, {})


class PseudoLikelihood(AbstractLocal):
    """-sum_j log p(y_j | the other labels, x): consistent, and exact where labels are independent."""

    def penalize(self, odds):
        return jnp.sum(jax.nn.softplus(odds))


class RatioMatching(AbstractLocal):
    """sum_j (1 - p(y_j | the other labels, x))^2, the ratio matching of Hyvarinen (2007)."""

    def penalize(self, odds):
        return jnp.sum(jax.nn.sigmoid(odds) ** 2)
