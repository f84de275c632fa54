"""exp(scores) scaled to a doubly stochastic matrix, and functions of such matrices: the surrogate of rankings."""

import jax
import jax.numpy as jnp

from ..types import Array, Bool, Float

__all__ = ["TINY", "balance", "invariants", "mass_from"]

TINY = 1e-12
MILD, NEARLY = 8.0, 0.3


def balance(scores: Float[Array, "k k"], tolerance: float = 1e-4, max_steps: int = 100) -> Float[Array, "k k"]:
    """exp(scores) scaled by rows and by columns to a doubly stochastic matrix: argmax <scores, b> - sum b log b.

    Sinkhorn's sweep after each Newton step on the potentials: 20 times as fast as sweeps alone at k = 11.
    Peaked scores begin as scores / 2^n: once that is nearly balanced, its logarithm is doubled.
    """

    def sweep(log_b):
        log_b = log_b - jax.nn.logsumexp(log_b, axis=1, keepdims=True)
        return log_b - jax.nn.logsumexp(log_b, axis=0, keepdims=True)

    def improve(carry):
        log_b, doublings, i, _ = carry
        log_b = sweep(log_b + _newton_step(jnp.exp(log_b)))
        off = jnp.abs(jnp.exp(log_b).sum(axis=1) - 1).max()
        double = (doublings > 0) & (off < NEARLY)
        log_b, left = jnp.where(double, 2 * log_b, log_b), doublings - double
        return log_b, left, i + 1, ((left > 0) | double | (off > tolerance)) & (i + 1 < max_steps)

    finite = jnp.isfinite(scores)
    width = jnp.max(scores, where=finite, initial=-jnp.inf) - jnp.min(scores, where=finite, initial=jnp.inf)
    doublings = jnp.ceil(jnp.log2(jnp.maximum(width / MILD, 1)))
    start = (sweep(scores / 2**doublings), doublings, 0, jnp.asarray(True))
    # The condition is carried, not computed anew: under vmap a loop evaluates it twice, and rounding may differ.
    log_b, left, *_ = jax.lax.while_loop(lambda carry: carry[-1], improve, start)
    return _round_to_birkhoff(jnp.exp(sweep(2**left * log_b)), finite)


def mass_from(b: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """Entry (j, p): b's mass of label j at rank p and later."""
    return jnp.cumsum(b[:, ::-1], axis=1)[:, ::-1]


def invariants(b: Float[Array, "k k"], free: Float[Array, "k k"], chosen: Float[Array, "k k"]) -> Float[Array, " d"]:
    """Functions of a doubly stochastic b, and of the terms of its bound, that no order of rows or columns changes."""
    k = b.shape[0]
    found = [free.sum(), chosen.sum(), *(jnp.sum(b**n) for n in (2, 3, 4)), jnp.sum((b * (1 - b)) ** 2)]
    for half in (b, b.T):
        # How far two labels want the same ranks, two ranks the same labels.
        overlap = half @ half.T * (1 - jnp.eye(k, dtype=b.dtype))
        crowded = free.sum(axis=1 if half is b else 0)
        found += [jnp.sum(overlap**2), jnp.sum(overlap**3), jnp.sum(overlap * (overlap @ overlap))]
        found += [jnp.sum(crowded**2), jnp.sum(crowded**3)]
    # Per label, so that their size does not grow with k.
    return jnp.stack(found) / k


def _newton_step(b: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """What to add to log b so that its rows and columns sum to one, to first order; no entry moves by more than 4."""
    k = b.shape[0]
    rows, columns = b.sum(axis=1), b.sum(axis=0)
    # The columns eliminated. A constant moved from columns to rows changes nothing: hence the ones, and a ridge.
    schur = jnp.diag(rows) - (b / columns) @ b.T + 1 / k + 1e-6 * jnp.eye(k, dtype=b.dtype)
    a = jnp.linalg.solve(schur, 1 - rows - (b / columns) @ (1 - columns))
    c = (1 - columns - b.T @ a) / columns
    step = a[:, None] + c
    step = jnp.minimum(1, 4 / jnp.maximum(jnp.abs(step).max(), TINY)) * step
    return jnp.where(jnp.isfinite(step).all(), step, 0)


def _round_to_birkhoff(b: Float[Array, "k k"], allowed: Bool[Array, "k k"]) -> Float[Array, "k k"]:
    """The nearly doubly stochastic b made so: rows and columns scaled down to at most one, the rest added evenly.

    Labels that are not allowed at every rank are allowed in blocks: a group of labels at as many ranks.
    """
    b = b / jnp.maximum(1, b.sum(axis=1, keepdims=True))
    b = b / jnp.maximum(1, b.sum(axis=0, keepdims=True))
    rows, columns = 1 - b.sum(axis=1), 1 - b.sum(axis=0)
    rows, columns = jnp.maximum(rows, 0), jnp.maximum(columns, 0)
    rest = jnp.where(allowed, rows[:, None] * columns, 0)
    return jnp.clip(b + rest / jnp.maximum(jnp.where(allowed, columns, 0).sum(axis=1, keepdims=True), TINY), 0, 1)
