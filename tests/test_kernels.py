"""Laws of the kernels: p stays their law, whatever tau; chains and what they are worth."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
import scipy.stats
from cases import COUPLINGS, FEATURES, jit, model, references, some

from partita import exact, kernels
from partita.divergences import KL, ChiSquare
from partita.kernels import Gibbs, Guided, Informed, Metropolis, Tempered, effective_sample_size, r_hat, run, target
from partita.model import Table, UnseenRowError
from partita.samplers import SequentialMonteCarlo
from partita.structures import Hypercube, KSubsets, ProductBernoulli, Uniform

KERNELS = {
    "uniform": Metropolis("uniform"),
    "local": Metropolis("local"),
    "surrogate": Metropolis("surrogate"),
    "gibbs": Gibbs(),
    "informed": Informed(),
    "gradient": Informed(gradient=True),
    # An envelope that w exceeds, and too few tries.
    "guided": Guided(envelope=0.3, tries=2),
}
# Every space, two neural energies, relative to a q that is not uniform where there is one; one f that is not KL.
CASES = {name: (name, KL()) for name in ("neural-sets", "ising-subsets", "classes", "neural-rankings")}
CASES |= {"sparse": ("unary", ChiSquare())}
CHAINS, STEPS = 4000, 20
# A learned tau is a network at random here; off by this much besides, sets of little weight have none at all under
# chi-square, and for KL p must still be invariant.
OFF = 1.5
X = jax.random.normal(jax.random.key(3), (2, FEATURES))


def assert_follow(y, log_prob, elements, least=1e-4):
    """Pearson's chi-square test of draws against the probabilities of all elements: p > `least`."""
    p = np.asarray(jax.nn.softmax(jnp.asarray(log_prob, float)), np.float64)
    which = (np.asarray(y)[:, None] == np.asarray(elements)).reshape(len(y), len(p), -1).all(-1)
    assert which.any(axis=1).all(), "a draw is not in Y"
    counts = which.sum(axis=0)
    # The test asks for some 5 expected in every cell: rarer outputs are one cell.
    rare = len(y) * p < 5
    assert counts[p == 0].sum() == 0
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = len(y) * np.append(p[~rare], p[rare].sum())
    kept = expected > 0
    assert scipy.stats.chisquare(counts[kept], expected[kept] / expected.sum() * len(y)).pvalue > least


@jit
def _ends(tested, ebm, x, key):
    """Chains that start at p: where, where they end, and how they fared; and the log-density of every y."""
    row = ebm.row(x)
    aimed = target(ebm, row, ebm.log_partition(row) + OFF)
    start_key, *keys = jax.random.split(key, 1 + len(tested))
    elements = ebm.space.elements()
    log_prob = jax.vmap(aimed.log_prob)(elements)
    start = elements[jax.random.categorical(start_key, log_prob, shape=(CHAINS,))]
    found = [run(one, aimed, start, 1, thin=STEPS, key=key) for one, key in zip(tested, keys, strict=True)]
    return start, found, log_prob


@functools.cache
def ends(case):
    name, f = CASES[case]
    ebm = model(COUPLINGS[name], q=references(COUPLINGS[name].space)[-1], f=f, scale=0.7)
    start, found, log_prob = _ends(tuple(KERNELS.values()), ebm, X[0], jax.random.key(5))
    return start, dict(zip(KERNELS, found, strict=True)), log_prob, ebm.space.elements()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("case", some(CASES, ("ising-subsets", "sparse")))
def test_p_stays_the_law_of_chains(case, name):
    """The ends of 4000 chains, chi-square at p > 1e-4 in each of 35 tests; tau is wrong where it is only a constant."""
    start, found, log_prob, elements = ends(case)
    draws, info = found[name]
    assert draws.shape == (CHAINS, 1, *elements.shape[1:])
    assert_follow(draws[:, 0], log_prob, elements)
    assert (info.acceptance >= 0).all()
    assert (info.acceptance <= 1).all()
    assert float(info.acceptance.mean()) > 0.1
    assert np.mean((start != draws[:, 0]).any(axis=1)) > 0.3, "the chains hardly moved"


@pytest.mark.parametrize(
    "case", some([case for case, (_, f) in CASES.items() if isinstance(f, KL)], ("ising-subsets", "classes"))
)
def test_particles_follow_p(case, key):
    """One draw of each of 2000 runs of 64 particles, whose bias is below 1 / 64: chi-square at p > 1e-4."""
    name, _ = CASES[case]
    ebm = model(COUPLINGS[name], q=references(COUPLINGS[name].space)[-1], scale=0.7)

    @jit
    def draws(ebm, x, keys):
        def one(key):
            draw_key, choose_key = jax.random.split(key)
            return SequentialMonteCarlo(64, 4).draw(ebm, ebm.row(x), key=draw_key).sample(1, key=choose_key)[0]

        log_prob = jax.vmap(target(ebm, ebm.row(x)).log_prob)(ebm.space.elements())
        return jax.lax.map(one, keys, batch_size=250), log_prob

    assert_follow(*draws(ebm, X[0], jax.random.split(key, 2000)), ebm.space.elements())


def test_the_sparse_case_has_outputs_of_probability_zero():
    *_, log_prob, _ = ends("sparse")
    assert 0 < np.isneginf(log_prob).sum() < len(log_prob) / 2


@pytest.mark.parametrize("name", ["local", "gibbs", "gradient"])
def test_chains_leave_where_p_is_zero(name):
    """From all of Y, some of it without probability under chi-square, to p: chi-square test at p > 1e-4."""
    ebm = model(COUPLINGS["unary"], q=references(Hypercube(4))[-1], f=ChiSquare(), scale=0.7)

    @jit
    def chain(x, key):
        row, (start_key, run_key) = ebm.row(x), jax.random.split(key)
        aimed, start = target(ebm, row, ebm.log_partition(row) + OFF), ebm.space.sample(CHAINS, key=start_key)
        return run(KERNELS[name], aimed, start, 1, thin=2 * STEPS, key=run_key)[0][:, 0]

    *_, log_prob, elements = ends("sparse")
    assert_follow(chain(X[0], jax.random.key(6)), log_prob, elements)


@pytest.mark.parametrize("share", [0.5, 20.0])
def test_guided_draws_are_independent_where_the_envelope_holds(share):
    """tau and r exact: w = 1. Of 3 tries each is kept with probability 1 / envelope, and what is kept is accepted."""
    ebm = model(COUPLINGS["unary"], q=references(Hypercube(4))[-1])
    envelope, tries = max(share, 1.0), 3

    @jit
    def chain(x, key):
        aimed = target(ebm, ebm.row(x), ebm.row(x).surrogate.tau)
        start = jnp.zeros((CHAINS, 4), int)
        return run(Guided(share, tries), aimed, start, 1, key=key)[1].acceptance

    found = np.asarray(chain(X[0], jax.random.key(6)))
    chance = 1 - (1 - 1 / envelope) ** tries
    # Each is 0 or 1: a binomial share, |z| < 4 (p = 6e-5).
    assert abs(found.mean() - chance) <= 4 * np.sqrt(chance * (1 - chance) / CHAINS) + 1e-5


def test_metropolis_leaves_a_tempered_target_as_it_is(key):
    """Chains that start at r^(1 - t) p^t and move 8 times: chi-square over all y, p > 1e-4, for three t."""
    ebm, chains = model(COUPLINGS["ising"], scale=0.5), 10_000
    elements = ebm.space.elements()

    @jit
    @functools.partial(jax.vmap, in_axes=(0, 0, None))
    def move(t, key, x):
        # Not the row's own r, which is near p: that of another theta.
        between = Tempered(ebm.row(x[1]).surrogate.r, target(ebm, ebm.row(x[0])), t)
        start_key, move_key = jax.random.split(key)
        log_prob = jax.vmap(between.log_prob)(elements)
        start = elements[jax.random.categorical(start_key, log_prob, shape=(chains,))]
        return log_prob, start, run(Metropolis("local"), between, start, 1, thin=8, key=move_key)[0][:, 0]

    for log_prob, start, end in zip(*move(jnp.array([0.0, 0.5, 1.0]), jax.random.split(key, 3), X), strict=True):
        assert_follow(end, log_prob, elements)
        assert np.mean((start != end).any(axis=1)) > 0.2, "the chains hardly moved"


@pytest.mark.parametrize("name", ["subsets", "classes", "permutahedron", "birkhoff", "ising"])
def test_the_gradient_on_the_hull_is_exact_where_g_is_linear_in_a_move(name, key):
    """Everywhere for a bilinear g; for Ising in each label by itself. float32 of numbers of size 1."""
    ebm = model(COUPLINGS[name], q=references(COUPLINGS[name].space)[-1])
    space = ebm.space

    @jit
    def both(x, key):
        aimed, y = target(ebm, ebm.row(x)), space.sample(1, key=key)[0]
        others = jax.vmap(space.move, in_axes=(None, 0))(y, jnp.arange(space.max_degree))
        return aimed.log_prob_linearized(y, others), jax.vmap(aimed.log_prob)(others)

    near, exactly = both(X[0], key)
    np.testing.assert_allclose(near, exactly, atol=1e-4)
    assert np.ptp(exactly) > 0.1


@pytest.mark.parametrize("proposal", ["uniform", ProductBernoulli(jnp.array([1.0, -1.0, 0.5, 0.0]))], ids=type)
def test_any_measure_may_propose(proposal, key):
    """Over all of Y, or independent labels far from p: the ends of the chains at p > 1e-4."""
    ebm = model(COUPLINGS["ising"], scale=0.7)
    elements = ebm.space.elements()

    @jit
    def chain(x, y, key):
        aimed = target(ebm, ebm.row(x))
        return run(Metropolis(proposal), aimed, y, 1, thin=STEPS, key=key)[0][:, 0], jax.vmap(aimed.log_prob)(elements)

    assert_follow(*chain(X[0], jnp.zeros((CHAINS, 4), int), key), elements)


def test_tau_is_a_constant_for_kl_only(key):
    """A table knows no tau of another row: chains of KL do not need it, those of other f do."""
    ebm = model(COUPLINGS["ising"])
    tabular = eqx.tree_at(lambda m: m.tau, ebm, Table(3))
    y = ebm.space.sample(1, key=key)[0]

    @jit
    def both(x, y):
        row = ebm.row(x)
        return target(tabular, row).log_prob(y) + row.surrogate.tau, target(ebm, row, jnp.zeros(())).log_prob(y)

    found, truth = both(X[0], y)
    assert float(found) == pytest.approx(float(truth), abs=1e-5)
    sparse = model(COUPLINGS["ising"], f=ChiSquare())
    sparse = eqx.tree_at(lambda m: m.tau, sparse, Table(3))
    with pytest.raises(UnseenRowError, match="one number per training row"):
        target(sparse, sparse.row(X[0]))


class Turning(kernels.AbstractKernel):
    """The next class, always."""

    def step(self, target, state, *, key):
        return self.init(target, jnp.roll(state.y, 1)), kernels.Info(jnp.ones(()))


@pytest.mark.parametrize(("burn_in", "thin", "first"), [(0, 1, 1), (0, 3, 3), (6, 3, 9), (5, 3, 9), (1, 1, 2)])
def test_every_so_many_steps_after_the_burn_in_are_kept(burn_in, thin, first, key):
    ebm = model(COUPLINGS["classes"])
    aimed, start = target(ebm, ebm.row(X[0])), jnp.eye(4, dtype=int)[:2]
    draws, info = run(Turning(), aimed, start, 5, burn_in=burn_in, thin=thin, key=key)
    steps = first + thin * np.arange(5)
    np.testing.assert_array_equal(draws.argmax(-1), (np.arange(2)[:, None] + steps) % 4)
    assert info.acceptance.shape == (2, 5)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, -0.4])
def test_effective_size_of_autoregressive_chains(correlation):
    """AR(1) has integrated autocorrelation time (1 + r) / (1 - r). Stan's estimate from 160,000 draws is within some
    3 % of it (seen over seeds); 10 % allowed."""
    noise = np.random.default_rng(0).normal(size=(8, 20_500, 2))
    values = scipy.signal.lfilter([1], [1, -correlation], noise, axis=1)[:, 500:]
    truth = 160_000 * (1 - correlation) / (1 + correlation)
    np.testing.assert_allclose(jit(effective_sample_size)(jnp.asarray(values)), truth, rtol=0.1)


def test_effective_size_sees_what_never_changes_and_chains_that_disagree():
    draws = jnp.asarray(np.random.default_rng(1).normal(size=(4, 1000)))
    ask = jit(effective_sample_size)
    assert np.isnan(ask(jnp.ones((4, 1000))))
    assert ask(draws + 5 * jnp.arange(4)[:, None]) < 20


def test_r_hat_is_one_for_chains_that_agree_only():
    """Of 0/1 values too, whose ranks are tied. Independent chains of 1000: sqrt(1 + 1/1000), up to chance."""
    rng = np.random.default_rng(2)
    draws = jnp.asarray(rng.normal(size=(4, 1000)))
    # By ranks one wild value changes nothing.
    wild = draws.at[0, 0].set(1e8)
    agreeing = [draws, jnp.exp(5 * draws), draws > 0.5, wild]
    apart = [draws + 0.5 * jnp.arange(4)[:, None], draws + jnp.linspace(0, 2, 1000)]
    found = jit(r_hat)(jnp.stack([*agreeing, *apart], axis=-1).astype(float))
    assert (np.abs(found[:4] - 1) < 0.01).all()
    assert (found[4:] > 1.1).all()


BAD = {
    "no draws": (lambda p, y, key: run(Gibbs(), p, y, 0, key=key), r"num >= 1 draws.*num = 0"),
    "negative burn-in": (lambda p, y, key: run(Gibbs(), p, y, 1, burn_in=-1, key=key), r"burn_in = -1"),
    "no steps": (lambda p, y, key: run(Gibbs(), p, y, 1, thin=0, key=key), r"thin = 0"),
    "no chains": (lambda p, y, key: run(Gibbs(), p, y[:0], 1, key=key), r"at least 1 chain.*\(0, 4\)"),
    "one y": (lambda p, y, key: run(Gibbs(), p, y[0], 1, key=key), r"\('chains', 4\); got \(4,\)"),
    "unknown proposal": (lambda p, y, key: Metropolis("gaussian"), "'uniform', 'local' or 'surrogate'.*'gaussian'"),
    "another space": (
        lambda p, y, key: run(Metropolis(Uniform(KSubsets(4, 2))), p, y, 1, key=key),
        r"on KSubsets.*the model is on Hypercube",
    ),
    "no envelope": (lambda p, y, key: Guided(0.0), r"envelope > 0.*got 0\.0, 4"),
    "no tries": (lambda p, y, key: Guided(tries=0), "at least 1 try; got 2.0, 0"),
    "short chains": (lambda p, y, key: effective_sample_size(jnp.ones((4, 3))), r"num >= 4 draws.*\(4, 3\)"),
    "one chain of numbers": (lambda p, y, key: r_hat(jnp.ones(100)), r"\(chains, num, ...\).*\(100,\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused(case, key, unchecked):
    ask, message = BAD[case]
    ebm = model(COUPLINGS["unary"])
    with pytest.raises(ValueError, match=message):
        ask(target(ebm, ebm.row(X[0])), jnp.zeros((2, 4), int), key)


@pytest.mark.parametrize("kernel", [Gibbs(), Metropolis("local"), Informed()], ids=lambda kernel: type(kernel).__name__)
def test_chains_leave_what_the_reference_excludes(kernel, key):
    """Labels 0 and 3 are certain under q: from every one of the 16 outputs chains come to the four that are possible,
    and stay there in proportion to p. 16 chains of 400 states, of which a tenth counts: five standard errors."""
    ebm = model(COUPLINGS["ising"], q=ProductBernoulli(jnp.array([jnp.inf, 0.5, -1.0, -jnp.inf])))
    row = ebm.row(jnp.ones(FEATURES))
    drawn, _ = jit(lambda row, y: run(kernel, target(ebm, row), y, 400, burn_in=100, key=key))(
        row, ebm.space.elements()
    )
    drawn = np.asarray(drawn).reshape(-1, 4)
    np.testing.assert_array_equal(drawn[:, [0, 3]], [[1, 0]] * len(drawn))
    truth = np.asarray(exact.marginals(ebm, row))
    np.testing.assert_allclose(drawn.mean(axis=0), truth, atol=5 * 0.5 / 640**0.5)
