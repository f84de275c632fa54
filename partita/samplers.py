"""Estimates of the log-partition of one row where nothing exact reaches: weighted draws, annealed chains.

Both start at the measure r of the model's surrogate, whose normalizer is known, or at q where there is none.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ._types import Array, Float, Int, Key, Row, Scalar
from .divergences import KL
from .measures import defended
from .model import EBM

__all__ = ["AbstractEstimator", "AnnealedImportanceSampling", "Estimate", "ImportanceSampling", "Weighted"]

BISECTIONS = 60


class Weighted(NamedTuple):
    """Draws y of one row as the model sees them: g(x, y) and log q/r."""

    g: Float[Array, " draws"]
    log_weight: Float[Array, " draws"]


class Estimate(NamedTuple):
    """A log-partition and its standard error; `effective` is the effective share of the draws."""

    value: Scalar
    error: Scalar
    effective: Scalar


class AbstractEstimator(eqx.Module):
    """Estimates the log-partition of one row."""

    @abc.abstractmethod
    def __call__(self, model: EBM, row: Row, *, key: Key) -> Estimate:
        """The estimate and its standard error."""

    def check(self, model: EBM) -> None:
        """Raise where it cannot serve the model."""


class ImportanceSampling(AbstractEstimator):
    """`num` draws from r, a share `defense` of them from q: log of the mean of q/r exp(g).

    For f other than KL, the tau at which the mean of q/r (f+*)'(g - tau) is 1.
    """

    num: int = eqx.field(static=True, default=1000)
    defense: float = eqx.field(static=True, default=0.05)

    def __check_init__(self):
        if self.num < 2 or not 0 <= self.defense < 1:
            raise ValueError(
                f"ImportanceSampling needs num >= 2 draws and a defense in [0, 1); got {self.num}, {self.defense}."
            )

    def __call__(self, model, row, *, key):
        weighted = self.draw(model, row, key=key)
        tau = root(model, weighted)

        def mass(tau):
            terms = masses(model, weighted, tau)
            return terms.mean(), terms

        slope, terms = jax.grad(mass, has_aux=True)(tau)
        return Estimate(tau, standard_error(terms) / jnp.maximum(-slope, jnp.finfo(slope.dtype).tiny), effective(terms))

    def draw(self, model: EBM, row: Row, *, key: Key) -> Weighted:
        """The draws, weighted."""
        return self.outputs(model, row, key=key)[1]

    def outputs(self, model: EBM, row: Row, *, key: Key) -> tuple[Int[Array, " draws *y"], Weighted]:
        """The draws themselves, and as the model sees them."""
        r = row.q if row.near is None else defended(row.near.r, row.q, self.defense)
        y = r.sample(self.num, key=key)
        log_weight = jax.vmap(lambda y: row.q.log_prob(y) - r.log_prob(y))(y)
        return y, Weighted(jax.vmap(model.g.coupling, in_axes=(None, 0))(row.theta, y), log_weight)


class AnnealedImportanceSampling(AbstractEstimator):
    """`chains` of draws moved from r to p through `temperatures` measures r^(1 - t) (q exp(g))^t, for KL.

    At each, `moves` local moves are offered to Metropolis (default: as many as labels). The mean weight is unbiased for
    the partition, so that its logarithm falls short on average. `hot=True` starts at q instead of r: slower, but it
    finds the modes of p that r misses.
    """

    chains: int = eqx.field(static=True, default=32)
    temperatures: int = eqx.field(static=True, default=50)
    moves: int | None = eqx.field(static=True, default=None)
    hot: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if self.chains < 2 or self.temperatures < 1 or (self.moves is not None and self.moves < 1):
            raise ValueError(
                "AnnealedImportanceSampling needs at least 2 chains, 1 temperature and 1 move; got "
                f"{self.chains}, {self.temperatures}, {self.moves}."
            )

    def check(self, model):
        if not isinstance(model.f, KL):
            raise ValueError(
                f"Annealing moves between exp(g) densities: it needs f = KL, but f is {type(model.f).__name__}. "
                "Use importance sampling, or an exact method."
            )

    def __call__(self, model, row, *, key):
        r = row.q if self.hot or row.near is None else row.near.r
        start_key, move_key = jax.random.split(key)
        y = r.sample(self.chains, key=start_key)
        ends = jax.vmap(lambda y: self._ends(model, row, r, y))
        steps = jnp.arange(1, self.temperatures + 1) / self.temperatures

        def anneal(carry, t_and_key):
            y, log_r, log_p, log_weight = carry
            t, key = t_and_key
            log_weight = log_weight + (log_p - log_r) / self.temperatures
            y, log_r, log_p = self._metropolis(model, (y, log_r, log_p), ends, t, key)
            return (y, log_r, log_p, log_weight), None

        first = (y, *ends(y), jnp.zeros(self.chains))
        keys = jax.random.split(move_key, self.temperatures)
        log_weight = jax.lax.scan(anneal, first, (steps, keys))[0][-1]
        weight = jnp.exp(log_weight - log_weight.max())
        value = jnp.log(weight.mean()) + log_weight.max()
        return Estimate(value, standard_error(weight) / weight.mean(), effective(weight))

    def _ends(self, model, row, r, y):
        """log r(y) and log q(y) + g(x, y): the two ends of the path."""
        return r.log_prob(y), row.q.log_prob(y) + model.g.coupling(row.theta, y)

    def _metropolis(self, model, state, ends, t, key):
        """Local moves that leave r^(1 - t) (q exp(g))^t as it is."""
        space = model.space
        moves = space.shape[0] if self.moves is None else self.moves
        which_key, accept_key = jax.random.split(key)
        which = jax.random.randint(which_key, (moves, self.chains), 0, space.num_moves)
        log_u = jnp.log(jax.random.uniform(accept_key, (moves, self.chains)))

        def offer(state, i_and_log_u):
            y, log_r, log_p = state
            i, log_u = i_and_log_u
            other = jax.vmap(space.move)(y, i)
            other_r, other_p = ends(other)
            accepted = log_u < (1 - t) * (other_r - log_r) + t * (other_p - log_p)
            pick = lambda a, b: jnp.where(accepted.reshape(-1, *[1] * (a.ndim - 1)), a, b)  # noqa: E731
            return jax.tree.map(pick, (other, other_r, other_p), (y, log_r, log_p)), None

        return jax.lax.scan(offer, state, (which, log_u))[0]


def masses(model: EBM, weighted: Weighted, tau: Scalar) -> Float[Array, " draws"]:
    """The terms q/r (f+*)'(g - tau), whose mean is the total mass at tau."""
    if isinstance(model.f, KL):
        return jnp.exp(weighted.g - tau + weighted.log_weight)
    return jnp.exp(weighted.log_weight) * jax.vmap(model.f.density)(weighted.g - tau)


def standard_error(terms: Float[Array, " draws"]) -> Scalar:
    """Of the mean of independent terms."""
    return jnp.std(terms, ddof=1) / jnp.sqrt(terms.size)


def effective(terms: Float[Array, "*rows draws"]) -> Float[Array, " *rows"]:
    """Effective sample size of weighted draws, as a share of their number."""
    tiny = jnp.finfo(terms.dtype).tiny
    # Without the barrier XLA takes the square of exp(v) for another exponential, exp(2v).
    terms = jax.lax.optimization_barrier(terms)
    return jnp.sum(terms, axis=-1) ** 2 / jnp.maximum(jnp.sum(terms**2, axis=-1), tiny) / terms.shape[-1]


def root(model: EBM, weighted: Weighted) -> Scalar:
    """The tau at which the mean of the masses is 1."""
    if isinstance(model.f, KL):
        return jax.nn.logsumexp(weighted.g + weighted.log_weight) - jnp.log(weighted.g.size)
    # Densities are 1 at g - f'(1); the margin is for a mean weight that is far from 1.
    width = jnp.ptp(weighted.g) + 50
    low, high = jnp.min(weighted.g) + model.f.start - width, jnp.max(weighted.g) + model.f.start + width

    def halve(_, bracket):
        low, high = bracket
        middle = (low + high) / 2
        heavy = masses(model, weighted, middle).mean() > 1
        return jnp.where(heavy, middle, low), jnp.where(heavy, high, middle)

    low, high = jax.lax.fori_loop(0, BISECTIONS, halve, (low, high))
    return (low + high) / 2
