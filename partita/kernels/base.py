"""What a kernel leaves invariant, the target, and the contract of kernels."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from ..divergences import KL, AbstractDivergence
from ..model import EBM
from ..structures import AbstractCoupling, AbstractMeasure, AbstractSpace
from ..types import Array, Float, Int, Key, PyTree, Row, Scalar


class AbstractTarget(eqx.Module):
    """A log-density over Y, up to a constant, and a measure r to draw proposals from."""

    r: eqx.AbstractVar[AbstractMeasure]

    @abc.abstractmethod
    def log_prob(self, y: Int[Array, " *y"]) -> Scalar:
        """Evaluate the log-density.

        Parameters
        ----------
        y
            An output.

        Returns
        -------
        scalar
            log p(y) up to a constant.
        """

    @abc.abstractmethod
    def log_prob_linearized(self, y: Int[Array, " *y"], others: Int[Array, " num *y"]) -> Float[Array, " num"]:
        """Approximate the log-density with g linearized at phi(y): one gradient of g for all outputs.

        Parameters
        ----------
        y
            The output at which g is linearized.
        others
            The outputs to evaluate.

        Returns
        -------
        array of shape (num,)
            Approximations of log p of each, up to the constant of `log_prob`.
        """

    def change(self, y: Int[Array, " *y"], i: Int[Array, ""]) -> Scalar | None:
        """Evaluate how much a local move changes the log-density.

        Parameters
        ----------
        y
            An output.
        i
            The number of the move, below `space.degree(y)`.

        Returns
        -------
        scalar or None
            log p after the move less log p(y); None where two calls of `log_prob` are as cheap.
        """
        return None

    @property
    def space(self) -> AbstractSpace:
        """The output space Y."""
        return self.r.space


class Target(AbstractTarget):
    """p(.|x) of one row: log q(y) + log (f+*)'(g(x, y) - tau). For KL tau is only a constant.

    Parameters
    ----------
    r
        A measure to draw proposals from.
    coupling, theta
        Phi and the logits, g = Phi(theta, y).
    q
        The reference.
    f
        The divergence.
    tau
        The normalizer.
    """

    r: AbstractMeasure
    coupling: AbstractCoupling
    theta: Float[Array, " *theta"]
    q: AbstractMeasure
    f: AbstractDivergence
    tau: Scalar

    def log_prob(self, y):
        return self._log_prob(y, self.coupling(self.theta, y))

    def log_prob_linearized(self, y, others):
        polytope = self.coupling.polytope
        g, slope = jax.value_and_grad(self.coupling.relaxed, argnums=1)(self.theta, polytope.encode(y))
        constant = g - polytope.score(slope, y)
        return jax.vmap(lambda other: self._log_prob(other, constant + polytope.score(slope, other)))(others)

    def change(self, y, i):
        change = self.coupling.change(self.theta, y, i) if isinstance(self.f, KL) else None
        return None if change is None else change + _log_prob_change(self.q, y, i)

    def _log_prob(self, y, g):
        return self.q.log_prob(y) + self.f.log_density(g - self.tau)


class Tempered(AbstractTarget):
    """r^(1 - t) p^t: at t = 0 the measure r, at t = 1 the target p.

    Parameters
    ----------
    r
        The measure.
    p
        The target.
    t
        The inverse temperature, from 0 to 1.
    """

    r: AbstractMeasure
    p: AbstractTarget
    t: Scalar

    def log_prob(self, y):
        return self._share_of_r(self.r.log_prob(y)) + self.t * self.p.log_prob(y)

    def log_prob_linearized(self, y, others):
        return self._share_of_r(jax.vmap(self.r.log_prob)(others)) + self.t * self.p.log_prob_linearized(y, others)

    def change(self, y, i):
        change = self.p.change(y, i)
        return None if change is None else self._share_of_r(_log_prob_change(self.r, y, i)) + self.t * change

    def _share_of_r(self, log_r):
        # At t = 1 outputs that r excludes may be likely, and 0 times -inf would be nan.
        return jnp.where(self.t < 1, (1 - self.t) * log_r, 0)


def target(model: EBM, row: Row, tau: Scalar | None = None) -> Target:
    """Make the target p(.|x) of a row; its r is that of the model's surrogate, or q.

    Parameters
    ----------
    model, row
        The model and one x, from `EBM.row`.
    tau
        The normalizer. None: the learned one; for KL, where it is only a constant, a `model.Table` without a value for
        the row is replaced by the surrogate's bound.

    Returns
    -------
    Target
        The target.
    """
    if tau is None and isinstance(model.f, KL) and row.index is None and model.tau.table is not None:
        tau = jnp.zeros(()) if row.surrogate is None else row.surrogate.tau
    tau = model.log_partition(row) if tau is None else tau
    r = row.q if row.surrogate is None else row.surrogate.r
    return Target(r, model.g.coupling, row.theta, row.q, model.f, tau)


class ChainState(eqx.Module):
    """The state of a chain.

    Parameters
    ----------
    y
        The current output.
    log_prob
        The target's log-density at y.
    memory
        What the kernel has computed about y and needs again.
    """

    y: Int[Array, " *y"]
    log_prob: Scalar
    memory: PyTree = None


class Info(eqx.Module):
    """What is recorded of a step.

    Parameters
    ----------
    acceptance
        The probability with which the proposed move was accepted.
    """

    acceptance: Scalar


class AbstractKernel(eqx.Module):
    """A Markov kernel on Y."""

    @abc.abstractmethod
    def step(self, target: AbstractTarget, state: ChainState, *, key: Key) -> tuple[ChainState, Info]:
        """Move a chain such that the target stays invariant.

        Parameters
        ----------
        target
            The target.
        state
            The state before the step.
        key
            A PRNG key.

        Returns
        -------
        state : ChainState
            The state after the step.
        info : Info
            What is recorded of it.
        """

    def init(self, target: AbstractTarget, y: Int[Array, " *y"]) -> ChainState:
        """Make the state of a chain that is at y.

        Parameters
        ----------
        target
            The target.
        y
            An output.

        Returns
        -------
        ChainState
            The state.
        """
        return ChainState(y, target.log_prob(y), self.memory(target, y))

    def memory(self, target: AbstractTarget, y: Int[Array, " *y"]) -> PyTree:
        """Compute what the kernel keeps about y in the state.

        Parameters
        ----------
        target
            The target.
        y
            An output.

        Returns
        -------
        pytree
            None by default.
        """
        return None

    def check(self, space: AbstractSpace) -> None:
        """Raise a ValueError if the kernel does not support a space.

        Parameters
        ----------
        space
            The output space.
        """


def _log_prob_change(measure: AbstractMeasure, y: Int[Array, " *y"], i: Int[Array, ""]) -> Scalar:
    """The change of log_prob by the i-th local move from y; 0 where both outputs are excluded."""
    here, there = measure.log_prob(y), measure.log_prob(measure.space.move(y, i))
    return jnp.where(jnp.isneginf(here) & jnp.isneginf(there), 0, there - here)
