"""Surrogates: tractable neighbors of p_g built from the logits theta, for KL.

A neighbor serves three times: its measure r says where to look for likely y (always without gradient), its tau_0 is a
lower bound of the log-partition that a learned tau corrects (with gradient in theta), and its summary is what such a
correction reads. Every tau_0 here is a variational bound

    LSE_g >= <g, b> + entropy(b) - <-log q, b>

at a b that is found without gradient: so its gradient in theta is b's own, and a constant added to g moves it as much
as it moves LSE_g.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ._types import Array, Float, Scalar
from .couplings import AbstractCoupling, Bilinear, LinearQuadratic
from .measures import AbstractMeasure, ConditionalBernoulli, ProductBernoulli, Sequential, Uniform, with_reference
from .polytopes import Birkhoff, Cube, Hypersimplex, Permutahedron
from .spaces import Hypercube

__all__ = ["AbstractSurrogate", "Balanced", "Conditional", "Independent", "MeanField", "Neighbor", "surrogate"]


class Neighbor(eqx.Module):
    """What a surrogate says about one row."""

    r: AbstractMeasure
    tau: Scalar
    summary: Float[Array, " d"]


class AbstractSurrogate(eqx.Module):
    """Builds a neighbor of p_g from one row's logits."""

    @abc.abstractmethod
    def serves(self, coupling: AbstractCoupling, q: AbstractMeasure) -> bool:
        """Whether it can serve this coupling under this kind of reference."""

    @abc.abstractmethod
    def __call__(self, coupling: Any, theta: Float[Array, " *theta"], q: Any) -> Neighbor:
        """r, tau_0 and the summary at theta, for a coupling and a q that it serves."""


class Independent(AbstractSurrogate):
    """Label sets scored by <theta, y>: p itself, independent labels."""

    def serves(self, coupling, q):
        return isinstance(coupling, Bilinear) and isinstance(coupling.polytope, Cube) and _by_label(q)

    def __call__(self, coupling, theta, q):
        logits, constant = with_reference(theta, q)
        r = ProductBernoulli(jax.lax.stop_gradient(logits))
        return Neighbor(r, jnp.sum(jax.nn.softplus(logits)) + constant, jax.nn.sigmoid(logits))


class MeanField(AbstractSurrogate):
    """Label sets with interactions: the best independent labels, by damped parallel updates m = sigmoid(u + U m)."""

    sweeps: int = eqx.field(static=True, default=30)
    damping: float = eqx.field(static=True, default=0.5)

    def serves(self, coupling, q):
        return isinstance(coupling, LinearQuadratic) and isinstance(coupling.space, Hypercube) and _by_label(q)

    def __call__(self, coupling, theta, q):
        u, s = coupling.parameters(theta)
        matrix = coupling.interaction.matrix(s)
        # For 0/1 labels the diagonal is part of the linear term.
        diagonal = jnp.diagonal(matrix)
        linear, constant = with_reference(u + diagonal / 2, q)
        pairs = matrix - jnp.diag(diagonal)

        def sweep(_, field):
            return self.damping * field + (1 - self.damping) * (linear + pairs @ jax.nn.sigmoid(field))

        field = jax.lax.stop_gradient(jax.lax.fori_loop(0, self.sweeps, sweep, linear))
        m = jax.nn.sigmoid(field)
        entropy = jnp.sum(jax.nn.softplus(field) - m * field)
        tau = linear @ m + 0.5 * m @ pairs @ m + entropy + constant
        return Neighbor(ProductBernoulli(field), tau, m)


class Conditional(AbstractSurrogate):
    """Sets of m labels scored by <theta, y>: p itself, a conditional Bernoulli."""

    def serves(self, coupling, q):
        return isinstance(coupling, Bilinear) and isinstance(coupling.polytope, Hypersimplex) and isinstance(q, Uniform)

    def __call__(self, coupling, theta, q):
        measure = ConditionalBernoulli(theta, coupling.polytope.m)
        tau = measure.log_sums()[-1, -1] - q.space.log_size
        return Neighbor(jax.lax.stop_gradient(measure), tau, jax.nn.sigmoid(theta))


class Balanced(AbstractSurrogate):
    """Rankings scored by sum_j theta[j, y_j]: exp(theta) balanced to a doubly stochastic matrix b by Sinkhorn's sweeps.

    r fills rank p with a label by its odds b[j, p] / (b's mass of label j at later ranks). tau_0 is the Bethe bound,
    sum b theta - sum b log b + sum (1 - b) log(1 - b), which holds at every doubly stochastic b; so b is rounded to one
    when the sweeps end, at `tolerance` or at `max_sweeps`, and the bound holds for any theta, however peaked.
    """

    tolerance: float = eqx.field(static=True, default=1e-3)
    max_sweeps: int = eqx.field(static=True, default=500)

    def serves(self, coupling, q):
        on_rankings = isinstance(coupling, Bilinear) and isinstance(coupling.polytope, Permutahedron | Birkhoff)
        return on_rankings and isinstance(q, Uniform)

    def __call__(self, coupling, theta, q):
        scores = coupling.polytope.matrix(theta)
        b = jax.lax.stop_gradient(self._balance(scores))
        later = jnp.cumsum(b[:, ::-1], axis=1)[:, ::-1] - b
        odds = jnp.log(jnp.maximum(b, TINY)) - jnp.log(jnp.maximum(later, TINY))
        entropy = -jnp.sum(jax.scipy.special.xlogy(b, b)) + jnp.sum(jax.scipy.special.xlogy(1 - b, 1 - b))
        return Neighbor(Sequential(odds), jnp.vdot(b, scores) + entropy - q.space.log_size, b.ravel())

    def _balance(self, scores):
        def sweep(carry):
            log_b, i, _ = carry
            log_b = log_b - jax.nn.logsumexp(log_b, axis=1, keepdims=True)
            log_b = log_b - jax.nn.logsumexp(log_b, axis=0, keepdims=True)
            return log_b, i + 1, jnp.abs(jnp.exp(log_b).sum(axis=1) - 1).max()

        def unbalanced(carry):
            return (carry[2] > self.tolerance) & (carry[1] < self.max_sweeps)

        start = (scores, 0, jnp.asarray(jnp.inf, scores.dtype))
        return _round_to_birkhoff(jnp.exp(jax.lax.while_loop(unbalanced, sweep, start)[0]))


TINY = 1e-12

# What serves which coupling; the first that does.
_TABLE = (Independent(), MeanField(), Conditional(), Balanced())


def surrogate(coupling: AbstractCoupling, q: AbstractMeasure) -> AbstractSurrogate:
    """The surrogate for a coupling and a reference, or an error that names what has none."""
    for candidate in _TABLE:
        if candidate.serves(coupling, q):
            return candidate
    raise ValueError(
        f"No surrogate serves a {type(coupling).__name__} coupling on {coupling.space} with a {type(q).__name__} "
        "reference; use proposal=None, draws from q (the paper's Algorithm 1)."
    )


def _by_label(q: AbstractMeasure) -> bool:
    return isinstance(q, Uniform | ProductBernoulli)


def _round_to_birkhoff(b: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The nearly doubly stochastic b made so: rows and columns scaled down to at most one, the rest added evenly."""
    b = b / jnp.maximum(1, b.sum(axis=1, keepdims=True))
    b = b / jnp.maximum(1, b.sum(axis=0, keepdims=True))
    rows, columns = 1 - b.sum(axis=1), 1 - b.sum(axis=0)
    rows, columns = jnp.maximum(rows, 0), jnp.maximum(columns, 0)
    return jnp.clip(b + jnp.outer(rows, columns) / jnp.maximum(rows.sum(), TINY), 0, 1)
