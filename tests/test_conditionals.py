"""Conditional queries: what is known held in place, against enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COUPLINGS, DIVERGENCES, FEATURES, model, references
from test_objectives import jit

from partita import exact
from partita.measures import PlackettLuce, restricted
from partita.spaces import Hypercube, KSubsets, Permutations

# What is known of y, by space; -1 is not known.
KNOWN = {
    Hypercube(4): [[-1, -1, -1, -1], [1, -1, 0, -1], [-1, 0, -1, -1], [1, 1, 0, 1]],
    KSubsets(5, 2): [[-1] * 5, [1, -1, -1, -1, 0], [-1, 0, -1, 0, -1], [-1, 1, 1, -1, -1]],
    Permutations(4): [[-1] * 4, [2, -1, -1, -1], [-1, 0, 3, -1], [3, 1, 0, 2]],
    Permutations(3): [[-1, 2, -1]],
}
SERVED = [name for name in COUPLINGS if COUPLINGS[name].space in KNOWN]


def agrees(every, known):
    return jnp.all((known < 0) | (every == known), axis=-1)


@pytest.mark.parametrize("space", [*KNOWN][:3], ids=str)
def test_the_restricted_reference_is_the_conditional_one(space):
    for q in references(space):
        if isinstance(q, PlackettLuce):
            continue
        for known in jnp.asarray(KNOWN[space]):
            every = space.elements()
            held, log_mass = restricted(q, known)
            log_q = jax.vmap(q.log_prob)(every)
            inside = agrees(every, known)
            truth = jax.nn.logsumexp(jnp.where(inside, log_q, -jnp.inf))
            np.testing.assert_allclose(log_mass, truth, atol=2e-4)
            found = np.asarray(jax.vmap(held.log_prob)(every))
            np.testing.assert_allclose(found[inside], (log_q - truth)[inside], atol=1e-3)
            assert found[~np.asarray(inside)].max(initial=-1e9) < -500


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
    q, log_mass = restricted(asked.q, known)
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


@pytest.mark.parametrize("name", ["permutahedron", "birkhoff", "neural-rankings"])
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
    asked = model(COUPLINGS["permutahedron"], q=references(Permutations(4))[-1])
    with pytest.raises(ValueError, match="not under a PlackettLuce on"):
        restricted(asked.q, jnp.full(4, -1))
    with pytest.raises(ValueError, match="asked of rankings, not of Hypercube"):
        exact.before(model(COUPLINGS["ising"]), model(COUPLINGS["ising"]).row(jnp.zeros(FEATURES)))
