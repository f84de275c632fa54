"""Answers over a matrix of x: they are the row-wise exact answers, for any number of rows, without recompiling."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.special
from cases import COUPLINGS, FEATURES, MANY, exactly, model, references

from partita import exact, inference, samplers
from partita.budget import TooLargeError
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.divergences import ChiSquare
from partita.kernels import Gibbs
from partita.model import EBM, Network, Table, UnseenRowError
from partita.samplers import AnnealedImportanceSampling
from partita.structures import Birkhoff, Cube, ProductBernoulli, Uniform

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


@pytest.mark.parametrize("method", [Gibbs(), "sequential", AnnealedImportanceSampling(2000, 5)], ids=type)
def test_samples_follow_each_row_by_other_methods(method, x, key):
    """2000 draws of each row: within 7 standard errors of independent ones (those of chains are worth a half)."""
    ebm = model(COUPLINGS["ising"], scale=0.7)
    draws = inference.sample(ebm, x, 2000, key=key, method=method)
    assert draws.shape == (5, 2000, 4)
    np.testing.assert_allclose(draws.mean(axis=1), inference.marginals(ebm, x), atol=7 * 0.5 / 2000**0.5)
    assert not np.array_equal(draws[0, :100], draws[1, :100])


def test_chains_reach_where_nothing_exact_does(x, key):
    """2^174 sets with interactions; under another f chains need the rows' tau."""
    ebm = model(LinearQuadratic(Symmetric(174), shared=True))
    assert inference.sample(ebm, x, 2, key=key, method=Gibbs(), burn_in=2).shape == (5, 2, 174)
    sparse = exactly("ising-chi-square")
    with pytest.raises(UnseenRowError, match="Pass their `index`"):
        inference.sample(sparse, MANY, 2, key=key, method=Gibbs())
    draws = inference.sample(sparse, MANY, 500, key=key, method=Gibbs(), index=np.arange(len(MANY)))
    np.testing.assert_allclose(draws.mean(axis=1), inference.marginals(sparse, MANY), atol=7 * 0.5 / 500**0.5)


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
        def scores(self, theta, ys):
            traced.append(1)
            return super().scores(theta, ys)

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
    np.testing.assert_allclose(learned, [ebm.log_partition(ebm.row(jnp.asarray(one))) for one in x], rtol=1e-5)
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
        with pytest.raises(UnseenRowError, match=r"training rows only.*model\.Network"):
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
        with pytest.raises(TooLargeError, match=r"10\^52.*1,048,576.*MinMin.*learned.*search.*kernels.Gibbs"):
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
            lambda m, x: inference.sample(m, x, 2, key=jax.random.key(0), method="metropolis"),
            "'exact', 'importance', 'sequential', a kernel of partita.kernels.*'metropolis'",
        ),
        (
            lambda m, x: inference.sample(m, x, 2, key=jax.random.key(0), method=Gibbs(), burn_in=-1),
            "burn_in = -1",
        ),
        (
            lambda m, x: inference.log_partition(m, x, method="guess"),
            "one of 'exact', 'learned', 'importance', 'annealed', 'sequential'",
        ),
        (lambda m, x: inference.log_partition(m, x, method="importance"), "method='importance' draws: give a key"),
        (lambda m, x: inference.log_partition(m, x, method="annealed"), "method='annealed' draws: give a key"),
        (
            lambda m, x: inference.log_partition(m, x, method=samplers.ImportanceSampling(10)),
            r"method=ImportanceSampling\(.* draws: give a key",
        ),
        (
            lambda m, x: inference.log_partition_with_error(m, x, method="learned"),
            "method='learned' draws: give a key",
        ),
        (
            lambda m, x: inference.log_prob(m, x, np.zeros((5, 4), int), method="importance"),
            "method='importance' draws: give a key",
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


METHODS = {
    "importance": "importance",
    "annealed": "annealed",
    "sequential": "sequential",
    "of one's own": samplers.ImportanceSampling(50, defense=0.2),
}


def truth(ebm):
    """log E_q[exp g] of each row, by enumeration in float64, of the float32 scores."""
    y = ebm.space.elements()
    terms = jax.jit(jax.vmap(lambda x: jax.vmap(lambda y: ebm.g(x, y) + ebm.q.log_prob(y))(y)))
    return scipy.special.logsumexp(np.asarray(terms(MANY), np.float64), axis=1)


def test_stated_errors_cover_the_truth(key):
    """Estimates: within 5 standard errors on 12 rows. Learned: the error is the distance, as well as it is known."""
    ebm = model(COUPLINGS["ising"], q=references(COUPLINGS["ising"].space)[-1], scale=0.7)
    lse = truth(ebm)
    ask = functools.partial(inference.log_partition_with_error, ebm, MANY)
    for method in METHODS.values():
        value, error = ask(method=method, key=key)
        assert (np.abs(value - lse) < 5 * error + 1e-4).all()
        np.testing.assert_array_equal(inference.log_partition(ebm, MANY, method=method, key=key), value)
    value, error = ask(method="exact")
    # A sum of 16 rounded terms is off by a few roundings.
    assert (np.abs(value - lse) <= 8 * error).all()
    assert (error < 1e-5).all()
    value, error = ask(method="learned", key=key)
    _, known = ask(method="importance", key=key)
    np.testing.assert_array_less(np.abs(error - np.abs(value - lse)), 5 * known + 1e-4)
    assert error.mean() > 0.1


def test_log_prob_is_normalized_by_the_method_asked_for(key):
    ebm = model(COUPLINGS["ising"], scale=0.7)
    y = ebm.space.elements()[: len(MANY)]
    tau = inference.log_partition(ebm, MANY, method="importance", key=key)
    estimated = inference.log_prob(ebm, MANY, y, method="importance", key=key)
    gap = inference.log_prob(ebm, MANY, y) - estimated
    np.testing.assert_allclose(gap, tau - inference.log_partition(ebm, MANY), atol=1e-5)


@pytest.mark.parametrize("k", [2, 5, 8])
def test_assignments_on_the_host_are_as_good(k, key):
    """The same optimum as inside jit; ties, as of whole numbers, may be broken in another way."""
    normal_key, whole_key = jax.random.split(key)
    ties = jax.random.randint(whole_key, (20, k, k), -2, 3).astype(float)
    theta = jnp.concatenate([jax.random.normal(normal_key, (20, k, k)), ties])
    polytope = Birkhoff(k)
    host = polytope.assignments(Uniform(polytope.space)).argmax(np.asarray(theta))
    assert host.shape == (40, k)
    np.testing.assert_array_equal(np.sort(host, axis=1), np.tile(np.arange(k), (40, 1)))
    score = jax.vmap(polytope.score)
    # Sums of k float32 numbers of size 1.
    np.testing.assert_allclose(
        score(theta, jnp.asarray(host)), score(theta, jax.jit(jax.vmap(polytope.argmax))(theta)), atol=1e-5
    )


@pytest.mark.parametrize("i", [0, -1], ids=["uniform", "other"])
def test_the_mode_of_a_birkhoff_model_is_the_exact_one_in_value(i):
    ebm = model(COUPLINGS["birkhoff"], q=references(COUPLINGS["birkhoff"].space)[i])

    @jax.jit
    @jax.vmap
    def values(x, y):
        row = ebm.row(x)
        return ebm.log_prob(row, y), ebm.log_prob(row, exact.mode(ebm, row))

    found, best = values(MANY, inference.mode(ebm, MANY))
    np.testing.assert_allclose(found, best, atol=1e-5)
