"""Objectives: what is minimized over g and tau. Each is a small class with the same two methods."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from . import exact
from ._types import Array, Batch, Draws, Float, Key, PyTree, Row, Scalar
from .model import EBM

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
    """

    num_samples: int = eqx.field(static=True, default=100)
    draws: str = eqx.field(static=True, default="per-row")

    def __check_init__(self):
        if self.num_samples < 1:
            raise ValueError(f"MinMin needs num_samples >= 1 draws of y' per step; got {self.num_samples}.")
        if self.draws not in ("per-row", "shared"):
            raise ValueError(f"draws must be 'per-row' or 'shared'; got {self.draws!r}.")

    def loss(self, model, state, batch, *, key):
        draws = self._draw(model, batch, key)
        of_row = jax.vmap(
            lambda x, y, index, q, d: self._row_loss(model, model.row(x, index, q), y, d),
            in_axes=(0, 0, 0, 0, None if draws.shared else 0),
        )
        losses, mass = of_row(batch.x, batch.y, batch.index, batch.reference, draws)
        return _mean(losses, batch), (state, {"mass": _mean(mass, batch)})

    def _draw(self, model: EBM, batch: Batch, key: Key) -> Draws:
        rows, q = batch.x.shape[0], batch.reference
        if q is not None:
            if self.draws == "shared":
                raise ValueError("draws='shared' needs one q for all x, but the data bring a q(y|x) for each row.")
            y = q.sample(self.num_samples, key=key)
        elif self.draws == "shared":
            y = model.q.sample(self.num_samples, key=key)
        else:
            y = model.q.sample(rows * self.num_samples, key=key)
            y = y.reshape(rows, self.num_samples, *model.space.shape)
        lead = y.shape[: y.ndim - len(model.space.shape)]
        return Draws(y, jnp.zeros(lead), shared=self.draws == "shared")

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
