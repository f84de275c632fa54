"""Where y' is drawn from: q, any measure, or the measure r of the model's surrogate."""

import equinox as eqx
import jax
import jax.numpy as jnp

from ..model import EBM
from ..structures import AbstractMeasure, surrogate, with_share_of_q
from ..types import Array, Batch, Draws, Key, Row


class SurrogateProposal(eqx.Module):
    """Draw y' from the measure r that the model's surrogate builds for each x.

    Parameters
    ----------
    defense
        The share of draws from q, in [0, 1), which bounds the weights q/r by 1 / defense.
    """

    defense: float = eqx.field(static=True, default=0.05)

    def __check_init__(self):
        if not 0 <= self.defense < 1:
            raise ValueError(f"defense is the share of draws from q, at least 0 and below 1; got {self.defense}.")

    def measure(self, row: Row) -> AbstractMeasure:
        """Build r for one row, without gradient.

        Parameters
        ----------
        row
            One x, from `EBM.row`.

        Returns
        -------
        AbstractMeasure
            The mixture of the surrogate's measure and q.
        """
        return jax.lax.stop_gradient(with_share_of_q(row.surrogate.r, row.q, self.defense))


def check_proposal(proposal: SurrogateProposal | AbstractMeasure | None, model: EBM) -> None:
    """Raise a ValueError if the model cannot be trained with draws from a proposal."""
    if isinstance(proposal, SurrogateProposal) and model.surrogate is None:
        surrogate(model.g.coupling, model.q, model.f)
    if isinstance(proposal, AbstractMeasure) and proposal.space != model.space:
        raise ValueError(f"The proposal is a measure on {proposal.space}, but the model is on {model.space}.")


class Proposal(eqx.Module):
    """The measure r of a batch: one for all rows, `is_shared`, or one for each. `is_q`: it is the reference."""

    r: AbstractMeasure
    is_shared: bool = eqx.field(static=True)
    is_q: bool = eqx.field(static=True)

    @staticmethod
    def of(proposal: SurrogateProposal | AbstractMeasure | None, model: EBM, rows: Row, batch: Batch) -> "Proposal":
        """The measure of a batch for the `proposal` of an objective, where None is q."""
        if isinstance(proposal, SurrogateProposal):
            return Proposal(jax.vmap(proposal.measure)(rows), False, False)
        if proposal is not None:
            return Proposal(proposal, True, False)
        return Proposal(model.q, True, True) if batch.reference is None else Proposal(batch.reference, False, True)

    def draw(self, num: int, model: EBM, rows: Row, *, shared: bool, key: Key) -> Draws:
        """`num` outputs for each row, or with `shared` one set of `num` for all rows, in one call; with log q/r."""
        if self.is_shared and not shared:
            n = rows.x.shape[0]
            y = self.r.sample(n * num, key=key).reshape(n, num, *model.space.shape)
        else:
            y = self.r.sample(num, key=key)
        if self.is_q:
            return Draws(y, jnp.zeros(y.shape[: y.ndim - len(model.space.shape)]), shared)
        log_prob = jax.vmap(lambda measure, y: measure.log_prob(y), in_axes=(None, 0))
        if shared:
            return Draws(y, log_prob(model.q, y) - log_prob(self.r, y), shared)
        of_r = jax.vmap(log_prob, in_axes=(None if self.is_shared else 0, 0))(self.r, y)
        return Draws(y, jax.lax.stop_gradient(jax.vmap(log_prob)(rows.q, y) - of_r), shared)

    def log_prob(self, y: Array) -> Array:
        """log r of one y for each row."""
        measures = (None if self.is_shared else 0, 0)
        return jax.lax.stop_gradient(jax.vmap(lambda r, y: r.log_prob(y), in_axes=measures)(self.r, y))
