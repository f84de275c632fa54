"""The contract of objectives, and functions that several of them use."""

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
    """A loss to minimize over the parameters of a model.

    An objective may carry a state from step to step: chains, a generator, or None.
    """

    @abc.abstractmethod
    def loss(self, model: EBM, state: PyTree, batch: Batch, *, key: Key) -> tuple[Scalar, tuple[PyTree, Info]]:
        """Compute the mean loss over a batch.

        Parameters
        ----------
        model
            The model.
        state
            The state, from `init` or from the step before.
        batch
            Rows of data.
        key
            A PRNG key.

        Returns
        -------
        loss : scalar
            The mean over the rows, each with its weight; in nats for likelihoods under KL. Lower is better.
        state_and_info : tuple
            The next state, and scalars to record by name.
        """

    def init(self, model: EBM, *, key: Key) -> PyTree:
        """Make the first state.

        Parameters
        ----------
        model
            The model.
        key
            A PRNG key.

        Returns
        -------
        pytree
            The state, None by default.
        """
        return None

    def check(self, model: EBM) -> None:
        """Raise a ValueError if the objective does not support a model; called before training.

        Parameters
        ----------
        model
            The model.
        """

    @property
    def trains_tau(self) -> bool:
        """Whether the loss depends on the learned tau."""
        return True

    def preferred_optimizer(self) -> Callable[[Any], optax.GradientTransformation]:
        """Choose the optimizer of a `Solver` that has none.

        Returns
        -------
        callable
            A function from a learning rate to an optax optimizer.
        """
        return optax.adam

    def credible(self, model: EBM) -> tuple[float, float]:
        """Compute the range of losses at the end of a run that has not diverged.

        Parameters
        ----------
        model
            The model.

        Returns
        -------
        least : float
            The least value of the loss; -inf if there is none.
        rise : float
            The largest rise above the value at the start; inf if there is none.
        """
        return -math.inf, math.inf


class AbstractEnergyObjective(AbstractObjective):
    """A loss of g alone, in which the learned tau does not occur."""

    @property
    def trains_tau(self):
        return False


def credible_likelihood(model: EBM) -> tuple[float, float]:
    """`credible` of a likelihood relative to q, from the span D_f(y, q) between q and a certain y: log |Y| for KL.

    Training starts at q, where the loss is 0. A loss above the span is worse than q by more than q is worse than the
    truth. No normalized model is below the truth; as q(y) may be below 1 / |Y|, twice the span is allowed.
    """
    span = max(1.0, model.f.span(model.space.log_size))
    return -2 * span, span


def check_kl(objective: AbstractObjective, model: EBM, why: str) -> None:
    """Raise unless f is KL; `why` says what the objective does that needs it."""
    if not isinstance(model.f, KL):
        name = type(objective).__name__
        raise ValueError(f"{name} {why}: it needs f = KL, but f is {type(model.f).__name__}.")


def check_whole(objective: AbstractObjective, batch: Batch) -> None:
    """Raise if outputs are known in part, for objectives that need them complete."""
    if batch.mask is not None:
        raise ValueError(
            f"{type(objective).__name__} needs every y whole, but the rows have missing labels or ties (`mask`). Use "
            "objectives.MinMin or objectives.ExactMLE, or leave such rows out."
        )


def score(model: EBM, row: Row, tau: Scalar, y: Array, mask: Array | None) -> Scalar:
    """The energy of an output that may be known in part, less the excess of f."""
    g, log_q = partial.energy(model, row, y, mask)
    return g - model.f.excess(g - tau, log_q)


def mask_unobserved(losses: Float[Array, " n"], batch: Batch) -> Float[Array, " n"]:
    """The losses with 0 for rows whose y is masked entirely."""
    return losses if batch.mask is None else jnp.where(jax.vmap(partial.is_fully_masked)(batch.mask), 0, losses)


def mean(values: Float[Array, " n"], batch: Batch) -> Scalar:
    """The mean over the rows, each with its weight."""
    return jnp.mean(values if batch.weight is None else batch.weight * values)
