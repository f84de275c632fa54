"""Objectives: what they refuse, how they weigh rows, which q they use, and that they stay finite."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from cases import COUPLINGS, DIVERGENCES, data, jit, model, references, some

from partita import exact, training
from partita.budget import TooLargeError
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.divergences import KL, ChiSquare
from partita.model import EBM, Energy, Table
from partita.networks import Linear
from partita.objectives import MCMC, NCE, ExactMLE, MinMin, PseudoLikelihood
from partita.structures import Cube, Hypercube, Mallows, ProductBernoulli
from partita.training import Solver, fit
from partita.types import Batch

# Losses are of order 1 and have at most 24 terms per row: float32 leaves errors of some 1e-6.
TOLERANCE = 2e-5
ROWS = 4


@jit
def ask(objective, model, batch, key):
    """Loss, info, and the gradient in all of g and tau."""
    loss = eqx.filter_value_and_grad(lambda model: objective.loss(model, None, batch, key=key), has_aux=True)
    (value, (_, info)), gradient = loss(model)
    return value, info, (gradient.g, gradient.tau)


def rows(batch, which):
    return jax.tree.map(lambda a: a[jnp.asarray(which)], batch)


def assert_same(found, truth, scale=1.0):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(scale * a, b, atol=TOLERANCE), found, truth)


@jit
def _enumerate(model, batch):
    def of_row(x, y, index, reference):
        row = model.row(x, index, reference)
        log_q, g = jax.vmap(lambda y: (row.q.log_prob(y), model.g(x, y)))(model.space.elements())
        return {"log_q": log_q, "g": g, "tau": model.log_partition(row), "observed": model.g(x, y)}

    return jax.vmap(of_row)(batch.x, batch.y, batch.index, batch.reference)


def enumerated(model, batch):
    """For every row: log q and g of all outputs, tau, and g of the observed output; in float64."""
    found = _enumerate(model, batch)
    return SimpleNamespace(**{name: np.asarray(a, float) for name, a in found.items()})


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match=r"num_samples >= 1.*got 0"):
        MinMin(num_samples=0)
    with pytest.raises(ValueError, match=r"'per-row' or 'shared'.*'each'"):
        MinMin(draws="each")


def test_exact_mle_refuses_before_any_work_what_no_method_serves():
    large = EBM(Energy(None, LinearQuadratic(Symmetric(174), shared=False)), Table(ROWS))
    with pytest.raises(TooLargeError, match=r"10\^52.*1,048,576.*MinMin"):
        ExactMLE().check(large)
    ExactMLE().check(model(COUPLINGS["ising"]))


# Draws that are shared do not depend on the number of rows, so both objectives can be compared over batches.
OBJECTIVES = {"exact": ExactMLE(), "shared": MinMin(5, "shared", proposal=None)}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_weight_two_is_the_row_twice_and_weight_zero_no_row(name, key):
    """Sums over the rows, n times the mean, agree."""
    weighed = model(COUPLINGS["unary"])
    batch = data(weighed.space)

    def total(batch):
        value, _, gradient = ask(OBJECTIVES[name], weighed, batch, key)
        return jax.tree.map(lambda a: len(batch.x) * a, (value, gradient))

    weight = jnp.array([2.0, 1.0, 0.0, 1.0])
    weighted = eqx.tree_at(lambda b: b.weight, batch, weight, is_leaf=lambda a: a is None)
    assert_same(total(weighted), total(rows(batch, [0, 0, 1, 3])))
    ones = eqx.tree_at(lambda b: b.weight, batch, jnp.ones(ROWS), is_leaf=lambda a: a is None)
    assert_same(total(ones), total(batch))
    assert abs(total(weighted)[0] - total(batch)[0]) > 0.01


@pytest.mark.parametrize("f", [KL(), ChiSquare()], ids=str)
@pytest.mark.parametrize("shift", [0.0, -0.5])
def test_mass_estimates_the_total_probability(f, shift, key):
    """sum_y q (f+*)'(g - tau), which is 1 at the exact tau: 20,000 draws per row, |z| < 4 (p = 6e-5)."""
    ising = model(COUPLINGS["ising"], f=f, q=references(COUPLINGS["ising"].space)[-1])
    batch = data(ising.space)
    tau = jit(jax.vmap(lambda x: exact.log_partition(ising, ising.row(x))))(batch.x) + shift
    table = eqx.tree_at(lambda table: table.values, Table(ROWS), tau - f.start)
    tabular = eqx.tree_at(lambda model: model.tau, ising, table)
    rows = enumerated(tabular, batch)
    q, density = np.exp(rows.log_q), np.asarray(jnp.vectorize(f.density)(rows.g - rows.tau[:, None]), float)
    truth = np.sum(q * density, axis=1)
    if shift == 0:
        np.testing.assert_allclose(truth, 1, atol=TOLERANCE)
    else:
        assert truth.min() > 1.1
    draws = 20_000
    _, info, _ = ask(MinMin(draws, proposal=None), tabular, batch, key)
    variance = np.sum(q * (density - truth[:, None]) ** 2, axis=1) / draws
    assert abs(float(info["mass"]) - truth.mean()) < 4 * np.sqrt(variance.sum()) / ROWS


def test_each_row_has_its_own_reference(key):
    """Batch.reference is a q per row: exact MLE equals enumeration, Algorithm 1 is within |z| < 4 of it (p = 6e-5)."""
    ising = model(COUPLINGS["ising"])
    reference = ProductBernoulli(2 * jax.random.normal(jax.random.key(2), (ROWS, 4)))
    batch = data(ising.space, reference=reference)
    rows = enumerated(ising, batch)
    value, _, _ = ask(ExactMLE(), ising, batch, key)
    truth = np.mean(scipy.special.logsumexp(rows.log_q + rows.g, axis=1) - rows.observed)
    assert float(value) == pytest.approx(truth, abs=TOLERANCE)

    q, terms = np.exp(rows.log_q), np.exp(rows.g - rows.tau[:, None]) - 1
    mean = np.sum(q * terms, axis=1)
    truth = np.mean(rows.tau + mean - rows.observed)
    draws = 20_000
    deviation = np.sqrt(np.sum(q * (terms - mean[:, None]) ** 2) / draws) / ROWS
    value, _, _ = ask(MinMin(draws, proposal=None), ising, batch, key)
    assert abs(float(value) - truth) < 4 * deviation
    # The model's own q, uniform, is far from that.
    value, _, _ = ask(MinMin(draws, proposal=None), ising, data(ising.space), key)
    assert abs(float(value) - truth) > 20 * deviation


def test_a_reference_may_be_a_center_for_each_row(key):
    """Mallows around the ranks of a regressor, say: exact MLE equals enumeration; no surrogate follows it."""
    ranked = model(COUPLINGS["birkhoff"], q=Mallows(jnp.arange(4), 0.5))
    x, y = data(ranked.space).x, data(ranked.space).y
    centers = Mallows(jax.vmap(jax.random.permutation, in_axes=(0, None))(jax.random.split(key, ROWS), 4), 0.8)
    batch = training.batch(ranked, x, y, reference=centers)
    rows = enumerated(ranked, batch)
    value, _, _ = ask(ExactMLE(), ranked, batch, key)
    truth = np.mean(scipy.special.logsumexp(rows.log_q + rows.g, axis=1) - rows.observed)
    assert float(value) == pytest.approx(truth, abs=TOLERANCE)
    with pytest.raises(ValueError, match=r"No surrogate serves a Bilinear coupling .* with a Mallows reference"):
        MinMin().check(EBM(ranked.g, ranked.tau, q=ranked.q))


def test_shared_draws_with_a_reference_per_row_are_refused(key):
    unary = model(COUPLINGS["unary"])
    batch = data(unary.space, reference=ProductBernoulli(jnp.zeros((ROWS, 4))))
    with pytest.raises(ValueError, match="draws='shared' needs one q"):
        MinMin(draws="shared", proposal=None).loss(unary, None, batch, key=key)


@pytest.mark.parametrize("name", ["unary", "ising", "permutahedron"])
def test_exact_mle_is_the_negative_log_likelihood_relative_to_q(name, key):
    """-mean log p + mean log q for KL, and tau plays no part in it."""
    likely = model(COUPLINGS[name], q=references(COUPLINGS[name].space)[-1])
    batch = data(likely.space)
    value, _, (g_gradient, tau_gradient) = ask(ExactMLE(), likely, batch, key)
    rows = enumerated(likely, batch)
    observed_log_q = jax.vmap(likely.q.log_prob)(batch.y)
    log_p = observed_log_q + rows.observed - scipy.special.logsumexp(rows.log_q + rows.g, axis=1)
    assert float(value) == pytest.approx(float(np.mean(observed_log_q) - np.mean(log_p)), abs=TOLERANCE)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(tau_gradient))
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(g_gradient))


@pytest.mark.parametrize("f", DIVERGENCES)
@pytest.mark.parametrize("objective", [ExactMLE(), MinMin(50, proposal=None)], ids=["exact", "min-min"])
def test_losses_and_gradients_are_finite_for_scores_of_a_million(objective, f, key):
    """The design's bound: |g - tau| up to 1e6 in float32. Classes are scored by theta itself, here +-1e6 and 0."""
    f, coupling = DIVERGENCES[f], COUPLINGS["classes"]
    h = Linear(3, coupling.theta_shape, key=key)
    weight = jnp.array([[1e6, -1e6, 0.0], [-1e6, -1e6, 0.0], [1e6, 1e6, 0.0], [0.0, 1e6, 0.0]])
    h = eqx.tree_at(lambda h: h.layer.weight, h, weight)
    x, y = jnp.repeat(jnp.eye(3), 4, axis=0), jnp.tile(jnp.eye(4, dtype=int), (3, 1))
    batch = Batch(x, y, index=jnp.arange(12))
    value, info, gradient = ask(objective, EBM(Energy(h, coupling), Table(12), f=f), batch, key)
    for leaf in jax.tree.leaves((value, info, gradient)):
        assert np.all(np.isfinite(leaf))
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("f", DIVERGENCES)
def test_an_observed_output_that_no_draw_meets_does_not_drive_the_loss_down_for_ever(f, key):
    """174 labels: g grows at y and falls at all draws, tau between them. The loss fell as g(x, y) grew."""
    f, labels = DIVERGENCES[f], 174
    unary = Bilinear(Cube(labels))
    y = jnp.ones((1, labels), int)
    batch = Batch(jnp.ones((1, 1)), y, index=jnp.arange(1))

    def loss(v):
        h = Linear(1, (labels,), key=key)
        h = eqx.tree_at(lambda h: h.layer.weight, h, jnp.full((labels, 1), 4 * v / labels))
        tau = eqx.tree_at(lambda table: table.values, Table(1), jnp.array([3.0 * v - f.start]))
        return float(ask(MinMin(20, proposal=None), EBM(Energy(h, unary), tau, f=f), batch, key)[0])

    enough = 2 * max(f.bound, labels * np.log(2))
    assert loss(2 * enough) > loss(enough)


@pytest.mark.parametrize("f", DIVERGENCES)
def test_exact_mle_of_many_outputs_is_the_softmax_less_the_score(f, key):
    """2^14 outputs: min over tau of tau + E_q f+*(g - tau), less g, in float64; its gradient by finite differences."""
    f, k = DIVERGENCES[f], 14
    rng = np.random.default_rng(0)
    theta, y = 0.3 * rng.normal(size=k), rng.integers(0, 2, size=k)
    every = np.asarray(Hypercube(k).elements(), np.float64)

    def truth(theta):
        g = every @ theta
        with jax.enable_x64(True):
            conjugate = jax.jit(lambda tau: jnp.mean(jax.vmap(f.conjugate)(jnp.asarray(g) - tau)))
            # Where the domain of f+* is bounded, so is tau from below.
            low = g.max() - min(f.bound, 10)
            found = scipy.optimize.minimize_scalar(
                lambda tau: tau + float(conjugate(tau)), bounds=(low, g.max() + 10), options={"xatol": 1e-10}
            )
        return found.fun - y @ theta

    def loss(theta):
        h = eqx.tree_at(lambda h: h.layer.weight, Linear(1, (k,), key=key), theta[:, None])
        ebm = EBM(Energy(h, Bilinear(Cube(k))), Table(1), f=f)
        batch = Batch(jnp.ones((1, 1)), jnp.asarray(y)[None], index=jnp.arange(1))
        return ExactMLE().loss(ebm, None, batch, key=key)[0]

    value, slope = jax.jit(jax.value_and_grad(loss))(jnp.asarray(theta, jnp.float32))
    assert float(value) == pytest.approx(truth(theta), abs=1e-4)
    direction = rng.normal(size=k)
    rise = (truth(theta + 1e-3 * direction) - truth(theta - 1e-3 * direction)) / 2e-3
    assert float(slope @ direction) == pytest.approx(rise, abs=1e-3)


# Labels 0 and 3 are certain under q.
CERTAIN = ProductBernoulli(jnp.array([jnp.inf, 0.5, -1.0, -jnp.inf]))


@pytest.mark.parametrize("name", some(["unary", "ising"], ("ising",)))
@pytest.mark.parametrize(
    "objective",
    [ExactMLE(), MinMin(64), MinMin(64, proposal=None), NCE(64), PseudoLikelihood(), MCMC(start="q")],
    ids=lambda objective: type(objective).__name__,
)
def test_a_reference_may_be_certain_of_labels(name, objective, key):
    """Probabilities 0 and 1 in q: losses and gradients are finite, and exact ones are those over the four outputs."""
    ebm = model(COUPLINGS[name], q=CERTAIN)
    batch = data(ebm.space)
    batch = eqx.tree_at(lambda b: b.y, batch, batch.y.at[:, 0].set(1).at[:, 3].set(0))
    value, info, gradient = ask(objective, ebm, batch, key)
    for leaf in jax.tree.leaves((value, info, gradient)):
        assert np.all(np.isfinite(leaf))
    if isinstance(objective, ExactMLE):
        rows = enumerated(ebm, batch)
        truth = np.mean(scipy.special.logsumexp(rows.log_q + rows.g, axis=1) - rows.observed)
        assert (np.isneginf(rows.log_q).sum(axis=1) == 12).all()
        assert float(value) == pytest.approx(truth, abs=TOLERANCE)


def test_an_output_that_the_reference_excludes_is_refused(key):
    ebm = model(COUPLINGS["unary"], q=CERTAIN)
    y = np.array([[1, 0, 0, 0], [0, 1, 0, 0]])
    with pytest.raises(ValueError, match="probability 0 to the y of 1 rows, the first is row 1"):
        fit(Solver(ExactMLE()), ebm, (np.zeros((2, 3)), y), steps=1, key=key)
