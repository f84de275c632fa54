"""Kernels that look at the outputs one local move away: the heat bath, and locally balanced Metropolis."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from ..structures import AbstractLabels
from .base import AbstractKernel, ChainState, Info
from .metropolis import accept, check_moves, log_prob_ratio, log_proposal_ratio, random_index

# Locally balanced weights exp(change / 2) stay within e^-20 and e^20, so that no move is excluded.
MAX_HALF_CHANGE = 20.0


class Gibbs(AbstractKernel):
    """Heat bath.

    Where local moves flip labels, a step draws each label in turn given all others. Where all outputs are one move
    apart, a step draws the output anew. Elsewhere a step takes as many random local moves as y has entries; of the two
    outputs that a move connects it draws one in proportion to p over the number of moves from it, which leaves p
    invariant.
    """

    def check(self, space):
        check_moves(self, space)

    def step(self, target, state, *, key):
        space = target.space
        if space.size == space.max_degree + 1:
            log_prob = jax.vmap(target.log_prob)(space.elements())
            i = jax.random.categorical(key, log_prob)
            return ChainState(space.element(i), log_prob[i]), Info(jnp.ones(()))
        in_turn = isinstance(space, AbstractLabels) and space.flips
        u = jax.random.uniform(key, (2, math.prod(space.shape)))
        labels_or_u = jnp.arange(u.shape[1]) if in_turn else u[0]

        def choose(state, move_and_u):
            move, u = move_and_u
            i = move if in_turn else random_index(move, space.degree(state.y))
            other, change = space.move(state.y, i), target.change(state.y, i)
            # From an excluded output every move is accepted; from there on only changes count.
            log_prob = (
                target.log_prob(other) if change is None else jnp.nan_to_num(state.log_prob + change, neginf=-jnp.inf)
            )
            other = ChainState(other, log_prob)
            chance = jax.nn.sigmoid(log_prob_ratio(state, other) + log_proposal_ratio(space, state.y, other.y))
            return jax.tree.map(lambda new, old: jnp.where(u < chance, new, old), other, state), chance

        state, chance = jax.lax.scan(choose, state, (labels_or_u, u[1]))
        # Computed anew: the rounding errors of many changes would add up.
        return self.init(target, state.y), Info(chance.mean())


class Informed(AbstractKernel):
    """Locally balanced Metropolis: of all local moves one is proposed with weight exp(change of log p / 2).

    Parameters
    ----------
    gradient
        Whether changes are approximated by one gradient of g on the hull, cheaper for a `Neural` coupling, instead of
        one score for each move. p is invariant either way.
    """

    gradient: bool = eqx.field(static=True, default=False)

    def check(self, space):
        check_moves(self, space)

    def memory(self, target, y):
        # All moves from y, and the log-probability of proposing each.
        others = target.space.moves(y)
        log_prob = target.log_prob_linearized(y, others) if self.gradient else jax.vmap(target.log_prob)(others)
        # At y with p(y) = 0 all changes are infinite: the moves are then proposed with equal probability.
        change = jnp.nan_to_num(log_prob - target.log_prob(y), nan=0.0, posinf=0.0, neginf=-jnp.inf)
        half = jnp.clip(change / 2, -MAX_HALF_CHANGE, MAX_HALF_CHANGE)
        return others, jax.nn.log_softmax(jnp.where(target.space.is_move(y), half, -jnp.inf))

    def step(self, target, state, *, key):
        propose_key, accept_key = jax.random.split(key)
        others, log_propose = state.memory
        i = jax.random.categorical(propose_key, log_propose)
        other = self.init(target, others[i])
        back, log_back = other.memory
        same = (back == state.y).reshape(back.shape[0], -1).all(axis=1)
        log_return = jax.nn.logsumexp(jnp.where(same, log_back, -jnp.inf))
        log_u = jnp.log(jax.random.uniform(accept_key))
        return accept(state, other, log_prob_ratio(state, other) + log_return - log_propose[i], log_u)
