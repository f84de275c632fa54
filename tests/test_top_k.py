"""The most probable outputs, in order, against the list of all outputs in float64; beyond it, against what is known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from cases import COUPLINGS, FEATURES, model, references, some

from partita import inference, search
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.divergences import KL, ChiSquare, JensenShannon
from partita.model import EBM, Energy, Network
from partita.networks import Linear
from partita.structures import (
    Birkhoff,
    Cube,
    Hypersimplex,
    Permutahedron,
    PlackettLuce,
    ProductBernoulli,
    best_assignments,
)

NUM = 5
ROWS = 3
X = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype(np.float32)


def linear(coupling, scale, *, f=None, q=None):
    """A model with logits of about `scale`, and interactions too, where the coupling has them."""
    h_key, pair_key = jax.random.split(jax.random.key(1))
    h = jax.tree.map(lambda w: 2 * scale * w, Linear(FEATURES, coupling.theta_shape, zero=False, key=h_key))
    if isinstance(coupling, LinearQuadratic):
        coupling = eqx.tree_at(lambda c: c.shared, coupling, scale * jax.random.normal(pair_key, coupling.shared.shape))
    body = Network(Linear(FEATURES, (), key=h_key))
    return EBM(Energy(h, coupling), body, q=q, f=f)


@jax.jit
def _scores(coupling, q, theta, y):
    return jax.vmap(lambda theta: coupling.scores(theta, y))(theta), q.log_probs(y)


def in_order(ebm, num):
    """log p and outputs of the `num` most probable, of each row, by listing all of Y; for KL."""
    y = ebm.space.elements()
    theta = jax.vmap(ebm.g.h)(jnp.asarray(X))
    g, log_q = eqx.filter_jit(_scores)(ebm.g.coupling, ebm.q, theta, y)
    log_p = np.asarray(g, np.float64) + np.asarray(log_q, np.float64)
    log_p -= scipy.special.logsumexp(log_p, axis=1, keepdims=True)
    best = np.argsort(-log_p, axis=1)[:, :num]
    return np.take_along_axis(log_p, best, axis=1), np.asarray(y)[best]


# Above 2^14 outputs: sets of 15 to 18 labels, 8 of 18 labels, rankings of 8 and 9 labels, and references.
LARGE = {
    "unary": linear(Bilinear(Cube(15)), 1.0),
    "unary-reference": linear(Bilinear(Cube(15)), 1.0, q=ProductBernoulli(jnp.linspace(-2, 2, 15))),
    "ising-16": linear(LinearQuadratic(Symmetric(16), shared=True), 1.0),
    "ising-18": linear(LinearQuadratic(Symmetric(18), shared=True), 2.0),
    "subsets": linear(Bilinear(Hypersimplex(18, 8)), 1.0),
    "permutahedron-8": linear(Bilinear(Permutahedron(8)), 1.0),
    "birkhoff-8": linear(Bilinear(Birkhoff(8)), 1.0),
    "birkhoff-9": linear(Bilinear(Birkhoff(9)), 1.0),
    "plackett-luce": linear(Bilinear(Permutahedron(8)), 1.0, q=PlackettLuce(jnp.linspace(-1, 1, 8))),
}


@pytest.mark.parametrize("name", some(LARGE, ("unary", "ising-16", "subsets", "birkhoff-8", "plackett-luce")))
def test_the_most_probable_of_many_outputs_are_those_of_the_whole_list(name):
    """Scores of size 20 in float32 leave errors of some 1e-5; outputs as close as that may change places."""
    ebm = LARGE[name]
    found = inference.top_k(ebm, X, NUM)
    truth, y = in_order(ebm, NUM)
    assert (found.method, found.normalizer) == ("exact", "exact")
    np.testing.assert_allclose(found.log_prob, truth, atol=2e-4)
    apart = np.diff(truth, axis=1).max(axis=1) < -1e-3
    assert apart.any()
    np.testing.assert_array_equal(np.asarray(found.y)[apart], y[apart])
    for outputs in np.asarray(found.y):
        assert len(np.unique(outputs, axis=0)) == NUM
    np.testing.assert_array_equal(found.y[:, 0], inference.mode(ebm, X))


ORDERED = {
    f"{name}-{type(f).__name__}": (name, f)
    for name in ("unary", "ising", "birkhoff", "subsets")
    for f in (KL(), ChiSquare(), JensenShannon())
}


@pytest.mark.parametrize("case", some(ORDERED, ("unary-KL", "birkhoff-KL", "subsets-KL", "ising-ChiSquare")))
def test_all_outputs_come_in_the_order_of_p(case):
    """Every output once, in falling order, with probabilities that sum to one; what has p = 0 is marked."""
    name, f = ORDERED[case]
    q = references(COUPLINGS[name].space)[-1]
    ebm = model(COUPLINGS[name], f=f, q=q, scale=2.0)
    num = ebm.space.size
    found = inference.top_k(ebm, X, num)
    log_prob = np.asarray(found.log_prob)
    p = np.exp(log_prob)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)
    assert (np.diff(p, axis=1) <= 1e-6).all()
    for row, x in enumerate(X):
        possible = np.isfinite(log_prob[row])
        assert len(np.unique(found.y[row][possible], axis=0)) == possible.sum()
        again = inference.log_prob(ebm, np.tile(x, (num, 1)), found.y[row])
        np.testing.assert_allclose(np.exp(again)[possible], p[row][possible], atol=1e-6)


def test_what_cannot_be_is_marked():
    """Of 16 sets four agree with two known labels: the other places have probability 0."""
    ebm = model(COUPLINGS["unary"])
    held, reference = inference.given(ebm, X, np.array([1, -1, 0, -1]))
    found = inference.top_k(held, X, 6, reference=reference)
    assert (np.isfinite(found.log_prob) == (np.arange(6) < 4)).all()
    np.testing.assert_allclose(np.exp(found.log_prob).sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(found.y[:, :4, 0], 1)
    np.testing.assert_array_equal(found.y[:, :4, 2], 0)
    ranked = model(COUPLINGS["birkhoff"])
    held, reference = inference.given(ranked, X, np.array([1, -1, 0, -1]))
    found = inference.top_k(held, X, 3, reference=reference)
    assert (np.isfinite(found.log_prob) == (np.arange(3) < 2)).all()
    np.testing.assert_allclose(np.exp(found.log_prob).sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("k", [3, 6])
def test_assignments_come_in_order(k):
    """All of them, against the list; a third of the scores are excluded, and rankings with one of those come last."""
    rng = np.random.default_rng(k)
    every = np.asarray(Birkhoff(k).space.elements())
    for _ in range(10):
        scores = rng.normal(size=(k, k))
        scores[rng.uniform(size=(k, k)) < 0.3] = -np.inf
        np.fill_diagonal(scores, 1)
        values = scores[np.arange(k), every].sum(axis=1)
        y, found = best_assignments(scores, len(every))
        np.testing.assert_allclose(found, np.sort(values)[::-1], atol=1e-12)
        possible = np.isfinite(found)
        assert len(np.unique(y[possible], axis=0)) == possible.sum()
        np.testing.assert_allclose(scores[np.arange(k), y[possible]].sum(axis=1), found[possible], atol=1e-12)


def test_rankings_of_thirty_labels_come_by_assignments():
    """Scores theta_j w(p) with theta far apart: after the best, the one swap of neighbors with the least difference."""
    k = 30
    ebm = linear(Bilinear(Permutahedron(k)), 3.0)
    found = inference.top_k(ebm, X, 3)
    assert (found.method, found.normalizer) == ("exact", "learned")
    best = np.asarray(inference.mode(ebm, X))
    np.testing.assert_array_equal(found.y[:, 0], best)
    theta = np.sort(np.asarray(jax.vmap(ebm.g.h)(jnp.asarray(X)), np.float64), axis=1)
    gap = np.diff(theta, axis=1).min(axis=1) * 2 / (k - 1)
    np.testing.assert_allclose(found.log_prob[:, 0] - found.log_prob[:, 1], gap, atol=1e-4)
    tau = inference.log_partition(ebm, X, method="learned")
    log_p = inference.log_prob(ebm, X, found.y[:, 1], method="learned")
    np.testing.assert_allclose(found.log_prob[:, 1], log_p, atol=1e-4)
    assert np.isfinite(tau).all()


def test_a_search_says_so_and_mostly_finds_the_best(key):
    """The search, where the list is at hand: its outputs differ, with their own probabilities, and are nearly the best.

    On 16 labels with strong interactions the mode is found on every row, and 9 of 10 of the first five.
    """
    ebm = LARGE["ising-16"]
    found = inference.top_k(ebm, X, NUM, method="search", key=key)
    truth, _ = in_order(ebm, NUM)
    assert found.method == "search"
    log_prob = np.asarray(found.log_prob)
    np.testing.assert_allclose(log_prob[:, 0], truth[:, 0], atol=2e-4)
    assert np.mean(np.abs(log_prob - truth) < 1e-3) >= 0.9
    for outputs in np.asarray(found.y):
        assert len(np.unique(outputs, axis=0)) == NUM


def test_beyond_all_sums_probabilities_come_from_log_prob(key):
    """30 labels: found by search, normalized by the learned tau, never by counts."""
    ebm = linear(LinearQuadratic(Symmetric(30), shared=True), 0.5)
    with pytest.raises(ValueError, match="enumeration reaches"):
        inference.top_k(ebm, X, 2)
    found = inference.top_k(ebm, X, 2, key=key)
    assert (found.method, found.normalizer) == ("search", "learned")
    log_p = inference.log_prob(ebm, X, found.y[:, 1], method="learned")
    np.testing.assert_allclose(found.log_prob[:, 1], log_p, atol=1e-3)
    assert (found.log_prob[:, 0] >= found.log_prob[:, 1]).all()


@pytest.mark.parametrize(
    ("num", "method", "message"),
    [
        (0, "auto", "ask for a whole number of them, 1 or more; got 0"),
        (17, "auto", "has 16 outputs: .* got 17"),
        (1.5, "auto", "got 1.5"),
        (True, "auto", "got True"),
        (2, "nonsense", "method must be 'auto', 'exact', 'search' or a search.PoolSearch"),
        (2, "search", "give a key"),
    ],
)
def test_bad_questions_get_a_clear_answer(num, method, message, unchecked):
    with pytest.raises(ValueError, match=message):
        inference.top_k(model(COUPLINGS["unary"]), X, num, method=method)


def test_a_pool_needs_room():
    with pytest.raises(ValueError, match="restarts >= 1"):
        search.PoolSearch(restarts=0)
