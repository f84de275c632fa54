"""Conditional queries: what is known held in place, against enumeration."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
from cases import COUPLINGS, DIVERGENCES, FEATURES, jit, model, references, some

from partita import decisions, exact, inference
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.divergences import ChiSquare
from partita.kernels import Gibbs
from partita.model import EBM, Bound, Energy
from partita.structures import (
    Birkhoff,
    Cube,
    Hypercube,
    Hypersimplex,
    KSubsets,
    Permutahedron,
    Permutations,
    PlackettLuce,
    ProductBernoulli,
    Simplex,
    condition,
)

# What is known of y, by space; -1 is not known.
KNOWN = {
    Hypercube(4): [[-1, -1, -1, -1], [1, -1, 0, -1], [-1, 0, -1, -1], [1, 1, 0, 1]],
    KSubsets(5, 2): [[-1] * 5, [1, -1, -1, -1, 0], [-1, 0, -1, 0, -1], [-1, 1, 1, -1, -1]],
    Permutations(4): [[-1] * 4, [2, -1, -1, -1], [-1, 0, 3, -1], [3, 1, 0, 2]],
    Permutations(3): [[-1, 2, -1]],
    Simplex(4): [[-1] * 4, [0, -1, -1, 0], [-1, 1, -1, -1]],
}
SERVED = [name for name in COUPLINGS if COUPLINGS[name].space in KNOWN]


def agrees(every, known):
    return jnp.all((known < 0) | (every == known), axis=-1)


def observed(space, known):
    """The same as (y, mask): any y that agrees, and what of it is not known."""
    every = space.elements()
    return every[jnp.argmax(agrees(every, known))], (known < 0).astype(int)


@pytest.mark.parametrize("space", [*KNOWN][:3], ids=str)
def test_the_restricted_reference_is_the_conditional_one(space):
    for q in references(space):
        for known in jnp.asarray(KNOWN[space]):
            every = space.elements()
            held, log_mass = condition(q, *observed(space, known))
            log_q = jax.vmap(q.log_prob)(every)
            inside = agrees(every, known)
            truth = jax.nn.logsumexp(jnp.where(inside, log_q, -jnp.inf))
            np.testing.assert_allclose(log_mass, truth, atol=1e-5)
            found = np.asarray(jax.vmap(held.log_prob)(every))
            np.testing.assert_allclose(found[inside], (log_q - truth)[inside], atol=1e-5)
            assert np.isneginf(found[~np.asarray(inside)]).all()


@jit
def enumerated(asked, x, known):
    """Marginals, P(a before b), and log P(known), by hand."""
    row = asked.row(x)
    every = asked.space.elements()
    tau = exact.log_partition(asked, row)
    log_p = jax.vmap(lambda y: asked.log_prob(row, y, tau))(every)
    inside = jnp.where(agrees(every, known), log_p, -jnp.inf)
    p = jnp.exp(inside - jax.nn.logsumexp(inside))
    marginals = jnp.einsum("i,i...->...", p, jax.vmap(asked.space.indicators)(every))
    before = jnp.einsum("i,iab->ab", p, every[:, :, None] < every[:, None, :])
    return marginals, before, jax.nn.logsumexp(inside), every[jnp.argmax(inside)]


@jit
def answered(asked, x, known):
    q, log_mass = condition(asked.q, *observed(asked.space, known))
    row, held = asked.row(x), asked.row(x, reference=q)
    evidence = log_mass + exact.log_partition(asked, held) - exact.log_partition(asked, row)
    return exact.marginals(asked, held), evidence, exact.mode(asked, held)


@pytest.mark.parametrize("name", SERVED)
def test_exact_answers_given_known_labels_match_enumeration(name, key):
    asked = model(COUPLINGS[name])
    x = jax.random.normal(key, (FEATURES,))
    for known in jnp.asarray(KNOWN[asked.space]):
        marginals, _, log_p, best = enumerated(asked, x, known)
        found, evidence, mode = answered(asked, x, known)
        np.testing.assert_allclose(found, marginals, atol=1e-4)
        np.testing.assert_allclose(evidence, log_p, atol=1e-3)
        np.testing.assert_array_equal(mode, best)


@pytest.mark.parametrize("name", some(("permutahedron", "birkhoff", "neural-rankings"), ("birkhoff",)))
@pytest.mark.parametrize("f", ["KL()", "ChiSquare()"])
def test_which_label_comes_before_which(name, f, key):
    """By the subset program for KL and bilinear scores, by enumeration else; also with a Plackett-Luce q."""
    for q in references(COUPLINGS[name].space):
        asked = model(COUPLINGS[name], f=DIVERGENCES[f], q=q)
        x = jax.random.normal(key, (FEATURES,))
        nothing = jnp.full(asked.space.shape, -1)
        found = jit(lambda asked, x: exact.before(asked, asked.row(x)))(asked, x)
        np.testing.assert_allclose(found, enumerated(asked, x, nothing)[1], atol=1e-5)
        np.testing.assert_allclose(found + found.T, 1 - np.eye(asked.space.k), atol=1e-5)


def test_what_cannot_be_held_is_refused():
    """The subset program reaches 16 labels; beyond, a Plackett-Luce q has no conditional measure."""
    asked = model(Bilinear(Permutahedron(17)), q=PlackettLuce(jnp.zeros(17)))
    with pytest.raises(ValueError, match=r"A PlackettLuce on .* cannot be conditioned on known labels"):
        inference.given(asked, np.zeros((1, FEATURES)), np.full(17, -1))
    with pytest.raises(ValueError, match="asked of rankings, not of Hypercube"):
        exact.before(model(COUPLINGS["ising"]), model(COUPLINGS["ising"]).row(jnp.zeros(FEATURES)))


@pytest.mark.parametrize(
    "name", some(["ising", "subsets", "birkhoff", "neural-rankings"], ("ising", "subsets", "birkhoff"))
)
def test_every_answer_takes_what_is_known(name, key):
    """Different labels known of each row; the learned tau plays no part."""
    asked = model(COUPLINGS[name])
    known = np.asarray(KNOWN[asked.space])
    x = jax.random.normal(key, (len(known), FEATURES))
    held, reference = inference.given(asked, x, known)
    truth = [enumerated(asked, *row) for row in zip(x, jnp.asarray(known), strict=True)]
    marginals, before, log_p, best = (np.stack(values) for values in zip(*truth, strict=True))
    np.testing.assert_allclose(inference.marginals(held, x, reference=reference), marginals, atol=1e-4)
    np.testing.assert_array_equal(inference.mode(held, x, reference=reference), best)
    np.testing.assert_allclose(inference.evidence(asked, x, known), log_p, atol=1e-3)
    drawn = np.asarray(inference.sample(held, x, 50, key=key, reference=reference))
    assert np.all((known[:, None] < 0) | (drawn == known[:, None]))
    joint = decisions.joint(held, x, reference=reference)
    np.testing.assert_allclose(joint.marginals(), marginals, atol=1e-4)
    if name == "birkhoff":
        np.testing.assert_allclose(inference.before(held, x, reference=reference), before, atol=1e-4)


DRAWN = [
    ("ising", inference.marginals, "importance"),
    pytest.param("ising", inference.marginals, "sequential", marks=pytest.mark.slow),
    ("permutahedron", inference.before, "importance"),
    ("permutahedron", inference.marginals, Gibbs()),
]


@pytest.mark.parametrize(("name", "ask", "method"), DRAWN)
def test_means_over_draws_are_the_conditional_ones(name, ask, method, key):
    """1,000 draws, worth at least a third: within 4 standard errors, 0.11 (p = 6e-5 each)."""
    asked = model(COUPLINGS[name], scale=0.5)
    known = np.asarray(KNOWN[asked.space])[:3]
    x = jax.random.normal(key, (3, FEATURES))
    held, reference = inference.given(asked, x, known)
    found = ask(held, x, method=method, num=1000, key=key, reference=reference)
    np.testing.assert_allclose(found, ask(held, x, reference=reference), atol=0.11)


def test_large_rankings_hold_what_is_known(key):
    """30 labels: the mode is the assignment problem of what is left."""
    ranked = model(Bilinear(Birkhoff(30)))
    x = jax.random.normal(key, (2, FEATURES))
    known = np.full((2, 30), -1)
    known[0, :3], known[1, 7] = [4, 0, 29], 2
    held, reference = inference.given(ranked, x, known)
    best = np.asarray(inference.mode(held, x, reference=reference))
    theta = np.asarray(jax.vmap(ranked.g.h)(x))
    for i, (row, fixed) in enumerate(zip(theta, known, strict=True)):
        mask, ranks = np.flatnonzero(fixed < 0), np.setdiff1d(np.arange(30), fixed)
        taken = scipy.optimize.linear_sum_assignment(row[np.ix_(mask, ranks)], maximize=True)[1]
        expected = fixed.copy()
        expected[mask] = ranks[taken]
        np.testing.assert_array_equal(best[i], expected)


def test_large_sets_hold_what_is_known(key):
    """40 labels with interactions, of which ten are left: enumerated by hand, and by the held surrogate and chains."""
    x = jax.random.normal(key, (2, FEATURES))
    sets = model(LinearQuadratic(Symmetric(40), shared=False), scale=0.3)
    known = np.where(np.arange(40) < 30, np.arange(40) % 2, -1)
    held, reference = inference.given(sets, x, known)
    every = np.concatenate([np.broadcast_to(known[:30], (1024, 30)), np.asarray(Hypercube(10).elements())], axis=1)
    g = jit(jax.vmap(lambda x: jax.vmap(lambda y: sets.g(x, y))(jnp.asarray(every))))(x)
    truth = jax.nn.softmax(g) @ every
    for method in ("importance", Gibbs()):
        found = inference.marginals(held, x, method=method, num=2000, key=key, reference=reference)
        np.testing.assert_allclose(found[:, :30], np.broadcast_to(known[:30], (2, 30)), atol=1e-4)
        np.testing.assert_allclose(found, truth, atol=0.08)


CONTRADICTIONS = [
    ("permutahedron", [2, 2, -1, -1], r"No y of Permutations\(k=4\) agrees with what is known of 2 rows"),
    ("subsets", [1, 1, 1, -1, -1], "No y of KSubsets"),
    ("subsets", [0, 0, 0, 0, -1], "No y of KSubsets"),
    ("ising", [2, -1, -1, -1], r"from 0 to 1, or -1; got -1 to 2"),
    ("ising", [1, -1], r"of shape \(4,\) or \(2, 4\)"),
    ("ising", [0.5, 0, 0, 0], "must hold integers"),
]


@pytest.mark.parametrize(("name", "known", "match"), CONTRADICTIONS)
def test_contradictions_are_refused(name, known, match):
    with pytest.raises(ValueError, match=match):
        inference.given(model(COUPLINGS[name]), np.zeros((2, FEATURES)), known)


def test_what_given_and_evidence_cannot_do_is_said(key):
    x, nothing = np.zeros((2, FEATURES)), np.full(4, -1)
    with pytest.raises(ValueError, match="for f = KL only; f is ChiSquare"):
        inference.given(model(COUPLINGS["ising"], f=ChiSquare()), x, nothing)
    with pytest.raises(ValueError, match="not learned"):
        inference.evidence(model(COUPLINGS["ising"]), x, nothing, method="learned")
    with pytest.raises(ValueError, match="give a key"):
        inference.marginals(model(COUPLINGS["ising"]), x, method="importance")
    with pytest.raises(ValueError, match="weighted draws"):
        inference.sample(model(COUPLINGS["ising"]), x, 3, key=key, method="importance")
    with pytest.raises(ValueError, match="asked of rankings"):
        inference.before(model(COUPLINGS["ising"]), x)


# --- scores of any size ---------------------------------------------------------------------------------------------

# Each with what is known of y: where scores are large, most of it is improbable.
STRONG = {
    "unary": (Bilinear(Cube(5)), [0, -1, 1, -1, -1]),
    "subsets": (Bilinear(Hypersimplex(6, 3)), [1, -1, -1, 0, -1, -1]),
    "permutahedron": (Bilinear(Permutahedron(5)), [4, -1, 0, -1, -1]),
    "birkhoff": (Bilinear(Birkhoff(5)), [2, -1, -1, 0, -1]),
    "ising": (LinearQuadratic(Symmetric(5), shared=False), [0, -1, 1, -1, -1]),
}


def through(coupling, **choices):
    """A model that reads theta from x."""
    return EBM(Energy(eqx.nn.Identity(), coupling), Bound(), **choices)


@functools.cache
def listed(name):
    """All outputs, and for each the g of every theta in float64, by a matrix: these couplings are linear in theta."""
    coupling, _ = STRONG[name]
    y = coupling.space.elements()
    zero = jnp.zeros(coupling.theta_shape)
    return np.asarray(y), np.asarray(jax.vmap(lambda y: jax.grad(coupling)(zero, y))(y), np.float64)


@pytest.mark.parametrize("scale", [1e2, 1e3, 1e4])
@pytest.mark.parametrize("name", STRONG)
def test_known_labels_hold_at_scores_of_any_size(name, scale):
    """Against the list of all outputs in float64. Scores are rounded at 1e-7 of their size, and sums add that up."""
    coupling, known = STRONG[name]
    ebm, known = through(coupling), np.array(known)
    x = scale * np.random.default_rng(3).normal(size=(8, *coupling.theta_shape)).astype(np.float32)
    y, slopes = listed(name)
    g = np.tensordot(x.astype(np.float64), slopes, (range(1, x.ndim), range(1, slopes.ndim)))
    inside = ((known < 0) | (y == known)).all(axis=1)
    total = scipy.special.logsumexp(g, axis=1)
    held = scipy.special.logsumexp(g[:, inside], axis=1)
    rounding = 2e-6 * np.abs(g).max() + 1e-5
    np.testing.assert_allclose(inference.evidence(ebm, x, known), held - total, atol=rounding)

    model, reference = inference.given(ebm, x, known)
    p = np.exp(g[:, inside] - held[:, None])
    indicators = np.asarray(jax.vmap(coupling.space.indicators)(y[inside]))
    truth = np.tensordot(p, indicators, 1)
    np.testing.assert_allclose(inference.marginals(model, x, reference=reference), truth, atol=rounding)
    best = np.asarray(inference.mode(model, x, reference=reference))
    assert ((known < 0) | (best == known)).all()
    at = np.argmax((best[:, None] == y).all(axis=2), axis=1)
    np.testing.assert_allclose(g[np.arange(8), at], g[:, inside].max(axis=1), atol=rounding)
    drawn = np.asarray(inference.sample(model, x, 20, key=jax.random.key(0), reference=reference))
    assert ((known < 0) | (drawn == known)).all()


def test_a_held_label_is_certain_whatever_its_score():
    """theta_0 = 1000 says on, and it is known to be off."""
    ebm = through(Bilinear(Cube(2)))
    x, known = np.array([[1000.0, 1.0]]), np.array([0, -1])
    held, reference = inference.given(ebm, x, known)
    np.testing.assert_array_equal(inference.marginals(held, x, reference=reference)[0, 0], 0)
    np.testing.assert_array_equal(inference.mode(held, x, reference=reference), [[0, 1]])
    np.testing.assert_allclose(inference.evidence(ebm, x, known), -1000, rtol=1e-6)


def test_nineteen_of_twenty_labels_held_cost_no_digits():
    """Sets of 10 of 20 labels: one is left that agrees, so the evidence is its log-probability."""
    ebm = through(Bilinear(Hypersimplex(20, 10)))
    x = np.random.default_rng(0).normal(size=(4, 20)).astype(np.float32)
    y = np.tile(np.arange(20) < 10, (4, 1)).astype(int)
    known = np.where(np.arange(20) == 19, -1, y)
    np.testing.assert_allclose(inference.evidence(ebm, x, known), inference.log_prob(ebm, x, y), atol=1e-5)


def test_what_the_reference_excludes_cannot_be_given(key):
    q = ProductBernoulli(jnp.array([np.inf, 0.0, -np.inf]))
    ebm = through(Bilinear(Cube(3)), q=q)
    with pytest.raises(ValueError, match="known of 1 rows has probability 0 under the reference, the first is row 1"):
        inference.given(ebm, np.zeros((2, 3)), np.array([[1, -1, -1], [-1, -1, 1]]))
    np.testing.assert_array_equal(inference.evidence(ebm, np.zeros((1, 3)), np.array([0, -1, -1])), -np.inf)
