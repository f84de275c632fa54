"""Argmax of Phi(theta, mu) - Omega(mu) over the hull C: the regularizers Omega, and the oracles that solve it.

The argmax mu carries no gradient: by the envelope theorem the gradient of the largest value, in theta and in the
coupling's parameters, is that of Phi at mu held fixed.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from .networks import without_gradient
from .structures import AbstractCoupling, AbstractPolytope
from .types import Array, Float, Int, Scalar

__all__ = [
    "AbstractEuclidean",
    "AbstractOracle",
    "AbstractRegularizer",
    "ClosedForm",
    "CoordinateAscent",
    "Entropy",
    "Nothing",
    "ProximalGradient",
    "Solved",
    "SquaredNorm",
    "coarse_oracle",
    "oracle",
    "rounded",
]

TINY = 1e-12
GROW, SHRINK, LARGEST_STEP = 1.3, 0.5, 1e4


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


class Solved(eqx.Module):
    """A point of C, without gradient; Phi(theta, mu) - Omega(mu), with that of Phi; and how far it may be from optimal.

    gap = max over mu' of <grad Phi(mu), mu' - mu> - Omega(mu') + Omega(mu), the Frank-Wolfe gap: 0 only where mu is
    stationary, and where Phi is concave the largest value is at most value + gap. Of closed forms it is 0.
    """

    mu: Float[Array, " *shape"]
    value: Scalar
    gap: Scalar


class AbstractOracle(eqx.Module):
    """Solves argmax over C of Phi(theta, mu) - Omega(mu) for one theta."""

    regularizer: eqx.AbstractVar[AbstractRegularizer]

    @abc.abstractmethod
    def serves(self, coupling: AbstractCoupling) -> bool:
        """Whether it can serve this coupling."""

    @abc.abstractmethod
    def argmax(self, coupling, theta: Float[Array, " *theta"]) -> Float[Array, " *shape"]:
        """mu, for a coupling that it serves."""

    def maximizes(self, coupling: AbstractCoupling) -> bool:
        """Whether mu is a maximum, up to the gap; else it is only a stationary point."""
        return True

    def gap(self, coupling: AbstractCoupling, theta: Float[Array, " *theta"], mu: Float[Array, " *shape"]) -> Scalar:
        polytope, omega = coupling.polytope, self.regularizer
        uphill = jax.grad(coupling.relaxed, argnums=1)(theta, mu)
        best = omega.argmax(polytope, uphill)
        return jnp.maximum(jnp.vdot(uphill, best - mu) - omega(polytope, best) + omega(polytope, mu), 0)

    def __call__(self, coupling: AbstractCoupling, theta: Float[Array, " *theta"]) -> Solved:
        fixed, logits = without_gradient((coupling, theta))
        mu = self.argmax(fixed, logits)
        value = coupling.relaxed(theta, mu) - self.regularizer(coupling.polytope, mu)
        return Solved(mu, value, self.gap(fixed, logits, mu))


class ClosedForm(AbstractOracle):
    """Bilinear couplings: a vertex, a projection, or what maximizes with entropy (sigmoid, softmax, Sinkhorn)."""

    regularizer: AbstractRegularizer

    def serves(self, coupling):
        return coupling.is_linear

    def argmax(self, coupling, theta):
        return self.regularizer.argmax(coupling.polytope, theta)

    def gap(self, coupling, theta, mu):
        return jnp.zeros((), theta.dtype)


class CoordinateAscent(AbstractOracle):
    """Concave interactions of label sets: each mu_j in turn to its maximum given the others, clipped to the box."""

    regularizer: AbstractRegularizer
    sweeps: int = eqx.field(static=True, default=200)
    tolerance: float = eqx.field(static=True, default=1e-6)

    def serves(self, coupling):
        in_box = coupling.polytope.box() is not None and coupling.has_interaction
        return in_box and coupling.is_concave and isinstance(self.regularizer, AbstractEuclidean)

    def argmax(self, coupling, theta):
        u, s = coupling.parameters(theta)
        matrix = coupling.interaction.matrix(s)
        own = jnp.diagonal(matrix)
        low, high = coupling.polytope.box()
        curvature = jnp.maximum(self.regularizer.strength - own, TINY)

        def update(j, carry):
            mu, uphill = carry
            best = jnp.clip((uphill[j] - own[j] * mu[j]) / curvature[j], low, high)
            return mu.at[j].set(best), uphill + matrix[j] * (best - mu[j])

        def sweep(carry):
            before, i, _ = carry
            mu, _ = jax.lax.fori_loop(0, u.size, update, (before, u + matrix @ before))
            return mu, i + 1, (jnp.abs(mu - before).max() > self.tolerance) & (i + 1 < self.sweeps)

        # The condition is carried, not computed anew: under vmap a loop evaluates it twice, and rounding may differ.
        start = (jnp.full_like(u, (low + high) / 2), 0, jnp.asarray(True))
        return jax.lax.while_loop(lambda carry: carry[-1], sweep, start)[0]


class ProximalGradient(AbstractOracle):
    """Any coupling: accelerated ascent from the center of C, each step the argmax of the slope of Phi, less Omega, less
    the distance from where it starts; with `Entropy` that is a damped mean-field update.

    A step too long for the curvature met on its way, or that leads down, is not taken: the next one is shorter.
    """

    regularizer: AbstractRegularizer
    max_steps: int = eqx.field(static=True, default=300)
    tolerance: float = eqx.field(static=True, default=1e-5)

    def serves(self, coupling):
        return True

    def maximizes(self, coupling):
        return coupling.is_concave

    def argmax(self, coupling, theta):
        polytope, omega = coupling.polytope, self.regularizer

        def score(mu):
            return coupling.relaxed(theta, mu)

        def improve(carry):
            (mu, eta, value), before, t, n, i, _ = carry
            at = eta + n / (n + 3) * (eta - before)
            z = omega.mirror(polytope, at)
            uphill = jax.grad(score)(z)
            aim = (t * uphill + at) / (1 + t * omega.strength)
            new = omega.link(polytope, aim)
            new_eta = omega.slope(aim, new)
            phi, new_uphill = jax.value_and_grad(score)(new)
            new_value = phi - omega(polytope, new)
            # Slopes, not values: the difference of two values near the maximum is all rounding.
            short = t * jnp.vdot(uphill - new_uphill, new - z) <= jnp.vdot(new_eta - at, new - z)
            taken = short & (new_value >= value - 10 * jnp.finfo(value.dtype).eps * (1 + jnp.abs(value)))
            small = self.tolerance * jnp.maximum(1, jnp.abs(uphill).max()) * t / (1 + t * omega.strength)
            arrived = short & (jnp.abs(new_eta - at).max() <= small)
            here = jax.tree.map(lambda a, b: jnp.where(taken, a, b), (new, new_eta, new_value), (mu, eta, value))
            t = jnp.where(taken, jnp.minimum(GROW * t, LARGEST_STEP), SHRINK * t)
            return here, eta, t, jnp.where(taken, n + 1, 0), i + 1, ~arrived & (i + 1 < self.max_steps)

        center = polytope.project(jnp.full(polytope.shape, 0.5, theta.dtype))
        eta = omega.slope(jnp.zeros_like(center), center)
        here = (center, eta, score(center) - omega(polytope, center))
        start = (here, eta, jnp.ones((), theta.dtype), 0, 0, jnp.asarray(True))
        return jax.lax.while_loop(lambda carry: carry[-1], improve, start)[0][0]


def oracle(coupling: AbstractCoupling, regularizer: AbstractRegularizer) -> AbstractOracle:
    """The oracle of the table, or an error that names what has none."""
    if not regularizer.serves(coupling.polytope):
        raise ValueError(
            f"No oracle serves a {type(coupling).__name__} coupling on {coupling.polytope} with {regularizer}. Use "
            "SquaredNorm, or for rankings a coupling on Birkhoff."
        )
    kinds = (ClosedForm, CoordinateAscent, ProximalGradient)
    return next(chosen for chosen in (kind(regularizer) for kind in kinds) if chosen.serves(coupling))


def coarse_oracle(coupling: AbstractCoupling, regularizer: AbstractRegularizer) -> AbstractOracle:
    """The oracle of the table, but where that one iterates it ends early: a start to climb from, or noisy gradients,
    need no more, and of 174 labels it takes seconds to find the argmax to the last digit.
    """
    chosen = oracle(coupling, regularizer)
    return ProximalGradient(regularizer, 50, 1e-3) if isinstance(chosen, ProximalGradient) else chosen


def rounded(polytope: AbstractPolytope, mu: Float[Array, " *shape"]) -> Int[Array, " *y"]:
    """The y whose phi(y) is nearest to mu: argmax <mu, phi(y)> - 1/2 |phi(y)|^2, where only the Cube's norms differ."""
    return polytope.argmax(mu - 0.5)
