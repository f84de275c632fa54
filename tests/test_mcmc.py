"""Maximum likelihood by chains: its gradient is that of the likelihood once the chains have forgotten their start."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COUPLINGS, FEATURES, data, jit, model, references, some

from partita import training
from partita.couplings import Bilinear
from partita.divergences import ChiSquare
from partita.kernels import Gibbs, Guided, Informed, Metropolis
from partita.model import EBM, Energy, Table
from partita.networks import Linear
from partita.objectives import MCMC, ExactMLE
from partita.structures import Cube, Simplex, Uniform
from partita.training import Solver, ValidationLoss, fit
from partita.types import RESULTS

ROWS, SEEDS, VISITS = 3, 200, 25


def enumerated(ebm, batch):
    """The negative log-likelihood, relative to q, by its definition."""

    def of_row(x, y):
        terms = jax.vmap(lambda y: ebm.q.log_prob(y) + ebm.g(x, y))(ebm.space.elements())
        return jax.nn.logsumexp(terms) - ebm.g(x, y)

    return jax.vmap(of_row)(batch.x, batch.y).mean()


@jit
def gradients(objective, ebm, batch, key):
    """In all of g, in 4 random directions: of the likelihood, and of the objective for all seeds; its last info too.

    Each seed visits the rows 25 times where the chains persist, else once.
    """
    params, rest = eqx.partition(ebm.g, eqx.is_inexact_array)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    directions = jax.random.normal(jax.random.key(2), (4, flat.size)) / jnp.sqrt(flat.size)

    def at(flat):
        return eqx.tree_at(lambda m: m.g, ebm, eqx.combine(unravel(flat), rest))

    def visit(state, key):
        (_, (state, info)), slope = jax.value_and_grad(
            lambda flat: objective.loss(at(flat), state, batch, key=key), has_aux=True
        )(flat)
        return state, (directions @ slope, info)

    def of_seed(key):
        init_key, visit_key = jax.random.split(key)
        keys = jax.random.split(visit_key, 1 if objective.persistent is None else VISITS)
        return jax.tree.map(lambda a: a[-1], jax.lax.scan(visit, objective.init(ebm, key=init_key), keys)[1])

    truth = directions @ jax.grad(lambda flat: enumerated(at(flat), batch))(flat)
    return truth, *jax.vmap(of_seed)(jax.random.split(key, SEEDS))


def z_scores(objective, name, key, **options):
    """Of the mean gradient over the seeds, in 4 directions."""
    ebm = model(COUPLINGS[name], q=references(COUPLINGS[name].space)[-1], scale=0.7, **options)
    objective.check(ebm)
    truth, found, info = jax.tree.map(np.asarray, gradients(objective, ebm, data(ebm.space, ROWS), key))
    assert (info["acceptance"] > 0.05).all()
    assert np.abs(truth).max() > 0.02
    return (found.mean(axis=0) - truth) / (found.std(axis=0, ddof=1) / SEEDS**0.5)


@pytest.mark.parametrize(
    "name",
    some(("classes", "birkhoff", "ising-shared", "ising-subsets", "neural-rankings"), ("birkhoff", "ising-subsets")),
)
def test_the_gradient_of_long_chains_is_that_of_the_likelihood(name, key):
    """The paper's chains, on every space: |z| < 4 in 4 directions (p = 3e-4 for each of 5)."""
    assert np.abs(z_scores(MCMC(chains=8, steps=1, burn_in=60), name, key)).max() < 4


OBJECTIVES = {
    "all steps kept": MCMC(Gibbs(), chains=2, steps=20, burn_in=20, start="uniform"),
    "from q": MCMC(Metropolis("local"), chains=8, steps=1, burn_in=60, start="q"),
    "from the surrogate": MCMC(Guided(), chains=8, steps=1, burn_in=10, start="surrogate"),
    "persistent": MCMC(Metropolis("local"), chains=4, steps=4, start="q", persistent=ROWS),
    "contrastive, long": MCMC(Informed(gradient=True), chains=8, steps=1, burn_in=30),
}


@pytest.mark.parametrize("case", OBJECTIVES)
def test_every_kind_of_chain_forgets_its_start(case, key):
    """|z| < 4 in 4 directions (p = 3e-4); persistent chains after 25 visits with a fixed model."""
    assert np.abs(z_scores(OBJECTIVES[case], "ising", key)).max() < 4


def test_short_contrastive_chains_are_biased(key):
    """As the paper says: one step from the data is not p. With this the tests above are known to see a difference."""
    assert np.abs(z_scores(MCMC(Metropolis("local"), chains=8, steps=1), "ising", key)).max() > 10


def test_chains_go_on_where_the_row_was_left(key):
    """Each row has its own: a visit to some leaves the others as they were."""
    ebm = model(COUPLINGS["ising"])
    objective = MCMC(Gibbs(), chains=2, steps=3, persistent=5)
    batch = data(ebm.space, ROWS)
    batch = eqx.tree_at(lambda b: b.index, batch, jnp.array([4, 0, 2]))
    visit = jit(lambda state, key: objective.loss(ebm, state, batch, key=key)[1][0])
    first = objective.init(ebm, key=key)
    second = visit(first, key)
    assert second.visited.tolist() == [True, False, True, False, True]
    np.testing.assert_array_equal(second.y[jnp.array([1, 3])], 0)
    # No step is kept but the last one: what is stored is its end, whichever way the rows are named.
    marked = eqx.tree_at(lambda s: s.visited, second, jnp.ones(5, bool))
    np.testing.assert_array_equal(visit(marked, key).y, visit(second, key).y)
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(second))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, FEATURES))
    return x, (x @ rng.normal(size=(FEATURES, 4)) + rng.logistic(size=(64, 4)) > 0).astype(int)


@pytest.mark.parametrize("persistent", [None, 64])
def test_training_by_chains_ends_near_exact_likelihood(persistent, rows, key):
    """Gibbs on independent labels forgets its start in one sweep. 200 steps of Adam in mini-batches: within 3 %."""
    unary = EBM(Energy(Linear(FEATURES, 4, key=key), Bilinear(Cube(4))), Table(64))
    objective = MCMC(Gibbs(), chains=4, steps=2, persistent=persistent)
    source = training.Rows(*rows, batch_size=32)
    solution = fit(Solver(objective, learning_rate=0.03), unary, source, steps=200, key=key)
    assert solution.result is RESULTS.completed
    assert (solution.history.steps["acceptance"] > 0).all()
    exactly = ValidationLoss(ExactMLE(), training.batch(unary, *rows), key)
    best = fit(Solver(ExactMLE(), learning_rate=0.1), unary, rows, steps=300, key=key).history.loss[-1]
    assert exactly(solution.model) == pytest.approx(best, rel=0.03)
    again = fit(Solver(objective, learning_rate=0.03), unary, source, steps=220, key=key, resume=solution)
    assert int(again.state.step) == 220


def test_persistent_chains_refuse_rows_that_they_do_not_know(rows, key):
    unary = EBM(Energy(Linear(FEATURES, 4, key=key), Bilinear(Cube(4))), Table(64))
    with pytest.raises(Exception, match="kept for 10 training rows, but the data have more"):
        fit(Solver(MCMC(Gibbs(), persistent=10)), unary, rows, steps=1, key=key)
    held_out = ValidationLoss(MCMC(Gibbs(), persistent=64), training.batch(unary, *rows), key)
    with pytest.raises(ValueError, match=r"batch has no index.*another objective"):
        held_out.check(unary)


BAD = {
    "chains of length 0": (lambda: MCMC(steps=0), "num >= 1 draws.*num = 0"),
    "negative burn-in": (lambda: MCMC(burn_in=-1), "burn_in = -1"),
    "no chains": (lambda: MCMC(chains=0), "at least 1 chain per row; got 0"),
    "unknown start": (lambda: MCMC(start="here"), "'data', 'q', 'uniform' or 'surrogate'; got 'here'"),
    "no rows": (lambda: MCMC(persistent=0), "number of training rows, at least 1, or None; got 0"),
    "another f": (lambda: MCMC().check(model(COUPLINGS["unary"], f=ChiSquare())), "ChiSquare.*needs f = KL.*MinMin"),
    "no surrogate": (
        lambda: MCMC(start="surrogate").check(model(COUPLINGS["classes"])),
        "needs a model with a surrogate.*start='q'",
    ),
    "another space": (
        lambda: MCMC(Metropolis(Uniform(Simplex(4)))).check(model(COUPLINGS["unary"])),
        "on Simplex.*the model is on Hypercube",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused(case, unchecked):
    ask, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        ask()
