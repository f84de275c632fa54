"""Laws of the kernels: p is their law after enough steps, whatever tau; chains and what they are worth."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
import scipy.stats
from cases import COUPLINGS, FEATURES, model, references

from partita import kernels
from partita.divergences import KL, ChiSquare, Tsallis
from partita.kernels import Gibbs, Guided, Informed, Metropolis, Tempered, effective_sample_size, r_hat, run, target
from partita.measures import PlackettLuce, ProductBernoulli, Uniform
from partita.partition import Table, UnseenRowError
from partita.spaces import Hypercube, KSubsets, Permutations

KERNELS = {
    "uniform": Metropolis("uniform"),
    "local": Metropolis("local"),
    "surrogate": Metropolis("surrogate"),
    "gibbs": Gibbs(),
    "informed": Informed(),
    "gradient": Informed(gradient=True),
    "guided": Guided(),
    "guided, envelope too small": Guided(envelope=0.3, tries=2),
    "guided, hardly ever kept": Guided(envelope=20.0, tries=3),
}
# Every space, every kind of energy, relative to a q that is not uniform where there is one.
CASES = {
    name: (name, KL())
    for name in ("unary", "subsets", "classes", "birkhoff", "ising-subsets", "neural-sets", "neural-rankings")
}
CASES |= {"ising": ("ising", Tsallis(1.5))}
CHAINS, STEPS = 4000, 60
# A learned tau is a network at random here: off by this much besides, p must still be invariant.
OFF = 0.7
X = jax.random.normal(jax.random.key(3), (2, FEATURES))

# Compiling is most of the time here; unoptimized programs compile twice as fast and obey the same laws.
jit = functools.partial(eqx.filter_jit, compiler_options={"xla_backend_optimization_level": 0})


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
    """Where chains that start uniformly over Y end, and how they fared; and the log-density of every y."""
    row = ebm.row(x)
    aimed = target(ebm, row, ebm.tau(row) + (OFF if isinstance(ebm.f, KL) else 0))
    start_key, *keys = jax.random.split(key, 1 + len(tested))
    start = ebm.space.sample(CHAINS, key=start_key)
    found = [run(one, aimed, start, 1, thin=STEPS, key=key) for one, key in zip(tested, keys, strict=True)]
    return found, jax.vmap(aimed.log_prob)(ebm.space.elements())


@functools.cache
def ends(case):
    name, f = CASES[case]
    ebm = model(COUPLINGS[name], q=references(COUPLINGS[name].space)[-1], f=f, scale=0.7)
    found, log_prob = _ends(tuple(KERNELS.values()), ebm, X[0], jax.random.key(5))
    return dict(zip(KERNELS, found, strict=True)), log_prob, ebm.space.elements()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("case", CASES)
def test_chains_end_at_p(case, name):
    """The ends of 4000 chains, chi-square at p > 1e-4 over 72 tests; tau is wrong, one f is not KL."""
    found, log_prob, elements = ends(case)
    draws, info = found[name]
    assert draws.shape == (CHAINS, 1, *elements.shape[1:])
    assert_follow(draws[:, 0], log_prob, elements)
    assert (info.acceptance >= 0).all()
    assert (info.acceptance <= 1).all()
    assert float(info.acceptance.mean()) > 0.02
