"""Metropolis-Hastings, and rejection sampling with a Metropolis correction."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from ..structures import AbstractMeasure, AbstractSpace, Uniform
from ..types import Array, Float, Int, Scalar
from .base import AbstractKernel, ChainState, Info


class Metropolis(AbstractKernel):
    """Metropolis-Hastings with random local moves, or with draws from a measure.

    Parameters
    ----------
    proposal
        "uniform", a draw from all of Y (the paper's choice); "local", a random local move of the space; "surrogate", a
        draw from the target's r; or a measure to draw from.
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
            check_moves(self, space)

    def memory(self, target, y):
        return None if self.kind == "local" else self._measure(target).log_prob(y)

    def step(self, target, state, *, key):
        if self.kind == "local":
            # One call for both numbers, and no `randint`: cheap energies moved three times as slowly with them.
            u = jax.random.uniform(key, (2,))
            other = self.init(target, target.space.move(state.y, random_index(u[0], target.space.degree(state.y))))
            log_ratio = log_prob_ratio(state, other) + log_proposal_ratio(target.space, state.y, other.y)
            return accept(state, other, log_ratio, jnp.log(u[1]))
        propose_key, accept_key = jax.random.split(key)
        other = self.init(target, self._measure(target).sample(1, key=propose_key)[0])
        log_ratio = log_prob_ratio(state, other) + state.memory - other.memory
        return accept(state, other, log_ratio, jnp.log(jax.random.uniform(accept_key)))

    def _measure(self, target):
        if self.measure is not None:
            return self.measure
        return Uniform(target.space) if self.kind == "uniform" else target.r


class Guided(AbstractKernel):
    """Rejection sampling from r with the learned tau, corrected by a Metropolis step.

    The weight w = q (f+*)'(g - tau) / r is near 1 if r is near p and tau is right. Of `tries` draws from r each is kept
    with probability min(1, w / envelope), and the first one kept is proposed. Kept draws follow min(p, envelope r) up
    to a constant, so the proposal is accepted with probability min(1, v(y') / v(y)), v = max(1, w / envelope), which is
    1 where w does not exceed the envelope. If none is kept the chain stays, an event that does not depend on y. So p is
    invariant for any tau, envelope and number of tries.

    Parameters
    ----------
    envelope
        The largest weight for which rejection sampling is exact.
    tries
        The number of draws from r in each step.

    Notes
    -----
    It mixes as well as r covers p. On rankings of vowel, where r is near p, a draw is worth 0.7 independent ones
    (Gibbs: 0.03; Metropolis("surrogate"): 0.36, at less than half of the cost); on the Ising model of yeast, where the
    mean field misses modes of p, chains hardly ever enter or leave these.
    """

    envelope: float = eqx.field(static=True, default=2.0)
    tries: int = eqx.field(static=True, default=4)

    def __check_init__(self):
        if not 0 < self.envelope < math.inf or self.tries < 1:
            raise ValueError(
                f"Guided needs a finite envelope > 0 and at least 1 try; got {self.envelope}, {self.tries}."
            )

    def memory(self, target, y):
        # log v(y).
        return jnp.maximum(self._log_excess(target, y, target.log_prob(y)), 0)

    def step(self, target, state, *, key):
        draw_key, keep_key, accept_key = jax.random.split(key, 3)
        y = target.r.sample(self.tries, key=draw_key)
        log_prob = jax.vmap(target.log_prob)(y)
        log_excess = jax.vmap(lambda y, log_prob: self._log_excess(target, y, log_prob))(y, log_prob)
        is_kept = jnp.log(jax.random.uniform(keep_key, (self.tries,))) < log_excess
        first = jnp.argmax(is_kept)
        other = ChainState(y[first], log_prob[first], jnp.maximum(log_excess[first], 0))
        log_ratio = jnp.where(is_kept.any(), other.memory - state.memory, -jnp.inf)
        return accept(state, other, log_ratio, jnp.log(jax.random.uniform(accept_key)))

    def _log_excess(self, target, y, log_prob):
        """log(w / envelope)."""
        return log_prob - target.r.log_prob(y) - math.log(self.envelope)


def check_moves(kernel: AbstractKernel, space: AbstractSpace) -> None:
    """Raise if a space has no local moves."""
    if not space.max_degree:
        raise ValueError(
            f"{type(kernel).__name__} makes local moves, and {space} has none: give it `max_degree` and `move`, or use "
            "kernels.Metropolis('surrogate')."
        )


def log_prob_ratio(state: ChainState, other: ChainState) -> Scalar:
    """log p(y') / p(y), infinite where p(y) = 0: from there every move is accepted."""
    return jnp.where(jnp.isneginf(state.log_prob), jnp.inf, other.log_prob - state.log_prob)


def log_proposal_ratio(space: AbstractSpace, y: Int[Array, " *y"], other: Int[Array, " *y"]) -> Scalar:
    """log of the probability to propose y at other, less that to propose other at y, for random local moves."""
    return jnp.log(space.degree(y)) - jnp.log(space.degree(other))


def random_index(u: Float[Array, "*n"], num: Int[Array, ""] | int) -> Int[Array, "*n"]:
    """One of 0, ..., num - 1 from a uniform number."""
    return jnp.minimum((u * num).astype(int), num - 1)


def accept(state: ChainState, other: ChainState, log_ratio: Scalar, log_u: Scalar) -> tuple[ChainState, Info]:
    """The Metropolis choice between the current and the proposed state."""
    state = jax.tree.map(lambda new, old: jnp.where(log_u < log_ratio, new, old), other, state)
    return state, Info(jnp.exp(jnp.minimum(log_ratio, 0)))
