"""The contract of a structure: polytopes, the convex hulls of encoded outputs."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..divergences import AbstractDivergence
from ..types import Array, Float, Int, Scalar
from .couplings import AbstractSurrogate
from .measures import AbstractMeasure
from .methods import AbstractAssignments, AbstractMethod
from .spaces import AbstractSpace

__all__ = ["AbstractPolytope"]

FRANK_WOLFE_STEPS = 500


class AbstractPolytope(eqx.Module):
    """The convex hull C of an encoding phi of a space Y."""

    def __check_init__(self):
        # The space checks the sizes, such as the number of labels.
        _ = self.space

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """The space Y."""

    @abc.abstractmethod
    def encode(self, y: Int[Array, " *y"]) -> Float[Array, " *shape"]:
        """The vertex phi(y).

        Parameters
        ----------
        y
            An output.
        """

    @abc.abstractmethod
    def argmax(self, theta: Float[Array, " *shape"]) -> Int[Array, " *y"]:
        """The output with the largest <theta, phi(y)>.

        Parameters
        ----------
        theta
            An array of the shape of phi(y).
        """

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of phi(y), and of theta."""
        return self.space.shape

    def score(self, theta: Float[Array, " *shape"], y: Int[Array, " *y"]) -> Scalar:
        """The score <theta, phi(y)>.

        Parameters
        ----------
        theta
            The logits.
        y
            An output.

        Returns
        -------
        Scalar
            The score.
        """
        return jnp.vdot(theta, self.encode(y).astype(theta.dtype))

    def project(self, theta: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
        """The Euclidean projection onto C; by default by Frank-Wolfe steps over `argmax`.

        Parameters
        ----------
        theta
            The point to project.

        Returns
        -------
        Array
            The nearest point of C.
        """

        def step(i, mu):
            vertex = self.encode(self.argmax(theta - mu)).astype(mu.dtype)
            direction = vertex - mu
            length = jnp.vdot(theta - mu, direction) / jnp.maximum(jnp.vdot(direction, direction), 1e-12)
            return mu + jnp.clip(length, 0, 1) * direction

        start = self.encode(self.argmax(theta)).astype(theta.dtype)
        return jax.lax.fori_loop(0, FRANK_WOLFE_STEPS, step, start)

    def negative_entropy(self, mu: Float[Array, " *shape"]) -> Scalar:
        """The negative entropy of mu, sum mu log mu; for probabilities of labels also sum (1 - mu) log(1 - mu).

        Parameters
        ----------
        mu
            A point of C.

        Returns
        -------
        Scalar
            A number <= 0.
        """
        return jnp.sum(jax.scipy.special.xlogy(mu, mu))

    def entropy_argmax(self, eta: Float[Array, " *shape"]) -> Float[Array, " *shape"] | None:
        """The argmax over C of <eta, mu> - negative_entropy(mu); None if points of C are not probabilities.

        Parameters
        ----------
        eta
            The scores.
        """
        return None

    def box(self) -> tuple[float, float] | None:
        """The ends (low, high) of the interval if C is a product of equal intervals; else None."""
        return None

    def mode(self, theta: Float[Array, " *shape"], q: AbstractMeasure) -> Int[Array, " *y"] | None:
        """A most probable output under any p = q times an increasing function of <theta, phi(y)>, for any size of Y.

        Parameters
        ----------
        theta, q
            The logits and the reference of one row.

        Returns
        -------
        Array or None
            The output; None if there is no algorithm for this q.
        """
        return self.argmax(theta) if q.is_uniform else None

    def assignments(self, q: AbstractMeasure) -> AbstractAssignments | None:
        """An algorithm for the best outputs under q that runs on the host, for any size of Y; None if there is none.

        Parameters
        ----------
        q
            The reference.
        """
        return None

    @property
    def argmax_is_on_host(self) -> bool:
        """Whether, on CPUs, `assignments` is faster than `argmax` for many rows."""
        return False

    def exact(self, q: AbstractMeasure, f: AbstractDivergence, interaction: Any = None) -> AbstractMethod | None:
        """The exact method for scores <theta, phi(y)>, plus 1/2 <y, U y> with an interaction; None if there is none.

        Parameters
        ----------
        q
            A reference; the class matters, and not its parameters.
        f
            The divergence.
        interaction
            A `couplings.AbstractInteraction`, or None.
        """
        return None

    def surrogate(self, q: AbstractMeasure, f: AbstractDivergence, interaction: Any = None) -> AbstractSurrogate | None:
        """The surrogate for scores <theta, phi(y)>, plus 1/2 <y, U y> with an interaction; None if there is none.

        Parameters
        ----------
        q
            A reference; the class matters, and not its parameters.
        f
            The divergence.
        interaction
            A `couplings.AbstractInteraction`, or None.
        """
        return None
