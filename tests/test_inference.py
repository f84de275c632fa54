"""Answers over a matrix of x: they are the row-wise exact answers, for any number of rows, without recompiling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import COUPLINGS, FEATURES, model

from partita import exact, inference
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.divergences import ChiSquare
from partita.measures import ProductBernoulli
from partita.model import EBM
from partita.partition import Network, Table, UnseenRowError
from partita.polytopes import Birkhoff, Cube
from partita.spaces import TooLargeError

SOME = ["unary", "birkhoff", "ising", "neural-sets"]


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(5, FEATURES)).astype(np.float32)


@pytest.mark.parametrize("name", SOME)
def test_answers_are_the_exact_ones_row_by_row(name, x):
    ebm = model(COUPLINGS[name])
    y = ebm.space.elements()[:5]

    @jax.jit
    def of_row(x, y):
        row = ebm.row(x)
        return (
            exact.log_partition(ebm, row),
            exact.mode(ebm, row),
            exact.marginals(ebm, row),
            exact.log_prob(ebm, row, y),
        )

    rows = [of_row(*row) for row in zip(jnp.asarray(x), y, strict=True)]
    tau, mode, marginals, log_prob = (np.stack(answers) for answers in zip(*rows, strict=True))
    np.testing.assert_allclose(inference.log_partition(ebm, x), tau, rtol=1e-5)
    np.testing.assert_array_equal(inference.mode(ebm, x), mode)
    np.testing.assert_allclose(inference.marginals(ebm, x), marginals, atol=1e-6)
    np.testing.assert_allclose(inference.log_prob(ebm, x, y), log_prob, rtol=1e-5)


def test_samples_follow_each_row(x, key):
    """20,000 draws a row: the means of the labels are within 5 standard errors of the marginals."""
    ebm = model(COUPLINGS["ising"])
    draws = inference.sample(ebm, x, 20_000, key=key)
    assert draws.shape == (5, 20_000, 4)
    assert jnp.all(jax.vmap(jax.vmap(ebm.space.contains))(draws))
    np.testing.assert_allclose(draws.mean(axis=1), inference.marginals(ebm, x), atol=5 * 0.5 / 20_000**0.5)
    assert not np.array_equal(draws[0, :100], draws[1, :100])


@pytest.mark.parametrize("n", [1, 16, 17, 300])
def test_any_number_of_rows(n):
    """Padding never shows: each answer depends on its own row."""
    ebm = model(COUPLINGS["unary"])
    x = np.random.default_rng(1).normal(size=(n, FEATURES)).astype(np.float32)
    logits = jax.vmap(ebm.g.h)(jnp.asarray(x))
    np.testing.assert_allclose(inference.marginals(ebm, x), jax.nn.sigmoid(logits), atol=1e-6)


def test_another_number_of_rows_does_not_recompile():
    traced = []

    class Spying(LinearQuadratic):
        def __call__(self, theta, y):
            traced.append(1)
            return super().__call__(theta, y)

    ebm = model(Spying(Symmetric(4), shared=False))
    inference.marginals(ebm, np.zeros((17, FEATURES)))
    count = len(traced)
    for n in (20, 100, 256, 700):
        inference.marginals(ebm, np.zeros((n, FEATURES)))
    assert len(traced) == count > 0


def test_sparse_x_is_the_same_x(x):
    ebm = model(COUPLINGS["ising"])
    np.testing.assert_array_equal(inference.marginals(ebm, scipy.sparse.csr_matrix(x)), inference.marginals(ebm, x))


def test_learned_and_exact_log_partition_differ_by_what_is_not_learned(x):
    ebm = model(COUPLINGS["birkhoff"])
    learned = inference.log_partition(ebm, x, method="learned")
    np.testing.assert_allclose(learned, [ebm.tau(ebm.row(jnp.asarray(one))) for one in x], rtol=1e-5)
    y = ebm.space.elements()[:5]
    gap = inference.log_prob(ebm, x, y) - inference.log_prob(ebm, x, y, method="learned")
    np.testing.assert_allclose(gap, learned - inference.log_partition(ebm, x), atol=1e-5)


def test_counting_measure_is_the_papers_sum_of_softplus(x):
    ebm = model(COUPLINGS["unary"])
    theta = jax.vmap(ebm.g.h)(jnp.asarray(x))
    expected = jax.nn.softplus(theta).sum(axis=1)
    np.testing.assert_allclose(inference.log_partition(ebm, x, counting=True), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="counting=True needs f = KL"):
        inference.log_partition(model(COUPLINGS["unary"], f=ChiSquare()), x, counting=True)


def test_per_row_references(x):
    """Unary with q(y|x): the posterior logits are theta plus each row's own."""
    ebm = model(COUPLINGS["unary"], q=ProductBernoulli(jnp.zeros(4)))
    own = jax.random.normal(jax.random.key(3), (5, 4))
    theta = jax.vmap(ebm.g.h)(jnp.asarray(x))
    found = inference.marginals(ebm, x, reference=ProductBernoulli(own))
    np.testing.assert_allclose(found, jax.nn.sigmoid(theta + own), atol=1e-6)


def test_a_table_knows_training_rows_only(x):
    network = model(COUPLINGS["unary"])
    ebm = EBM(network.g, Table(5))
    for ask in (inference.log_partition, lambda *a, **k: inference.log_prob(*a[:1], x, np.zeros((5, 4), int), **k)):
        with pytest.raises(UnseenRowError, match=r"training rows only.*partition\.Network"):
            ask(ebm, x, method="learned")
    assert inference.log_partition(ebm, x, method="learned", index=np.arange(5)).shape == (5,)
    for wrong in (np.arange(3), np.arange(5.0)):
        with pytest.raises(ValueError, match="one per row of x"):
            inference.log_partition(ebm, x, method="learned", index=wrong)
    for outside in (np.arange(1, 6), np.arange(-1, 4)):
        with pytest.raises(ValueError, match="index must be between 0 and 4"):
            inference.log_partition(ebm, x, method="learned", index=outside)
    np.testing.assert_allclose(inference.log_partition(ebm, x), inference.log_partition(network, x))


def test_where_there_is_no_exact_method_it_says_so(x, key):
    """2^174 sets with interactions: everything exact is refused, the learned tau answers."""
    ebm = model(LinearQuadratic(Symmetric(174), shared=True))
    exact_questions = [
        lambda: inference.marginals(ebm, x),
        lambda: inference.mode(ebm, x),
        lambda: inference.sample(ebm, x, 2, key=key),
        lambda: inference.log_partition(ebm, x),
        lambda: inference.log_prob(ebm, x, np.zeros((5, 174), int)),
    ]
    for ask in exact_questions:
        with pytest.raises(TooLargeError, match=r"10\^52.*1,048,576.*MinMin.*learned.*Bilinear"):
            ask()
    assert np.isfinite(inference.log_prob(ebm, x, np.zeros((5, 174), int), method="learned")).all()


def test_the_mode_of_a_bilinear_coupling_has_no_size_limit(x):
    unary = model(Bilinear(Cube(174)))
    np.testing.assert_array_equal(inference.mode(unary, x), jax.vmap(unary.g.h)(jnp.asarray(x)) >= 0)
    assert inference.mode(model(Bilinear(Birkhoff(20))), x).shape == (5, 20)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m, x: inference.mode(m, x * np.nan), "NaN or infinite"),
        (lambda m, x: inference.mode(m, x[:0]), "empty"),
        (lambda m, x: inference.mode(m, x[0]), r"shape \(n, d\)"),
        (lambda m, x: inference.mode(m, x[:, :2]), r"h does not take x of shape \(2,\)"),
        (lambda m, x: inference.mode(m, [["a", "b", "c"]]), "must hold numbers"),
        (lambda m, x: inference.sample(m, x, 0, key=jax.random.key(0)), "at least 1 draw"),
        (
            lambda m, x: inference.log_partition(m, x, method="guess"),
            "one of 'exact', 'learned', 'importance', 'annealed'",
        ),
        (lambda m, x: inference.log_prob(m, x, np.full((5, 4), 2)), "not in Hypercube"),
        (lambda m, x: inference.log_prob(m, x, np.zeros((4, 4))), r"shape \(5, 4\)"),
        (lambda m, x: inference.mode(m, x, reference=ProductBernoulli(jnp.zeros((2, 4)))), "Uniform"),
    ],
)
def test_bad_questions_get_a_clear_answer(ask, message, x):
    with pytest.raises((ValueError, TypeError), match=message):
        ask(model(COUPLINGS["unary"]), x)


def test_tau_of_the_logits_answers_on_unseen_rows(x):
    base = model(COUPLINGS["unary"])
    ebm = EBM(base.g, Network(lambda theta: theta.sum(), of_logits=True))
    theta = jax.vmap(ebm.g.h)(jnp.asarray(x))
    np.testing.assert_allclose(inference.log_partition(ebm, x, method="learned"), theta.sum(axis=1), rtol=1e-5)
