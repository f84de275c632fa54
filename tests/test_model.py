"""Laws of tau and of the model (Y, q, g, tau, f) that it normalizes."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import COUPLINGS, DIVERGENCES, FEATURES, REFERENCES, model, neighbor_of, references, some

from partita import inference
from partita.divergences import ChiSquare, JensenShannon
from partita.model import EBM, Energy, Network, Residual, Shifted, Table, UnseenRowError
from partita.networks import MLP, Linear
from partita.objectives import ExactMLE, MinMin
from partita.structures import Hypercube, Permutations, PlackettLuce, Uniform
from partita.training import Solver, fit
from partita.types import RESULTS, Row

KEY = jax.random.key(9)
DECAY = optax.cosine_decay_schedule(1.0, 300)
OF_X, OF_LOGITS = (MLP(size, (), width=4, key=KEY) for size in (FEATURES, 4))
TAUS = {"Table": Table(6), "Network": Network(OF_X), "Network-of-logits": Network(OF_LOGITS, of_logits=True)}

divergences = pytest.mark.parametrize("f", DIVERGENCES.values(), ids=DIVERGENCES)
taus = pytest.mark.parametrize("tau", TAUS.values(), ids=TAUS)


@functools.cache
def row(i=0, index=True):
    x_key, theta_key = jax.random.split(jax.random.fold_in(KEY, i))
    x, theta = jax.random.normal(x_key, (FEATURES,)), jax.random.normal(theta_key, (4,))
    return Row(x, theta, jnp.asarray(i) if index else None, Uniform(Hypercube(4)))


@divergences
@taus
def test_the_model_starts_tau_at_minus_the_slope_of_f_at_one(tau, f):
    """-f'(1) is -1 for chi-square and 0 otherwise; there the density of g = 0 is 1. A tau itself starts at 0."""
    assert float(tau(row(2))) == 0
    start = EBM(Energy(Linear(FEATURES, 4, key=KEY), COUPLINGS["unary"]), tau, f=f).log_partition(row(2))
    assert start.shape == ()
    assert float(start) == (-1 if isinstance(f, ChiSquare) else 0)
    # One rounding of float32.
    assert float(f.density(-start)) == pytest.approx(1, abs=1e-6)


@taus
def test_without_a_divergence_tau_is_that_of_kl(tau):
    ebm = EBM(Energy(Linear(FEATURES, 4, key=KEY), COUPLINGS["unary"]), tau)
    assert float(ebm.log_partition(row())) == 0


def test_table_has_one_value_per_training_row():
    tau = eqx.tree_at(lambda t: t.values, Table(6), jnp.arange(6.0))
    assert [float(tau(row(i))) for i in (0, 3, 5)] == [0, 3, 5]


def test_table_refuses_rows_it_does_not_hold():
    """The message names what to pass, and the alternatives."""
    with pytest.raises(UnseenRowError, match=r"one number per training row.*`index`.*exact.*model\.Network"):
        Table(6)(row(index=False))


@pytest.mark.parametrize("n", [0, -1])
def test_a_table_of_no_rows_is_refused(n):
    with pytest.raises(ValueError, match=f"at least 1; got {n}"):
        Table(n)


def test_the_model_adds_the_start_of_f_to_the_body():
    body = MLP(FEATURES, (), width=4, zero=False, key=KEY)
    ebm = EBM(Energy(Linear(FEATURES, 4, key=KEY), COUPLINGS["unary"]), Network(body), f=ChiSquare())
    np.testing.assert_allclose(ebm.log_partition(row(index=False)), body(row().x) - 1, rtol=1e-6)


def test_network_of_logits_reads_theta_only():
    body = MLP(4, (), width=4, zero=False, key=KEY)
    tau = Network(body, of_logits=True)
    one, other = row(1), row(2)
    np.testing.assert_allclose(tau(one), body(one.theta), rtol=1e-6)
    moved = Row(other.x, one.theta, other.index, other.q)
    assert float(tau(moved)) == float(tau(one)) != float(tau(other))


def test_a_body_of_one_output_serves_too():
    """Shape (1,) is as good as ()."""
    assert Network(Linear(FEATURES, 1, key=KEY))(row()).shape == ()


NAMES = ("unary", "ising-shared", "ising-low-rank", "birkhoff", "neural-rankings")


@functools.cache
def a_model(name, i=0):
    """With the i-th of the space's references: uniform, another."""
    coupling = COUPLINGS[name]
    return model(coupling, q=references(coupling.space)[i])


@pytest.mark.parametrize(("name", "q"), [("unary", PlackettLuce(jnp.zeros(4))), ("birkhoff", Uniform(Permutations(3)))])
def test_a_reference_on_another_space_is_refused(name, q):
    with pytest.raises(ValueError, match=r"q is a measure on Permutations\(.*but g scores .*must be the same"):
        EBM(Energy(OF_X, COUPLINGS[name]), Network(OF_X), q=q)


def test_without_a_reference_q_is_uniform():
    ebm = EBM(Energy(OF_X, COUPLINGS["birkhoff"]), Network(OF_X))
    assert ebm.q == Uniform(Permutations(4))
    assert ebm.space == Permutations(4)


@pytest.mark.parametrize("name", NAMES)
def test_only_g_tau_and_the_surrogate_are_trained(name):
    """All their inexact arrays (an amortized surrogate has some), none of q."""
    ebm = a_model(name, -1)
    assert jax.tree.leaves(ebm.q)
    params, fixed = eqx.partition(ebm, ebm.trained())
    learned = jax.tree.leaves((ebm.g, ebm.tau, ebm.surrogate))
    assert [id(a) for a in jax.tree.leaves(params)] == [id(a) for a in learned]
    assert jax.tree.leaves(params.q) == []
    assert len(jax.tree.leaves(fixed)) == len(jax.tree.leaves(ebm.q))
    assert eqx.tree_equal(eqx.combine(params, fixed), ebm)


def test_a_table_is_trained():
    ebm = EBM(Energy(Linear(FEATURES, 4, key=KEY), COUPLINGS["unary"]), Table(6), q=REFERENCES[Hypercube(4)])
    trained = ebm.trained()
    assert trained.tau.values is True
    assert trained.g.h.layer.weight is True
    assert trained.q.logits is False


def answers(ebm, x):
    """log p, g, tau and log q for all rows of x and all y."""

    def one(x):
        row = ebm.row(x)
        score = jax.vmap(lambda y: (ebm.log_prob(row, y), ebm.g(x, y), row.q.log_prob(y)))
        return *score(ebm.space.elements()), ebm.log_partition(row)

    return (np.asarray(a, np.float64) for a in jax.jit(jax.vmap(one))(x))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("i", [0, -1], ids=["uniform", "other"])
def test_log_prob_of_kl(name, i, key):
    """log p = g - tau + log q, for the uniform and the other reference."""
    ebm = a_model(name, i)
    log_p, g, log_q, tau = answers(ebm, jax.random.normal(key, (3, FEATURES)))
    # A float32 sum of three terms of size 10 at most.
    np.testing.assert_allclose(log_p, g - tau[:, None] + log_q, atol=1e-5)
    assert np.std(g) > 0.1
    assert np.std(tau) > 0.01


@divergences
def test_density_of_every_divergence(f, key):
    """p = q (f*)'(g - tau), with the closed form of ChiSquare, sparsemax, as the visible example."""
    ebm = model(COUPLINGS["unary"], q=REFERENCES[Hypercube(4)], f=f)
    log_p, g, log_q, tau = answers(ebm, jax.random.normal(key, (3, FEATURES)))
    v = g - tau[:, None]
    density = (
        np.maximum(v, 0) if isinstance(f, ChiSquare) else np.asarray(jax.vmap(jax.vmap(f.density))(jnp.asarray(v)))
    )
    # v is rounded to float32 on the way; on bounded domains, 1e-4 from the end, the density's condition is 1e4.
    np.testing.assert_allclose(np.exp(log_p), np.exp(log_q) * density, rtol=5e-3, atol=1e-6)


def test_log_prob_takes_another_tau():
    ebm = a_model("unary")
    row, y = ebm.row(jnp.ones(FEATURES)), jnp.array([0, 1, 1, 0])
    other = jnp.asarray(2.5)
    expected = ebm.log_prob(row, y) + ebm.log_partition(row) - other
    np.testing.assert_allclose(ebm.log_prob(row, y, other), expected, rtol=1e-5)


def test_a_row_has_its_own_reference_where_one_comes_with_the_data():
    """`reference` replaces the model's q for this row."""
    ebm = a_model("unary")
    q = REFERENCES[Hypercube(4)]
    x, y = jnp.ones(FEATURES), jnp.array([0, 1, 1, 0])
    assert ebm.row(x).q == ebm.q
    difference = ebm.log_prob(ebm.row(x, reference=q), y) - ebm.log_prob(ebm.row(x), y)
    np.testing.assert_allclose(difference, q.log_prob(y) - ebm.q.log_prob(y), atol=1e-5)
    np.testing.assert_array_equal(ebm.row(x).theta, ebm.g.h(x))
    assert ebm.row(x).index is None
    assert int(ebm.row(x, jnp.asarray(4)).index) == 4


def test_shifted_adds_its_constant():
    tau = eqx.tree_at(lambda t: t.values, Table(6), jnp.arange(6.0))
    shifted = Shifted(tau, jnp.asarray(0.25))
    assert float(shifted(row(3))) == 3.25
    assert shifted.table is tau
    assert float(Shifted(shifted, jnp.asarray(-0.5))(row(3))) == 2.75


# Every kind of surrogate, under the least uniform q.
RESIDUALS = ("unary", "subsets", "birkhoff", "ising", "neural-rankings")
RISES = {"subsets": 2, "birkhoff": 4}


def residual(name, *, h=None, zero=True, width=4):
    """A model whose tau corrects the surrogate's bound."""
    coupling = COUPLINGS[name]
    q = references(coupling.space)[-1]
    near = neighbor_of(coupling, q)
    h = MLP(FEATURES, coupling.theta_shape, width=8, zero=False, key=KEY) if h is None else h
    body = MLP(near.summary_size(coupling, q), (), width=width, zero=zero, key=KEY)
    return EBM(Energy(h, coupling), Residual(body), q=q, surrogate=near)


@pytest.mark.parametrize("name", RESIDUALS)
def test_residual_is_the_bound_plus_what_its_body_reads(name, key):
    """With a zero output layer it is tau_0 itself. Its gradient in theta is that of tau_0, whatever the body."""
    zero, moved = residual(name), residual(name, zero=False)

    @jax.jit
    @jax.vmap
    def ask(theta):
        def tau_0(theta):
            near = zero.surrogate(zero.g.coupling, theta, zero.q)
            return near.tau, near.summary

        def tau(theta):
            near = zero.surrogate(zero.g.coupling, theta, zero.q)
            row = Row(jnp.zeros(FEATURES), theta, None, zero.q, near)
            return moved.tau(row), zero.tau(row)

        (bound, summary), slope = jax.value_and_grad(tau_0, has_aux=True)(theta)
        (value, start), found = jax.value_and_grad(tau, has_aux=True)(theta)
        return (start, value, found), (bound, bound + moved.tau.body(summary), slope)

    found, truth = ask(jax.random.normal(key, (3, *zero.g.coupling.theta_shape)))
    # One program computes both, up to the order of float32 sums of some 20 terms.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, truth)
    assert np.abs(found[0] - found[1]).max() > 0.01
    assert np.abs(found[2]).max() > 0.1 or name == "neural-rankings"


@pytest.mark.parametrize("name", RISES)
def test_a_constant_added_to_g_moves_a_residual_as_much(name):
    """A bias of 1 on all logits adds 2 to every set of two labels and 4 to every ranking of four.

    Were the gradient of tau_0 stopped, g could rise for mask.
    """
    ebm = residual(name, zero=False)
    bias = lambda m: m.g.h.output.bias  # noqa: E731
    slope = jax.jit(jax.grad(lambda b: (m := eqx.tree_at(bias, ebm, b)).tau(m.row(jnp.ones(FEATURES)))))(bias(ebm))
    assert float(slope.sum()) == pytest.approx(RISES[name], abs=1e-3)


def test_a_constant_added_by_a_network_moves_a_residual_as_much():
    ebm = residual("neural-rankings", zero=False)
    bias = lambda m: m.g.coupling.network.body.output.bias  # noqa: E731
    slope = jax.jit(jax.grad(lambda b: (m := eqx.tree_at(bias, ebm, b)).tau(m.row(jnp.ones(FEATURES)))))(bias(ebm))
    assert float(slope.sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", ["classes", "ising-subsets", "neural-sets"])
def test_residual_is_refused_where_there_is_no_surrogate(name):
    coupling = type(COUPLINGS[name]).__name__
    with pytest.raises(ValueError, match=rf"model\.Residual corrects .* a {coupling} coupling on .* has none"):
        EBM(Energy(OF_X, COUPLINGS[name]), Residual(OF_X))


@pytest.mark.parametrize("f", [ChiSquare(), JensenShannon()], ids=str)
@pytest.mark.parametrize("name", ["unary", "neural-sets"])
def test_residual_is_refused_under_other_divergences(name, f):
    """tau_0 bounds the log-partition of KL; an amortized surrogate, which serves every f, changes nothing in that."""
    for near in (None, neighbor_of(COUPLINGS["neural-sets"])) if name == "neural-sets" else (None,):
        with pytest.raises(ValueError, match=rf"model\.Residual corrects .*under {type(f).__name__}.*for KL"):
            EBM(Energy(OF_X, COUPLINGS[name]), Residual(OF_X), f=f, surrogate=near)


def largest(ebm, x):
    """max |g| over all rows and outputs."""
    scores = jax.jit(jax.vmap(lambda x: jax.vmap(lambda y: jnp.abs(ebm.g(x, y)).max())(ebm.space.elements())))
    return float(scores(x).max())


@pytest.mark.parametrize("name", some(("ising", "birkhoff"), ("ising",)))
def test_a_residual_is_learned_without_running_away(name, key):
    """300 steps by 16 draws from the surrogate, on random data, at a rate that falls from 0.05 to 0.

    The energy never exceeds 1.5 times what exact maximum likelihood, trained alike, ends with: a runaway of the logits,
    which Adam lets rise by 0.025 a step on average, would be at 4 (1 + |x|_1) 7.5 = 150 by then. tau is within 0.15 of
    LSE on average over rows and four runs, of which one may be at 0.17; tau_0 alone is off by 0.2 and 1. The same seed
    ends at the same bits.
    """
    x_key, y_key, run_key = jax.random.split(key, 3)
    coupling = COUPLINGS[name]
    ebm = residual(name, h=Linear(FEATURES, coupling.theta_shape, key=KEY), width=16)
    data = np.asarray(jax.random.normal(x_key, (16, FEATURES))), np.asarray(coupling.space.sample(16, key=y_key))

    def trained(objective, key=run_key):
        solver = Solver(objective, learning_rate=0.05, penalty=0.01, schedule=DECAY)
        return fit(solver, ebm, data, steps=300, key=key, every=300)

    solution, likely = trained(MinMin(16)), trained(ExactMLE())
    assert solution.result is RESULTS.completed
    assert solution.history.steps["scale"].max() < 1.5 * largest(likely.model, data[0])
    runs = [solution, *(trained(MinMin(16), key) for key in jax.random.split(run_key, 3))]
    learned, exact = (
        np.array([inference.log_partition(run.model, data[0], method=how) for run in runs])
        for how in ("learned", "exact")
    )
    assert np.abs(learned - exact).mean() < 0.15
    again = trained(MinMin(16))
    assert eqx.tree_equal(again.model, solution.model)
    np.testing.assert_array_equal(again.history.loss, solution.history.loss)
