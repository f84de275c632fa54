"""The paper's joint minimization over g and tau, with draws from q or from a proposal near p."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp

from ..model import EBM
from ..samplers import effective
from ..structures import AbstractMeasure
from ..types import Array, Draws, Float, Row, Scalar
from .base import AbstractObjective, credible_likelihood, mean, score, told
from .proposals import Proposal, SurrogateProposal, check_proposal


class MinMin(AbstractObjective):
    """tau(x) + E_q f+*(g(x, y') - tau(x)) - g(x, y), with the expectation over y' by draws.

    By default y' comes from a proposal r near p, built from each x's own logits, and each term has weight q/r: unbiased
    for any r, and of low variance where r is near p. `proposal=None` draws from q: the paper's Algorithm 1. Any other
    measure serves as well. The divergence is the model's own.

    The paper draws y' anew for each row; `draws="shared"` uses one set for the whole batch (where r does not depend on
    x), which makes the energies one matrix product. Both are unbiased.

    Of a y with missing labels or ties, g(x, y) is the log-mean of exp g over the outputs that agree, under q given
    that (`partial.energy`): its minimum is still maximum likelihood, of what is observed.
    """

    num_samples: int = eqx.field(static=True, default=16)
    draws: str = eqx.field(static=True, default="per-row")
    proposal: SurrogateProposal | AbstractMeasure | None = SurrogateProposal()

    def __check_init__(self):
        if not isinstance(self.num_samples, int) or self.num_samples < 1:
            raise ValueError(f"MinMin needs num_samples >= 1 draws of y' per step; got {self.num_samples}.")
        if self.draws not in ("per-row", "shared"):
            raise ValueError(f"draws must be 'per-row' or 'shared'; got {self.draws!r}.")
        if self.draws == "shared" and isinstance(self.proposal, SurrogateProposal):
            raise ValueError(
                "draws='shared' needs one r for all x, but the model's surrogate follows each x. Use draws='per-row', "
                "or proposal=None to draw from q."
            )

    def check(self, model):
        check_proposal(self.proposal, model)

    def credible(self, model):
        return credible_likelihood(model)

    def loss(self, model, state, batch, *, key):
        rows = jax.vmap(model.row)(batch.x, batch.index, batch.reference)
        if self.draws == "shared" and batch.reference is not None:
            raise ValueError("draws='shared' needs one q for all x, but the data bring a q(y|x) for each row.")
        r = Proposal.of(self.proposal, model, rows, batch)
        draws = r.draw(self.num_samples, model, rows, shared=self.draws == "shared", key=key)
        of_row = jax.vmap(functools.partial(_terms, model), in_axes=(0, 0, 0, None if draws.shared else 0))
        losses, (mass, scale) = of_row(rows, batch.y, batch.mask, draws)
        info = {"mass": mean(mass.mean(-1), batch), "effective": effective(mass).mean(), "scale": scale.max()}
        loss = mean(told(losses, batch), batch)
        if isinstance(self.proposal, SurrogateProposal) and model.surrogate is not None and model.surrogate.is_trained:
            fit = mean(jax.vmap(_misfit)(rows, draws, mass), batch)
            # Only its gradient counts, and only for the surrogate.
            loss, info["proposal"] = loss + fit - jax.lax.stop_gradient(fit), fit
        return loss, (state, info)


def _terms(model: EBM, row: Row, y: Array, mask: Array | None, draws: Draws) -> tuple[Scalar, tuple[Array, Scalar]]:
    """The loss of one row; the terms whose mean is the mass sum_y q (f+*)'(g - tau), 1 when normalized; max |g|."""
    tau = model.log_partition(row)
    coupling = model.g.coupling
    g = coupling.scores(row.theta, draws.y) if draws.shared else jax.vmap(coupling, (None, 0))(row.theta, draws.y)
    conjugate, mass = jax.vmap(jax.value_and_grad(model.f.weighted_conjugate))(g - tau, draws.log_weight)
    return tau + conjugate.mean() - score(model, row, tau, y, mask), (mass, jnp.abs(g).max())


def _misfit(row: Row, draws: Draws, mass: Float[Array, " draws"]) -> Scalar:
    """-E_p log r, by the draws at hand: what an amortized r minimizes."""
    share = jax.lax.stop_gradient(mass / jnp.maximum(mass.sum(), jnp.finfo(mass.dtype).tiny))
    return -jnp.vdot(share, jax.vmap(row.surrogate.r.log_prob)(draws.y))
