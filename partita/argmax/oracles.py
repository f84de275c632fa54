"""Oracles: the algorithms for argmax over C of Phi(theta, mu) - Omega(mu), and the choice among them."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from ..networks import without_gradient
from ..structures import AbstractCoupling, AbstractPolytope
from ..types import Array, Float, Int, Scalar
from .regularizers import AbstractEuclidean, AbstractRegularizer

TINY = 1e-12
GROW, SHRINK, LARGEST_STEP = 1.3, 0.5, 1e4


class Solution(eqx.Module):
    """An approximate argmax over C.

    Parameters
    ----------
    mu
        The point, without gradient.
    value
        Phi(theta, mu) - Omega(mu), with the gradient of Phi.
    gap
        The Frank-Wolfe gap, max over mu' of <grad Phi(mu), mu' - mu> - Omega(mu') + Omega(mu): 0 only where mu is
        stationary. If Phi is concave, the maximum is at most value + gap. For closed forms it is 0.
    """

    mu: Float[Array, " *shape"]
    value: Scalar
    gap: Scalar


class AbstractOracle(eqx.Module):
    """An algorithm for argmax over C of Phi(theta, mu) - Omega(mu), for one theta."""

    regularizer: eqx.AbstractVar[AbstractRegularizer]

    @abc.abstractmethod
    def serves(self, coupling: AbstractCoupling) -> bool:
        """Tell whether the oracle supports a coupling.

        Parameters
        ----------
        coupling
            Phi.

        Returns
        -------
        bool
            Whether it does.
        """

    @abc.abstractmethod
    def argmax(self, coupling, theta: Float[Array, " *theta"]) -> Float[Array, " *shape"]:
        """Compute the argmax, for a coupling that the oracle supports.

        Parameters
        ----------
        coupling, theta
            Phi and the logits.

        Returns
        -------
        array of the shape of mu
            The argmax mu.
        """

    def maximizes(self, coupling: AbstractCoupling) -> bool:
        """Tell whether mu is a maximum, up to the gap.

        Parameters
        ----------
        coupling
            Phi.

        Returns
        -------
        bool
            False if it is only a stationary point.
        """
        return True

    def gap(self, coupling: AbstractCoupling, theta: Float[Array, " *theta"], mu: Float[Array, " *shape"]) -> Scalar:
        """Compute the Frank-Wolfe gap of a point; see `Solution`.

        Parameters
        ----------
        coupling, theta
            Phi and the logits.
        mu
            A point of C.

        Returns
        -------
        scalar
            The gap, not negative.
        """
        polytope, omega = coupling.polytope, self.regularizer
        uphill = jax.grad(coupling.relaxed, argnums=1)(theta, mu)
        best = omega.argmax(polytope, uphill)
        return jnp.maximum(jnp.vdot(uphill, best - mu) - omega(polytope, best) + omega(polytope, mu), 0)

    def __call__(self, coupling: AbstractCoupling, theta: Float[Array, " *theta"]) -> Solution:
        """Solve for one theta."""
        fixed, logits = without_gradient((coupling, theta))
        mu = self.argmax(fixed, logits)
        value = coupling.relaxed(theta, mu) - self.regularizer(coupling.polytope, mu)
        return Solution(mu, value, self.gap(fixed, logits, mu))


class ClosedForm(AbstractOracle):
    """For bilinear couplings: a vertex, a projection, or the link of the entropy (sigmoid, softmax, Sinkhorn).

    Parameters
    ----------
    regularizer
        Omega.
    """

    regularizer: AbstractRegularizer

    def serves(self, coupling):
        return coupling.is_linear

    def argmax(self, coupling, theta):
        return self.regularizer.argmax(coupling.polytope, theta)

    def gap(self, coupling, theta, mu):
        return jnp.zeros((), theta.dtype)


class CoordinateAscent(AbstractOracle):
    """For concave interactions of label sets: each mu_j in turn to its maximum given the others, clipped to the box.

    Parameters
    ----------
    regularizer
        Omega, `SquaredNorm` or `Nothing`.
    sweeps
        The largest number of sweeps over the labels.
    tolerance
        The largest change in a sweep at which it ends.
    """

    regularizer: AbstractRegularizer
    sweeps: int = eqx.field(static=True, default=200)
    tolerance: float = eqx.field(static=True, default=1e-6)

    def serves(self, coupling):
        in_box = coupling.polytope.box() is not None and coupling.has_interaction
        return in_box and coupling.is_concave and isinstance(self.regularizer, AbstractEuclidean)

    def argmax(self, coupling, theta):
        u, s = coupling.parameters(theta)
        matrix = coupling.interaction.matrix(s)
        diagonal = jnp.diagonal(matrix)
        low, high = coupling.polytope.box()
        curvature = jnp.maximum(self.regularizer.strength - diagonal, TINY)

        def update(j, carry):
            mu, uphill = carry
            best = jnp.clip((uphill[j] - diagonal[j] * mu[j]) / curvature[j], low, high)
            return mu.at[j].set(best), uphill + matrix[j] * (best - mu[j])

        def sweep(carry):
            before, i, _ = carry
            mu, _ = jax.lax.fori_loop(0, u.size, update, (before, u + matrix @ before))
            return mu, i + 1, (jnp.abs(mu - before).max() > self.tolerance) & (i + 1 < self.sweeps)

        # The condition is carried, not computed anew: under vmap a loop evaluates it twice, and rounding may differ.
        start = (jnp.full_like(u, (low + high) / 2), 0, jnp.asarray(True))
        return jax.lax.while_loop(lambda carry: carry[-1], sweep, start)[0]


class ProximalGradient(AbstractOracle):
    """For any coupling: accelerated proximal ascent from the center of C.

    A step maximizes the linearized Phi, less Omega, less the Bregman distance from its start; with `Entropy` it is a
    damped mean-field update. A step that is too long for the curvature of Phi or leads down is rejected, and the next
    one is shorter.

    Parameters
    ----------
    regularizer
        Omega.
    max_steps
        The largest number of steps.
    tolerance
        The relative length of a step at which it ends.
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
            (mu, eta, value), previous, t, n, i, _ = carry
            at = eta + n / (n + 3) * (eta - previous)
            z = omega.mirror(polytope, at)
            uphill = jax.grad(score)(z)
            aim = (t * uphill + at) / (1 + t * omega.strength)
            new = omega.link(polytope, aim)
            new_eta = omega.slope(aim, new)
            phi, new_uphill = jax.value_and_grad(score)(new)
            new_value = phi - omega(polytope, new)
            # Slopes, not values: the difference of two values near the maximum is rounding error.
            short = t * jnp.vdot(uphill - new_uphill, new - z) <= jnp.vdot(new_eta - at, new - z)
            accepted = short & (new_value >= value - 10 * jnp.finfo(value.dtype).eps * (1 + jnp.abs(value)))
            small = self.tolerance * jnp.maximum(1, jnp.abs(uphill).max()) * t / (1 + t * omega.strength)
            converged = short & (jnp.abs(new_eta - at).max() <= small)
            point = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), (new, new_eta, new_value), (mu, eta, value))
            t = jnp.where(accepted, jnp.minimum(GROW * t, LARGEST_STEP), SHRINK * t)
            return point, eta, t, jnp.where(accepted, n + 1, 0), i + 1, ~converged & (i + 1 < self.max_steps)

        center = polytope.project(jnp.full(polytope.shape, 0.5, theta.dtype))
        eta = omega.slope(jnp.zeros_like(center), center)
        point = (center, eta, score(center) - omega(polytope, center))
        start = (point, eta, jnp.ones((), theta.dtype), 0, 0, jnp.asarray(True))
        return jax.lax.while_loop(lambda carry: carry[-1], improve, start)[0][0]


def oracle(coupling: AbstractCoupling, regularizer: AbstractRegularizer) -> AbstractOracle:
    """Choose the oracle for a coupling and a regularizer.

    Parameters
    ----------
    coupling
        Phi.
    regularizer
        Omega.

    Returns
    -------
    AbstractOracle
        The first of `ClosedForm`, `CoordinateAscent` and `ProximalGradient` that supports them.

    Raises
    ------
    ValueError
        If the regularizer has no argmax over the polytope.
    """
    if not regularizer.serves(coupling.polytope):
        raise ValueError(
            f"No oracle serves a {type(coupling).__name__} coupling on {coupling.polytope} with {regularizer}. Use "
            "SquaredNorm, or for rankings a coupling on Birkhoff."
        )
    kinds = (ClosedForm, CoordinateAscent, ProximalGradient)
    return next(candidate for candidate in (kind(regularizer) for kind in kinds) if candidate.serves(coupling))


def coarse_oracle(coupling: AbstractCoupling, regularizer: AbstractRegularizer) -> AbstractOracle:
    """Choose the oracle as `oracle` does, but end proximal gradients early.

    This is enough for the start of a search and for stochastic gradients; with 174 labels an argmax to full precision
    takes seconds.

    Parameters
    ----------
    coupling, regularizer
        As for `oracle`.

    Returns
    -------
    AbstractOracle
        The oracle.
    """
    default = oracle(coupling, regularizer)
    return ProximalGradient(regularizer, 50, 1e-3) if isinstance(default, ProximalGradient) else default


def nearest_output(polytope: AbstractPolytope, mu: Float[Array, " *shape"]) -> Int[Array, " *y"]:
    """Find the y whose phi(y) is nearest to mu.

    Parameters
    ----------
    polytope
        The hull C.
    mu
        A point of C.

    Returns
    -------
    array of the shape of y
        The output.
    """
    # argmax <mu, phi(y)> - 1/2 |phi(y)|^2; only the vertices of the Cube differ in norm.
    return polytope.argmax(mu - 0.5)
