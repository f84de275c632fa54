"""Laws of the polytopes; the truth is enumeration of the vertices, non-negative least squares, scipy's assignment."""

import functools
import inspect
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from cases import POLYTOPES, named
from sklearn.isotonic import IsotonicRegression

from partita import structures
from partita.structures import (
    AbstractPolytope,
    Birkhoff,
    Cube,
    Hypersimplex,
    Permutahedron,
    ProbabilitySimplex,
)
from partita.structures.rank_vectors import isotonic_decreasing

MORE = named(
    *(polytope(k) for polytope in (Cube, Permutahedron, Birkhoff, ProbabilitySimplex) for k in (2, 3, 5, 6)),
    *(Hypersimplex(k, m) for k, m in ((2, 1), (3, 2), (4, 3), (6, 3))),
)
ALL = POLYTOPES | MORE

SCALES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3)
EPS = float(np.finfo(np.float32).eps)


class Solved(NamedTuple):
    """A polytope's answers on a batch of theta, from one compiled call; points are flattened, in float64."""

    polytope: AbstractPolytope
    vertices: np.ndarray
    theta: np.ndarray
    argmax: np.ndarray
    phi: np.ndarray
    projection: np.ndarray
    again: np.ndarray

    @property
    def scale(self):
        """One value per row: what the rounding of theta and of p is relative to."""
        return np.maximum(1, np.abs(self.theta).max(1))

    @property
    def accuracy(self):
        """How near a float32 projection must be.

        Rounding theta moves each entry by up to EPS scale, all of them by k EPS scale (theta has at most k^2), and a
        projection is non-expansive: nothing better than that can be asked. 16 leaves room for sums inside an algorithm.
        """
        return 16 * self.polytope.shape[0] * EPS * self.scale


def flat(a):
    return np.asarray(a, np.float64).reshape(len(a), -1)


def thetas(shape, num=8):
    """Normals of all scales; ties: zeros, constants, small integers; the first coordinate far from the rest."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(num, *shape))
    integers = rng.integers(-2, 3, size=(num, *shape))
    far = rng.normal(size=(num, *shape))
    far[:, 0] += 50 * rng.normal(size=far[:, 0].shape)
    constants = np.broadcast_to(np.array([0.0, 0.3, -7.0]).reshape(-1, *[1] * len(shape)), (3, *shape))
    scaled = [scale * normal for scale in SCALES]
    return np.concatenate([*scaled, integers, 0.5 * integers, far, constants], dtype=np.float32)


@functools.cache
def elements(space):
    return jax.jit(space.elements)()


@functools.cache
def vertices(polytope):
    return np.asarray(jax.jit(jax.vmap(polytope.encode))(elements(polytope.space)))


@functools.cache
def solve(polytope):
    @jax.jit
    @jax.vmap
    def answers(theta):
        y = polytope.argmax(theta)
        return y, polytope.encode(y), polytope.project(theta)

    # Some of the vertices too: they are their own projections.
    theta = np.concatenate([thetas(polytope.shape), np.resize(vertices(polytope), (16, *polytope.shape))])
    y, phi, projection = answers(theta)
    *_, again = answers(projection)
    return Solved(polytope, flat(vertices(polytope)), flat(theta), np.asarray(y), *map(flat, (phi, projection, again)))


@pytest.fixture(params=ALL.values(), ids=ALL)
def solved(request):
    return solve(request.param)


@pytest.mark.parametrize("polytope", ALL.values(), ids=ALL)
def test_encodings_are_the_vertices_of_their_hull(polytope):
    """phi is injective, and each phi(y) alone maximizes <phi(y) - center, .>."""
    assert vertices(polytope).shape == (polytope.space.size, *polytope.shape)
    phi = flat(vertices(polytope))
    scores = (phi - phi.mean(0)) @ phi.T
    best = np.diag(scores)[:, None]
    # The closest call is Permutahedron(6), where exchanging two neighbors costs (2/5)^2; rounding is below 1e-6.
    assert (scores < best - 1e-3)[~np.eye(len(phi), dtype=bool)].all()


@pytest.mark.parametrize("polytope", POLYTOPES.values(), ids=POLYTOPES)
def test_score_is_the_inner_product_with_the_encoding(polytope):
    theta, y = thetas(polytope.shape, num=2), elements(polytope.space)
    scores = jax.jit(jax.vmap(jax.vmap(polytope.score, (None, 0)), (0, None)))(theta, y)
    # A float32 sum of k terms (Birkhoff has only k that are not 0), each rounded relative to the largest theta.
    atol = polytope.shape[0] * EPS * np.abs(flat(theta)).max(1, keepdims=True)
    assert (np.abs(scores - flat(theta) @ flat(vertices(polytope)).T) <= atol).all()


def test_argmax_attains_the_enumerated_maximum(solved):
    y, theta = np.asarray(elements(solved.polytope.space)), solved.theta
    assert (solved.argmax[:, None] == y).all(-1).any(1).all()
    attained, best = np.sum(theta * solved.phi, axis=1), (theta @ solved.vertices.T).max(1)
    # Ties up to the rounding of k terms may be broken either way.
    assert (best - attained <= y.shape[1] * EPS * np.abs(theta).max(1)).all()


def nearest(vertices, theta):
    """The point of the hull nearest to theta, in float64.

    min |sum_i l_i (v_i - theta)|^2 + (sum_i l_i - 1)^2 over l >= 0 has the direction of the solution over the simplex:
    along s l it is s^2 d^2 + (s - 1)^2, whose minimum over s, d^2 / (1 + d^2), rises with the distance d.
    """
    away = (vertices - theta).T
    # In units of the distance to the nearest vertex, the two terms weigh the same at every scale.
    away = away / np.linalg.norm(away, axis=0).min().clip(1e-3)
    weights, _ = scipy.optimize.nnls(np.vstack([away, np.ones(len(vertices))]), np.append(np.zeros(len(theta)), 1))
    return weights @ vertices / weights.sum()


def test_projection_is_the_nearest_point(solved):
    """Against non-negative least squares over the weights of all vertices."""
    # scipy's nnls can stop short on exact ties; moving theta by 1e-9 moves the nearest point by no more.
    nudged = solved.theta + 1e-9 * np.random.default_rng(1).normal(size=solved.theta.shape)
    expected = np.stack([nearest(solved.vertices, theta) for theta in nudged])
    assert (np.linalg.norm(solved.projection - expected, axis=1) <= solved.accuracy).all()


def test_projection_satisfies_the_variational_inequality(solved):
    """<theta - p, phi(y) - p> <= 0 for all y: no vertex is on theta's side of p."""
    away = solved.theta - solved.projection
    gap = (away @ solved.vertices.T).max(1) - np.sum(away * solved.projection, axis=1)
    # An error e of p enters as <theta - p, e>: the accuracy of p times the size of theta.
    assert (gap <= solved.accuracy * solved.scale).all()


def test_projection_is_idempotent(solved):
    # The first projection misses the hull by its accuracy at theta's scale; the second makes up for that.
    assert (np.linalg.norm(solved.again - solved.projection, axis=1) <= solved.accuracy).all()


def test_projection_is_non_expansive(solved):
    def distances(points):
        return np.linalg.norm(points[:, None] - points[None], axis=-1)

    slack = np.add.outer(solved.accuracy, solved.accuracy)
    assert (distances(solved.projection) <= distances(solved.theta) + slack).all()


@pytest.mark.parametrize("k", [12, 30])
def test_birkhoff_projection_of_large_matrices(k):
    """Doubly stochastic, and optimal: the best vertex in the direction theta - p is scipy's assignment."""
    theta = thetas((k, k), num=3)
    p = np.asarray(jax.jit(jax.vmap(Birkhoff(k).project))(theta), np.float64)
    theta = theta.astype(np.float64)
    scale = np.maximum(1, np.abs(theta).max((1, 2)))
    assert (p >= 0).all()
    # A sum of k entries, each a difference of numbers of this scale, so rounded by EPS scale.
    sums = np.concatenate([p.sum(1), p.sum(2)], axis=1)
    assert (np.abs(sums - 1).max(1) <= 2 * k * EPS * scale).all()
    away = theta - p
    best = [direction[scipy.optimize.linear_sum_assignment(-direction)].sum() for direction in away]
    # As for small k: the accuracy of p times the size of theta.
    assert (best - np.sum(away * p, axis=(1, 2)) <= 16 * k * EPS * scale**2).all()


@pytest.mark.parametrize("k", [12, 30])
def test_birkhoff_argmax_is_the_assignment(k):
    theta = thetas((k, k), num=3)
    y = np.asarray(jax.jit(jax.vmap(Birkhoff(k).argmax))(theta))
    np.testing.assert_array_equal(np.sort(y, axis=1), np.broadcast_to(np.arange(k), y.shape))
    theta = theta.astype(np.float64)
    best = np.array([matrix[scipy.optimize.linear_sum_assignment(-matrix)].sum() for matrix in theta])
    attained = np.take_along_axis(theta, y[:, :, None], axis=2).sum((1, 2))
    # Ties up to the rounding of k terms may be broken either way.
    assert (best - attained <= k * EPS * np.abs(theta).max((1, 2))).all()


def test_isotonic_decreasing_is_the_isotonic_regression():
    """Against scikit-learn: random, tied, rising, falling, far from zero."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(20, 12))
    s = [scale * normal for scale in (1e-3, 1.0, 100.0)]
    s += [normal + 1e3, np.sort(normal), -np.sort(normal), rng.integers(0, 3, (20, 12)), np.zeros((1, 12))]
    s = np.concatenate(s, dtype=np.float32)
    fit = np.asarray(jax.jit(jax.vmap(isotonic_decreasing))(s))
    regression = IsotonicRegression(increasing=False)
    expected = np.stack([regression.fit_transform(np.arange(12), row.astype(np.float64)) for row in s])
    # Means of up to 12 terms from running sums, each of them rounded relative to the largest entry.
    atol = 2 * 12 * EPS * np.abs(s).max(1, keepdims=True)
    assert (np.abs(fit - expected) <= atol).all()
    assert (np.diff(fit, axis=1) <= 0).all()


def test_permutahedron_prefers_large_theta():
    """A larger theta_j means a better rank, and phi falls evenly from 1 at rank 0 to -1 at the last."""
    polytope = Permutahedron(5)
    assert polytope.argmax(jnp.array([0.1, 3.0, -2.0, 7.0, 0.5])).tolist() == [3, 1, 4, 0, 2]
    np.testing.assert_allclose(polytope.encode(jnp.arange(5)), [1, 0.5, 0, -0.5, -1])


def test_the_table_has_every_polytope():
    """A polytope without a row in the table has no laws."""
    public = [getattr(structures, name) for name in structures.__all__]
    final = {cls for cls in public if inspect.isclass(cls) and issubclass(cls, AbstractPolytope)}
    assert {type(polytope) for polytope in POLYTOPES.values()} == {
        cls for cls in final if not cls.__name__.startswith("Abstract")
    }
