"""What all objectives share."""

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from .. import partial
from ..divergences import KL
from ..model import EBM
from ..types import Array, Batch, Float, Key, PyTree, Row, Scalar

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

    @property
    def trains_tau(self) -> bool:
        """Whether the loss depends on the learned tau."""
        return True

    def preferred_optimizer(self) -> Callable[[Any], optax.GradientTransformation]:
        """The optimizer of a `Solver` that is given none."""
        return optax.adam

    def credible(self, model: EBM) -> tuple[float, float]:
        """(the least value, the largest rise above the start) with which a run can end that has not diverged; infinite
        where the value of the loss does not tell."""
        return -math.inf, math.inf


class AbstractEnergyObjective(AbstractObjective):
    """Learns g alone: the learned tau has no part in the loss."""

    @property
    def trains_tau(self):
        return False


def credible_likelihood(model: EBM) -> tuple[float, float]:
    """`credible` of a likelihood relative to q, by what q loses against knowing y: D_f(y, q), log |Y| for KL.

    Training starts at q, where the loss is 0. One that ends higher by as much is worse than q by more than q is worse
    than the truth. None is below the truth's; twice as far, since q(y) may be below 1 / |Y|, nothing is normalized.
    """
    span = max(1.0, model.f.span(model.space.log_size))
    return -2 * span, span


def check_kl(objective: AbstractObjective, model: EBM, why: str) -> None:
    """Raise where f is another divergence than KL; `why` says what the objective does that needs it."""
    if not isinstance(model.f, KL):
        name = type(objective).__name__
        raise ValueError(f"{name} {why}: it needs f = KL, but f is {type(model.f).__name__}.")


def check_whole(objective: AbstractObjective, batch: Batch) -> None:
    """Raise where outputs are observed in part, by what looks at whole ones only."""
    if batch.mask is not None:
        raise ValueError(
            f"{type(objective).__name__} needs every y whole, but the rows have missing labels or ties (`mask`). Use "
            "objectives.MinMin or objectives.ExactMLE, or leave such rows out."
        )


def score(model: EBM, row: Row, tau: Scalar, y: Array, mask: Array | None) -> Scalar:
    """g of what is observed, less the excess of f."""
    g, log_q = partial.energy(model, row, y, mask)
    return g - model.f.excess(g - tau, log_q)


def told(losses: Float[Array, " n"], batch: Batch) -> Float[Array, " n"]:
    """The losses of the rows, 0 where nothing is observed."""
    return losses if batch.mask is None else jnp.where(jax.vmap(partial.nothing_observed)(batch.mask), 0, losses)


def mean(values: Float[Array, " n"], batch: Batch) -> Scalar:
    """Over the rows, each with its weight."""
    return jnp.mean(values if batch.weight is None else batch.weight * values)
