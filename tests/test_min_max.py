"""Min-max: at the best generator its gradient is the likelihood's, and the generator has no gradient left."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import COUPLINGS, FEATURES, data, jit, model, references
from test_contrastive import flat

from partita import exact
from partita.divergences import ChiSquare
from partita.networks import MLP
from partita.objectives import ExactMLE, Generator, MinMax
from partita.objectives.min_max import MinMaxState, _generator_loss
from partita.structures import (
    ConditionalBernoulli,
    Hypercube,
    KSubsets,
    Permutations,
    PlackettLuce,
    ProductBernoulli,
    Simplex,
)
from partita.training import Rows, Solver, fit
from partita.types import RESULTS

REPEATS = 4000


def generator(space, key=None):
    key = jax.random.key(0) if key is None else key
    return Generator(space, MLP(FEATURES, (space.k,), width=6, zero=False, key=key))


# p_g of these has independent labels, but for how many there are: their own h, with q's logits, is the best generator.
@pytest.mark.parametrize(("name", "which"), [("unary", 0), ("unary", -1), ("subsets", 0)])
def test_at_the_best_generator_the_gradient_is_the_likelihoods(name, which, key):
    """4,000 draws: |z| < 4.5 for each of some 100 derivatives, p = 1e-3; sgd shows the generator's own gradient."""
    start = model(COUPLINGS[name], q=references(COUPLINGS[name].space)[which])
    batch = data(start.space)
    shift = start.q.logits if isinstance(start.q, ProductBernoulli) else 0.0
    best = Generator(start.space, _Shifted(start.g.h, jnp.asarray(shift, float)))
    objective = MinMax(best, 4, learning_rate=1.0, optimizer=optax.sgd)

    @jit
    def estimate(model, key):
        def loss(model):
            return objective.loss(model, objective.init(model, key=key), batch, key=key)

        (_, (state, _)), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(model)
        return flat(gradient), _difference(state.generator, best)

    found, moves = jax.vmap(estimate, (None, 0))(start, jax.random.split(key, REPEATS))
    truth = flat(jit(eqx.filter_grad(lambda m: ExactMLE().loss(m, None, batch, key=key)[0]))(start))
    assert np.std(found, axis=0).max() > 1e-3
    for values, expected in [(found, truth), (moves, 0.0)]:
        values = np.asarray(values, float)
        assert np.all(np.abs(values.mean(0) - expected) < 4.5 * values.std(0) / np.sqrt(REPEATS) + 1e-6)


class _Shifted(eqx.Module):
    h: MLP
    shift: jax.Array

    def __call__(self, x):
        return self.h(x) + self.shift


def _difference(a, b):
    leaves = (jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)) for tree in (a, b))
    return jnp.concatenate([jnp.ravel(x - y) for x, y in zip(*leaves, strict=True)])


MEASURES = {
    "independent": ProductBernoulli(jnp.array([1.0, -1.0, 0.5, 0.0])),
    "subsets": ConditionalBernoulli(jnp.array([1.0, -1.0, 0.5, 0.0, 0.3]), 2),
    "rankings": PlackettLuce(jnp.array([1.0, -1.0, 0.5, 0.0])),
}


@pytest.mark.parametrize("name", MEASURES)
def test_the_generators_gradient_is_that_of_the_enumerated_objective(name, key):
    """KL(p, q) - E_p g: |z| < 4.5 for each score's derivative, p < 1e-4."""
    p = MEASURES[name]
    q = references(p.space)[-1]
    every = p.space.elements()
    g = jax.random.normal(key, (len(every),))

    def truth(p):
        log_p, log_q = jax.vmap(p.log_prob)(every), jax.vmap(q.log_prob)(every)
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q - g))

    expected = jax.tree.leaves(jit(eqx.filter_grad(truth))(p))[0]

    def reward(y):
        return g[jnp.argmax(jnp.all(every == y, axis=-1))]

    @jit
    def estimate(p, key):
        y = jax.lax.stop_gradient(p).sample(5, key=key)
        rewards = jax.vmap(reward)(y)
        return jax.tree.leaves(eqx.filter_grad(lambda p: _generator_loss(p, q, y, rewards)[0])(p))[0]

    found = np.asarray(jax.vmap(estimate, (None, 0))(p, jax.random.split(key, REPEATS)), float)
    assert np.all(np.abs(found.mean(0) - expected) < 4.5 * found.std(0) / np.sqrt(REPEATS) + 1e-6)


@pytest.mark.parametrize("name", ["ising", "permutahedron"])
def test_it_trains_with_optimistic_adam(name, key):
    """On 64 rows of a known model the exact likelihood improves, and the generator has moved."""
    truth = model(COUPLINGS[name], scale=1.3)
    x_key, y_key = jax.random.split(key)
    x = jax.random.normal(x_key, (64, FEATURES))
    draw = jit(jax.vmap(lambda x, key: exact.sample(truth, truth.row(x), 1, key=key)[0]))
    y = draw(x, jax.random.split(y_key, 64))
    start = model(COUPLINGS[name], scale=0.3, key=jax.random.key(9))
    made = generator(start.space)
    # Without an optimizer, the one of the game.
    solver = Solver(MinMax(made, 8, learning_rate=3e-2), learning_rate=3e-3)
    assert solver.optimizer is optax.optimistic_adam_v2
    solution = fit(solver, start, Rows(x, y), steps=400, key=key)
    assert solution.result is RESULTS.completed

    @jit
    def log_p(model):
        return jax.vmap(lambda x, y: exact.log_prob(model, model.row(x), y))(x, y).mean()

    assert log_p(solution.model) > log_p(start) + 0.5
    state = solution.state.objective
    assert isinstance(state, MinMaxState)
    assert np.abs(_difference(state.generator, made)).max() > 0.01


def test_what_it_cannot_serve_is_refused():
    with pytest.raises(ValueError, match="generator needs a family of measures on Simplex"):
        Generator(Simplex(20_000), None)
    with pytest.raises(ValueError, match=r"num_samples >= 2.*got 1"):
        MinMax(generator(Hypercube(4)), 1)
    with pytest.raises(ValueError, match="The generator is for"):
        MinMax(generator(Permutations(4))).check(model(COUPLINGS["unary"]))
    with pytest.raises(ValueError, match="needs f = KL"):
        MinMax(generator(Hypercube(4))).check(model(COUPLINGS["unary"], f=ChiSquare()))
    MinMax(generator(KSubsets(5, 2))).check(model(COUPLINGS["subsets"]))
