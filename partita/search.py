"""Search for likely outputs by local moves from several starts, for Y too large for exact methods."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from .argmax import Nothing, coarse_oracle, nearest_output
from .divergences import KL
from .model import EBM
from .structures import Best
from .types import Array, Float, Int, Key, Row, Scalar

__all__ = ["LocalSearch", "PoolSearch"]


class LocalSearch(eqx.Module):
    """Steepest ascent of p from several starts, to a y that no single local move makes more likely.

    One start is the output nearest to the argmax of g over C, the others are drawn from the model's surrogate, or from
    q if it has none. The result is the most probable of the ends. For f other than KL and a q that is not uniform the
    learned tau is used.

    Parameters
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
        """Search for one x, from `EBM.row`."""
        coupling = model.g.coupling
        r = row.q if row.surrogate is None else row.surrogate.r
        mu = coarse_oracle(coupling, Nothing())(coupling, row.theta).mu
        starts = nearest_output(coupling.polytope, mu)[None]
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
    """Search for several likely outputs with a pool that is exchanged for the best of itself and its local moves.

    The pool starts with the result of a `LocalSearch` and draws from the model's surrogate, or from q. Its outputs are
    distinct; they need not be the most probable ones.

    Parameters
    ----------
    restarts
        The number of starts of the `LocalSearch`, and the least size of the pool.
    max_steps
        The largest number of exchanges.
    """

    restarts: int = eqx.field(static=True, default=8)
    max_steps: int = eqx.field(static=True, default=1000)

    def __check_init__(self):
        LocalSearch(self.restarts, self.max_steps)

    def __call__(self, model: EBM, row: Row, num: int, *, key: Key) -> Best:
        """Search for `num` outputs of one x, from `EBM.row`."""
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
            # Where the pool is not full, an entry with score -inf has no moves.
            values = jnp.where(jnp.isneginf(score)[:, None], -jnp.inf, values)
            candidates = jnp.concatenate([y, moves.reshape(-1, *model.space.shape)])
            new_y, new = _distinct(candidates, jnp.concatenate([score, values.ravel()]), size)
            better = jnp.any(new > score)
            return jnp.where(better, new_y, y), jnp.where(better, new, score), i + 1, better & (i + 1 < self.max_steps)

        start = (*_distinct(y, score, size), 0, jnp.asarray(True))
        end = jax.lax.while_loop(lambda carry: carry[-1], step, start) if model.space.max_degree else start
        return Best(end[0][:num], end[1][:num])


def _distinct(y: Int[Array, " n *y"], score: Float[Array, " n"], num: int) -> tuple[Array, Array]:
    """The `num` distinct outputs with the largest scores; if there are fewer, the rest have score -inf."""
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
    """A function (g, y) -> log p(y|x), or another number that orders the outputs in the same way."""
    if row.q.is_uniform:
        return lambda g, y: g
    if isinstance(model.f, KL):
        return lambda g, y: g + row.q.log_prob(y)
    tau = model.log_partition(row)
    return lambda g, y: row.q.log_prob(y) + model.f.log_density(g - tau)
