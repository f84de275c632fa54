"""Objectives: what is minimized over g and tau. Each is a small class with the same two methods."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from . import exact
from ._types import Array, Batch, Draws, Float, Key, PyTree, Row, Scalar
from .measures import AbstractMeasure, Mixture
from .model import EBM
from .surrogates import AbstractSurrogate

__all__ = ["AbstractObjective", "ExactMLE", "MinMin"]

Info = dict[str, Scalar]


class AbstractObjective(eqx.Module):
    """A loss to minimize. `state` is whatever it carries from step to step: chains, generators, nothing."""

    @abc.abstractmethod
    def loss(self, model: EBM, state: PyTree, batch: Batch, *, key: Key) -> tuple[Scalar, tuple[PyTree, Info]]:
        """Mean loss over the batch; the next state; numbers worth recording."""

    def init(self, model: EBM, *, key: Key) -> PyTree:
        """The first state."""
        return None

    def check(self, model: EBM) -> None:
        """Raise where this objective cannot serve the model; called before any work."""


class MinMin(AbstractObjective):
    """Algorithm 1: tau(x) + 1/B' sum_j f+*(g(x, y'_j) - tau(x)) - g(x, y), with y' drawn from q.

    The paper draws y' anew for each row; `draws="shared"` uses one set for the whole batch (where q does not depend on
    x), which makes the energies one matrix product. Both are unbiased. The divergence is the model's own.

    With a `proposal` r, a measure or a surrogate of p_g, y' comes from r and each term has weight q/r: unbiased for any
    r, and of low variance where r is near p_g. A share `defense` of the draws comes from q all the same, so that no
    weight exceeds 1 / defense.
    """

    num_samples: int = eqx.field(static=True, default=100)
    draws: str = eqx.field(static=True, default="per-row")
    proposal: AbstractMeasure | AbstractSurrogate | None = None
    defense: float = eqx.field(static=True, default=0.05)

    def __check_init__(self):
        if not isinstance(self.num_samples, int) or self.num_samples < 1:
            raise ValueError(f"MinMin needs num_samples >= 1 draws of y' per step; got {self.num_samples}.")
        if self.draws not in ("per-row", "shared"):
            raise ValueError(f"draws must be 'per-row' or 'shared'; got {self.draws!r}.")
        if self.draws == "shared" and isinstance(self.proposal, AbstractSurrogate):
            raise ValueError("draws='shared' needs one r for all x; a surrogate follows each x. Use draws='per-row'.")

    def check(self, model):
        if isinstance(self.proposal, AbstractSurrogate) and not self.proposal.serves(model.g.coupling, model.q):
            name, coupling, q = (type(o).__name__ for o in (self.proposal, model.g.coupling, model.q))
            raise ValueError(f"{name} does not serve a {coupling} coupling on {model.space} with a {q} reference.")

    def loss(self, model, state, batch, *, key):
        draws = self._draw(model, batch, key)
        of_row = jax.vmap(
            lambda x, y, index, q, d: self._row_loss(model, model.row(x, index, q), y, d),
            in_axes=(0, 0, 0, 0, None if draws.shared else 0),
        )
        losses, mass = of_row(batch.x, batch.y, batch.index, batch.reference, draws)
        return _mean(losses, batch), (state, {"mass": _mean(mass, batch)})

    def _draw(self, model: EBM, batch: Batch, key: Key) -> Draws:
        shared = self.draws == "shared"
        if shared and batch.reference is not None:
            raise ValueError("draws='shared' needs one q for all x, but the data bring a q(y|x) for each row.")
        r = self._measure(model, batch)
        follows_x = isinstance(self.proposal, AbstractSurrogate) or (
            self.proposal is None and batch.reference is not None
        )
        if shared or follows_x:
            y = r.sample(self.num_samples, key=key)
        else:
            # One r for all rows: each row still gets draws of its own, in one call.
            rows = batch.x.shape[0]
            y = r.sample(rows * self.num_samples, key=key).reshape(rows, self.num_samples, *model.space.shape)
        if self.proposal is None:
            return Draws(y, jnp.zeros(y.shape[: y.ndim - len(model.space.shape)]), shared)
        q = model.q if batch.reference is None else batch.reference
        log_prob = jax.vmap(lambda measure, y: measure.log_prob(y), in_axes=(None, 0))
        if shared:
            return Draws(y, log_prob(q, y) - log_prob(r, y), shared)
        of_q = jax.vmap(log_prob, in_axes=(None if batch.reference is None else 0, 0))(q, y)
        of_r = jax.vmap(log_prob, in_axes=(0 if follows_x else None, 0))(r, y)
        return Draws(y, jax.lax.stop_gradient(of_q - of_r), shared)

    def _measure(self, model: EBM, batch: Batch) -> AbstractMeasure:
        """Where y' comes from: q; or the proposal, with its defense."""

        def defended(r, q):
            return Mixture(r, q, self.defense) if self.defense else r

        proposal = self.proposal
        if proposal is None:
            return model.q if batch.reference is None else batch.reference
        if isinstance(proposal, AbstractMeasure):
            return defended(proposal, model.q)

        def of_row(x, reference):
            row = model.row(x, reference=reference)
            near = proposal(model.g.coupling, jax.lax.stop_gradient(row.theta), row.q)
            return defended(near.r, row.q)

        return jax.lax.stop_gradient(jax.vmap(of_row)(batch.x, batch.reference))

    def _row_loss(self, model: EBM, row: Row, y: Array, draws: Draws) -> tuple[Scalar, Scalar]:
        """The loss of one row, and its estimate of the total mass sum_y q (f+*)'(g - tau), 1 when normalized."""
        tau = model.tau(row)
        score = jax.vmap(model.g.coupling, in_axes=(None, 0))
        term = jax.vmap(jax.value_and_grad(model.f.weighted_conjugate))
        conjugate, mass = term(score(row.theta, draws.y) - tau, draws.log_weight)
        return tau + conjugate.mean() - model.g.coupling(row.theta, y), mass.mean()


class ExactMLE(AbstractObjective):
    """softmax_f(x) - g(x, y), by `exact`: for KL the negative log-likelihood relative to q. tau is not trained."""

    def check(self, model):
        exact.method(model)

    def loss(self, model, state, batch, *, key):
        def of_row(x, y, index, reference):
            row = model.row(x, index, reference)
            return exact.softmax(model, row) - model.g.coupling(row.theta, y)

        losses = jax.vmap(of_row)(batch.x, batch.y, batch.index, batch.reference)
        return _mean(losses, batch), (state, {})


def _mean(values: Float[Array, " n"], batch: Batch) -> Scalar:
    return jnp.mean(values if batch.weight is None else batch.weight * values)
