"""The paper's joint minimization over g and tau, with draws from q or from a proposal near p."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp

from .._types import Array, Batch, Draws, Float, Key, Row, Scalar
from ..measures import AbstractMeasure, defended
from ..model import EBM
from ..samplers import effective
from ..surrogates import Amortized, surrogate
from .base import AbstractObjective, mean, score


class Neighboring(eqx.Module):
    """Draw y' from the neighbor of p that the model's surrogate builds for each x.

    A share `defense` of the draws comes from q all the same, so that no weight q/r exceeds 1 / defense.
    """

    defense: float = eqx.field(static=True, default=0.05)

    def __check_init__(self):
        if not 0 <= self.defense < 1:
            raise ValueError(f"defense is the share of draws from q, at least 0 and below 1; got {self.defense}.")

    def measure(self, row: Row) -> AbstractMeasure:
        """r for one row, without gradient."""
        return jax.lax.stop_gradient(defended(row.near.r, row.q, self.defense))


class MinMin(AbstractObjective):
    """tau(x) + E_q f+*(g(x, y') - tau(x)) - g(x, y), with the expectation over y' by draws.

    By default y' comes from a proposal r near p, built from each x's own logits, and each term has weight q/r: unbiased
    for any r, and of low variance where r is near p. `proposal=None` draws from q: the paper's Algorithm 1. Any other
    measure serves as well. The divergence is the model's own.

    The paper draws y' anew for each row; `draws="shared"` uses one set for the whole batch (where r does not depend on
    x), which makes the energies one matrix product. Both are unbiased.
    """

    num_samples: int = eqx.field(static=True, default=16)
    draws: str = eqx.field(static=True, default="per-row")
    proposal: Neighboring | AbstractMeasure | None = Neighboring()

    def __check_init__(self):
        if not isinstance(self.num_samples, int) or self.num_samples < 1:
            raise ValueError(f"MinMin needs num_samples >= 1 draws of y' per step; got {self.num_samples}.")
        if self.draws not in ("per-row", "shared"):
            raise ValueError(f"draws must be 'per-row' or 'shared'; got {self.draws!r}.")
        if self.draws == "shared" and isinstance(self.proposal, Neighboring):
            raise ValueError(
                "draws='shared' needs one r for all x, but the model's surrogate follows each x. Use draws='per-row', "
                "or proposal=None to draw from q."
            )

    def check(self, model):
        if isinstance(self.proposal, Neighboring) and model.surrogate is None:
            surrogate(model.g.coupling, model.q, model.f)
        if isinstance(self.proposal, AbstractMeasure) and self.proposal.space != model.space:
            raise ValueError(f"The proposal is a measure on {self.proposal.space}, but the model is on {model.space}.")

    def loss(self, model, state, batch, *, key):
        rows = jax.vmap(model.row)(batch.x, batch.index, batch.reference)
        draws = self._draw(model, rows, batch, key)
        of_row = jax.vmap(functools.partial(_terms, model), in_axes=(0, 0, None if draws.shared else 0))
        losses, (mass, scale) = of_row(rows, batch.y, draws)
        info = {"mass": mean(mass.mean(-1), batch), "effective": effective(mass).mean(), "scale": scale.max()}
        loss = mean(losses, batch)
        if isinstance(self.proposal, Neighboring) and isinstance(model.surrogate, Amortized):
            fit = mean(jax.vmap(_misfit)(rows, draws, mass), batch)
            # Only its gradient counts, and only for the surrogate.
            loss, info["proposal"] = loss + fit - jax.lax.stop_gradient(fit), fit
        return loss, (state, info)

    def _draw(self, model: EBM, rows: Row, batch: Batch, key: Key) -> Draws:
        shared = self.draws == "shared"
        if shared and batch.reference is not None:
            raise ValueError("draws='shared' needs one q for all x, but the data bring a q(y|x) for each row.")
        if isinstance(self.proposal, Neighboring):
            r, one_for_all = jax.vmap(self.proposal.measure)(rows), False
        elif self.proposal is None:
            r, one_for_all = (model.q, True) if batch.reference is None else (batch.reference, False)
        else:
            r, one_for_all = self.proposal, True
        if one_for_all and not shared:
            # Each row still gets draws of its own, in one call.
            n = batch.x.shape[0]
            y = r.sample(n * self.num_samples, key=key).reshape(n, self.num_samples, *model.space.shape)
        else:
            y = r.sample(self.num_samples, key=key)
        if self.proposal is None:
            return Draws(y, jnp.zeros(y.shape[: y.ndim - len(model.space.shape)]), shared)
        log_prob = jax.vmap(lambda measure, y: measure.log_prob(y), in_axes=(None, 0))
        if shared:
            return Draws(y, log_prob(model.q, y) - log_prob(r, y), shared)
        of_r = jax.vmap(log_prob, in_axes=(None if one_for_all else 0, 0))(r, y)
        return Draws(y, jax.lax.stop_gradient(jax.vmap(log_prob)(rows.q, y) - of_r), shared)


def _terms(model: EBM, row: Row, y: Array, draws: Draws) -> tuple[Scalar, tuple[Array, Scalar]]:
    """The loss of one row; the terms whose mean is the mass sum_y q (f+*)'(g - tau), 1 when normalized; max |g|."""
    tau = model.tau(row)
    g = jax.vmap(model.g.coupling, in_axes=(None, 0))(row.theta, draws.y)
    conjugate, mass = jax.vmap(jax.value_and_grad(model.f.weighted_conjugate))(g - tau, draws.log_weight)
    return tau + conjugate.mean() - score(model, row, tau, y), (mass, jnp.abs(g).max())


def _misfit(row: Row, draws: Draws, mass: Float[Array, " draws"]) -> Scalar:
    """-E_p log r, by the draws at hand: what an amortized r minimizes."""
    share = jax.lax.stop_gradient(mass / jnp.maximum(mass.sum(), jnp.finfo(mass.dtype).tiny))
    return -jnp.vdot(share, jax.vmap(row.near.r.log_prob)(draws.y))
