"""Modes by local search: local maxima always, and on small spaces nearly always the enumerated mode."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COUPLINGS, FEATURES, jit, model, references

from partita import inference
from partita.budget import TooLargeError
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.divergences import ChiSquare
from partita.search import LocalSearch
from partita.structures import Birkhoff, Cube
from partita.types import Row

ROWS = 200
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(ROWS, FEATURES))


@jit
def values(model, x, y):
    """log p of y with the learned tau, and of every output one move away."""

    def of_row(x, y):
        row = Row(x, model.g.h(x), None, model.q)
        tau = model.log_partition(row)
        near = jax.vmap(model.space.move, in_axes=(None, 0))(y, jnp.arange(model.space.max_degree))
        return model.log_prob(row, y, tau), jax.vmap(lambda y: model.log_prob(row, y, tau))(near)

    return jax.vmap(of_row)(jnp.asarray(x, float), y)


# Interactions several times as large as the linear part: many local maxima.
SEARCHED = {
    "ising": lambda: model(LinearQuadratic(Symmetric(8), shared=False), scale=1.5),
    "rankings": lambda: model(
        COUPLINGS["permutahedron"], q=references(COUPLINGS["permutahedron"].space)[-1], scale=1.5
    ),
    "neural": lambda: model(COUPLINGS["neural-sets"], scale=2.0),
}


@pytest.mark.parametrize("name", SEARCHED)
def test_search_finds_local_maxima_and_nearly_always_the_mode(name, x):
    """At least 197 of 200 rows, with 8 starts on up to 256 outputs; from one start it is some 190."""
    ebm = SEARCHED[name]()
    y, how = inference.mode_with_method(ebm, x, method="search", key=KEY)
    best, exactly = inference.mode_with_method(ebm, x)
    assert (how, exactly) == ("local search", "exact")
    assert jax.vmap(ebm.space.contains)(y).all()
    found, near = values(ebm, x, y)
    # Rounding of sums of some 30 terms of size up to 10.
    assert (near <= found[:, None] + 1e-4).all()
    missed = values(ebm, x, best)[0] - found
    assert (missed >= -1e-4).all()
    assert (missed <= 1e-4).sum() >= 197


@pytest.mark.parametrize("name", ["ising", "ising-low-rank", "ising-subsets"])
def test_scores_around_an_output_are_those_of_its_moves(name):
    coupling = COUPLINGS[name]
    theta = jax.random.normal(KEY, coupling.theta_shape)

    @jit
    @jax.vmap
    def ask(y):
        near = jax.vmap(coupling.space.move, in_axes=(None, 0))(y, jnp.arange(coupling.space.max_degree))
        return coupling.around(theta, y), jax.vmap(coupling, in_axes=(None, 0))(theta, near)

    # Sums of at most 20 float32 terms of order 1.
    np.testing.assert_allclose(*ask(coupling.space.sample(6, key=KEY)), atol=1e-5)


@pytest.mark.parametrize("name", ["ising", "ising-low-rank", "ising-shared"])
def test_the_change_of_a_move_is_that_of_the_scores(name):
    coupling = COUPLINGS[name]
    theta = jax.random.normal(KEY, coupling.theta_shape)

    @jit
    @jax.vmap
    def ask(y):
        changes = jax.vmap(lambda i: coupling.change(theta, y, i))(jnp.arange(coupling.space.max_degree))
        return coupling(theta, y) + changes, coupling.around(theta, y)

    # Sums of at most 20 float32 terms of order 1.
    np.testing.assert_allclose(*ask(coupling.space.sample(6, key=KEY)), atol=1e-5)


def test_more_starts_find_no_less(x):
    ebm = SEARCHED["ising"]()
    one, many = (values(ebm, x, inference.mode(ebm, x, method=LocalSearch(n), key=KEY))[0] for n in (1, 8))
    assert (many >= one - 1e-4).all()
    assert (many > one + 1e-3).any()


def test_search_under_another_divergence_climbs_the_density_at_the_learned_tau(x):
    """Sparsemax relative to a q that is not uniform; a density of 0 everywhere around is a local maximum too."""
    ebm = model(COUPLINGS["ising"], f=ChiSquare(), q=references(COUPLINGS["ising"].space)[-1])
    y = inference.mode(ebm, x, method="search", key=KEY)
    found, near = values(ebm, x, y)
    assert (near <= found[:, None] + 1e-4).all()
    assert np.isfinite(found).mean() > 0.9


def test_auto_searches_where_nothing_exact_serves(x):
    """2^174 label sets with interactions; without a key the search cannot start, and the error says what there is."""
    ebm = model(LinearQuadratic(Symmetric(174), shared=True))
    pairs = 0.3 * jax.random.normal(KEY, (174 * 173 // 2,))
    ebm = eqx.tree_at(lambda m: m.g.coupling.shared, ebm, pairs)
    y, how = inference.mode_with_method(ebm, x[:3], key=KEY, method=LocalSearch(2))
    assert how == "local search"
    assert y.shape == (3, 174)
    found, near = values(ebm, x[:3], y)
    # Sums of 15,000 terms of size 0.3.
    assert (near <= found[:, None] + 1e-2).all()
    for refused in ({}, {"method": "exact"}, {"method": "exact", "key": KEY}):
        with pytest.raises(TooLargeError, match=r"10\^52.*method='search'"):
            inference.mode(ebm, x[:3], **refused)


def test_auto_is_exact_where_it_can_be(x):
    unary = model(Bilinear(Cube(174)))
    y, how = inference.mode_with_method(unary, x, key=KEY)
    assert how == "exact"
    np.testing.assert_array_equal(y, jax.vmap(unary.g.h)(jnp.asarray(x, float)) >= 0)
    assert inference.mode_with_method(model(Bilinear(Birkhoff(6))), x).method == "exact"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m, x: inference.mode(m, x, method="guess"), "'auto', 'exact', 'search' or a.*'guess'"),
        (lambda m, x: inference.mode(m, x, method="search"), "method='search' draws: give a key"),
        (lambda m, x: inference.mode(m, x, method=LocalSearch(3)), "draws: give a key"),
        (lambda m, x: inference.mode(m, x * np.nan, method="search", key=KEY), "NaN or infinite"),
        (lambda m, x: LocalSearch(0), "restarts >= 1.*got 0"),
        (lambda m, x: LocalSearch(max_steps=0), "max_steps >= 1; got 8, 0"),
    ],
)
def test_bad_questions_get_a_clear_answer(ask, message, x):
    with pytest.raises(ValueError, match=message):
        ask(model(COUPLINGS["unary"]), x)
