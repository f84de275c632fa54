"""Noise contrast, pseudo-likelihood, ratio and concrete score matching: against enumeration and the likelihood."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COUPLINGS, data, jit, model, references, some

from partita import exact
from partita.divergences import ChiSquare
from partita.model import Table
from partita.objectives import NCE, ConcreteScoreMatching, ExactMLE, PseudoLikelihood, RatioMatching, SurrogateProposal
from partita.structures import Hypercube, ProductBernoulli
from partita.types import Batch

SETS = ["unary", "ising", "ising-low-rank", "neural-sets"]


def flat(gradient):
    """Of the energy's parameters."""
    return jnp.concatenate([jnp.ravel(a) for a in jax.tree.leaves(gradient.g)])


def normalized(start, batch):
    """The model with the exact tau of each row, as a table."""
    tau = jit(jax.vmap(lambda x: exact.log_partition(start, start.row(x))))(batch.x)
    table = eqx.tree_at(lambda table: table.values, Table(len(batch.x)), tau)
    return eqx.tree_at(lambda model: model.tau, start, table)


def expected_nce(model, batch, num, r):
    """The mean of the NCE loss over its noise, by enumeration."""

    def of_row(x, y, index):
        row = model.row(x, index)

        def log_odds(y):
            return model.log_prob(row, y) - jnp.log(num) - r.log_prob(y)

        every = model.space.elements()
        noise = jax.vmap(lambda y: jnp.exp(r.log_prob(y)) * jax.nn.softplus(log_odds(y)))(every)
        return jax.nn.softplus(-log_odds(y)) + num * noise.sum()

    return jax.vmap(of_row)(batch.x, batch.y, batch.index).mean()


NOISE = ProductBernoulli(jnp.array([1.0, -1.0, 0.5, 0.0]))


@pytest.mark.parametrize("noise", [None, NOISE], ids=["q", "another"])
def test_nce_is_unbiased_for_its_mean_over_the_noise(noise, key):
    """4,000 draws of loss and gradient: |z| < 4.5 for each of some 100 numbers, p = 1e-3."""
    start = model(COUPLINGS["ising"], q=references(Hypercube(4))[-1])
    batch = data(start.space)
    objective = NCE(3, noise)

    @jit
    def estimate(model, key):
        value, gradient = eqx.filter_value_and_grad(lambda m: objective.loss(m, None, batch, key=key)[0])(model)
        return jnp.append(flat(gradient), value)

    found = np.asarray(jax.vmap(estimate, (None, 0))(start, jax.random.split(key, 4000)), float)
    r = start.q if noise is None else noise
    value, gradient = jit(eqx.filter_value_and_grad(lambda m: expected_nce(m, batch, 3, r)))(start)
    truth = np.append(flat(gradient), value)
    assert np.all(np.abs(found.mean(0) - truth) < 4.5 * found.std(0) / np.sqrt(4000) + 1e-6)


@pytest.mark.parametrize("name", ["unary", "ising", "neural-sets"])
def test_nce_approaches_the_likelihood_as_the_noise_grows(name, key):
    """At the exact tau the mean gradient in g differs from the likelihood's, tau held fixed, by about 1 / draws."""
    start = model(COUPLINGS[name])
    batch = data(start.space)
    start = normalized(start, batch)
    r = start.q

    def likelihood(model):
        """tau + E_q exp(g - tau) - g: the likelihood's gradient in g at the exact tau."""

        def of_row(x, y, index):
            row = model.row(x, index)
            mass = jax.vmap(lambda y: jnp.exp(model.log_prob(row, y)))(model.space.elements())
            return mass.sum() - model.g.coupling(row.theta, y)

        return jax.vmap(of_row)(batch.x, batch.y, batch.index).mean()

    truth = flat(jit(eqx.filter_grad(likelihood))(start))
    exactly = flat(jit(eqx.filter_grad(lambda m: ExactMLE().loss(m, None, batch, key=key)[0]))(start))
    np.testing.assert_allclose(truth, exactly, atol=1e-5)
    gradient = jit(eqx.filter_grad(expected_nce))
    off = [np.linalg.norm(flat(gradient(start, batch, jnp.asarray(n), r)) - truth) for n in (10.0, 100.0, 1000.0)]
    assert off[1] < 0.25 * off[0]
    assert off[2] < 0.25 * off[1]
    assert off[2] < 0.02 * np.linalg.norm(truth)


def test_noise_from_the_neighbor_is_the_models_surrogate(key):
    """Which for independent labels is p itself: at the exact tau every log-odds is -log draws."""
    start = model(COUPLINGS["unary"])
    batch = data(start.space)
    start = normalized(start, batch)
    value, _ = jit(NCE(16, SurrogateProposal(defense=0.0)).loss)(start, None, batch, key=key)
    np.testing.assert_allclose(value, np.log1p(16) + 16 * np.log1p(1 / 16), rtol=1e-5)


def conditionals(model, x, y):
    """log p(y_j | the other labels, x), by enumeration."""
    row = model.row(x)
    every = model.space.elements()
    log_p = jax.vmap(lambda y: row.q.log_prob(y) + model.g(x, y))
    of = lambda keep: jax.nn.logsumexp(jnp.where(keep, log_p(every), -jnp.inf))  # noqa: E731
    others = [jnp.all((every == y) | (jnp.arange(y.size) == j), axis=1) for j in range(y.size)]
    return jnp.stack([of(jnp.all(every == y, axis=1)) - of(keep) for keep in others])


@pytest.mark.parametrize("name", SETS)
def test_pseudo_likelihood_and_ratio_matching_are_functions_of_the_conditionals(name, key):
    start = model(COUPLINGS[name], q=references(Hypercube(4))[-1])
    batch = data(start.space)
    log_p = jit(jax.vmap(lambda x, y: conditionals(start, x, y)))(batch.x, batch.y)
    found = [jit(o.loss)(start, None, batch, key=key)[0] for o in (PseudoLikelihood(), RatioMatching())]
    np.testing.assert_allclose(found[0], -log_p.sum(axis=1).mean(), rtol=1e-4)
    np.testing.assert_allclose(found[1], ((1 - jnp.exp(log_p)) ** 2).sum(axis=1).mean(), rtol=1e-4)


def test_pseudo_likelihood_of_independent_labels_is_the_likelihood(key):
    start = model(COUPLINGS["unary"])
    batch = data(start.space)
    gradients = [
        flat(jit(eqx.filter_grad(lambda m, o=o: o.loss(m, None, batch, key=key)[0]))(start))
        for o in (PseudoLikelihood(), ExactMLE())
    ]
    np.testing.assert_allclose(*gradients, atol=1e-5)


EVERY_SPACE = ["ising", "ising-subsets", "classes", "birkhoff"]


def whole_law(truth, x):
    """Every output with the same x as rows of a batch, weighted by its probability: the mean loss is an expectation."""
    every = truth.space.elements()
    log_p = jax.vmap(lambda y: truth.q.log_prob(y) + truth.g(x, y))(every)
    weight = len(every) * jax.nn.softmax(log_p)
    return Batch(jnp.broadcast_to(x, (len(every), *x.shape)), every, weight=weight)


def concrete_scores(model, batch):
    """p(y') / p(y) - 1 of every output y of the batch and every move y'."""

    def of_row(x, y):
        log_p = lambda y: model.q.log_prob(y) + model.g(x, y)  # noqa: E731
        return jnp.expm1(jax.vmap(log_p)(model.space.moves(y)) - log_p(y))

    return jax.vmap(of_row)(batch.x, batch.y)


@pytest.mark.parametrize("name", some(EVERY_SPACE, quick=["ising", "birkhoff"]))
def test_concrete_score_matching_is_the_squared_error_of_concrete_scores_up_to_a_constant(name):
    """In double precision: the difference to the error, by enumeration, is the same for all g, 1e-9 of the largest."""
    with jax.enable_x64(True):
        q = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), references(COUPLINGS[name].space)[-1])
        truth = model(COUPLINGS[name], q=q)
        law = whole_law(truth, data(truth.space).x[0])
        others = [
            model(COUPLINGS[name], q=q, scale=scale, key=jax.random.key(i)) for i, scale in enumerate((0.3, 0.6, 1))
        ]

        @jit
        def loss_and_error(g):
            error = jnp.sum((concrete_scores(g, law) - concrete_scores(truth, law)) ** 2, axis=1)
            loss, _ = ConcreteScoreMatching(bound=20.0).loss(g, None, law, key=jax.random.key(0))
            return loss, jnp.mean(law.weight * error)

        found = np.array([loss_and_error(g) for g in (truth, *others)])
        constants = found[:, 0] - found[:, 1]
        np.testing.assert_allclose(constants, constants[0], atol=1e-9 * np.abs(found).max())
        assert found[0, 1] < 1e-9
        assert (found[1:, 0] > found[0, 0]).all()


@pytest.mark.parametrize("bound", [0.2, 3.0])
@pytest.mark.parametrize("name", some(EVERY_SPACE, quick=["classes", "birkhoff"]))
def test_the_data_minimize_concrete_score_matching_whatever_the_bound(name, bound):
    """At the g of the data the gradient is zero, also where most odds are past the bound; elsewhere it is not."""
    truth = model(COUPLINGS[name], q=references(COUPLINGS[name].space)[-1])
    law = whole_law(truth, data(truth.space).x[0])
    objective = ConcreteScoreMatching(bound)
    gradient = jit(eqx.filter_grad(lambda g: objective.loss(g, None, law, key=jax.random.key(0))[0]))
    elsewhere = flat(gradient(model(COUPLINGS[name], q=truth.q, key=jax.random.key(3))))
    # float32: terms up to the slope at the bound cancel.
    np.testing.assert_allclose(flat(gradient(truth)), 0, atol=2e-5 * np.exp(2 * bound))
    assert np.abs(elsewhere).max() > 1e-2


@pytest.mark.parametrize("bound", [0.5, 3.0, 20.0])
def test_concrete_score_matching_is_proper_at_any_odds(bound):
    """slope(o) / slope(-o) = exp(o): in expectation over y and y' the slope vanishes where o is the data's log-odds."""
    odds = jnp.asarray(np.linspace(-30, 30, 121), jnp.float32)
    slope = jax.vmap(jax.grad(lambda o: ConcreteScoreMatching(bound).penalize(o)))
    log_ratio = np.log(np.asarray(slope(odds), float)) - np.log(np.asarray(slope(-odds), float))
    np.testing.assert_allclose(log_ratio, odds, atol=1e-4)


@pytest.mark.parametrize(("size", "bound"), [(1e2, 20.0), (1e10, 20.0), (1e30, 3.0)])
def test_concrete_score_matching_stays_finite_at_any_energy(size, bound, key):
    """Values and gradients in float32; per neighbor the loss is at least 1 - 4 e^bound - e^(-2 bound)."""
    start = model(COUPLINGS["unary"])
    batch = data(start.space)
    scaled = eqx.tree_at(lambda m: m.g.h.output.bias, start, jnp.array([size, -size, size, 0.0]))
    objective = ConcreteScoreMatching(bound)
    value, gradient = jit(eqx.filter_value_and_grad(lambda m: objective.loss(m, None, batch, key=key)[0]))(scaled)
    assert np.isfinite(value)
    assert np.isfinite(flat(gradient)).all()
    lowest = objective.penalize(jnp.array([-jnp.inf, -size])).sum()
    np.testing.assert_allclose(lowest, 2 * (1 - 4 * np.exp(bound) - np.exp(-2 * bound)), rtol=1e-5)


@pytest.mark.parametrize(
    "objective", [PseudoLikelihood(), RatioMatching(), ConcreteScoreMatching(), NCE()], ids=lambda o: type(o).__name__
)
def test_what_they_cannot_serve_is_refused(objective):
    with pytest.raises(ValueError, match="needs f = KL, but f is ChiSquare"):
        objective.check(model(COUPLINGS["unary"], f=ChiSquare()))
    objective.check(model(COUPLINGS["ising"]))


def test_local_objectives_need_label_sets_and_nce_needs_noise():
    with pytest.raises(ValueError, match="needs label sets"):
        PseudoLikelihood().check(model(COUPLINGS["birkhoff"]))
    ConcreteScoreMatching().check(model(COUPLINGS["birkhoff"]))
    for bound in (0.0, 21.0, float("nan")):
        with pytest.raises(ValueError, match="between 0 and 20; got"):
            ConcreteScoreMatching(bound)
    with pytest.raises(ValueError, match=r"num_samples >= 1.*got 0"):
        NCE(0)
    with pytest.raises(ValueError, match="The proposal is a measure on"):
        NCE(4, NOISE).check(model(COUPLINGS["birkhoff"]))
