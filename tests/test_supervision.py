"""Preferences and scores: their losses, what they learn, and the data they refuse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize
from cases import COUPLINGS, FEATURES, jit, model, references

from partita.objectives import Preferences, Scores
from partita.training import Preferences as Pairs
from partita.training import Scores as Scored
from partita.training import Solver, fit
from partita.types import Batch

ROWS = 40


def pairs(space, key):
    """x and two different outputs for each."""
    x_key, y_key = jax.random.split(key)
    x = jax.random.normal(x_key, (ROWS, FEATURES))
    y = np.asarray(space.sample(ROWS, key=y_key))
    other = np.asarray(jax.vmap(lambda y: space.move(y, jnp.asarray(0)))(y))
    return x, y, other


@pytest.mark.parametrize("name", ["ising", "permutahedron"])
@pytest.mark.parametrize("which", [0, -1])
def test_preferences_are_the_dpo_loss_for_any_reference(name, which, key):
    """DPO compares log p / q of the two outputs; here p is normalized by enumeration."""
    start = model(COUPLINGS[name], q=references(COUPLINGS[name].space)[which])
    x, better, worse = pairs(start.space, key)
    batch = Batch(x, jnp.asarray(better), target=jnp.asarray(worse))
    value, _ = jit(Preferences(scale=0.7).loss)(start, None, batch, key=key)

    def log_ratio(x, y):
        every = start.space.elements()
        log_q, g = jax.vmap(lambda y: (start.q.log_prob(y), start.g(x, y)))(every)
        return start.q.log_prob(y) + start.g(x, y) - jax.nn.logsumexp(log_q + g) - start.q.log_prob(y)

    margin = jit(jax.vmap(lambda x, a, b: log_ratio(x, a) - log_ratio(x, b)))(x, better, worse)
    np.testing.assert_allclose(value, np.mean(np.log1p(np.exp(-0.7 * np.asarray(margin, float)))), rtol=1e-4)


@pytest.mark.parametrize("name", ["ising", "birkhoff"])
def test_preferences_are_learned(name, key):
    """From the preferences of a known g, g orders nearly all pairs as that one does."""
    truth, start = model(COUPLINGS[name], scale=2.0), model(COUPLINGS[name], key=jax.random.key(5))
    x, y, other = pairs(truth.space, key)
    first = np.asarray(jax.vmap(truth.g)(x, y) > jax.vmap(truth.g)(x, other))[:, None]
    data = Pairs(x, np.where(first, y, other), np.where(first, other, y))
    solution = fit(Solver(Preferences(), learning_rate=1e-2), start, data, steps=200, key=key)
    agree = solution.history.steps["agree"]
    assert agree[0] < 0.8
    assert agree[-1] > 0.9
    jax.tree.map(np.testing.assert_array_equal, solution.model.tau, start.tau)


@pytest.mark.parametrize(
    ("kind", "of"),
    [("squared", optax.l2_loss), ("logistic", optax.sigmoid_binary_cross_entropy)],
)
def test_scores_are_the_losses_of_optax(kind, of, key):
    start = model(COUPLINGS["ising"])
    x, y, _ = pairs(start.space, key)
    t = jax.random.uniform(key, (ROWS,))
    value, _ = Scores(kind).loss(start, None, Batch(x, jnp.asarray(y), target=t), key=key)
    np.testing.assert_allclose(value, of(jax.vmap(start.g)(x, jnp.asarray(y)), t).mean(), rtol=1e-5)


def test_scores_are_learned_by_batches(key):
    truth, start = model(COUPLINGS["birkhoff"]), model(COUPLINGS["birkhoff"], key=jax.random.key(5))
    x, y, _ = pairs(truth.space, key)
    data = Scored(x, y, np.asarray(jax.vmap(truth.g)(x, y)), batch_size=20)
    loss = fit(Solver(Scores(), learning_rate=1e-2), start, data, steps=300, key=key).history.loss
    assert loss[-20:].mean() < 0.1 * loss[:5].mean()


@pytest.mark.parametrize("weight", [None, jnp.linspace(0, 2, ROWS)], ids=["even", "weighted"])
@pytest.mark.parametrize("kind", ["squared", "logistic"])
def test_scores_with_an_intercept_have_the_least_loss_over_all_constants(kind, weight, key):
    """By scipy; and the gradient is that at the best constant, so that none of it goes into a constant added to g."""
    start = model(COUPLINGS["ising"])
    x, y, _ = pairs(start.space, key)
    t = 3 + 2 * jax.random.normal(key, (ROWS,)) if kind == "squared" else jax.random.bernoulli(key, 0.1, (ROWS,)) * 1.0
    batch, unit = Batch(x, jnp.asarray(y), weight=weight, target=t), 2.0 if kind == "squared" else 1.0
    g = jax.vmap(start.g)(x, jnp.asarray(y))
    of = optax.l2_loss if kind == "squared" else optax.sigmoid_binary_cross_entropy
    shares = np.ones(ROWS) if weight is None else np.asarray(weight)
    least = scipy.optimize.minimize_scalar(lambda b: np.mean(shares * np.asarray(of(g + b, t / unit), float)))
    objective = Scores(kind, intercept=True, unit=unit)
    np.testing.assert_allclose(objective.loss(start, None, batch, key=key)[0], least.fun, rtol=1e-5)

    def shifted(shift):
        network = eqx.tree_at(lambda m: m.g, start, lambda x, y: start.g(x, y) + shift)
        return objective.loss(network, None, batch, key=key)[0]

    value, slope = jax.value_and_grad(shifted)(jnp.asarray(7.0))
    np.testing.assert_allclose(value, least.fun, rtol=1e-4)
    np.testing.assert_allclose(slope, 0, atol=1e-4)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_scores_that_are_all_alike_have_a_finite_gradient(value, key):
    """Their best intercept is at infinity, where they say nothing of g."""
    start = model(COUPLINGS["ising"])
    x, y, _ = pairs(start.space, key)
    batch = Batch(x, jnp.asarray(y), target=jnp.full(ROWS, value))
    loss = lambda m: Scores("logistic", intercept=True).loss(m, None, batch, key=key)[0]  # noqa: E731
    found, gradient = eqx.filter_value_and_grad(loss)(start)
    np.testing.assert_allclose(found, 0, atol=1e-6)
    assert all(np.abs(leaf).max() < 1e-5 for leaf in jax.tree.leaves(gradient.g))


def test_bad_pairs_and_scores_are_refused(key):
    start = model(COUPLINGS["unary"])
    x, y, other = pairs(start.space, key)
    other = np.where(np.arange(ROWS)[:, None] == 3, y, other)
    with pytest.raises(ValueError, match=r"1 of 40 pairs hold the same output twice, the first is row 3"):
        Pairs(x, y, other).open(start, key=key)
    with pytest.raises(ValueError, match=r"not in Hypercube"):
        Pairs(x, y, 2 + other).open(start, key=key)
    with pytest.raises(ValueError, match=r"40 finite numbers.*got shape \(39,\)"):
        Scored(x, y, np.zeros(39)).open(start, key=key)
    with pytest.raises(ValueError, match="40 finite numbers"):
        Scored(x, y, np.full(40, np.nan)).open(start, key=key)
    with pytest.raises(ValueError, match=r"scale > 0; got 0"):
        Preferences(0.0)
    with pytest.raises(ValueError, match="'squared' and 'logistic'"):
        Scores("hinge")
    for options in ({"unit": 0.0}, {"unit": float("inf")}, {"kind": "logistic", "unit": 2.0}):
        with pytest.raises(ValueError, match="needs a finite unit > 0"):
            Scores(**options)


@pytest.mark.parametrize(("objective", "source"), [(Preferences(), "Preferences"), (Scores(), "Scores")])
def test_data_without_targets_are_refused(objective, source, key):
    start = model(COUPLINGS["unary"])
    x, y, _ = pairs(start.space, key)
    with pytest.raises(ValueError, match=f"training.{source}"):
        objective.loss(start, None, Batch(x, jnp.asarray(y)), key=key)
