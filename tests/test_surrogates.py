"""Laws of the surrogates: r is a probability near p, tau_0 a bound of LSE with the right invariances, at any scale."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import COUPLINGS, model, neighbor_of, references, some

from partita import exact
from partita.couplings import Bilinear
from partita.divergences import KL, ChiSquare, JensenShannon
from partita.model import EBM, Energy, Table
from partita.objectives import MinMin
from partita.objectives.proposals import Proposal
from partita.structures import (
    AbstractSurrogate,
    Amortized,
    Balanced,
    Birkhoff,
    Conditional,
    Hypercube,
    Independent,
    MeanField,
    Mixture,
    Permutahedron,
    PlackettLuce,
    ProbabilitySimplex,
    ProductBernoulli,
    Sequential,
    Uniform,
    surrogate,
)
from partita.structures.matrices import balance
from partita.types import Batch

SERVED = {
    f"{name}-{type(q).__name__}": (coupling, q)
    for name, coupling in COUPLINGS.items()
    for q in references(coupling.space)
    if name != "classes"
}
SCALES = jnp.array([0.1, 1.0, 10.0, 100.0])

served = pytest.mark.parametrize(("coupling", "q"), SERVED.values(), ids=SERVED)


def answers(coupling, q, theta):
    """The neighbor of each row of logits, the exact log-partitions, and log p and log r of every y."""
    ebm = EBM(Energy(lambda theta: theta, coupling), Table(1), q=q)
    y = coupling.space.elements()

    @eqx.filter_jit
    @jax.vmap
    def of_row(theta):
        near, row = neighbor_of(coupling, q)(coupling, theta, q), ebm.row(theta)
        lse = exact.log_partition(ebm, row)
        log_p = jax.vmap(lambda y: ebm.log_prob(row, y, lse))(y)
        return near, lse, log_p, jax.vmap(near.r.log_prob)(y)

    return of_row(theta)


def logits(coupling, rows=6):
    noise = jax.random.normal(jax.random.key(0), (rows, *coupling.theta_shape))
    return jnp.concatenate([scale * noise for scale in SCALES])


@served
def test_r_is_a_probability_and_tau_0_a_lower_bound(coupling, q):
    theta = logits(coupling)
    near, lse, _, log_r = answers(coupling, q, theta)
    np.testing.assert_allclose(jax.nn.logsumexp(log_r, axis=1), 0, atol=1e-4)
    # Sums of terms of the size of theta, in float32.
    room = 1e-5 * (1 + np.abs(theta).reshape(len(theta), -1).sum(1))
    assert (near.tau <= lse + room).all()


@pytest.mark.parametrize("name", ["unary-Uniform", "unary-ProductBernoulli", "subsets-Uniform"])
def test_where_p_is_tractable_the_surrogate_is_exact(name):
    coupling, q = SERVED[name]
    near, lse, log_p, log_r = answers(coupling, q, logits(coupling))
    np.testing.assert_allclose(near.tau, lse, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.exp(log_r), np.exp(log_p), atol=1e-4)


@pytest.mark.parametrize("polytope", [Birkhoff(6), Permutahedron(6)], ids=str)
def test_rankings_are_proposed_near_p_at_every_scale(polytope):
    """Effective sample size 1 / E_p[p/r] above a third, and the bound within log(sqrt(2 pi k / e)) + 1 of LSE."""
    coupling = Bilinear(polytope)
    near, lse, log_p, log_r = answers(coupling, Uniform(polytope.space), logits(coupling))
    assert (jax.nn.logsumexp(2 * log_p - log_r, axis=1) < np.log(3)).all()
    # k! against its Bethe value is sqrt(2 pi k / e) for a constant theta.
    assert (lse - near.tau < 0.5 * np.log(2 * np.pi * 6 / np.e) + 1).all()


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_a_peaked_matrix_is_doubly_stochastic_all_the_same(scale):
    """Where the steps allowed do not balance: what is left is rounded away, so the bound holds."""
    theta = scale * jax.random.normal(jax.random.key(1), (8, 11, 11))
    b = jax.jit(jax.vmap(lambda scores: balance(scores, max_steps=1)))(theta)
    np.testing.assert_allclose(b.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(b.sum(2), 1, atol=1e-5)
    assert (b >= 0).all()


# No direction of theta adds a constant to g on all label sets, or in a network.
@pytest.mark.parametrize(
    "name", [name for name, (c, _) in SERVED.items() if isinstance(c, Bilinear) and not isinstance(c.space, Hypercube)]
)
def test_gradient_of_tau_0_sees_a_constant_added_to_g(name):
    """A direction in which all g rise by as much raises tau_0 by as much: else the energy runs away for mask."""
    coupling, q = SERVED[name]
    theta = logits(coupling)[8]
    y = coupling.space.elements()[:3]
    direction = jnp.ones(coupling.theta_shape)
    rise = jax.vmap(lambda y: jax.grad(coupling)(theta, y).ravel() @ direction.ravel())(y)
    np.testing.assert_allclose(rise, rise[0], atol=1e-5)
    slope = jax.grad(lambda t: neighbor_of(coupling, q)(coupling, t, q).tau)(theta)
    assert float(jnp.vdot(slope, direction)) == pytest.approx(float(rise[0]), abs=1e-4)


def test_gradient_of_tau_0_is_near_the_marginals():
    """Mean field at weak interactions: within 0.1 of the exact gradient of LSE, which is E_p[dg / dtheta]."""
    coupling, q = SERVED["ising-Uniform"]
    ebm = EBM(Energy(lambda theta: theta, coupling), Table(1), q=q)
    theta = 0.5 * jax.random.normal(jax.random.key(2), coupling.theta_shape)
    bound = jax.grad(lambda t: MeanField()(coupling, t, q).tau)(theta)
    exactly = jax.grad(lambda t: exact.log_partition(ebm, ebm.row(t)))(theta)
    np.testing.assert_allclose(bound, exactly, atol=0.1)
    assert np.abs(bound).max() > 0.1


@served
def test_r_has_no_gradient(coupling, q):
    theta = logits(coupling)[8]
    y = coupling.space.elements()[0]
    slope = jax.grad(lambda t: neighbor_of(coupling, q)(coupling, t, q).r.log_prob(y))(theta)
    np.testing.assert_array_equal(slope, 0)


def test_gradient_of_an_amortized_tau_0_sees_a_constant_added_to_g():
    """The output bias of a network is added to every g."""
    coupling, q = SERVED["neural-sets-ProductBernoulli"]
    theta, bias = jnp.array([1.0, -2.0, 0.5]), lambda c: c.network.body.output.bias

    def tau_0(value):
        return neighbor_of(coupling, q)(eqx.tree_at(bias, coupling, value), theta, q).tau

    np.testing.assert_allclose(jax.grad(tau_0)(bias(coupling)), 1, atol=1e-5)


@pytest.mark.parametrize("polytope", [Birkhoff(6), Permutahedron(6)], ids=str)
@pytest.mark.parametrize("kind", [PlackettLuce, Sequential])
def test_rankings_with_a_sequential_reference_are_proposed_near_p(polytope, kind):
    """Effective sample size above a fifth for scores of size 1 in q, at every scale of theta."""
    coupling = Bilinear(polytope)
    q = kind(jax.random.normal(jax.random.key(5), (6,) if kind is PlackettLuce else (6, 6)))
    _, _, log_p, log_r = answers(coupling, q, logits(coupling))
    assert (jax.nn.logsumexp(2 * log_p - log_r, axis=1) < np.log(5)).all()


@pytest.mark.parametrize("name", ["classes", "ising-subsets", "neural-sets", "neural-rankings"])
def test_what_has_no_surrogate_is_refused_by_name(name):
    coupling = COUPLINGS[name]
    message = f"No surrogate serves a {type(coupling).__name__} coupling on .* with a Uniform .* KL.*proposal=None"
    with pytest.raises(ValueError, match=message):
        surrogate(coupling)
    with pytest.raises(ValueError, match=message):
        MinMin().check(EBM(Energy(lambda x: x, coupling), Table(1)))


@pytest.mark.parametrize("f", [ChiSquare(), JensenShannon()], ids=str)
def test_another_divergence_is_refused_with_the_reason(f):
    ebm = EBM(Energy(lambda x: x, COUPLINGS["unary"]), Table(1), f=f)
    with pytest.raises(ValueError, match=f"under {type(f).__name__}.*the density under KL only.*Amortized"):
        MinMin().check(ebm)
    MinMin(proposal=None).check(ebm)


def test_amortized_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match=r"Amortized needs a family of measures on Simplex.*too many outputs to list"):
        Amortized(Bilinear(ProbabilitySimplex(20_000)), key=jax.random.key(0))


@pytest.mark.parametrize(
    "wrong",
    [Independent(), Conditional(), MeanField(), Balanced(), neighbor_of(COUPLINGS["neural-rankings"])],
    ids=lambda s: type(s).__name__,
)
def test_a_model_refuses_a_surrogate_of_another_coupling(wrong: AbstractSurrogate):
    with pytest.raises(ValueError, match=f"{type(wrong).__name__} does not serve a Neural coupling"):
        EBM(Energy(lambda x: x, COUPLINGS["neural-sets"]), Table(1), surrogate=wrong)


def test_shared_draws_cannot_follow_each_x():
    with pytest.raises(ValueError, match=r"the model's surrogate follows each x.*proposal=None"):
        MinMin(draws="shared")


@pytest.mark.parametrize("f", [KL(), ChiSquare()], ids=str)
@pytest.mark.parametrize("name", some(("neural-sets", "neural-rankings", "ising-subsets"), ("neural-rankings",)))
def test_an_amortized_proposal_learns_p(name, f, key):
    """With g and tau held fixed, the share of effective draws goes a fifth of its way to 1, or more."""
    amortized = Amortized(COUPLINGS[name], width=32, key=key)
    other = model(COUPLINGS[name], f=f, scale=3.0)
    ebm = EBM(other.g, other.tau, f=f, surrogate=amortized)
    batch = Batch(jax.random.normal(key, (8, 3)), ebm.space.sample(8, key=key))
    adam = optax.adam(0.02)

    def step(carry, key):
        amortized, moments = carry

        def loss(amortized):
            value, (_, info) = MinMin(64).loss(eqx.tree_at(lambda m: m.surrogate, ebm, amortized), None, batch, key=key)
            return value, info["effective"]

        slopes, effective = jax.grad(loss, has_aux=True)(amortized)
        updates, moments = adam.update(slopes, moments)
        return (optax.apply_updates(amortized, updates), moments), effective

    run = jax.jit(lambda start, keys: jax.lax.scan(step, start, keys)[1])
    effective = run((amortized, adam.init(amortized)), jax.random.split(key, 300))
    before, after = effective[:5].mean(), effective[-50:].mean()
    assert before < 0.9
    assert after > before + 0.2 * (1 - before)


def test_weights_stay_below_one_over_the_defense(key):
    """A proposal that never leaves one set: the mass q/r of the others comes from the share of q."""
    proposal = ProductBernoulli(jnp.array([50.0, -50.0, 50.0, -50.0]))
    ebm = EBM(Energy(lambda x: x, COUPLINGS["unary"]), Table(1))
    batch = Batch(jnp.zeros((2, 4)), jnp.zeros((2, 4), int), jnp.zeros(2, int))
    rows = jax.vmap(ebm.row)(batch.x, batch.index, None)
    r = Proposal.of(Mixture(proposal, ebm.q, 0.1), ebm, rows, batch)
    draws = r.draw(500, ebm, rows, shared=False, key=key)
    assert draws.y.shape == (2, 500, 4)
    assert float(jnp.exp(draws.log_weight).max()) <= 10.0 + 1e-4
    assert float(jnp.exp(draws.log_weight).mean()) == pytest.approx(1, abs=0.35)
