"""The paper's propositions, on outputs few enough to enumerate.

L(x, y) = tau(x) + sum_y' q(y'|x) f+*(g(x, y') - tau(x)) - g(x, y) is what `objectives.MinMin` estimates by draws.
"""

import functools
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from cases import COUPLINGS, DIVERGENCES, FEATURES, data, jit, model, references, some

from partita.divergences import KL, ChiSquare, JensenShannon
from partita.model import EBM, Energy, Table
from partita.networks import MLP, Linear
from partita.objectives import ExactMLE, MinMin, SurrogateProposal
from partita.structures import ProductBernoulli

# Scores are of order 1 and sums have at most 24 terms: float32 leaves errors of some 1e-6.
TOLERANCE = 2e-5
ROWS = 4


def energies(model, batch):
    """log q(y') and g(x, y') for every row and all y'."""
    y = model.space.elements()
    log_q = jax.vmap(model.q.log_prob)(y)
    return log_q, jax.vmap(lambda x: jax.vmap(lambda y: model.g(x, y))(y))(batch.x)


def min_min(model, batch):
    """The mean of L over the rows, with the sum over all y' in place of draws."""
    log_q, g = energies(model, batch)
    tau = jax.vmap(lambda x, index: model.log_partition(model.row(x, index)))(batch.x, batch.index)
    conjugate = jax.vmap(jax.vmap(model.f.weighted_conjugate, in_axes=(0, 0)), in_axes=(0, None))
    return jnp.mean(tau + conjugate(g - tau[:, None], log_q).sum(1) - jax.vmap(model.g)(batch.x, batch.y))


@functools.cache
def in_float64(f):
    """tau -> tau + sum_y q f+*(g - tau) and tau -> sum_y q (f+*)'(g - tau), for one row of log q and g, in float64."""

    @jax.jit
    def both(tau, log_q, g):
        value = tau + jnp.sum(jax.vmap(f.weighted_conjugate)(g - tau, log_q))
        return value, jnp.sum(jnp.exp(log_q) * jax.vmap(f.density)(g - tau))

    def evaluate(tau, log_q, g):
        with jax.enable_x64(True):
            return [float(v) for v in both(np.float64(tau), np.asarray(log_q, float), np.asarray(g, float))]

    return evaluate


def best_tau(f, log_q, g):
    """The minimizer over tau, by scipy in float64, and its mass."""
    evaluate = in_float64(f)
    bounds = (float(g.min()) + f.start - 1, float(g.max()) + f.start + 1)
    found = scipy.optimize.minimize_scalar(
        lambda tau: evaluate(tau, log_q, g)[0], bounds=bounds, method="bounded", options={"xatol": 1e-10}
    )
    return found.x, evaluate(found.x, log_q, g)[1]


# A cross of the table by default: every f on sets, KL on every coupling. The other pairs are slow: minutes together.
CASES = [
    pytest.param((name, f), id=f"{name}-{f}", marks=() if name == "unary" or f == "KL()" else pytest.mark.slow)
    for name in ("unary", "ising", "birkhoff", "permutahedron")
    for f in DIVERGENCES
]


@jit
def compare(model, batch):
    """Values and gradients of the min-min objective and of exact MLE."""

    def exact_mle(model):
        return ExactMLE().loss(model, None, batch, key=jax.random.key(0))[0]

    return eqx.filter_value_and_grad(min_min)(model, batch), eqx.filter_value_and_grad(exact_mle)(model)


@pytest.fixture(scope="module", params=CASES)
def solved(request):
    """A model with nonlinear h, non-uniform q and a table of tau minimized row by row, and what that took."""
    name, f = request.param
    f = DIVERGENCES[f]
    nonlinear = model(COUPLINGS[name], f=f, q=references(COUPLINGS[name].space)[-1])
    batch = data(nonlinear.space)
    log_q, g = (np.asarray(a, float) for a in jit(energies)(nonlinear, batch))
    tau, mass = np.transpose([best_tau(f, log_q, row) for row in g])
    table = eqx.tree_at(lambda table: table.values, Table(ROWS), jnp.asarray(tau - f.start, jnp.float32))
    tabular = eqx.tree_at(lambda model: model.tau, nonlinear, table)
    return SimpleNamespace(model=tabular, batch=batch, log_q=log_q, g=g, tau=tau, mass=mass)


def test_the_best_tau_normalizes_and_for_kl_is_the_log_partition(solved):
    # A minimizer is known to the root of the precision, 1e-8, and the mass falls by up to 1,000 per unit of tau.
    np.testing.assert_allclose(solved.mass, 1, atol=1e-4)
    if isinstance(solved.model.f, KL):
        np.testing.assert_allclose(solved.tau, scipy.special.logsumexp(solved.log_q + solved.g, axis=1), atol=1e-6)


def test_min_min_over_a_table_is_exact_mle_in_value_and_gradient(solved):
    """min_v L(w, v) = L(w): the values agree, and by Danskin's theorem the gradients in w, h nonlinear or not."""
    (value, gradient), (exact_value, exact_gradient) = compare(solved.model, solved.batch)
    np.testing.assert_allclose(value, exact_value, atol=TOLERANCE)
    pairs = zip(jax.tree.leaves(gradient.g), jax.tree.leaves(exact_gradient.g), strict=True)
    # tau is rounded to float32, to 2e-7, and densities move by up to 1,000 times as much.
    for found, truth in pairs:
        np.testing.assert_allclose(found, truth, atol=2e-4)
    np.testing.assert_allclose(gradient.tau.values, 0, atol=2e-4)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(exact_gradient.g)) > 0.1


def test_any_other_tau_lies_above_exact_mle(solved):
    for shift in (-0.1, 0.1):
        moved = eqx.tree_at(lambda model: model.tau.values, solved.model, replace_fn=lambda v, shift=shift: v + shift)
        (value, _), (exact_value, _) = compare(moved, solved.batch)
        assert value > exact_value + 1e-4


def midpoint_gaps(network, coupling, f, segments=500):
    """(L(a) + L(b)) / 2 - L((a + b) / 2), relative, over random a and b in the space of all (w, v); in float64."""
    with jax.enable_x64(True):
        h_key, a_key, b_key = jax.random.split(jax.random.key(2), 3)
        h = network(FEATURES, coupling.theta_shape, zero=False, key=h_key)
        start = EBM(Energy(h, coupling), Table(ROWS), f=f)
        batch = data(coupling.space)
        learned, fixed = eqx.partition(start, start.trained())
        flat, unravel = jax.flatten_util.ravel_pytree(learned)
        assert flat.dtype == jnp.float64
        loss = jit(jax.vmap(lambda w: min_min(eqx.combine(unravel(w), fixed), batch)))
        a, b = (flat + jax.random.normal(key, (segments, flat.size)) for key in (a_key, b_key))
        ends = loss(jnp.concatenate([a, b])).reshape(2, segments)
        return np.asarray((ends.mean(0) - loss((a + b) / 2)) / (1 + jnp.abs(ends).mean(0)))


@pytest.mark.parametrize(("name", "f"), [*(("ising", f) for f in DIVERGENCES), ("birkhoff", "KL()")])
def test_min_min_is_jointly_convex_for_linear_h(name, f):
    gaps = midpoint_gaps(Linear, COUPLINGS[name], DIVERGENCES[f])
    assert gaps.min() > -1e-12
    assert gaps.max() > 1e-3


@pytest.mark.parametrize("f", ["KL()", "ChiSquare()"])
def test_min_min_is_not_convex_for_nonlinear_h(f):
    """So the segments above can tell."""
    assert midpoint_gaps(functools.partial(MLP, width=4), COUPLINGS["ising"], DIVERGENCES[f]).min() < -1e-3


SAMPLED = {
    "unary-uniform": ("unary", 0, KL()),
    "unary-bernoulli": ("unary", -1, KL()),
    "unary-bernoulli-sparsemax": ("unary", -1, ChiSquare()),
    "birkhoff-plackett-luce": ("birkhoff", -1, KL()),
}


SOMEWHERE = ProductBernoulli(jnp.array([1.0, -1.0, 0.5, 0.0]))

PROPOSED = {
    "independent": ("unary", -1, KL(), MinMin(3)),
    "independent-undefended": ("unary", 0, KL(), MinMin(3, proposal=SurrogateProposal(defense=0.0))),
    "mean-field": ("ising", -1, KL(), MinMin(3, proposal=SurrogateProposal(defense=0.2))),
    "conditional": ("subsets", 0, KL(), MinMin(3)),
    "balanced": ("birkhoff", 0, KL(), MinMin(3)),
    "balanced-plackett-luce": ("permutahedron", -1, KL(), MinMin(3)),
    "amortized": ("neural-sets", -1, KL(), MinMin(3)),
    "amortized-sparsemax": ("ising", 0, ChiSquare(), MinMin(3, proposal=SurrogateProposal(defense=0.2))),
    "amortized-jensen-shannon": ("permutahedron", 0, JensenShannon(), MinMin(3)),
    "one for all x": ("unary", 0, KL(), MinMin(3, proposal=SOMEWHERE)),
    "one for all x, shared": ("unary", -1, KL(), MinMin(3, "shared", SOMEWHERE)),
}


@pytest.mark.parametrize("draws", ["per-row", "shared"])
@pytest.mark.parametrize("name", SAMPLED)
def test_algorithm_1_is_unbiased_in_value_and_gradient(name, draws):
    check_unbiased(*SAMPLED[name], MinMin(3, draws, proposal=None))


@pytest.mark.parametrize(
    "name", some(PROPOSED, ("mean-field", "balanced-plackett-luce", "amortized-sparsemax", "one for all x, shared"))
)
def test_any_proposal_is_unbiased_in_value_and_gradient(name):
    check_unbiased(*PROPOSED[name])


def check_unbiased(coupling, which, f, objective):
    """|z| < 4.5 for the loss and each of some 100 derivatives: wrong by chance with probability 1e-3."""
    sampled = model(COUPLINGS[coupling], f=f, q=references(COUPLINGS[coupling].space)[which])
    batch = data(sampled.space)
    repeats = 4000

    def flat(value_and_gradient):
        value, gradient = value_and_gradient
        return jnp.concatenate([jnp.ravel(a) for a in [value, *jax.tree.leaves((gradient.g, gradient.tau))]])

    @jit
    def estimate(model, key):
        def loss(model):
            return objective.loss(model, None, batch, key=key)[0]

        return flat(eqx.filter_value_and_grad(loss)(model))

    keys = jax.random.split(jax.random.key(3), repeats)
    found = np.asarray(jax.vmap(estimate, in_axes=(None, 0))(sampled, keys), float)
    truth = np.asarray(flat(jit(eqx.filter_value_and_grad(min_min))(sampled, batch)), float)
    error, deviation = found.mean(0) - truth, found.std(0) / np.sqrt(repeats)
    assert deviation[0] > 1e-4
    # Some units of the networks are off for all rows: their derivatives are 0 and never vary.
    assert np.all(np.abs(error) < 4.5 * deviation + 1e-6)
