"""The contract of a structure: couplings, and surrogates, tractable approximations of p."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..divergences import AbstractDivergence
from ..types import Array, Float, Int, Key, Scalar
from .measures import AbstractMeasure
from .methods import AbstractMethod
from .spaces import AbstractSpace, Uniform

__all__ = ["AbstractCoupling", "AbstractSurrogate", "SurrogateRow"]


class SurrogateRow(eqx.Module):
    """The surrogate of one row.

    Parameters
    ----------
    r
        A measure that approximates p, to draw from.
    tau
        A lower bound tau_0 of the log-partition.
    summary
        A vector that a learned correction of the bound reads.
    """

    r: AbstractMeasure
    tau: Scalar
    summary: Float[Array, " d"]


class AbstractSurrogate(eqx.Module):
    """A tractable approximation of p_g, computed from the logits of one row."""

    @abc.abstractmethod
    def __call__(self, coupling: Any, theta: Float[Array, " *theta"], q: Any) -> SurrogateRow:
        """The approximation at theta, for a coupling and a q that it `serves`."""

    def serves(self, coupling: "AbstractCoupling", q: AbstractMeasure, f: AbstractDivergence) -> bool:
        """Whether it can be used with a coupling, a kind of reference and a divergence.

        Parameters
        ----------
        coupling, q, f
            Those of the model.

        Returns
        -------
        bool
            By default, whether it is of the class of the coupling's own surrogate.
        """
        return type(coupling.surrogate(q, f)) is type(self)

    def proposal(self, coupling: Any, theta: Float[Array, " *theta"], q: Any, *, key: Key) -> AbstractMeasure:
        """A measure that covers all modes of p, where r may cover only one; by default r.

        Parameters
        ----------
        coupling, theta, q
            The coupling, logits and reference of one row.
        key
            For random starting points.

        Returns
        -------
        AbstractMeasure
            The proposal.
        """
        return self(coupling, theta, q).r

    @property
    def is_trained(self) -> bool:
        """Whether it has parameters that are trained with the model."""
        return False

    @property
    def has_label_probs(self) -> bool:
        """Whether it implements `label_probs`."""
        return False

    def label_probs(self, row: SurrogateRow) -> Float[Array, " k"]:
        """P(y_j = 1) of all labels under r, which approximate the marginals of p.

        Parameters
        ----------
        row
            The surrogate of one row.
        """
        raise NotImplementedError

    def summary_size(self, coupling: "AbstractCoupling", q: AbstractMeasure | None = None) -> int:
        """The length of the summary, the input size of the network of a correction.

        Parameters
        ----------
        coupling
            The coupling of the model.
        q
            The reference; None for the uniform measure.

        Returns
        -------
        int
            The length.
        """
        q = Uniform(coupling.space) if q is None else q
        theta = jax.ShapeDtypeStruct(coupling.theta_shape, jnp.zeros(0).dtype)
        return eqx.filter_eval_shape(lambda theta: self(coupling, theta, q).summary, theta).shape[0]


class AbstractCoupling(eqx.Module):
    """The coupling Phi(theta, y), the score of an output y by logits theta.

    `polytope` is the hull of the outputs. Methods are written for one row.
    """

    # An `AbstractPolytope`, whose module imports this one.
    polytope: eqx.AbstractVar[Any]

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """The space of the outputs that it scores."""

    @property
    @abc.abstractmethod
    def theta_shape(self) -> tuple[int, ...]:
        """The shape of the logits, the output of h."""

    @abc.abstractmethod
    def __call__(self, theta: Float[Array, " *theta"], y: Int[Array, " *y"]) -> Scalar:
        """Phi(theta, y)."""

    @abc.abstractmethod
    def relaxed(self, theta: Float[Array, " *theta"], mu: Float[Array, " *shape"]) -> Scalar:
        """The extension of Phi to all points of C; at phi(y) it is Phi(theta, y).

        Parameters
        ----------
        theta
            The logits.
        mu
            A point of C.
        """

    def exact(self, q: AbstractMeasure, f: AbstractDivergence) -> AbstractMethod | None:
        """The exact method of this coupling; None if it has none of its own.

        Parameters
        ----------
        q, f
            The reference, of which only the class matters, and the divergence.
        """
        return None

    def surrogate(self, q: AbstractMeasure, f: AbstractDivergence) -> AbstractSurrogate | None:
        """The surrogate of this coupling; None if it has none of its own.

        Parameters
        ----------
        q, f
            The reference, of which only the class matters, and the divergence.
        """
        return None

    @property
    def is_linear(self) -> bool:
        """Whether Phi is <theta, phi(y)>, so that the argmax of the polytope is the mode under a uniform q."""
        return False

    @property
    def has_interaction(self) -> bool:
        """Whether Phi is <u, y> + 1/2 <y, U y>, with `parameters` and an `interaction`."""
        return False

    @property
    def is_concave(self) -> bool:
        """Whether `relaxed` is known to be concave in mu."""
        return self.is_linear

    @property
    def can_average(self) -> bool:
        """Whether Phi is linear in theta and its own parameters, so that a mean of energies is an energy again."""
        return self.is_linear

    def squared_shared(self) -> Scalar:
        """The squared norm of parameters that all x share and that are penalized although they are vectors.

        Returns
        -------
        Scalar
            0 by default.
        """
        return jnp.zeros(())

    def scores(self, theta: Float[Array, " *theta"], ys: Int[Array, "num *y"]) -> Float[Array, " num"]:
        """Phi of several outputs, written so that under vmap over theta what depends on them alone is computed once.

        Parameters
        ----------
        theta
            The logits.
        ys
            The outputs, with a leading axis.

        Returns
        -------
        Array
            The score of each.
        """
        return jax.vmap(self, in_axes=(None, 0))(theta, ys)

    def around(self, theta: Float[Array, " *theta"], y: Int[Array, " *y"]) -> Float[Array, " moves"]:
        """Phi of all outputs one local move away from y.

        Parameters
        ----------
        theta
            The logits.
        y
            An output.

        Returns
        -------
        Array
            The scores of `space.moves(y)`.
        """
        return jax.vmap(lambda y: self(theta, y))(self.space.moves(y))

    @property
    def cost(self) -> int:
        """The approximate number of multiplications of one score."""
        return math.prod(self.theta_shape)

    def change(self, theta: Float[Array, " *theta"], y: Int[Array, " *y"], i: Int[Array, ""]) -> Scalar | None:
        """Phi after the i-th local move from y, minus Phi(theta, y); None if that is not cheaper than Phi itself.

        Parameters
        ----------
        theta
            The logits.
        y
            An output.
        i
            The number of the move.
        """
        return None
