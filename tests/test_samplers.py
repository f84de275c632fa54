"""Laws of the estimators: they agree with the exact log-partition, and their errors are what they say."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COUPLINGS, DIVERGENCES, FEATURES, jit, model, references

from partita import exact
from partita.divergences import ChiSquare, JensenShannon
from partita.kernels import Gibbs
from partita.samplers import AnnealedImportanceSampling, ImportanceSampling, SequentialMonteCarlo, systematic

# One case for each kind of surrogate, and one without: the other couplings share theirs.
CASES = ("unary", "subsets", "classes", "birkhoff", "ising", "neural-rankings")
OTHERS = {name: f for name, f in DIVERGENCES.items() if isinstance(f, ChiSquare | JensenShannon)}
# Logits of about 1: at larger ones some weights are so rare that 200 seeds do not know their deviation.
SCALE = 0.7
ROWS, SEEDS = 3, 200
X = jax.random.normal(jax.random.key(3), (ROWS, FEATURES))
IMPORTANCE = ImportanceSampling(200)
ANNEALED = AnnealedImportanceSampling(chains=24, temperatures=6, moves=2)
# From q, so that weights become uneven and particles are drawn anew.
SEQUENTIAL = SequentialMonteCarlo(particles=24, temperatures=6, moves=2, hot=True, threshold=0.8)
NUM = {"importance": IMPORTANCE.num, "annealed": ANNEALED.chains, "sequential": SEQUENTIAL.particles}
# Where r is p all weights are equal, and what is left is the rounding of float32 sums.
ROUNDING = 2e-5

cases = pytest.mark.parametrize("name", CASES)
estimators = pytest.mark.parametrize("estimator", ["importance", "annealed", "sequential"])


@jit
def _ask(ebm, estimators):
    keys = jax.random.split(jax.random.key(4), SEEDS)

    def of_row(x):
        row = ebm.row(x)
        found = [jax.vmap(lambda key, one=one: one(ebm, row, key=key))(keys) for one in estimators]
        return exact.log_partition(ebm, row), found

    return jax.vmap(of_row)(X)


@functools.cache
def answers(name, f=None):
    """Relative to the least uniform q: the exact tau of each row, and what each estimator says for all seeds."""
    ebm = model(COUPLINGS[name], q=references(COUPLINGS[name].space)[-1], f=f, scale=SCALE)
    asked = {"importance": IMPORTANCE} | ({"annealed": ANNEALED, "sequential": SEQUENTIAL} if f is None else {})
    tau, found = jax.tree.map(lambda a: np.asarray(a, np.float64), _ask(ebm, tuple(asked.values())))
    return tau[:, None], dict(zip(asked, found, strict=True))


def assert_agrees(tau, found):
    """For the first of the seeds, on every row, within 5 stated errors: 3 rows, at most 1e-5 were they normal."""
    assert (np.abs(found.value - tau)[:, 0] < 5 * found.error[:, 0] + 1e-4).all()


def assert_error_is_right(found):
    """The deviation over 200 seeds, itself known to 5% (10% with heavy tails), is the stated error up to 1.5."""
    deviation, stated = found.value.std(axis=1, ddof=1), found.error.mean(axis=1)
    assert (deviation < 1.5 * stated + ROUNDING).all()
    assert (stated < 1.5 * deviation + ROUNDING).all()


@estimators
@cases
def test_estimates_agree_with_the_exact_log_partition(name, estimator):
    tau, found = answers(name)
    assert_agrees(tau, found[estimator])


@estimators
@cases
def test_stated_errors_are_the_deviation_over_seeds(name, estimator):
    assert_error_is_right(answers(name)[1][estimator])


@estimators
@cases
def test_the_mean_weight_is_unbiased_for_the_partition(name, estimator):
    """exp(estimate - exact) has mean 1: z-test over 200 seeds, |z| < 4 on each of 3 rows (p = 2e-4 in all)."""
    tau, found = answers(name)
    ratio = np.exp(found[estimator].value - tau)
    assert (np.abs(ratio.mean(1) - 1) < 4 * ratio.std(1, ddof=1) / SEEDS**0.5 + ROUNDING).all()


@estimators
@cases
def test_effective_share_is_that_of_the_weights(name, estimator):
    """For weights of mean 1, 1 / (1 + variance): between one draw of all and all of them."""
    found, num = answers(name)[1][estimator], NUM[estimator]
    assert (found.effective > 1 / num - ROUNDING).all()
    assert (found.effective < 1 + ROUNDING).all()
    # The stated error is the deviation of the weights over the square root of their number; ddof = 1 in it.
    variance = found.error**2 * (num - 1)
    np.testing.assert_allclose(found.effective, 1 / (1 + variance), atol=1e-4)


@pytest.mark.parametrize("f", OTHERS.values(), ids=OTHERS)
def test_importance_sampling_finds_the_multiplier_of_other_divergences(f):
    tau, found = answers("unary", f)
    assert_agrees(tau, found["importance"])
    assert_error_is_right(found["importance"])


def test_without_a_surrogate_draws_come_from_q(key):
    ebm = model(COUPLINGS["classes"])
    row = ebm.row(X[0])
    assert ebm.surrogate is None
    assert row.surrogate is None
    np.testing.assert_array_equal(IMPORTANCE.draw(ebm, row, key=key).log_weight, 0)


def test_no_weight_exceeds_one_over_the_defense(key):
    """Logits of +-8: r alone would give weights of e^30 to what it hardly ever draws."""
    ebm = model(COUPLINGS["unary"])
    row = eqx.tree_at(lambda row: row.theta, ebm.row(X[0]), jnp.array([8.0, -8.0, 8.0, -8.0]))
    near = ebm.surrogate(ebm.g.coupling, row.theta, row.q)
    row = eqx.tree_at(lambda row: row.surrogate, row, near)
    weighted = ImportanceSampling(2000, defense=0.2).draw(ebm, row, key=key)
    assert float(jnp.exp(weighted.log_weight).max()) == pytest.approx(5, rel=1e-2)


@jit
def _particles(ebm, sequential, x, keys):
    row = ebm.row(x)
    found = jax.vmap(lambda key: sequential.draw(ebm, row, key=key))(keys)
    drawn = jax.vmap(lambda found, key: found.sample(5, key=key))(found, keys)
    log_p = jax.vmap(lambda y: exact.log_prob(ebm, row, y))(ebm.space.elements())
    return found, drawn, exact.log_partition(ebm, row), log_p


@pytest.mark.parametrize("name", ["ising", "subsets"])
def test_weighted_particles_stand_for_p(name, key):
    """The mean of w 1[y] is unbiased for Z p(y), for every y of p > 1 %: |z| < 4.5 over 400 seeds (p = 1e-4)."""
    ebm, seeds = model(COUPLINGS[name], scale=0.7), 400
    elements = np.asarray(ebm.space.elements())
    sequential = SequentialMonteCarlo(16, 5, 1, hot=True, kernel=Gibbs(), threshold=0.95)
    found, drawn, tau, log_p = _particles(ebm, sequential, X[0], jax.random.split(key, seeds))
    distinct = [len(np.unique(origin)) for origin in np.asarray(found.origin)]
    assert np.mean(distinct) < 0.9 * 16, "hardly any particles were drawn anew"
    weight = np.exp(np.asarray(found.log_weight, float) - float(tau))
    at = (np.asarray(found.y)[:, :, None] == elements).all(-1)
    mass = (weight[:, :, None] * at).mean(axis=1)
    likely = np.exp(log_p) > 0.01
    z = (mass.mean(axis=0) - np.exp(log_p))[likely] / (mass.std(axis=0, ddof=1)[likely] / seeds**0.5)
    assert likely.sum() > 5
    assert np.abs(z).max() < 4.5
    # What is drawn in proportion to the weights is biased by 1 / 16 at most, and 2000 draws tell 3 % at most.
    share = (np.asarray(drawn)[:, :, None] == elements).all(-1).mean(axis=(0, 1))
    np.testing.assert_allclose(share, np.exp(log_p), atol=0.06)


@pytest.mark.parametrize("num", [7, 100])
def test_systematic_draws_are_as_many_as_their_share_up_to_one(num, key):
    log_weight = 3 * jax.random.normal(key, (20,))
    drawn = jax.vmap(lambda key: systematic(log_weight, num, key=key))(jax.random.split(key, 50))
    counts = np.stack([np.bincount(row, minlength=20) for row in np.asarray(drawn)])
    assert (np.abs(counts - num * np.asarray(jax.nn.softmax(log_weight))) < 1 + 1e-3).all()
    assert counts.std(axis=0).max() > 0


def test_annealing_refuses_other_divergences():
    with pytest.raises(ValueError, match=r"needs f = KL, but f is ChiSquare.*importance sampling"):
        ANNEALED.check(model(COUPLINGS["unary"], f=ChiSquare()))
    with pytest.raises(ValueError, match="needs f = KL"):
        SEQUENTIAL.check(model(COUPLINGS["unary"], f=ChiSquare()))
    ANNEALED.check(model(COUPLINGS["unary"]))
    IMPORTANCE.check(model(COUPLINGS["unary"], f=ChiSquare()))
