"""Where y' is drawn from: q, any measure, or the measure r of the model's surrogate."""

import equinox as eqx
import jax
import jax.numpy as jnp

from ..model import EBM
from ..structures import AbstractMeasure, surrogate, with_share_of_q
from ..types import Array, Batch, Draws, Key, Row


class SurrogateProposal(eqx.Module):
    """Draw y' from the measure r that the model's surrogate builds for each x.

    A share `defense` of the draws comes from q all the same, so that no weight q/r exceeds 1 / defense.
    """

    defense: float = eqx.field(static=True, default=0.05)

    def __check_init__(self):
        if not 0 <= self.defense < 1:
            raise ValueError(f"defense is the share of draws from q, at least 0 and below 1; got {self.defense}.")

    def measure(self, row: Row) -> AbstractMeasure:
        """r for one row, without gradient."""
        return jax.lax.stop_gradient(with_share_of_q(row.surrogate.r, row.q, self.defense))


def check_proposal(proposal: SurrogateProposal | AbstractMeasure | None, model: EBM) -> None:
    """Raise where it cannot serve the model."""
    if isinstance(proposal, SurrogateProposal) and model.surrogate is None:
        surrogate(model.g.coupling, model.q, model.f)
    if isinstance(proposal, AbstractMeasure) and proposal.space != model.space:
        raise ValueError(f"The proposal is a measure on {proposal.space}, but the model is on {model.space}.")


class Proposal(eqx.Module):
    """The measure r of a batch: one for all rows, or one for each. `is_q` where it is the reference itself."""

    r: AbstractMeasure
    one_for_all: bool = eqx.field(static=True)
    is_q: bool = eqx.field(static=True)

    @staticmethod
    def of(proposal: SurrogateProposal | AbstractMeasure | None, model: EBM, rows: Row, batch: Batch) -> "Proposal":
        """From a setting: None is q."""
        if isinstance(proposal, SurrogateProposal):
            return Proposal(jax.vmap(proposal.measure)(rows), False, False)
        if proposal is not None:
            return Proposal(proposal, True, False)
        return Proposal(model.q, True, True) if batch.reference is None else Proposal(batch.reference, False, True)

    def draw(self, num: int, model: EBM, rows: Row, *, shared: bool, key: Key) -> Draws:
        """`num` outputs for each row, in one call, or one set for all rows; with log q/r."""
        if self.one_for_all and not shared:
            # Each row still gets draws of its own.
            n = rows.x.shape[0]
            y = self.r.sample(n * num, key=key).reshape(n, num, *model.space.shape)
        else:
            y = self.r.sample(num, key=key)
        if self.is_q:
            return Draws(y, jnp.zeros(y.shape[: y.ndim - len(model.space.shape)]), shared)
        log_prob = jax.vmap(lambda measure, y: measure.log_prob(y), in_axes=(None, 0))
        if shared:
            return Draws(y, log_prob(model.q, y) - log_prob(self.r, y), shared)
        of_r = jax.vmap(log_prob, in_axes=(None if self.one_for_all else 0, 0))(self.r, y)
        return Draws(y, jax.lax.stop_gradient(jax.vmap(log_prob)(rows.q, y) - of_r), shared)

    def log_prob(self, y: Array) -> Array:
        """log r of one y for each row."""
        measures = (None if self.one_for_all else 0, 0)
        return jax.lax.stop_gradient(jax.vmap(lambda r, y: r.log_prob(y), in_axes=measures)(self.r, y))
