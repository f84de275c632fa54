"""Regularizers Omega: convex functions on the hull C whose argmax with a linear score is known."""

import abc

import equinox as eqx
import jax.numpy as jnp

from ..structures import AbstractPolytope
from ..types import Array, Float, Scalar


class AbstractRegularizer(eqx.Module):
    """Omega = strength times a strictly convex function of mu, the `unit`, whose argmax is the `link`."""

    strength: eqx.AbstractVar[float]

    @abc.abstractmethod
    def serves(self, polytope: AbstractPolytope) -> bool:
        """Tell whether the argmax over a polytope can be computed.

        Parameters
        ----------
        polytope
            The hull C.

        Returns
        -------
        bool
            Whether `link` supports it.
        """

    @abc.abstractmethod
    def unit(self, polytope: AbstractPolytope, mu: Float[Array, " *shape"]) -> Scalar:
        """Evaluate Omega at strength one; for `Nothing`, the function from which its proximal steps take distances.

        Parameters
        ----------
        polytope
            The hull C.
        mu
            A point of C.

        Returns
        -------
        scalar
            The value.
        """

    @abc.abstractmethod
    def link(self, polytope: AbstractPolytope, eta: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
        """Compute the argmax over C of <eta, mu> - unit(mu).

        Parameters
        ----------
        polytope
            The hull C.
        eta
            Linear scores.

        Returns
        -------
        array of the shape of mu
            The argmax.
        """

    @abc.abstractmethod
    def mirror(self, polytope: AbstractPolytope, eta: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
        """Compute the point, in C or not, at which the gradient of the unit is eta.

        Parameters
        ----------
        polytope
            The hull C.
        eta
            A gradient.

        Returns
        -------
        array of the shape of mu
            The point.
        """

    @abc.abstractmethod
    def slope(self, eta: Float[Array, " *shape"], mu: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
        """Compute the gradient of the unit at mu = link(eta), up to a direction in which C has no extent.

        Parameters
        ----------
        eta
            Linear scores.
        mu
            Their link.

        Returns
        -------
        array of the shape of mu
            The gradient.
        """

    def __call__(self, polytope: AbstractPolytope, mu: Float[Array, " *shape"]) -> Scalar:
        """Evaluate Omega(mu)."""
        return self.strength * self.unit(polytope, mu)

    def argmax(self, polytope: AbstractPolytope, theta: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
        """Compute the argmax over C of <theta, mu> - Omega(mu).

        Parameters
        ----------
        polytope
            The hull C.
        theta
            Linear scores.

        Returns
        -------
        array of the shape of mu
            The argmax.
        """
        return self.link(polytope, theta / self.strength)


class AbstractEuclidean(AbstractRegularizer):
    """A regularizer whose unit is half the squared norm."""

    def serves(self, polytope):
        return True

    def unit(self, polytope, mu):
        return 0.5 * jnp.sum(mu**2)

    def link(self, polytope, eta):
        return polytope.project(eta)

    def mirror(self, polytope, eta):
        return eta

    def slope(self, eta, mu):
        return mu


class Nothing(AbstractEuclidean):
    """No regularizer, Omega = 0: the argmax of a linear score is a vertex."""

    strength: float = eqx.field(static=True)

    def __init__(self):
        self.strength = 0.0

    def argmax(self, polytope, theta):
        return polytope.encode(polytope.argmax(theta)).astype(theta.dtype)


class SquaredNorm(AbstractEuclidean):
    """Omega(mu) = strength / 2 |mu|^2: the argmax of a linear score is a projection, and may be a vertex.

    Parameters
    ----------
    strength
        The factor, positive and finite.
    """

    strength: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        _check_strength(self)


class Entropy(AbstractRegularizer):
    """Omega(mu) = -strength H(mu), with the entropy of `AbstractPolytope.negative_entropy`.

    H is that of independent labels, on or off, where mu holds their probabilities, and of the entries of mu elsewhere.
    Polytopes whose points are not probabilities, such as the permutahedron, have none; use Birkhoff for rankings.

    Parameters
    ----------
    strength
        The factor, positive and finite.
    """

    strength: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        _check_strength(self)

    def serves(self, polytope):
        return polytope.entropy_argmax(jnp.zeros(polytope.shape)) is not None

    def unit(self, polytope, mu):
        return polytope.negative_entropy(mu)

    def link(self, polytope, eta):
        mu = polytope.entropy_argmax(eta)
        if mu is None:
            raise ValueError(f"{polytope} has no entropy.")
        return mu

    def mirror(self, polytope, eta):
        return self.link(polytope, eta)

    def slope(self, eta, mu):
        # Not log mu, which is -inf where mu rounds to 0.
        return eta


def _check_strength(regularizer: AbstractRegularizer) -> None:
    name, strength = type(regularizer).__name__, regularizer.strength
    if not 0 < strength < float("inf"):
        raise ValueError(f"{name} needs a positive, finite strength; got {strength}. For none use Nothing().")
