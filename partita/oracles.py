"""Oracles: argmax of Phi(theta, mu) - Omega(mu) over the hull C, and of log p over Y by local search.

The argmax mu carries no gradient: by the envelope theorem the gradient of the largest value, in theta and in the
coupling's parameters, is that of Phi at mu held fixed. Which solver serves which coupling and regularizer is the table
at the end.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from ._types import Array, Float, Int, Key, Row, Scalar
from .divergences import KL
from .model import EBM
from .networks import without_gradient
from .regularizers import AbstractEuclidean, AbstractRegularizer, Nothing
from .structures import AbstractCoupling, AbstractPolytope

__all__ = [
    "AbstractOracle",
    "ClosedForm",
    "CoordinateAscent",
    "LocalSearch",
    "PoolSearch",
    "ProximalGradient",
    "Solved",
    "coarse",
    "oracle",
    "rounded",
]

TINY = 1e-12
GROW, SHRINK, LARGEST_STEP = 1.3, 0.5, 1e4


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


# What serves which coupling and regularizer; the first that does.
_TABLE = (ClosedForm, CoordinateAscent, ProximalGradient)


def oracle(coupling: AbstractCoupling, regularizer: AbstractRegularizer) -> AbstractOracle:
    """The oracle of the table, or an error that names what has none."""
    if not regularizer.serves(coupling.polytope):
        raise ValueError(
            f"No oracle serves a {type(coupling).__name__} coupling on {coupling.polytope} with {regularizer}. Use "
            "SquaredNorm, or for rankings a coupling on Birkhoff."
        )
    return next(found for found in (serving(regularizer) for serving in _TABLE) if found.serves(coupling))


def coarse(coupling: AbstractCoupling, regularizer: AbstractRegularizer) -> AbstractOracle:
    """The oracle of the table, but where that one iterates it ends early: a start to climb from, or noisy gradients,
    need no more, and of 174 labels it takes seconds to find the argmax to the last digit.
    """
    found = oracle(coupling, regularizer)
    return ProximalGradient(regularizer, 50, 1e-3) if isinstance(found, ProximalGradient) else found


def rounded(polytope: AbstractPolytope, mu: Float[Array, " *shape"]) -> Int[Array, " *y"]:
    """The y whose phi(y) is nearest to mu: argmax <mu, phi(y)> - 1/2 |phi(y)|^2, where only the Cube's norms differ."""
    return polytope.argmax(mu - 0.5)


class LocalSearch(eqx.Module):
    """A likely y that no single local move makes more likely: steepest ascent from several starts, the best end.

    One start is the rounded argmax of g over C, the others are drawn from the model's surrogate, or from q where it has
    none. A density other than exp(g) under a q that is not uniform needs tau: the learned one.
    """

    restarts: int = eqx.field(static=True, default=8)
    max_steps: int = eqx.field(static=True, default=1000)

    def __check_init__(self):
        if self.restarts < 1 or self.max_steps < 1:
            raise ValueError(
                f"LocalSearch needs restarts >= 1 and max_steps >= 1; got {self.restarts}, {self.max_steps}."
            )

    def __call__(self, model: EBM, row: Row, *, key: Key) -> Int[Array, " *y"]:
        coupling = model.g.coupling
        r = row.q if row.surrogate is None else row.surrogate.r
        relaxed = rounded(coupling.polytope, coarse(coupling, Nothing())(coupling, row.theta).mu)
        starts = relaxed[None]
        if self.restarts > 1:
            starts = jnp.concatenate([starts, r.sample(self.restarts - 1, key=key)])
        rate = _log_score(model, row)

        def score(y):
            return rate(coupling(row.theta, y), y)

        def step(carry):
            y, value, i, _ = carry
            near = model.space.moves(y)
            values = jax.vmap(rate)(coupling.around(row.theta, y), near)
            best = jnp.argmax(values)
            better = values[best] > value
            y, value = jnp.where(better, near[best], y), jnp.where(better, values[best], value)
            return y, value, i + 1, better & (i + 1 < self.max_steps)

        def climb(y):
            if not model.space.max_degree:
                return y, score(y)
            end = jax.lax.while_loop(lambda carry: carry[-1], step, (y, score(y), 0, jnp.asarray(True)))[0]
            return end, score(end)

        # One start after the other: all moves of all starts of all rows at once would be gigabytes at k = 174.
        ends, values = jax.lax.map(climb, starts)
        return ends[jnp.argmax(values)]


class PoolSearch(eqx.Module):
    """Several likely outputs: a pool that takes in the local moves of all that it holds, as long as one is better than
    its worst. It starts with the end of a `LocalSearch` and draws from the model's surrogate, or from q.

    The outputs are different; the best of them need not be the best of all.
    """

    restarts: int = eqx.field(static=True, default=8)
    max_steps: int = eqx.field(static=True, default=1000)

    def __check_init__(self):
        LocalSearch(self.restarts, self.max_steps)

    def __call__(
        self, model: EBM, row: Row, num: int, *, key: Key
    ) -> tuple[Int[Array, " num *y"], Float[Array, " num"]]:
        search_key, draw_key = jax.random.split(key)
        coupling, rate = model.g.coupling, _log_score(model, row)
        r = row.q if row.surrogate is None else row.surrogate.r
        size = max(num, self.restarts)
        first = LocalSearch(self.restarts, self.max_steps)(model, row, key=search_key)
        y = jnp.concatenate([first[None], r.sample(size - 1, key=draw_key)])
        score = jax.vmap(lambda y: rate(coupling(row.theta, y), y))(y)

        def step(carry):
            y, score, i, _ = carry
            near = jax.vmap(model.space.moves)(y)
            values = jax.vmap(lambda y, near: jax.vmap(rate)(coupling.around(row.theta, y), near))(y, near)
            # A place that is not filled has no moves.
            values = jnp.where(jnp.isneginf(score)[:, None], -jnp.inf, values)
            both = jnp.concatenate([y, near.reshape(-1, *model.space.shape)])
            new_y, new = _distinct(both, jnp.concatenate([score, values.ravel()]), size)
            better = jnp.any(new > score)
            return jnp.where(better, new_y, y), jnp.where(better, new, score), i + 1, better & (i + 1 < self.max_steps)

        start = (*_distinct(y, score, size), 0, jnp.asarray(True))
        end = jax.lax.while_loop(lambda carry: carry[-1], step, start) if model.space.max_degree else start
        return end[0][:num], end[1][:num]


def _distinct(y: Int[Array, " n *y"], score: Float[Array, " n"], num: int) -> tuple[Array, Array]:
    """The `num` outputs with the largest scores, each once; where there are fewer, the rest have -inf."""
    # Equal outputs are neighbors once sorted by two random sums of their entries.
    flat = y.reshape(len(y), -1).astype(jnp.uint32)
    codes = flat @ jax.random.bits(jax.random.key(0), (flat.shape[1], 2), jnp.uint32)
    order = jnp.lexsort((-score, codes[:, 0], codes[:, 1]))
    y, score = y[order], score[order]
    again = (y[1:] == y[:-1]).reshape(len(y) - 1, -1).all(axis=1)
    score = jnp.where(jnp.append(False, again), -jnp.inf, score)
    score, best = jax.lax.top_k(score, num)
    return y[best], score


def _log_score(model: EBM, row: Row) -> Callable[[Scalar, Array], Scalar]:
    """(g, y) -> log p(y|x), up to what its order does not depend on."""
    if row.q.is_uniform:
        return lambda g, y: g
    if isinstance(model.f, KL):
        return lambda g, y: g + row.q.log_prob(y)
    tau = model.log_partition(row)
    return lambda g, y: row.q.log_prob(y) + model.f.log_density(g - tau)
