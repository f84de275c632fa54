"""The paper's joint minimization over g and tau, with draws from q or from a proposal that approximates p."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp

from ..model import EBM
from ..samplers import effective_share
from ..structures import AbstractMeasure
from ..types import Array, Draws, Float, Row, Scalar
from .base import AbstractObjective, credible_likelihood, mask_unobserved, mean, score
from .proposals import Proposal, SurrogateProposal, check_proposal


class MinMin(AbstractObjective):
    """tau(x) + E_q f+*(g(x, y') - tau(x)) - g(x, y), with the expectation over y' estimated by draws.

    Its minimum over tau is the Fenchel-Young loss of g, for KL the negative log-likelihood. Draws from a proposal r
    have weight q/r: unbiased for any r, and of low variance if r is near p. The divergence is that of the model. For a
    y with missing labels or ties, g(x, y) is that of the known part (`partial.energy`), whose likelihood is maximized.

    Parameters
    ----------
    num_samples
        The number of draws y' per row.
    draws
        "per-row", anew for each row, as in the paper; "shared", one set for the whole batch, possible if r does not
        depend on x, which makes the energies one matrix product. Both are unbiased.
    proposal
        The measure r. By default that of the model's surrogate, built from the logits of each x. None: q, the paper's
        Algorithm 1. Or any measure.

    Examples
    --------
    One step of Algorithm 1 on two rows. The loss starts at 0, where p = q:

    >>> from partita.couplings import Bilinear
    >>> from partita.model import Energy, Network
    >>> from partita.networks import Linear
    >>> from partita.structures import Cube
    >>> from partita.types import Batch
    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> h, tau = Linear(3, 4, key=keys[0]), Network(Linear(3, 1, key=keys[1]))
    >>> model = EBM(Energy(h, Bilinear(Cube(4))), tau)
    >>> batch = Batch(x=jnp.ones((2, 3)), y=jnp.array([[0, 1, 1, 0], [1, 0, 0, 0]]))
    >>> loss, (state, info) = MinMin(proposal=None).loss(model, None, batch, key=keys[2])
    >>> float(loss)
    0.0
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
        info = {"mass": mean(mass.mean(-1), batch), "effective": effective_share(mass).mean(), "scale": scale.max()}
        loss = mean(mask_unobserved(losses, batch), batch)
        if isinstance(self.proposal, SurrogateProposal) and model.surrogate is not None and model.surrogate.is_trained:
            fit = mean(jax.vmap(_misfit)(rows, draws, mass), batch)
            # Only its gradient counts, and only for the surrogate.
            loss, info["proposal"] = loss + fit - jax.lax.stop_gradient(fit), fit
        return loss, (state, info)


def _terms(model: EBM, row: Row, y: Array, mask: Array | None, draws: Draws) -> tuple[Scalar, tuple[Array, Scalar]]:
    """The loss of one row; the terms whose mean estimates the mass sum_y q (f+*)'(g - tau); max |g|."""
    tau = model.log_partition(row)
    coupling = model.g.coupling
    g = coupling.scores(row.theta, draws.y) if draws.shared else jax.vmap(coupling, (None, 0))(row.theta, draws.y)
    conjugate, mass = jax.vmap(jax.value_and_grad(model.f.weighted_conjugate))(g - tau, draws.log_weight)
    return tau + conjugate.mean() - score(model, row, tau, y, mask), (mass, jnp.abs(g).max())


def _misfit(row: Row, draws: Draws, mass: Float[Array, " draws"]) -> Scalar:
    """-E_p log r, estimated by the same draws: what an amortized r minimizes."""
    share = jax.lax.stop_gradient(mass / jnp.maximum(mass.sum(), jnp.finfo(mass.dtype).tiny))
    return -jnp.vdot(share, jax.vmap(row.surrogate.r.log_prob)(draws.y))
