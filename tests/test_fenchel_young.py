"""Fenchel-Young objectives: zero where the argmax is the observed output, gradients by the envelope, learning."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COUPLINGS, FEATURES, jit, model, references

from partita import inference
from partita.argmax import Entropy, Nothing, ProximalGradient, SquaredNorm, oracle
from partita.couplings import Bilinear
from partita.model import EBM, Energy, Network
from partita.networks import Linear
from partita.objectives import GeneralizedFenchelYoung, Perceptron
from partita.structures import Cube, Permutahedron
from partita.training import Solver, fit
from partita.types import Batch

KEY = jax.random.key(0)


def of_logits(coupling):
    """A model whose x is theta itself."""
    return EBM(Energy(eqx.nn.Identity(), coupling), Network(lambda x: jnp.zeros(())))


def losses(objective, coupling, theta, y):
    """The loss of each row alone."""
    ebm = of_logits(coupling)

    def one(theta, y):
        return objective.loss(ebm, None, Batch(theta[None], y[None]), key=KEY)[0]

    return np.asarray(jit(lambda theta, y: jax.vmap(one)(theta, y))(theta, y))


def vertices(coupling):
    """All y, and all phi(y)."""
    y = jit(coupling.space.elements)()
    return y, jit(lambda y: jax.vmap(coupling.polytope.encode)(y))(y)


EXACT = {
    "unary": (COUPLINGS["unary"], GeneralizedFenchelYoung(SquaredNorm(0.7))),
    "subsets": (COUPLINGS["subsets"], GeneralizedFenchelYoung(SquaredNorm(2.0))),
    "permutahedron": (COUPLINGS["permutahedron"], GeneralizedFenchelYoung(SquaredNorm(1.0))),
    "unary-perceptron": (COUPLINGS["unary"], Perceptron()),
}


@pytest.mark.parametrize("name", EXACT)
def test_losses_are_zero_where_the_observed_output_is_the_argmax_and_positive_elsewhere(name):
    """At grad Omega(phi(y)) plus a direction in which phi(y) alone is best; another y pays, and so at random theta."""
    coupling, objective = EXACT[name]
    every, phi = vertices(coupling)
    mine = objective.regularizer.strength * phi + 2 * (phi - phi.mean(0))
    random = 3 * jax.random.normal(jax.random.key(1), (40, *coupling.theta_shape))
    y = coupling.space.sample(40, key=jax.random.key(2))
    theta = jnp.concatenate([mine, mine, random])
    found = losses(objective, coupling, theta, jnp.concatenate([every, jnp.roll(every, 1, axis=0), y]))
    zero, others, anywhere = np.split(found, [len(every), 2 * len(every)])
    # Differences of float32 scores of up to 30.
    np.testing.assert_allclose(zero, 0, atol=1e-5)
    assert (others > 0.1).all()
    assert (anywhere >= -1e-5).all()
    if isinstance(objective, Perceptron):
        best = (random @ phi.T).max(1)
        np.testing.assert_allclose(anywhere, best - jnp.sum(random * y, axis=1), atol=1e-5)


def test_with_entropy_classes_have_the_logistic_loss():
    coupling = COUPLINGS["classes"]
    theta = 3 * jax.random.normal(jax.random.key(3), (20, 4))
    y = coupling.space.sample(20, key=jax.random.key(2))
    found = losses(GeneralizedFenchelYoung(Entropy(1.0)), coupling, theta, y)
    np.testing.assert_allclose(found, -jnp.sum(y * jax.nn.log_softmax(theta), axis=1), atol=1e-5)


GRADIENTS = {"ising-low-rank": SquaredNorm(1.0), "ising-concave": SquaredNorm(1.0)}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_the_solved_loss(name):
    """Central differences of the whole loss, argmax solved anew; steps of 0.02 in losses of order 1, in float32."""
    ebm, objective = model(COUPLINGS[name]), GeneralizedFenchelYoung(GRADIENTS[name])
    x = jax.random.normal(jax.random.key(4), (4, FEATURES))
    batch = Batch(x, ebm.space.sample(4, key=jax.random.key(5)))
    params, fixed = eqx.partition(ebm, ebm.trained())

    @jit
    def ask(params):
        return jax.value_and_grad(lambda p: objective.loss(eqx.combine(p, fixed), None, batch, key=KEY)[0])(params)

    _, gradient = ask(params)
    leaves, structure = jax.tree.flatten(params)
    rng = np.random.default_rng(0)
    noise = [rng.normal(size=leaf.shape).astype(leaf.dtype) for leaf in leaves]
    size = np.sqrt(sum(np.sum(a**2) for a in noise))
    direction = jax.tree.unflatten(structure, [a / size for a in noise])
    ahead, behind = (
        ask(jax.tree.map(lambda p, d, h=h: np.asarray(p) + h * d, params, direction))[0] for h in (0.02, -0.02)
    )
    slope = sum(np.vdot(g, d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
    assert float(ahead - behind) / 0.04 == pytest.approx(float(slope), abs=2e-3)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves((gradient.tau, gradient.surrogate)))
    assert abs(float(slope)) > 0.01


@pytest.fixture(scope="module")
def sets():
    """64 rows whose labels are linear in x."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, FEATURES))
    y = (x @ rng.normal(size=(FEATURES, 4)) > 0).astype(int)
    return x, y


def accuracy(ebm, regularizer, data):
    return float((np.asarray(inference.relaxed_mode(ebm, data[0], regularizer)) == data[1]).mean())


FITS = {"unary": Perceptron(), "ising": GeneralizedFenchelYoung(SquaredNorm(2.0))}


@pytest.mark.parametrize("name", FITS)
def test_a_short_fit_learns_to_predict(name, sets):
    coupling, objective = COUPLINGS[name], FITS[name]
    tau = Network(lambda x: jnp.zeros(()))
    start = EBM(Energy(Linear(FEATURES, coupling.theta_shape, zero=False, key=KEY), coupling), tau)
    solution = fit(Solver(objective, learning_rate=0.05), start, sets, steps=100, every=100, key=KEY)
    assert accuracy(start, objective.regularizer, sets) < 0.75
    assert accuracy(solution.model, objective.regularizer, sets) > 0.95
    assert solution.history.loss[-1] < 0.3 * solution.history.loss[0]
    assert (solution.history.steps["gap"] < 1e-2).all()


def test_the_relaxed_mode_rounds_the_argmax_of_the_loss():
    ebm = model(COUPLINGS["permutahedron"])
    coupling, regularizer = ebm.g.coupling, SquaredNorm(1.0)
    x = np.random.default_rng(1).normal(size=(20, FEATURES))
    mu = jit(jax.vmap(lambda x: oracle(coupling, regularizer)(coupling, ebm.g.h(x)).mu))(jnp.asarray(x))
    every, phi = vertices(coupling)
    nearest = every[jnp.argmin(jnp.sum((mu[:, None] - phi) ** 2, axis=-1), axis=1)]
    np.testing.assert_array_equal(inference.relaxed_mode(ebm, x, regularizer), nearest)


def test_the_relaxed_mode_of_a_linear_score_without_regularizer_is_the_mode():
    """Birkhoff, where the host rounds."""
    ebm = model(COUPLINGS["birkhoff"])
    x = np.random.default_rng(1).normal(size=(10, FEATURES))
    np.testing.assert_array_equal(inference.relaxed_mode(ebm, x, Nothing()), inference.mode(ebm, x))


def test_an_oracle_of_ones_own_serves_and_one_for_something_else_is_refused():
    coupling, regularizer = COUPLINGS["ising"], SquaredNorm(2.0)
    theta, y = jax.random.normal(KEY, (6, *coupling.theta_shape)), vertices(coupling)[0][:6]
    usual = losses(GeneralizedFenchelYoung(regularizer), coupling, theta, y)
    coarse = losses(
        GeneralizedFenchelYoung(regularizer, ProximalGradient(regularizer, tolerance=1e-3)), coupling, theta, y
    )
    np.testing.assert_allclose(coarse, usual, atol=1e-2)
    stopped = losses(
        GeneralizedFenchelYoung(regularizer, ProximalGradient(regularizer, max_steps=1)), coupling, theta, y
    )
    assert np.abs(stopped - usual).max() > 0.05, "it is the one that was given"
    with pytest.raises(ValueError, match=r"oracle.*not for a Bilinear.*Leave it out"):
        GeneralizedFenchelYoung(regularizer, ProximalGradient(SquaredNorm(1.0))).check(model(COUPLINGS["unary"]))


def test_what_it_cannot_serve_is_refused_before_any_work():
    with pytest.raises(ValueError, match=r"No oracle.*Permutahedron.*Entropy"):
        GeneralizedFenchelYoung(Entropy(1.0)).check(of_logits(Bilinear(Permutahedron(4))))
    with pytest.raises(ValueError, match=r"No oracle.*Permutahedron.*Entropy"):
        inference.relaxed_mode(model(COUPLINGS["permutahedron"]), np.zeros((2, FEATURES)), Entropy(1.0))
    weighed = model(COUPLINGS["unary"], q=references(Cube(4).space)[-1])
    with pytest.raises(ValueError, match=r"Perceptron learns g without a reference.*ProductBernoulli.*MinMin"):
        Perceptron().check(weighed)
    Perceptron().check(model(COUPLINGS["unary"]))
