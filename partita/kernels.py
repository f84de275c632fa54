"""Markov kernels on Y that leave p(.|x) as it is, chains of them, and what their draws are worth.

A kernel is written for one chain on one row: `init` makes a state of an output, `step` moves it. `run` moves many
chains; many rows are a `vmap`.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp

from .divergences import KL, AbstractDivergence
from .model import EBM
from .structures import AbstractCoupling, AbstractLabels, AbstractMeasure, AbstractSpace, Uniform
from .types import Array, Bool, Float, Int, Key, PyTree, Row, Scalar

__all__ = [
    "AbstractKernel",
    "AbstractTarget",
    "Gibbs",
    "Guided",
    "Info",
    "Informed",
    "Metropolis",
    "State",
    "Target",
    "Tempered",
    "effective_sample_size",
    "r_hat",
    "run",
    "target",
]

# Locally balanced weights exp(change / 2) stay within e^-20 and e^20, so that no move is ruled out.
MAX_HALF = 20.0


class AbstractTarget(eqx.Module):
    """What a kernel leaves invariant: a log-density over Y, up to a constant, and a measure r to draw from."""

    r: eqx.AbstractVar[AbstractMeasure]

    @abc.abstractmethod
    def log_prob(self, y: Int[Array, " *y"]) -> Scalar:
        """The log-density at y."""

    @abc.abstractmethod
    def log_prob_near(self, y: Int[Array, " *y"], others: Int[Array, " num *y"]) -> Float[Array, " num"]:
        """The log-density of others by the gradient of g at y on the hull of Y: one gradient for all of them."""

    def change(self, y: Int[Array, " *y"], i: Int[Array, ""]) -> Scalar | None:
        """The log-density after the i-th local move from y, less that of y; None where that is no cheaper."""
        return None

    @property
    def space(self) -> AbstractSpace:
        """Y."""
        return self.r.space


class Target(AbstractTarget):
    """p(.|x) of one row: log q(y) + log (f+*)'(g(x, y) - tau). For KL a wrong tau is only another constant."""

    r: AbstractMeasure
    coupling: AbstractCoupling
    theta: Float[Array, " *theta"]
    q: AbstractMeasure
    f: AbstractDivergence
    tau: Scalar

    def log_prob(self, y):
        return self._log_prob(y, self.coupling(self.theta, y))

    def log_prob_near(self, y, others):
        polytope = self.coupling.polytope
        g, slope = jax.value_and_grad(self.coupling.relaxed, argnums=1)(self.theta, polytope.encode(y))
        rest = g - polytope.score(slope, y)
        return jax.vmap(lambda other: self._log_prob(other, rest + polytope.score(slope, other)))(others)

    def change(self, y, i):
        change = self.coupling.change(self.theta, y, i) if isinstance(self.f, KL) else None
        return None if change is None else change + _change(self.q, y, i)

    def _log_prob(self, y, g):
        return self.q.log_prob(y) + self.f.log_density(g - self.tau)


class Tempered(AbstractTarget):
    """r^(1 - t) p^t: at t = 0 the measure r, at t = 1 the target p."""

    r: AbstractMeasure
    p: AbstractTarget
    t: Scalar

    def log_prob(self, y):
        log_r, log_p = self.ends(y)
        return self._share_of_r(log_r) + self.t * log_p

    def log_prob_near(self, y, others):
        return self._share_of_r(jax.vmap(self.r.log_prob)(others)) + self.t * self.p.log_prob_near(y, others)

    def change(self, y, i):
        change = self.p.change(y, i)
        return None if change is None else self._share_of_r(_change(self.r, y, i)) + self.t * change

    def _share_of_r(self, log_r):
        # At t = 1 r has no part, not even in what it excludes: 0 inf is no number.
        return jnp.where(self.t < 1, (1 - self.t) * log_r, 0)

    def ends(self, y: Int[Array, " *y"]) -> tuple[Scalar, Scalar]:
        """log r(y) and log p(y)."""
        return self.r.log_prob(y), self.p.log_prob(y)


def target(model: EBM, row: Row, tau: Scalar | None = None) -> Target:
    """p(.|x) of a row, with the learned tau or another one; r is that of the model's surrogate, or q.

    For KL tau is a constant of the chain: where a `model.Table` does not know it, the surrogate's bound serves.
    """
    if tau is None and isinstance(model.f, KL) and row.index is None and model.tau.table is not None:
        tau = jnp.zeros(()) if row.surrogate is None else row.surrogate.tau
    tau = model.log_partition(row) if tau is None else tau
    r = row.q if row.surrogate is None else row.surrogate.r
    return Target(r, model.g.coupling, row.theta, row.q, model.f, tau)


class State(eqx.Module):
    """Where a chain is; `memory` is what its kernel keeps about y, so as not to compute it again."""

    y: Int[Array, " *y"]
    log_prob: Scalar
    memory: PyTree = None


class Info(eqx.Module):
    """What happened in a step: the probability with which the move that was offered is accepted."""

    acceptance: Scalar


class AbstractKernel(eqx.Module):
    """A Markov kernel on Y."""

    @abc.abstractmethod
    def step(self, target: AbstractTarget, state: State, *, key: Key) -> tuple[State, Info]:
        """Move a chain so that the target stays its law."""

    def init(self, target: AbstractTarget, y: Int[Array, " *y"]) -> State:
        """The state at y."""
        return State(y, target.log_prob(y), self.memory(target, y))

    def memory(self, target: AbstractTarget, y: Int[Array, " *y"]) -> PyTree:
        """What the kernel keeps about y: nothing, unless it says so."""
        return None

    def check(self, space: AbstractSpace) -> None:
        """Raise where it cannot serve a space."""


class Metropolis(AbstractKernel):
    """Metropolis-Hastings. The proposal is "uniform", a draw from all of Y (the paper's choice); "local", a random move
    of the space; "surrogate", a draw from the target's r; or a draw from a measure of one's own.
    """

    kind: str = eqx.field(static=True)
    measure: AbstractMeasure | None

    def __init__(self, proposal: str | AbstractMeasure = "local"):
        named = isinstance(proposal, str)
        if not isinstance(proposal, AbstractMeasure) and proposal not in ("uniform", "local", "surrogate"):
            raise ValueError(
                f"Metropolis proposes 'uniform', 'local' or 'surrogate' draws, or those of a measure; got {proposal!r}."
            )
        self.kind, self.measure = (proposal, None) if named else ("measure", proposal)

    def check(self, space):
        if self.measure is not None and self.measure.space != space:
            raise ValueError(f"The proposal is a measure on {self.measure.space}, but the model is on {space}.")
        if self.kind == "local":
            _check_moves(self, space)

    def memory(self, target, y):
        return None if self.kind == "local" else self._measure(target).log_prob(y)

    def step(self, target, state, *, key):
        if self.kind == "local":
            # One call for both numbers, and no `randint`: cheap energies moved three times as slowly with them.
            u = jax.random.uniform(key, (2,))
            other = self.init(target, target.space.move(state.y, _index(u[0], target.space.degree(state.y))))
            log_ratio = _rise(state, other) + _log_return(target.space, state.y, other.y)
            return _accept(state, other, log_ratio, jnp.log(u[1]))
        propose_key, accept_key = jax.random.split(key)
        other = self.init(target, self._measure(target).sample(1, key=propose_key)[0])
        log_ratio = _rise(state, other) + state.memory - other.memory
        return _accept(state, other, log_ratio, jnp.log(jax.random.uniform(accept_key)))

    def _measure(self, target):
        if self.measure is not None:
            return self.measure
        return Uniform(target.space) if self.kind == "uniform" else target.r


class Gibbs(AbstractKernel):
    """Heat bath. Where moves flip labels a step sweeps over the labels, each drawn given all others; where every output
    is one move away from every other it draws the output anew. Elsewhere it takes as many random local moves as there
    are entries of y, and of the two outputs y and y' that each connects it draws one in proportion to p, over the
    number of moves from it: so p stays.
    """

    def check(self, space):
        _check_moves(self, space)

    def step(self, target, state, *, key):
        space = target.space
        if space.size == space.max_degree + 1:
            log_prob = jax.vmap(target.log_prob)(space.elements())
            i = jax.random.categorical(key, log_prob)
            return State(space.element(i), log_prob[i]), Info(jnp.ones(()))
        in_turn = isinstance(space, AbstractLabels) and space.flips
        u = jax.random.uniform(key, (2, math.prod(space.shape)))
        which = jnp.arange(u.shape[1]) if in_turn else u[0]

        def choose(state, place_and_u):
            place, u = place_and_u
            i = place if in_turn else _index(place, space.degree(state.y))
            other, change = space.move(state.y, i), target.change(state.y, i)
            # From an output that is excluded any other is one up; from there on only changes count.
            log_prob = (
                target.log_prob(other) if change is None else jnp.nan_to_num(state.log_prob + change, neginf=-jnp.inf)
            )
            other = State(other, log_prob)
            chance = jax.nn.sigmoid(_rise(state, other) + _log_return(space, state.y, other.y))
            return _pick(u < chance, other, state), chance

        state, chance = jax.lax.scan(choose, state, (which, u[1]))
        # Computed anew: the rounding errors of many changes would add up.
        return self.init(target, state.y), Info(chance.mean())


class Informed(AbstractKernel):
    """Locally balanced Metropolis: of all local moves one is offered with weight exp(change of log p / 2).

    Changes are exact, one score for each move, or with `gradient` to first order by one gradient of g on the hull,
    which is what a `Neural` coupling wants. p stays either way.
    """

    gradient: bool = eqx.field(static=True, default=False)

    def check(self, space):
        _check_moves(self, space)

    def memory(self, target, y):
        """All moves from y, and the log-probability of offering each."""
        others = target.space.moves(y)
        log_prob = target.log_prob_near(y, others) if self.gradient else jax.vmap(target.log_prob)(others)
        # At y with p(y) = 0 all changes are infinite: the moves are then as likely as each other.
        change = jnp.nan_to_num(log_prob - target.log_prob(y), nan=0.0, posinf=0.0, neginf=-jnp.inf)
        half = jnp.clip(change / 2, -MAX_HALF, MAX_HALF)
        return others, jax.nn.log_softmax(jnp.where(target.space.is_move(y), half, -jnp.inf))

    def step(self, target, state, *, key):
        offer_key, accept_key = jax.random.split(key)
        others, log_offer = state.memory
        i = jax.random.categorical(offer_key, log_offer)
        other = self.init(target, others[i])
        back, log_back = other.memory
        same = (back == state.y).reshape(back.shape[0], -1).all(axis=1)
        log_return = jax.nn.logsumexp(jnp.where(same, log_back, -jnp.inf))
        log_u = jnp.log(jax.random.uniform(accept_key))
        return _accept(state, other, _rise(state, other) + log_return - log_offer[i], log_u)


class Guided(AbstractKernel):
    """Rejection sampling from r by the learned tau: w = q (f+*)'(g - tau) / r is near 1 if r is near p and tau right.

    Of `tries` draws from r each is kept with probability min(1, w / envelope), and the first one kept is offered. Kept
    draws follow min(p, envelope r) up to a constant, so Metropolis accepts them with v(y') / v(y), v = max(1, w /
    envelope): always, where the envelope holds. Where none is kept the chain stays; that says nothing about y, so p is
    invariant whatever tau, envelope and number of tries.

    It is as good as r. On rankings of vowel, where r is near p, a draw is worth 0.7 independent ones (Gibbs: 0.03,
    Metropolis("surrogate"): 0.36, but cheaper than half of one); on the Ising model of yeast mean field misses modes of
    p, and chains hardly ever get there, or away.
    """

    envelope: float = eqx.field(static=True, default=2.0)
    tries: int = eqx.field(static=True, default=4)

    def __check_init__(self):
        if not 0 < self.envelope < math.inf or self.tries < 1:
            raise ValueError(
                f"Guided needs a finite envelope > 0 and at least 1 try; got {self.envelope}, {self.tries}."
            )

    def memory(self, target, y):
        """log v(y)."""
        return jnp.maximum(self._log_excess(target, y, target.log_prob(y)), 0)

    def step(self, target, state, *, key):
        draw_key, keep_key, accept_key = jax.random.split(key, 3)
        y = target.r.sample(self.tries, key=draw_key)
        log_prob = jax.vmap(target.log_prob)(y)
        log_excess = jax.vmap(lambda y, log_prob: self._log_excess(target, y, log_prob))(y, log_prob)
        kept = jnp.log(jax.random.uniform(keep_key, (self.tries,))) < log_excess
        first = jnp.argmax(kept)
        other = State(y[first], log_prob[first], jnp.maximum(log_excess[first], 0))
        log_ratio = jnp.where(kept.any(), other.memory - state.memory, -jnp.inf)
        return _accept(state, other, log_ratio, jnp.log(jax.random.uniform(accept_key)))

    def _log_excess(self, target, y, log_prob):
        """log(w / envelope)."""
        return log_prob - target.r.log_prob(y) - math.log(self.envelope)


def run(
    kernel: AbstractKernel,
    target: AbstractTarget,
    y: Int[Array, " chains *y"],
    num: int,
    *,
    burn_in: int = 0,
    thin: int = 1,
    key: Key,
) -> tuple[Int[Array, " chains num *y"], Info]:
    """`num` draws of each chain that starts at a y: every `thin`-th state, after a `burn_in` of at least that many
    steps (whole draws are left out).

    The acceptance of a draw is the mean over the steps that led to it.
    """
    check_length(num, burn_in, thin)
    kernel.check(target.space)
    if y.shape[1:] != target.space.shape or not y.shape[0]:
        expected = ("chains", *target.space.shape)
        raise ValueError(f"run needs one start for each of at least 1 chain, shape {expected}; got {y.shape}.")

    def move(state, keys):
        return jax.vmap(lambda state, key: kernel.step(target, state, key=key))(state, keys)

    def draw(state, key):
        # All keys of a draw in one call: drawn step by step, local moves of 14 labels took twice as long.
        state, info = jax.lax.scan(move, state, jax.random.split(key, (thin, y.shape[0])))
        return state, (state.y, jax.tree.map(lambda a: a.mean(axis=0), info))

    start = jax.vmap(lambda y: kernel.init(target, y))(y)
    left_out = -(-burn_in // thin)
    found = jax.lax.scan(draw, start, jax.random.split(key, left_out + num))[1]
    return jax.tree.map(lambda a: jnp.moveaxis(a[left_out:], 0, 1), found)


def check_length(num: int, burn_in: int = 0, thin: int = 1) -> None:
    """Raise unless chains have a length."""
    if num < 1 or burn_in < 0 or thin < 1:
        raise ValueError(
            "A chain needs num >= 1 draws, a burn_in of 0 steps or more, and thin >= 1 steps per draw; got "
            f"num = {num}, burn_in = {burn_in}, thin = {thin}."
        )


def effective_sample_size(values: Float[Array, " chains num *stat"]) -> Float[Array, " *stat"]:
    """How many independent draws the mean of the values is worth, for each statistic; nan where it never changes.

    Autocorrelations over all chains, each split in two, summed up to where a pair of them is negative and made to fall
    (Geyer's initial monotone sequence), as in Stan.
    """
    halves = _split(values)
    chains, num = halves.shape[:2]
    centered = halves - halves.mean(axis=1, keepdims=True)
    spectrum = jnp.fft.rfft(centered, 2 * num, axis=1)
    covariance = jnp.fft.irfft(jnp.abs(spectrum) ** 2, axis=1)[:, :num].mean(axis=0) / num
    within = covariance[0] * num / (num - 1)
    correlation = 1 - (within - covariance) / _variance(halves)
    pairs = correlation[: num - num % 2].reshape(num // 2, 2, *correlation.shape[1:]).sum(axis=1)
    falling = jax.lax.cummin(pairs, axis=0)
    time = 2 * jnp.sum(jnp.maximum(falling, 0), axis=0) - 1
    # Antithetic chains may be worth more than their length, but this much is all that can be told.
    total = chains * num
    return jnp.where(within > 0, total / jnp.maximum(time, 1 / math.log10(total)), jnp.nan)


def r_hat(values: Float[Array, " chains num *stat"]) -> Float[Array, " *stat"]:
    """How much wider all chains are than each, of the normal scores of the ranks: 1 where they agree, at most 1.01 says
    Stan. Each chain is split in two."""
    halves = _split(values)
    flat = halves.reshape(halves.shape[0] * halves.shape[1], -1)

    def scores(column):
        ordered = jnp.sort(column)
        rank = (jnp.searchsorted(ordered, column, "left") + jnp.searchsorted(ordered, column, "right") + 1) / 2
        return jax.scipy.special.ndtri((rank - 3 / 8) / (column.size + 1 / 4))

    ranked = jax.vmap(scores, in_axes=1, out_axes=1)(flat).reshape(halves.shape)
    return jnp.sqrt(_variance(ranked) / ranked.var(axis=1, ddof=1).mean(axis=0))


def _split(values: Array) -> Array:
    """Each chain as two, so that one that drifts disagrees with itself."""
    if values.ndim < 2 or values.shape[1] < 4:
        raise ValueError(f"values must have shape (chains, num, ...), num >= 4 draws per chain; got {values.shape}.")
    half = values.shape[1] // 2
    return jnp.concatenate([values[:, :half], values[:, -half:]]).astype(float)


def _variance(values: Array) -> Array:
    """Of the target, from above: within the chains and between them."""
    num = values.shape[1]
    return values.var(axis=1, ddof=1).mean(axis=0) * (num - 1) / num + values.mean(axis=1).var(axis=0, ddof=1)


def _change(measure: AbstractMeasure, y: Int[Array, " *y"], i: Int[Array, ""]) -> Scalar:
    """log of the probability after the i-th local move from y, less that of y; 0 where both are excluded."""
    here, there = measure.log_prob(y), measure.log_prob(measure.space.move(y, i))
    return jnp.where(jnp.isneginf(here) & jnp.isneginf(there), 0, there - here)


def _check_moves(kernel: AbstractKernel, space: AbstractSpace) -> None:
    """Raise where a space has no local moves."""
    if not space.max_degree:
        raise ValueError(
            f"{type(kernel).__name__} makes local moves, and {space} has none: give it `max_degree` and `move`, or use "
            "kernels.Metropolis('surrogate')."
        )


def _log_return(space: AbstractSpace, y: Int[Array, " *y"], other: Int[Array, " *y"]) -> Scalar:
    """log of the chance to choose y from other, less that of other from y, where moves are chosen at random."""
    return jnp.log(space.degree(y)) - jnp.log(space.degree(other))


def _index(u: Float[Array, "*n"], num: Int[Array, ""] | int) -> Int[Array, "*n"]:
    """One of 0, ..., num - 1 from a uniform number."""
    return jnp.minimum((u * num).astype(int), num - 1)


def _rise(state: State, other: State) -> Scalar:
    """log p(y') / p(y); where p(y) = 0 any move is one up."""
    return jnp.where(jnp.isneginf(state.log_prob), jnp.inf, other.log_prob - state.log_prob)


def _accept(state: State, other: State, log_ratio: Scalar, log_u: Scalar) -> tuple[State, Info]:
    """Metropolis' choice."""
    return _pick(log_u < log_ratio, other, state), Info(jnp.exp(jnp.minimum(log_ratio, 0)))


def _pick(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
