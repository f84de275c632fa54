"""Estimates of the log-partition of one row where nothing exact reaches: weighted draws, annealed chains, particles.

All start at the measure r of the model's surrogate, whose normalizer is known, or at q where there is none.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .divergences import KL
from .kernels import AbstractKernel, Metropolis, Tempered, run, target
from .model import EBM
from .numerics import bisect
from .structures import with_share_of_q
from .types import Array, Float, Int, Key, Row, Scalar

__all__ = [
    "AbstractAnnealing",
    "AbstractEstimator",
    "AnnealedImportanceSampling",
    "Estimate",
    "ImportanceSampling",
    "Particles",
    "SequentialMonteCarlo",
    "Weighted",
]


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
        r = row.q if row.surrogate is None else with_share_of_q(row.surrogate.r, row.q, self.defense)
        y = r.sample(self.num, key=key)
        log_weight = jax.vmap(lambda y: row.q.log_prob(y) - r.log_prob(y))(y)
        return y, Weighted(jax.vmap(model.g.coupling, in_axes=(None, 0))(row.theta, y), log_weight)


class Particles(eqx.Module):
    """Outputs that stand for p, with their weights: the mean weight estimates the partition. `origin` is the draw that
    each descends from."""

    y: Int[Array, " num *y"]
    log_weight: Float[Array, " num"]
    origin: Int[Array, " num"]

    def sample(self, num: int, *, key: Key) -> Int[Array, " num *y"]:
        """`num` of them in proportion to their weights, in random order."""
        choose_key, order_key = jax.random.split(key)
        return self.y[jax.random.permutation(order_key, systematic(self.log_weight, num, key=choose_key))]


class AbstractAnnealing(AbstractEstimator):
    """Draws moved from r to p through `temperatures` measures r^(1 - t) (q exp(g))^t, for KL.

    At each, a kernel makes `moves` steps (default: as many as labels). The mean weight is unbiased for the partition,
    so that its logarithm falls short on average. `hot=True` starts at q instead of r: slower, but it finds the modes of
    p that r misses.
    """

    temperatures: eqx.AbstractVar[int]
    moves: eqx.AbstractVar[int | None]
    hot: eqx.AbstractVar[bool]
    kernel: eqx.AbstractVar[AbstractKernel]

    @property
    @abc.abstractmethod
    def num(self) -> int:
        """How many draws."""

    def resample(self, particles: Particles, *, key: Key) -> Particles:
        """What to do about uneven weights before the next moves: nothing, unless a class says so."""
        return particles

    def __check_init__(self):
        if self.num < 2 or self.temperatures < 1 or (self.moves is not None and self.moves < 1):
            name, what = type(self).__name__, next(iter(type(self).__dataclass_fields__))
            raise ValueError(
                f"{name} needs at least 2 {what}, 1 temperature and 1 move; got "
                f"{self.num}, {self.temperatures}, {self.moves}."
            )

    def check(self, model):
        if not isinstance(model.f, KL):
            raise ValueError(
                f"Annealing moves between exp(g) densities: it needs f = KL, but f is {type(model.f).__name__}. "
                "Use importance sampling, or an exact method."
            )
        self.kernel.check(model.space)

    def __call__(self, model, row, *, key):
        particles = self.draw(model, row, key=key)
        top = particles.log_weight.max()
        # Draws of one origin depend on each other; those of different origins hardly do.
        weight = jnp.zeros(self.num).at[particles.origin].add(jnp.exp(particles.log_weight - top))
        return Estimate(jnp.log(weight.mean()) + top, standard_error(weight) / weight.mean(), effective(weight))

    def draw(self, model: EBM, row: Row, *, key: Key, tau: Scalar | None = None) -> Particles:
        """The draws at the end of the path. With a tau, for any f: the mean weight then estimates the total mass."""
        r = row.q if self.hot or row.surrogate is None else row.surrogate.r
        p = target(model, row, jnp.zeros(()) if tau is None else tau)
        moves = model.space.shape[0] if self.moves is None else self.moves
        start_key, path_key = jax.random.split(key)

        def anneal(particles, t_and_key):
            t, key = t_and_key
            resample_key, move_key = jax.random.split(key)
            between = Tempered(r, p, t)
            log_r, log_p = jax.vmap(between.ends)(particles.y)
            log_weight = particles.log_weight + (log_p - log_r) / self.temperatures
            particles = self.resample(Particles(particles.y, log_weight, particles.origin), key=resample_key)
            moved, _ = run(self.kernel, between, particles.y, 1, thin=moves, key=move_key)
            return Particles(moved[:, 0], particles.log_weight, particles.origin), None

        start = Particles(r.sample(self.num, key=start_key), jnp.zeros(self.num), jnp.arange(self.num))
        steps = jnp.arange(1, self.temperatures + 1) / self.temperatures
        return jax.lax.scan(anneal, start, (steps, jax.random.split(path_key, self.temperatures)))[0]


class AnnealedImportanceSampling(AbstractAnnealing):
    """Annealing of `chains` that never meet."""

    chains: int = eqx.field(static=True, default=32)
    temperatures: int = eqx.field(static=True, default=50)
    moves: int | None = eqx.field(static=True, default=None)
    hot: bool = eqx.field(static=True, default=False)
    kernel: AbstractKernel = Metropolis("local")

    @property
    def num(self):
        return self.chains


class SequentialMonteCarlo(AbstractAnnealing):
    """Annealing of `particles` that are drawn anew in proportion to their weights (systematic resampling) where their
    effective share has fallen below `threshold`: fewer are wasted where r is far from p."""

    particles: int = eqx.field(static=True, default=64)
    temperatures: int = eqx.field(static=True, default=50)
    moves: int | None = eqx.field(static=True, default=None)
    hot: bool = eqx.field(static=True, default=False)
    kernel: AbstractKernel = Metropolis("local")
    threshold: float = eqx.field(static=True, default=0.5)

    @property
    def num(self):
        return self.particles

    def resample(self, particles, *, key):
        log_weight = particles.log_weight
        uneven = effective(jnp.exp(log_weight - log_weight.max())) < self.threshold
        # The mean weight stays what it was: the estimate is unbiased whenever the resampling happens.
        even = jnp.full_like(log_weight, jax.nn.logsumexp(log_weight) - jnp.log(self.num))
        which = jnp.where(uneven, systematic(log_weight, self.num, key=key), jnp.arange(self.num))
        return Particles(particles.y[which], jnp.where(uneven, even, log_weight), particles.origin[which])


def systematic(log_weight: Float[Array, " n"], num: int, *, key: Key) -> Int[Array, " num"]:
    """`num` indices, each as often as its share of the weights says, up to one: one random number for all."""
    total = jnp.cumsum(jax.nn.softmax(log_weight))
    at = (jnp.arange(num) + jax.random.uniform(key)) / num
    return jnp.minimum(jnp.searchsorted(total, at * total[-1], side="right"), log_weight.size - 1)


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
    return bisect(lambda tau: masses(model, weighted, tau).mean() > 1, low, high)
