"""Search over Y for likely outputs where no exact method reaches: by local moves, from several starts."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from .argmax import Nothing, coarse_oracle, rounded
from .divergences import KL
from .model import EBM
from .structures import Best
from .types import Array, Float, Int, Key, Row, Scalar

__all__ = ["LocalSearch", "PoolSearch"]


class LocalSearch(eqx.Module):
    """Steepest ascent of p from several starts, to a y that no single local move makes more likely.

    One start is the rounded argmax of g over C, the others are drawn from the model's surrogate, or from q where it has
    none. The most probable end is the result. A density other than exp(g) under a q that is not uniform needs tau: the
    learned one.

    Attributes
    ----------
    restarts
        The number of starts.
    max_steps
        The largest number of moves from each.
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
        starts = rounded(coupling.polytope, coarse_oracle(coupling, Nothing())(coupling, row.theta).mu)[None]
        if self.restarts > 1:
            starts = jnp.concatenate([starts, r.sample(self.restarts - 1, key=key)])
        log_score = _log_score(model, row)

        def score(y):
            return log_score(coupling(row.theta, y), y)

        def step(carry):
            y, value, i, _ = carry
            moves = model.space.moves(y)
            values = jax.vmap(log_score)(coupling.around(row.theta, y), moves)
            best = jnp.argmax(values)
            better = values[best] > value
            y, value = jnp.where(better, moves[best], y), jnp.where(better, values[best], value)
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
    """Several likely outputs: a pool that takes in local moves of its outputs as long as one beats its worst.

    It starts with the end of a `LocalSearch` and draws from the model's surrogate, or from q. The outputs are
    different; the best of them need not be the best of all.

    Attributes
    ----------
    restarts
        The number of starts of the `LocalSearch`, and the least size of the pool.
    max_steps
        The largest number of rounds.
    """

    restarts: int = eqx.field(static=True, default=8)
    max_steps: int = eqx.field(static=True, default=1000)

    def __check_init__(self):
        LocalSearch(self.restarts, self.max_steps)

    def __call__(self, model: EBM, row: Row, num: int, *, key: Key) -> Best:
        search_key, draw_key = jax.random.split(key)
        coupling, log_score = model.g.coupling, _log_score(model, row)
        r = row.q if row.surrogate is None else row.surrogate.r
        size = max(num, self.restarts)
        first = LocalSearch(self.restarts, self.max_steps)(model, row, key=search_key)
        y = jnp.concatenate([first[None], r.sample(size - 1, key=draw_key)])
        score = jax.vmap(lambda y: log_score(coupling(row.theta, y), y))(y)

        def step(carry):
            y, score, i, _ = carry
            moves = jax.vmap(model.space.moves)(y)
            values = jax.vmap(lambda y, moves: jax.vmap(log_score)(coupling.around(row.theta, y), moves))(y, moves)
            # A place that is not filled has no moves.
            values = jnp.where(jnp.isneginf(score)[:, None], -jnp.inf, values)
            both = jnp.concatenate([y, moves.reshape(-1, *model.space.shape)])
            new_y, new = _distinct(both, jnp.concatenate([score, values.ravel()]), size)
            better = jnp.any(new > score)
            return jnp.where(better, new_y, y), jnp.where(better, new, score), i + 1, better & (i + 1 < self.max_steps)

        start = (*_distinct(y, score, size), 0, jnp.asarray(True))
        end = jax.lax.while_loop(lambda carry: carry[-1], step, start) if model.space.max_degree else start
        return Best(end[0][:num], end[1][:num])


def _distinct(y: Int[Array, " n *y"], score: Float[Array, " n"], num: int) -> tuple[Array, Array]:
    """The `num` outputs with the largest scores, each once; where there are fewer, the rest have -inf."""
    # Equal outputs are adjacent once sorted by two random sums of their entries.
    flat = y.reshape(len(y), -1).astype(jnp.uint32)
    codes = flat @ jax.random.bits(jax.random.key(0), (flat.shape[1], 2), jnp.uint32)
    order = jnp.lexsort((-score, codes[:, 0], codes[:, 1]))
    y, score = y[order], score[order]
    repeated = (y[1:] == y[:-1]).reshape(len(y) - 1, -1).all(axis=1)
    score = jnp.where(jnp.append(False, repeated), -jnp.inf, score)
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
