"""Algorithms on square matrices that rankings stand on: the best assignments, and projections onto the two hulls."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.optimize

from ..types import Array, Bool, Float

__all__ = ["best_assignments", "isotonic_decreasing", "project_birkhoff"]

MAX_NEWTON = 100
MAX_HALVINGS = 30


def best_assignments(scores: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
    """The `num` rankings y with the largest sum_j scores[j, y_j], in falling order, and these sums.

    By Murty's partition: of the rankings that a part holds, the best is found by an assignment, and the others are
    parted by the first label in which they differ from it. Where a score is -inf, label j never has that rank; where
    fewer than `num` rankings are left, the last comes again with -inf.

    >>> best_assignments(np.array([[2.0, 0.0], [0.0, 1.0]]), 2)
    (array([[0, 1],
           [1, 0]]), array([3., 0.]))
    """
    scores = np.asarray(scores, float)
    k, parts, found = len(scores), [], []

    def add(prefix: np.ndarray, excluded: np.ndarray) -> None:
        """The part of the rankings that begin with `prefix`, and whose next label has no `excluded` rank."""
        first, free = len(prefix), np.ones(k, bool)
        free[prefix] = False
        left = np.flatnonzero(free)
        rest, barred = scores[first:, left], scores[first].copy()
        barred[excluded] = -np.inf
        rest[0] = barred[left]
        try:
            rows, columns = scipy.optimize.linear_sum_assignment(rest, maximize=True)
        except ValueError:
            return  # Nothing is left in it.
        value = scores[range(first), prefix].sum() + rest[rows, columns].sum()
        y = np.concatenate([prefix, left[columns]])
        heapq.heappush(parts, (-value, y.tolist(), first, excluded))

    add(np.zeros(0, int), np.zeros(0, int))
    while parts and len(found) < num:
        value, best, first, excluded = heapq.heappop(parts)
        found.append((best, -value))
        y = np.array(best)
        for i in range(first, k - 1):
            add(y[:i], np.append(excluded, y[i]) if i == first else y[i : i + 1])
    found += [(found[-1][0], -np.inf)] * (num - len(found))
    return np.array([y for y, _ in found]), np.array([value for _, value in found])


def isotonic_decreasing(s: Float[Array, " k"]) -> Float[Array, " k"]:
    """Least-squares fit of s by a non-increasing vector: v_i = min_{a <= i} max_{b >= i} mean(s_a, ..., s_b).

    >>> isotonic_decreasing(jnp.array([3.0, 1.0, 2.0])).tolist()
    [3.0, 1.5, 1.5]
    """
    k = s.shape[0]
    a, b = jnp.arange(k)[:, None], jnp.arange(k)[None, :]
    # Running sums of the centered s: less cancellation in float32.
    center = s.mean()
    total = jnp.concatenate([jnp.zeros(1, s.dtype), jnp.cumsum(s - center)])
    mean = (total[b + 1] - total[a]) / jnp.maximum(b - a + 1, 1)
    best_b = jax.lax.cummax(jnp.where(b >= a, mean, -jnp.inf), axis=1, reverse=True)
    return jnp.min(jnp.where(a <= b, best_b, jnp.inf), axis=0) + center


def project_birkhoff(theta: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """Semismooth Newton on the dual: mu = [theta - a 1' - 1 b']_+ with row and column sums one.

    The dual 1/2 |mu|^2 + sum a + sum b is smooth and piecewise quadratic, so Newton ends after finitely many steps,
    where Dykstra's alternation only converges linearly. Its Hessian is singular along (1, -1), hence the ridge.
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
        d = jnp.linalg.solve(hessian + ridge * jnp.eye(2 * k, dtype=dtype), r)
        # All step lengths at once: a loop whose condition computes floats anew may never end under vmap.
        steps = 0.5 ** jnp.arange(MAX_HALVINGS, dtype=dtype)
        falls = jax.vmap(lambda t: dual(ab + t * d) <= dual(ab) - 1e-4 * t * (r @ d) + tolerance)(steps)
        ab = ab + jnp.where(falls.any(), steps[jnp.argmax(falls)], steps[-1]) * d
        return ab, i + 1, jnp.abs(residual(ab)).max()

    def unfinished(carry) -> Bool[Array, ""]:
        return (carry[1] < MAX_NEWTON) & (carry[2] > tolerance)

    # Start: each row made to sum to one by its own simplex projection.
    rows = jax.vmap(optax.projections.projection_simplex)(theta)
    a = jnp.max(jnp.where(rows > 0, theta - rows, -jnp.inf), axis=1)
    start = jnp.concatenate([a, jnp.zeros(k, dtype)])
    ab, _, _ = jax.lax.while_loop(unfinished, newton, (start, 0, jnp.asarray(jnp.inf, dtype)))
    return primal(ab)
