"""Estimates of the log-partition of one row for large Y: importance sampling, annealed chains, sequential Monte Carlo.

All start at the measure r of the model's surrogate, whose normalizer is known, or at q if the model has none.
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
    "WeightedDraws",
]


class WeightedDraws(NamedTuple):
    """Draws from r for one row, with their energies and weights.

    Parameters
    ----------
    y
        The draws.
    g
        g(x, y) of each draw.
    log_weight
        log q(y|x) / r(y|x) of each draw.
    """

    y: Int[Array, " draws *y"]
    g: Float[Array, " draws"]
    log_weight: Float[Array, " draws"]


class Estimate(NamedTuple):
    """An estimate of the log-partition of one row.

    Parameters
    ----------
    value
        The estimate.
    error
        Its standard error.
    effective
        The effective sample size as a share of the number of draws.
    """

    value: Scalar
    error: Scalar
    effective: Scalar


class AbstractEstimator(eqx.Module):
    """An estimator of the log-partition of one row."""

    @abc.abstractmethod
    def __call__(self, model: EBM, row: Row, *, key: Key) -> Estimate:
        """Estimate the log-partition of one x, from `EBM.row`."""

    def check(self, model: EBM) -> None:
        """Raise a ValueError if the estimator does not support a model.

        Parameters
        ----------
        model
            The model.
        """


class ImportanceSampling(AbstractEstimator):
    """The log of the mean of q/r exp(g) over draws from r, with a share of them from q.

    For f other than KL it is the tau at which the mean of q/r (f+*)'(g - tau) is 1.

    Parameters
    ----------
    num
        The number of draws.
    defense
        The share of draws from q, which bounds the weights by 1 / defense.
    """

    num: int = eqx.field(static=True, default=1000)
    defense: float = eqx.field(static=True, default=0.05)

    def __check_init__(self):
        if self.num < 2 or not 0 <= self.defense < 1:
            raise ValueError(
                f"ImportanceSampling needs num >= 2 draws and a defense in [0, 1); got {self.num}, {self.defense}."
            )

    def __call__(self, model, row, *, key):
        _, g, log_weight = self.draw(model, row, key=key)
        tau = tau_of_unit_mass(model, g, log_weight)

        def mass(tau):
            terms = masses(model, g, log_weight, tau)
            return terms.mean(), terms

        slope, terms = jax.grad(mass, has_aux=True)(tau)
        error = standard_error(terms) / jnp.maximum(-slope, jnp.finfo(slope.dtype).tiny)
        return Estimate(tau, error, effective_share(terms))

    def draw(self, model: EBM, row: Row, *, key: Key) -> WeightedDraws:
        """Draw outputs for one row.

        Parameters
        ----------
        model, row
            The model and one x, from `EBM.row`.
        key
            A PRNG key.

        Returns
        -------
        WeightedDraws
            The draws.
        """
        r = row.q if row.surrogate is None else with_share_of_q(row.surrogate.r, row.q, self.defense)
        y = r.sample(self.num, key=key)
        log_weight = jax.vmap(lambda y: row.q.log_prob(y) - r.log_prob(y))(y)
        return WeightedDraws(y, jax.vmap(model.g.coupling, in_axes=(None, 0))(row.theta, y), log_weight)


class Particles(eqx.Module):
    """Weighted outputs that represent p; the mean weight estimates the partition.

    Parameters
    ----------
    y
        The outputs.
    log_weight
        The logarithms of their weights.
    origin
        For each, the number of the initial draw that it descends from.
    """

    y: Int[Array, " num *y"]
    log_weight: Float[Array, " num"]
    origin: Int[Array, " num"]

    def sample(self, num: int, *, key: Key) -> Int[Array, " num *y"]:
        """Draw outputs in proportion to their weights, in random order.

        Parameters
        ----------
        num
            The number of draws.
        key
            A PRNG key.

        Returns
        -------
        array of shape (num, *y)
            The draws.
        """
        choose_key, order_key = jax.random.split(key)
        return self.y[jax.random.permutation(order_key, systematic(self.log_weight, num, key=choose_key))]


class AbstractAnnealing(AbstractEstimator):
    """Draws moved from r to p through the measures r^(1 - t) (q exp(g))^t, t from 0 to 1, for KL.

    The mean weight is unbiased for the partition, so its logarithm is too low on average.
    """

    temperatures: eqx.AbstractVar[int]
    moves: eqx.AbstractVar[int | None]
    hot: eqx.AbstractVar[bool]
    kernel: eqx.AbstractVar[AbstractKernel]

    @property
    @abc.abstractmethod
    def num(self) -> int:
        """The number of draws."""

    def resample(self, particles: Particles, *, key: Key) -> Particles:
        """Even out the weights before the next moves; by default they stay as they are.

        Parameters
        ----------
        particles
            The particles before the moves at one temperature.
        key
            A PRNG key.

        Returns
        -------
        Particles
            As many, with the same mean weight.
        """
        return particles

    def __check_init__(self):
        if self.num < 2 or self.temperatures < 1 or (self.moves is not None and self.moves < 1):
            name, draws = type(self).__name__, next(iter(type(self).__dataclass_fields__))
            raise ValueError(
                f"{name} needs at least 2 {draws}, 1 temperature and 1 move; got "
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
        return Estimate(jnp.log(weight.mean()) + top, standard_error(weight) / weight.mean(), effective_share(weight))

    def draw(self, model: EBM, row: Row, *, key: Key, tau: Scalar | None = None) -> Particles:
        """Draw for one row and anneal the draws.

        Parameters
        ----------
        model, row
            The model and one x, from `EBM.row`.
        key
            A PRNG key.
        tau
            A normalizer, for any f: the mean weight then estimates the total mass. None: 0, for KL.

        Returns
        -------
        Particles
            The draws at t = 1, with their weights.
        """
        r = row.q if self.hot or row.surrogate is None else row.surrogate.r
        p = target(model, row, jnp.zeros(()) if tau is None else tau)
        moves = model.space.shape[0] if self.moves is None else self.moves
        start_key, path_key = jax.random.split(key)

        def anneal(particles, t_and_key):
            t, key = t_and_key
            resample_key, move_key = jax.random.split(key)
            between = Tempered(r, p, t)
            log_ratio = jax.vmap(lambda y: p.log_prob(y) - r.log_prob(y))(particles.y)
            log_weight = particles.log_weight + log_ratio / self.temperatures
            particles = self.resample(Particles(particles.y, log_weight, particles.origin), key=resample_key)
            y, _ = run(self.kernel, between, particles.y, 1, thin=moves, key=move_key)
            return Particles(y[:, 0], particles.log_weight, particles.origin), None

        start = Particles(r.sample(self.num, key=start_key), jnp.zeros(self.num), jnp.arange(self.num))
        steps = jnp.arange(1, self.temperatures + 1) / self.temperatures
        return jax.lax.scan(anneal, start, (steps, jax.random.split(path_key, self.temperatures)))[0]


class AnnealedImportanceSampling(AbstractAnnealing):
    """Annealing of independent chains.

    Parameters
    ----------
    chains
        The number of chains.
    temperatures
        The number of measures on the path from r to p.
    moves
        The number of steps of the kernel at each temperature; None: as many as y has labels.
    hot
        Whether to start at q instead of r: slower, but it finds modes of p that r misses.
    kernel
        What moves the chains.
    """

    chains: int = eqx.field(static=True, default=32)
    temperatures: int = eqx.field(static=True, default=50)
    moves: int | None = eqx.field(static=True, default=None)
    hot: bool = eqx.field(static=True, default=False)
    kernel: AbstractKernel = Metropolis("local")

    @property
    def num(self):
        return self.chains


class SequentialMonteCarlo(AbstractAnnealing):
    """Annealing of particles that are resampled in proportion to their weights when these have become uneven.

    It needs fewer particles than independent chains where r is far from p.

    Parameters
    ----------
    particles
        The number of particles.
    temperatures, moves, hot, kernel
        As for `AnnealedImportanceSampling`.
    threshold
        The effective share of the particles below which they are resampled, systematically.
    """

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
        uneven = effective_share(jnp.exp(log_weight - log_weight.max())) < self.threshold
        # The mean weight stays what it was: the estimate is unbiased whenever the resampling happens.
        even = jnp.full_like(log_weight, jax.nn.logsumexp(log_weight) - jnp.log(self.num))
        which = jnp.where(uneven, systematic(log_weight, self.num, key=key), jnp.arange(self.num))
        return Particles(particles.y[which], jnp.where(uneven, even, log_weight), particles.origin[which])


def systematic(log_weight: Float[Array, " n"], num: int, *, key: Key) -> Int[Array, " num"]:
    """Systematic resampling: `num` indices, each in proportion to its weight up to one, by one random number."""
    total = jnp.cumsum(jax.nn.softmax(log_weight))
    at = (jnp.arange(num) + jax.random.uniform(key)) / num
    return jnp.minimum(jnp.searchsorted(total, at * total[-1], side="right"), log_weight.size - 1)


def masses(
    model: EBM, g: Float[Array, " draws"], log_weight: Float[Array, " draws"], tau: Scalar
) -> Float[Array, " draws"]:
    """The terms q/r (f+*)'(g - tau), whose mean estimates the total mass at tau."""
    if isinstance(model.f, KL):
        return jnp.exp(g - tau + log_weight)
    return jnp.exp(log_weight) * jax.vmap(model.f.density)(g - tau)


def standard_error(terms: Float[Array, " draws"]) -> Scalar:
    """The standard error of the mean of independent terms."""
    return jnp.std(terms, ddof=1) / jnp.sqrt(terms.size)


def effective_share(terms: Float[Array, "*rows draws"]) -> Float[Array, " *rows"]:
    """The effective sample size of weighted draws, as a share of their number."""
    tiny = jnp.finfo(terms.dtype).tiny
    # Without the barrier XLA takes the square of exp(v) for another exponential, exp(2v).
    terms = jax.lax.optimization_barrier(terms)
    return jnp.sum(terms, axis=-1) ** 2 / jnp.maximum(jnp.sum(terms**2, axis=-1), tiny) / terms.shape[-1]


def tau_of_unit_mass(model: EBM, g: Float[Array, " draws"], log_weight: Float[Array, " draws"]) -> Scalar:
    """The tau at which the mean of the masses is 1."""
    if isinstance(model.f, KL):
        return jax.nn.logsumexp(g + log_weight) - jnp.log(g.size)
    # Densities are 1 at g - f'(1); the margin is for a mean weight that is far from 1.
    width = jnp.ptp(g) + 50
    low, high = jnp.min(g) + model.f.start - width, jnp.max(g) + model.f.start + width
    return bisect(lambda tau: masses(model, g, log_weight, tau).mean() > 1, low, high)
