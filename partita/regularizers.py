"""Regularizers Omega of points mu of a hull C, and the argmax over C of a linear score less Omega."""

import abc

import equinox as eqx
import jax.numpy as jnp

from ._types import Array, Float, Scalar
from .structures import AbstractPolytope

__all__ = ["AbstractEuclidean", "AbstractRegularizer", "Entropy", "Nothing", "SquaredNorm"]


class AbstractRegularizer(eqx.Module):
    """Omega = strength times a strictly convex function of mu, the `unit`, whose own argmax is the `link`."""

    strength: eqx.AbstractVar[float]

    @abc.abstractmethod
    def serves(self, polytope: AbstractPolytope) -> bool:
        """Whether its argmax over this polytope is known."""

    @abc.abstractmethod
    def unit(self, polytope: AbstractPolytope, mu: Float[Array, " *shape"]) -> Scalar:
        """Omega at strength one; for `Nothing`, what its proximal steps measure distance by."""

    @abc.abstractmethod
    def link(self, polytope: AbstractPolytope, eta: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
        """argmax over C of <eta, mu> - unit(mu)."""

    @abc.abstractmethod
    def mirror(self, polytope: AbstractPolytope, eta: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
        """A point where the gradient of the unit is eta, in C or out of it."""

    @abc.abstractmethod
    def slope(self, eta: Float[Array, " *shape"], mu: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
        """The gradient of the unit at mu = link(eta), up to what is constant on C."""

    def __call__(self, polytope: AbstractPolytope, mu: Float[Array, " *shape"]) -> Scalar:
        """Omega(mu)."""
        return self.strength * self.unit(polytope, mu)

    def argmax(self, polytope: AbstractPolytope, theta: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
        """argmax over C of <theta, mu> - Omega(mu)."""
        return self.link(polytope, theta / self.strength)


class AbstractEuclidean(AbstractRegularizer):
    """Distances by the squared norm."""

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
    """Omega = 0."""

    strength: float = eqx.field(static=True)

    def __init__(self):
        self.strength = 0.0

    def argmax(self, polytope, theta):
        return polytope.encode(polytope.argmax(theta)).astype(theta.dtype)


class SquaredNorm(AbstractEuclidean):
    """Omega(mu) = strength / 2 |mu|^2: the argmax of a linear score is a projection, and may be a vertex."""

    strength: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        _check_strength(self)


class Entropy(AbstractRegularizer):
    """Omega(mu) = -strength H(mu), summed over the labels, on or off, where mu holds probabilities of
    labels, and over the entries of mu elsewhere (`AbstractPolytope.negative_entropy`).

    Polytopes whose points are no probabilities have none, as the permutahedron; Birkhoff scores the same rankings.
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
        # Not log mu, which is lost where mu rounds to 0.
        return eta


def _check_strength(regularizer: AbstractRegularizer) -> None:
    name, strength = type(regularizer).__name__, regularizer.strength
    if not 0 < strength < float("inf"):
        raise ValueError(f"{name} needs a positive, finite strength; got {strength}. For none use Nothing().")
