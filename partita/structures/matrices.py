"""Algorithms on k x k matrices with an entry per label and rank: the best assignments, balancing and projection."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.optimize

from ..types import Array, Bool, Float

__all__ = ["TINY", "balance", "best_assignments", "invariants", "project_birkhoff", "tail_mass"]

TINY = 1e-12
MAX_NEWTON = 100
MAX_HALVINGS = 30
# Balancing starts from scores / 2^n with a range of at most MILD, doubled whenever sums are off by less than NEARLY.
MILD, NEARLY = 8.0, 0.3


def best_assignments(scores: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
    """The rankings y with the largest sum_j scores[j, y_j].

    By Murty's partition: an assignment solves for the best ranking of a part, and the others are parted by the first
    label in which they differ from it.

    Parameters
    ----------
    scores
        The score of each label at each rank; a label never has a rank with -inf.
    num
        The number of rankings.

    Returns
    -------
    y : ndarray
        The rankings in decreasing order; if there are fewer than `num`, the last one is repeated.
    values : ndarray
        The sums; -inf for repetitions.

    Examples
    --------
    >>> best_assignments(np.array([[2.0, 0.0], [0.0, 1.0]]), 2)
    (array([[0, 1],
           [1, 0]]), array([3., 0.]))
    """
    scores = np.asarray(scores, float)
    k, parts, results = len(scores), [], []

    def add(prefix: np.ndarray, excluded: np.ndarray) -> None:
        """Add the part of the rankings that begin with `prefix`, and whose next label has none of `excluded`."""
        first, free = len(prefix), np.ones(k, bool)
        free[prefix] = False
        left = np.flatnonzero(free)
        rest, allowed = scores[first:, left], scores[first].copy()
        allowed[excluded] = -np.inf
        rest[0] = allowed[left]
        try:
            rows, columns = scipy.optimize.linear_sum_assignment(rest, maximize=True)
        except ValueError:
            return  # The part is empty.
        value = scores[range(first), prefix].sum() + rest[rows, columns].sum()
        y = np.concatenate([prefix, left[columns]])
        heapq.heappush(parts, (-value, y.tolist(), first, excluded))

    add(np.zeros(0, int), np.zeros(0, int))
    while parts and len(results) < num:
        value, best, first, excluded = heapq.heappop(parts)
        results.append((best, -value))
        y = np.array(best)
        for i in range(first, k - 1):
            add(y[:i], np.append(excluded, y[i]) if i == first else y[i : i + 1])
    results += [(results[-1][0], -np.inf)] * (num - len(results))
    return np.array([y for y, _ in results]), np.array([value for _, value in results])


def project_birkhoff(theta: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The nearest doubly stochastic matrix, mu = [theta - a 1' - 1 b']_+, by semismooth Newton steps on the dual.

    The dual 1/2 |mu|^2 + sum a + sum b is smooth and piecewise quadratic, so that Newton's method ends after finitely
    many steps, while Dykstra's alternation converges only linearly. Its Hessian is singular along (1, -1), hence the
    ridge.
    """
    k = theta.shape[0]
    dtype = theta.dtype
    tolerance = k * jnp.finfo(dtype).eps * jnp.maximum(1, jnp.abs(theta).max())

    def primal(ab):
        return jnp.maximum(theta - ab[:k, None] - ab[None, k:], 0)

    def dual(ab):
        return 0.5 * jnp.sum(primal(ab) ** 2) + ab.sum()

    def residual(ab):
        mu = primal(ab)
        return jnp.concatenate([mu.sum(1), mu.sum(0)]) - 1

    def newton(carry):
        ab, i, _ = carry
        r = residual(ab)
        m = (primal(ab) > 0).astype(dtype)
        hessian = jnp.block([[jnp.diag(m.sum(1)), m], [m.T, jnp.diag(m.sum(0))]])
        ridge = 1e-4 * jnp.minimum(1, jnp.linalg.norm(r)) + 1e-6
        d = _solve_definite(hessian + ridge * jnp.eye(2 * k, dtype=dtype), r)
        # All step lengths at once: a loop whose condition recomputes floats may never end under vmap.
        steps = 0.5 ** jnp.arange(MAX_HALVINGS, dtype=dtype)
        falls = jax.vmap(lambda t: dual(ab + t * d) <= dual(ab) - 1e-4 * t * (r @ d) + tolerance)(steps)
        ab = ab + jnp.where(falls.any(), steps[jnp.argmax(falls)], steps[-1]) * d
        return ab, i + 1, jnp.abs(residual(ab)).max()

    def unfinished(carry) -> Bool[Array, ""]:
        return (carry[1] < MAX_NEWTON) & (carry[2] > tolerance)

    # Start: each row is projected onto the simplex.
    rows = jax.vmap(optax.projections.projection_simplex)(theta)
    a = jnp.max(jnp.where(rows > 0, theta - rows, -jnp.inf), axis=1)
    start = jnp.concatenate([a, jnp.zeros(k, dtype)])
    ab, _, _ = jax.lax.while_loop(unfinished, newton, (start, 0, jnp.asarray(jnp.inf, dtype)))
    return primal(ab)


def balance(scores: Float[Array, "k k"], tolerance: float = 1e-4, max_steps: int = 100) -> Float[Array, "k k"]:
    """exp(scores) scaled by rows and columns to a doubly stochastic matrix: argmax <scores, b> - sum b log b.

    A sweep of Sinkhorn's after each Newton step on the potentials is 20 times as fast as sweeps alone at k = 11.
    Peaked scores start as scores / 2^n, whose logarithm is doubled whenever it is nearly balanced.
    """

    def sweep(log_b):
        log_b = log_b - jax.nn.logsumexp(log_b, axis=1, keepdims=True)
        return log_b - jax.nn.logsumexp(log_b, axis=0, keepdims=True)

    def improve(carry):
        log_b, doublings, i, _ = carry
        log_b = sweep(log_b + _newton_step(jnp.exp(log_b)))
        error = jnp.abs(jnp.exp(log_b).sum(axis=1) - 1).max()
        double = (doublings > 0) & (error < NEARLY)
        log_b, left = jnp.where(double, 2 * log_b, log_b), doublings - double
        return log_b, left, i + 1, ((left > 0) | double | (error > tolerance)) & (i + 1 < max_steps)

    finite = jnp.isfinite(scores)
    width = jnp.max(scores, where=finite, initial=-jnp.inf) - jnp.min(scores, where=finite, initial=jnp.inf)
    doublings = jnp.ceil(jnp.log2(jnp.maximum(width / MILD, 1)))
    start = (sweep(scores / 2**doublings), doublings, 0, jnp.asarray(True))
    # The condition is part of the state: under vmap a loop evaluates its condition twice, and rounding may differ.
    log_b, left, *_ = jax.lax.while_loop(lambda carry: carry[-1], improve, start)
    return _round_to_birkhoff(jnp.exp(sweep(2**left * log_b)), finite)


def tail_mass(b: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """Entry (j, p): the mass of label j at ranks p, p + 1, ... under b."""
    return jnp.cumsum(b[:, ::-1], axis=1)[:, ::-1]


def invariants(b: Float[Array, "k k"], free: Float[Array, "k k"], chosen: Float[Array, "k k"]) -> Float[Array, " d"]:
    """Functions of a doubly stochastic b, and of the terms of its bound, that are invariant to the order of rows and
    columns."""
    k = b.shape[0]
    values = [free.sum(), chosen.sum(), *(jnp.sum(b**n) for n in (2, 3, 4)), jnp.sum((b * (1 - b)) ** 2)]
    for matrix, terms in ((b, free.sum(axis=1)), (b.T, free.sum(axis=0))):
        # How much two labels share ranks, or two ranks share labels.
        overlap = matrix @ matrix.T * (1 - jnp.eye(k, dtype=b.dtype))
        values += [jnp.sum(overlap**2), jnp.sum(overlap**3), jnp.sum(overlap * (overlap @ overlap))]
        values += [jnp.sum(terms**2), jnp.sum(terms**3)]
    # Per label, so that their size does not grow with k.
    return jnp.stack(values) / k


def _newton_step(b: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The change of log b with which rows and columns sum to one, to first order; no entry changes by more than 4."""
    k = b.shape[0]
    rows, columns = b.sum(axis=1), b.sum(axis=0)
    # The system without the columns, which are eliminated. It is singular, since a constant may move from columns to
    # rows: hence the 1 / k, and a ridge.
    schur = jnp.diag(rows) - (b / columns) @ b.T + 1 / k + 1e-6 * jnp.eye(k, dtype=b.dtype)
    a = _solve_definite(schur, 1 - rows - (b / columns) @ (1 - columns))
    c = (1 - columns - b.T @ a) / columns
    step = a[:, None] + c
    step = jnp.minimum(1, 4 / jnp.maximum(jnp.abs(step).max(), TINY)) * step
    return jnp.where(jnp.isfinite(step).all(), step, 0)


def _solve_definite(a: Float[Array, "k k"], b: Float[Array, " k"]) -> Float[Array, " k"]:
    """a^{-1} b of a symmetric positive definite a, by elimination without pivots.

    Not by `jnp.linalg.solve`: LAPACK is called once per matrix, and two programs that call it at the same time on a
    machine with two cores wait for each other for ever (JAX 0.10).
    """

    def eliminate(i, system):
        row = system[i] / system[i, i]
        return (system - system[:, i, None] * row).at[i].set(row)

    return jax.lax.fori_loop(0, len(b), eliminate, jnp.concatenate([a, b[:, None]], axis=1))[:, -1]


def _round_to_birkhoff(b: Float[Array, "k k"], allowed: Bool[Array, "k k"]) -> Float[Array, "k k"]:
    """Make a nearly doubly stochastic b exactly so: scale rows and columns down to at most one, add the rest evenly.

    Labels that are not allowed at all ranks are allowed in blocks: a group of labels at as many ranks.
    """
    b = b / jnp.maximum(1, b.sum(axis=1, keepdims=True))
    b = b / jnp.maximum(1, b.sum(axis=0, keepdims=True))
    rows, columns = 1 - b.sum(axis=1), 1 - b.sum(axis=0)
    rows, columns = jnp.maximum(rows, 0), jnp.maximum(columns, 0)
    rest = jnp.where(allowed, rows[:, None] * columns, 0)
    return jnp.clip(b + rest / jnp.maximum(jnp.where(allowed, columns, 0).sum(axis=1, keepdims=True), TINY), 0, 1)
