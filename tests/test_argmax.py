"""Oracles: nothing is left to gain over the hull. The truth is duality in float64, scipy, or enumeration."""

import functools
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
from cases import COUPLINGS, POLYTOPES, jit

from partita.argmax import (
    ClosedForm,
    CoordinateAscent,
    Entropy,
    Nothing,
    ProximalGradient,
    SquaredNorm,
    nearest_output,
    oracle,
)
from partita.couplings import Bilinear, Factored, LinearQuadratic, Neural
from partita.structures import Birkhoff, Cube, Hypersimplex, Permutahedron, ProbabilitySimplex

# Slopes are good to 1e-5 of the largest one where an oracle stops, and to rounding in closed forms; moving all labels
# gains a few times that.
TOLERANCE = 1e-4
ROWS = 12


def concave(k, **options):
    """Interactions of order one: those that training starts from are below 0.01."""
    factor = Factored(k, concave=True, key=jax.random.key(0))
    strong = eqx.tree_at(lambda f: f.factor, factor, 10 * k**0.5 * factor.factor)
    return LinearQuadratic(strong, shared=False, **options)


LINEAR = {name: COUPLINGS[name] for name in ("unary", "subsets", "classes", "permutahedron", "birkhoff")}
SMOOTH = LINEAR | {
    "concave": concave(4),
    "concave-subsets": concave(5, polytope=Hypersimplex(5, 2)),
    "ising": COUPLINGS["ising"],
}
REGULARIZERS = {"nothing": Nothing(), "norm": SquaredNorm(0.7), "entropy": Entropy(0.5)}
# The permutahedron has no entropy; the rest of these would only compile the same code once more.
LEFT_OUT = {("permutahedron", "entropy"), ("subsets", "nothing"), ("ising", "nothing")}
LEFT_OUT |= {("concave-subsets", "nothing"), ("concave-subsets", "entropy")}
CASES = [(name, omega) for name in SMOOTH for omega in REGULARIZERS if (name, omega) not in LEFT_OUT]


def flat(a):
    return np.asarray(a, np.float64).reshape(len(a), -1)


@functools.cache
def vertices(polytope):
    return flat(jit(lambda: jax.vmap(polytope.encode)(polytope.space.elements()))())


@functools.cache
def solve(name, omega):
    """The oracle's answers on logits of three scales, and the slope of Phi there; flattened, in float64."""
    coupling, regularizer = (SMOOTH | COUPLINGS)[name], REGULARIZERS[omega]
    serving = oracle(coupling, regularizer)
    scale = jnp.repeat(jnp.array([0.3, 1.0, 10.0]), ROWS // 3).reshape(-1, *[1] * len(coupling.theta_shape))
    theta = scale * jax.random.normal(jax.random.key(1), (ROWS, *coupling.theta_shape))

    @jit
    @jax.vmap
    def ask(theta):
        solved = serving(coupling, theta)
        vertex = coupling.polytope.encode(coupling.space.element(jnp.asarray(1)))
        value = coupling.relaxed(theta, vertex) - regularizer(coupling.polytope, vertex)
        linear = coupling.polytope.argmax(theta) if name in LINEAR else None
        slope = jax.grad(coupling.relaxed, argnums=1)(theta, solved.mu)
        return solved, slope, value, nearest_output(coupling.polytope, solved.mu), linear

    solved, slope, value, y, linear = ask(theta)
    return SimpleNamespace(
        polytope=coupling.polytope,
        theta=flat(theta),
        mu=flat(solved.mu),
        value=np.asarray(solved.value, float),
        gap=np.asarray(solved.gap, float),
        slope=flat(slope),
        at_vertex=np.asarray(value, float),
        y=y,
        linear=linear,
    )


def largest(polytope, omega, slope):
    """An upper bound of max <slope, mu> + strength H(mu) by its dual, in float64: tight at the best potentials."""
    s, k = omega.strength, polytope.k
    z = slope / s
    if isinstance(polytope, Cube):
        return s * np.logaddexp(0, z).sum()
    if isinstance(polytope, ProbabilitySimplex):
        return s * scipy.special.logsumexp(z)
    if isinstance(polytope, Hypersimplex):
        bracket = (z.min() - 10, z.max() + 10)
        return (
            s
            * scipy.optimize.minimize_scalar(
                lambda t: np.logaddexp(0, z - t).sum() + polytope.m * t, bounds=bracket, options={"xatol": 1e-9}
            ).fun
        )
    top = z.max()
    kernel, b = np.exp(z.reshape(k, k) - top), np.ones(k)
    for _ in range(3000):
        a = 1 / (kernel @ b)
        b = 1 / (kernel.T @ a)
    return s * (a @ kernel @ b - k - np.log(a).sum() - np.log(b).sum() + k * top)


def left_to_gain(found, omega):
    """max over mu' of <slope, mu' - mu> - Omega(mu') + Omega(mu), or a little more, for each row."""
    mu, slope = found.mu, found.slope
    if isinstance(omega, Entropy):
        negative = scipy.special.xlogy(mu, mu).sum(1)
        if isinstance(found.polytope, Cube | Hypersimplex):
            negative += scipy.special.xlogy(1 - mu, 1 - mu).sum(1)
        best = np.array([largest(found.polytope, omega, row) for row in slope])
        return best - np.sum(slope * mu, axis=1) + omega.strength * negative
    uphill = slope - omega.strength * mu
    return (uphill @ vertices(found.polytope).T).max(1) - np.sum(uphill * mu, axis=1)


@pytest.mark.parametrize(("name", "omega"), CASES)
def test_nothing_is_left_to_gain(name, omega):
    """For concave scores that is the maximum, for others a stationary point; and the gap says so."""
    found = solve(name, omega)
    scale = np.maximum(1, np.abs(found.slope).max(1))
    left = left_to_gain(found, REGULARIZERS[omega])
    assert (left <= TOLERANCE * scale).all()
    assert (np.abs(left - found.gap) <= TOLERANCE * scale).all()


def is_in(polytope, mu, atol):
    """Whether the flat rows of mu are in the polytope, by its inequalities."""
    if isinstance(polytope, Permutahedron):
        most = np.cumsum(np.linspace(1, -1, polytope.k))
        return (np.cumsum(-np.sort(-mu), axis=1) <= most + atol).all(1) & (np.abs(mu.sum(1)) <= atol)
    inside = ((mu >= -atol) & (mu <= 1 + atol)).all(1)
    if isinstance(polytope, Birkhoff):
        square = mu.reshape(-1, polytope.k, polytope.k)
        return inside & (np.abs([square.sum(1) - 1, square.sum(2) - 1]) <= atol).all((0, 2))
    total = {Hypersimplex: getattr(polytope, "m", None), ProbabilitySimplex: 1}.get(type(polytope))
    return inside & (True if total is None else np.abs(mu.sum(1) - total) <= atol)


NEURAL = [("neural-sets", "norm"), ("neural-rankings", "norm")]


@pytest.mark.parametrize(("name", "omega"), CASES + NEURAL)
def test_the_answer_is_in_the_hull_and_no_worse_than_a_vertex(name, omega):
    found = solve(name, omega)
    # Projections of logits of size 30 are good to 1e-5.
    assert is_in(found.polytope, found.mu, 1e-5).all()
    assert np.isfinite(found.value).all()
    assert (found.gap >= 0).all()
    if name in LINEAR or name.startswith("concave"):
        assert (found.value >= found.at_vertex - TOLERANCE).all()


@pytest.mark.parametrize("name", ["unary", "classes", "permutahedron", "birkhoff"])
def test_without_a_regularizer_a_linear_score_has_the_argmax_of_its_polytope(name):
    found, polytope = solve(name, "nothing"), LINEAR[name].polytope
    np.testing.assert_array_equal(found.y, found.linear)
    best = (found.theta @ vertices(polytope).T).max(1)
    np.testing.assert_allclose(found.value, best, rtol=1e-5)


@pytest.mark.parametrize("omega", ["nothing", "norm"])
def test_concave_label_sets_against_scipy(omega):
    """The value, by L-BFGS-B in float64."""
    found, coupling, s = solve("concave", omega), SMOOTH["concave"], REGULARIZERS[omega].strength
    for theta, value in zip(found.theta, found.value, strict=True):
        u, spectrum = theta[:4], coupling.parameters(jnp.asarray(theta, jnp.float32))[1]
        matrix = np.asarray(coupling.interaction.matrix(spectrum), float) - s * np.eye(4)
        truth = scipy.optimize.minimize(
            lambda m, u=u, matrix=matrix: (-u @ m - 0.5 * m @ matrix @ m, -u - matrix @ m),
            np.full(4, 0.5),
            jac=True,
            bounds=[(0, 1)] * 4,
            options={"ftol": 1e-12, "gtol": 1e-9},
        )
        assert value == pytest.approx(-truth.fun, abs=TOLERANCE * max(1, np.abs(theta).max()))


def test_a_relaxed_maximum_of_sets_is_at_least_every_set():
    """A concave score on the hull, at all 16 sets."""
    coupling, found = SMOOTH["concave"], solve("concave", "nothing")
    theta = jnp.asarray(found.theta, jnp.float32)
    every = jit(lambda theta, y: jax.vmap(jax.vmap(coupling, (None, 0)), (0, None))(theta, y))(
        theta, coupling.space.elements()
    )
    assert (found.value >= np.asarray(every).max(1) - TOLERANCE * 10).all()


@pytest.mark.parametrize("polytope", POLYTOPES.values(), ids=POLYTOPES)
def test_rounding_is_the_nearest_vertex(polytope):
    weights = np.random.default_rng(0).dirichlet(np.full(polytope.space.size, 0.3), 20)
    points = np.concatenate([vertices(polytope), weights @ vertices(polytope)])
    y = jit(jax.vmap(functools.partial(nearest_output, polytope)))(
        points.reshape(-1, *polytope.shape).astype(np.float32)
    )
    distance = np.linalg.norm(points[:, None] - vertices(polytope), axis=-1)
    chosen = np.linalg.norm(points - flat(jit(jax.vmap(polytope.encode))(y)), axis=-1)
    # Square roots of float32 sums.
    np.testing.assert_allclose(chosen, distance.min(1), atol=1e-3)


def test_one_row_is_solved_as_in_a_batch():
    coupling = SMOOTH["ising"]
    alone = jit(oracle(coupling, SquaredNorm(0.7)))(coupling, jnp.asarray(solve("ising", "norm").theta[5], jnp.float32))
    np.testing.assert_allclose(alone.mu, solve("ising", "norm").mu[5], atol=1e-4)


SERVED = [
    *((name, omega, ClosedForm, True) for name in ("unary", "birkhoff") for omega in REGULARIZERS),
    ("concave", "nothing", CoordinateAscent, True),
    ("concave", "norm", CoordinateAscent, True),
    ("concave", "entropy", ProximalGradient, True),
    ("concave-subsets", "norm", ProximalGradient, True),
    ("ising", "norm", ProximalGradient, False),
    ("neural-sets", "nothing", ProximalGradient, False),
]


@pytest.mark.parametrize(("name", "omega", "serving", "maximizes"), SERVED)
def test_which_oracle_serves_and_whether_it_finds_a_maximum(name, omega, serving, maximizes):
    coupling = (COUPLINGS | SMOOTH)[name]
    found = oracle(coupling, REGULARIZERS[omega])
    assert type(found) is serving
    assert found.maximizes(coupling) is maximizes


def test_what_cannot_be_served_is_refused_by_name():
    for coupling in (Bilinear(Permutahedron(4)), Neural(Permutahedron(4), (3,), None)):
        with pytest.raises(ValueError, match=r"No oracle.*Permutahedron\(k=4\).*Entropy.*SquaredNorm.*Birkhoff"):
            oracle(coupling, Entropy())
    for strength in (0.0, -1.0, float("nan"), float("inf")):
        for regularizer in (SquaredNorm, Entropy):
            with pytest.raises(ValueError, match=r"positive, finite strength; got.*Nothing\(\)"):
                regularizer(strength)
