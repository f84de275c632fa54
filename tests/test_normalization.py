"""Total masses: intervals contain the true mass as often as they say, whatever the modes, and the verdict follows."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from cases import COUPLINGS, MANY, NORMALIZED, exactly, model, off, references, some

from partita import budget, inference
from partita.budget import TooLargeError
from partita.couplings import LinearQuadratic, Symmetric
from partita.divergences import KL, ChiSquare, JensenShannon, ReverseKL, Tsallis
from partita.inference import Normalization
from partita.model import EBM, Energy, Network, Shifted, UnseenRowError

K = 10


def ising(u, pairs):
    """Logits of one model a row: linear terms and the pairs of a matrix above its diagonal."""
    return np.concatenate([u, pairs[:, *np.triu_indices(u.shape[1], 1)]], axis=1).astype(np.float32)


def unimodal(rng, n, k):
    """Interactions of a standard deviation up to 0.5."""
    return ising(rng.normal(size=(n, k)), rng.uniform(0, 0.5, (n, 1, 1)) * rng.normal(size=(n, k, k)))


def strong(rng, n, k):
    """Interactions of standard deviation 1, 2 or 3."""
    return ising(rng.normal(size=(n, k)), rng.choice([1, 2, 3], (n, 1, 1)) * rng.normal(size=(n, k, k)))


def two_mode(rng, n, k):
    """Ferromagnets, half of them along a random pattern of signs. In spins s = +-1 along the pattern,
    g = 1/4 sum_{i<j} J_ij s_i s_j + d / (2k) sum_i s_i: the log-weights of the modes differ by d = 0, 1, 2 or 3."""
    pairs = np.triu(rng.uniform(0.5, 3, (n, 1, 1)) * rng.uniform(0.5, 1.5, (n, k, k)), 1)
    pattern = np.where(rng.random((n, 1)) < 0.5, 1, rng.choice([-1, 1], (n, k)))
    pairs = (pairs + pairs.swapaxes(1, 2)) * pattern[:, :, None] * pattern[:, None]
    return ising(rng.choice([0, 1, 2, 3], (n, 1)) / k * pattern - pairs.sum(axis=2) / 2, pairs)


KINDS = {"unimodal": unimodal, "strong": strong, "two-mode": two_mode}


def log_partitions(theta, k):
    """log E_q[exp g] of label sets, q uniform, by enumeration in float64."""
    y = (np.arange(2**k)[:, None] >> np.arange(k) & 1).astype(float)
    products = y[:, np.triu_indices(k, 1)[0]] * y[:, np.triu_indices(k, 1)[1]]
    scores = np.concatenate([y, products], axis=1)
    return np.array([scipy.special.logsumexp(scores @ row) for row in theta.astype(float)]) - k * np.log(2)


class Logits(eqx.Module):
    """A row of x is a model of its own: its logits, and tau behind them."""

    def __call__(self, x):
        return x[:-1]


def last(x):
    return x[-1]


def one_model_a_row(k):
    return EBM(Energy(Logits(), LinearQuadratic(Symmetric(k), shared=False)), Network(last))


@functools.cache
def rows_of(kind, n, k):
    """(x, log-partitions) of n models; tau is 0."""
    theta = KINDS[kind](np.random.default_rng(5), n, k)
    return np.concatenate([theta, np.zeros((n, 1), np.float32)], axis=1), log_partitions(theta, k)


def with_tau(x, tau):
    """The rows with this tau, and the tau that they have, in float32."""
    x = np.concatenate([x[:, :-1], np.asarray(tau, np.float32)[:, None]], axis=1)
    return x, x[:, -1].astype(float)


def covered(result, log_mass):
    with np.errstate(divide="ignore"):
        return (np.log(result.low) <= log_mass) & (log_mass <= np.log(result.high))


@functools.cache
def few(confidence=0.99, num=48):
    """The interval, the true log mass and the kind of `num` models of each kind at K labels with the right tau, and of
    as many two-mode models with a tau 0.5 too low: one call, one program."""
    kinds = [*KINDS, "two-mode"]
    x, lse = (np.concatenate(parts) for parts in zip(*(rows_of(kind, num, K) for kind in kinds), strict=True))
    kind = np.repeat([*KINDS, "too low"], num)
    x, tau = with_tau(x, lse - np.where(kind == "too low", 0.5, 0))
    options = {"method": "sampled", "key": jax.random.key(0), "confidence": confidence}
    return inference.normalization(one_model_a_row(K), x, **options), lse - tau, kind


@pytest.mark.parametrize("kind", [*KINDS, "too low"])
def test_intervals_contain_the_mass(kind):
    """Intervals of 99%: 4 or more of 48 outside have a chance of 1.5e-3."""
    result, log_mass, kinds = few()
    assert np.sum(~covered(result, log_mass)[kinds == kind]) < 4


@pytest.mark.parametrize("confidence", some([0.5, 0.9], quick=[]))
def test_intervals_cover_at_least_as_often_as_they_say(confidence):
    """192 models, less 3 deviations of the share (p = 1e-3)."""
    result, log_mass, _ = few(confidence)
    share = covered(result, log_mass).mean()
    assert share > confidence - 3 * np.sqrt(confidence * (1 - confidence) / len(log_mass))


def test_no_verdict_on_a_two_mode_model_is_wrong():
    """Each model by itself, and all together: draws from one mode would miss up to half of the mass, 0.7 nats."""
    result, _, kind = few()
    arrays = np.stack(result[:4])
    for wrong, rows in (("not normalized", kind == "two-mode"), ("normalized", kind == "too low")):
        groups = [*np.flatnonzero(rows)[:, None], np.flatnonzero(rows)]
        verdicts = {Normalization(*arrays[:, group], 0.99, 0.25).verdict for group in groups}
        assert wrong not in verdicts
    # Not for lack of a statement: mild models are decided.
    assert Normalization(*arrays[:, kind == "unimodal"], 0.99, 0.25).verdict == "normalized"
    assert Normalization(*arrays[:, kind == "too low"], 0.99, 0.25).verdict == "not normalized"


@pytest.mark.slow
@pytest.mark.parametrize("k", [10, 12, 14, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_of_many_models_contain_the_mass(kind, k):
    """512 models: 98% of the intervals, of a confidence of 99% (fewer have a chance of 1e-2)."""
    x, lse = rows_of(kind, 512, k)
    x, tau = with_tau(x, lse)
    result = inference.normalization(one_model_a_row(k), x, method="sampled", key=jax.random.key(1))
    assert covered(result, lse - tau).mean() >= 0.98
    assert np.mean(np.isinf(result.high)) <= 0.1


def test_the_exact_mass_has_a_rounding_error_only():
    """Scores of size 100 in float32: every interval contains the truth in float64, and is narrower than 1e-3."""
    x, lse = (np.concatenate(parts) for parts in zip(*(rows_of(kind, 48, K) for kind in KINDS), strict=True))
    x, tau = with_tau(x, lse + 0.1)
    result = inference.normalization(one_model_a_row(K), x)
    assert covered(result, lse - tau).all()
    assert ((result.low < result.mass) & (result.mass < result.high) & (result.high - result.low < 1e-3)).all()
    assert np.isinf(result.effective).all()
    assert result.verdict == "normalized"


SUMMED = {
    **{name: (name, KL()) for name in COUPLINGS},
    **{f"ising-{type(f).__name__}": ("ising", f) for f in (ChiSquare(), Tsallis(1.5), JensenShannon(), ReverseKL())},
    "birkhoff-chi-square": ("birkhoff", ChiSquare()),
}


@pytest.mark.parametrize("case", some(SUMMED, quick=["birkhoff", "ising-low-rank", "ising-JensenShannon"]))
def test_the_exact_mass_is_the_sum_over_all_outputs(case):
    """Against a sum in float64 over float32 scores; the interval contains it at every shift of tau."""
    name, f = SUMMED[case]
    ebm = model(COUPLINGS[name], f=f, q=references(COUPLINGS[name].space)[-1])
    y, tau = ebm.space.elements(), inference.log_partition(ebm, MANY)
    g = jax.jit(jax.vmap(lambda x: jax.vmap(lambda y: ebm.g(x, y))(y)))(MANY)
    q = np.exp(np.asarray(jax.vmap(ebm.q.log_prob)(y), float))
    verdicts = []
    for shift in (0.0, 1.0, -1.0):
        wrong = off(ebm, tau, shift)
        result = inference.normalization(wrong, MANY, index=np.arange(len(MANY)))
        with jax.enable_x64(True):
            v = np.asarray(g, float) - np.asarray(wrong.tau.values, float)[:, None] - f.start
            mass = np.asarray(jax.vmap(jax.vmap(f.density))(jnp.asarray(v))) @ q
        assert ((result.low <= mass) & (mass <= result.high)).all()
        np.testing.assert_allclose(result.mass, mass, rtol=1e-3)
        verdicts.append(result.verdict)
    assert verdicts == ["normalized", "not normalized", "not normalized"]


def check(ebm, key, num=1000):
    return inference.normalization(ebm, MANY, method="sampled", key=key, num=num, index=np.arange(len(MANY)))


@pytest.mark.parametrize("case", some(NORMALIZED, quick=["ising-chi-square"]))
def test_draws_tell_the_exact_tau_from_one_that_is_off(case, key):
    """Off by 0.5, twice the tolerance: |log mass| is 0.5 for KL, and more for Jensen-Shannon, of density u and slope
    u (1 + u). That of chi-square has the slope q(support), which is below 1: off by 1."""
    ebm = exactly(case)
    right = check(ebm, key)
    assert right.verdict == "normalized"
    # 99% of intervals: two or more of 12 outside have a chance of 0.6%, three or more 2e-4.
    assert np.sum((right.low > 1) | (right.high < 1)) < 3
    assert (right.effective >= 1).all()
    assert (right.effective <= 1064 * (1 + 1e-5)).all()
    distance = 1.0 if isinstance(ebm.f, ChiSquare) else 0.5
    for shift in (distance, -distance):
        wrong = check(off(ebm, ebm.tau.values + ebm.f.start, shift), key)
        assert wrong.verdict == "not normalized"
        assert (np.sign(np.log(wrong.mass)) == -np.sign(shift)).all()
        least, largest = wrong.error
        assert 0.25 < least <= largest


def test_mass_of_kl_is_exp_of_the_gap(key):
    """The same draws with tau moved by a constant: everything scales by exp(-constant), up to float32."""
    ebm = exactly("birkhoff")
    right, wrong = check(ebm, key), check(off(ebm, ebm.tau.values + ebm.f.start, 0.5), key)
    np.testing.assert_allclose(wrong.mass, np.exp(-0.5) * right.mass, rtol=1e-4)
    np.testing.assert_allclose(wrong.high, np.exp(-0.5) * right.high, rtol=1e-4)
    np.testing.assert_allclose(wrong.effective, right.effective, rtol=1e-4)


def test_too_few_draws_are_undecided(key):
    """Nine draws are never 10 effective ones: intervals are open, whether tau is right or not. What is left is the
    surrogate's bound of the mass, which under independent labels is the mass."""
    ebm = exactly("unary")
    for shift in (0.0, 0.5):
        result = check(off(ebm, ebm.tau.values + ebm.f.start, shift), key, num=9)
        assert result.verdict == "undecided"
        assert np.isinf(result.high).all()
        np.testing.assert_allclose(result.low, np.exp(-shift), rtol=1e-4)


@pytest.mark.parametrize(
    ("open_rows", "n", "left_out"), [(1, 100, 1), (10, 100, 10), (11, 100, 0), (1, 3, 1), (1, 2, 0)]
)
@pytest.mark.parametrize(("log_mass", "verdict"), [(0.0, "normalized"), (0.5, "not normalized")])
def test_few_open_rows_are_left_out_of_the_verdict(open_rows, n, left_out, log_mass, verdict):
    low, high = np.full(n, np.exp(log_mass - 0.1)), np.full(n, np.exp(log_mass + 0.1))
    low[:open_rows], high[:open_rows] = 0, np.inf
    result = Normalization(np.exp(np.full(n, log_mass)), low, high, np.full(n, 100.0), 0.99, 0.25)
    assert result.left_out == left_out
    # What is known of the other 89 rows, a mean of at least 0.356 over all, may be enough.
    assert result.verdict == (verdict if left_out or (n, log_mass) == (100, 0.5) else "undecided")
    assert np.isfinite(result.error[1]) == bool(left_out)


def test_one_row_with_few_effective_draws_does_not_change_the_verdict():
    """Draws from q and short chains tell nothing of the last model, whose scores are in the thousands."""
    ebm = EBM(one_model_a_row(K).g, Network(last), surrogate=False)
    theta = KINDS["unimodal"](np.random.default_rng(0), 16, K) * np.where(np.arange(16) == 15, 2000, 0.2)[:, None]
    theta = theta.astype(np.float32)
    for shift, verdict in ((0.0, "normalized"), (0.5, "not normalized")):
        x, _ = with_tau(np.pad(theta, ((0, 0), (0, 1))), log_partitions(theta, K) + shift)
        result = inference.normalization(ebm, x, method="sampled", key=jax.random.key(0))
        assert np.isinf(result.high[-1])
        assert result.left_out == 1
        assert result.verdict == verdict


def test_bad_questions_get_a_clear_answer(key):
    ebm = exactly("unary")
    ask = functools.partial(inference.normalization, ebm, MANY, index=np.arange(len(MANY)))
    with pytest.raises(ValueError, match="one of 'auto', 'exact', 'sampled'; got 'guess'"):
        ask(method="guess")
    with pytest.raises(ValueError, match="method='sampled' draws: give a key"):
        ask(method="sampled")
    for bad in ({"confidence": 1.0}, {"confidence": 0.0}, {"tolerance": 0.0}, {"tolerance": -1.0}):
        with pytest.raises(ValueError, match="confidence must be between 0 and 1 and tolerance positive"):
            ask(key=key, **bad)


def test_what_cannot_be_summed_is_sampled(key, monkeypatch):
    """As if 16 outputs were too many."""
    ask = functools.partial(inference.normalization, exactly("ising-chi-square"), MANY, index=np.arange(len(MANY)))
    kind = budget.Kind.ENUMERATION
    monkeypatch.setitem(budget.LIMITS, kind, budget.LIMITS[kind]._replace(answer=8))
    with pytest.raises(TooLargeError, match="enumeration reaches 8 outputs"):
        ask(method="exact")
    with pytest.raises(ValueError, match="method='auto' draws: give a key"):
        ask()
    result = ask(key=key)
    assert np.isfinite(result.effective).all()
    assert result.verdict == "normalized"


@pytest.mark.parametrize("case", ["ising", "ising-chi-square"])
def test_recalibrating_brings_a_shifted_tau_back(case, key):
    """Within 5 standard errors of a mean over the rows (p = 6e-7, were they normal)."""
    ebm, index = exactly(case), np.arange(len(MANY))
    wrong = off(ebm, ebm.tau.values + ebm.f.start, 0.5)
    before = jax.tree.map(lambda a: a.copy() if eqx.is_array(a) else a, wrong)
    mended = inference.recalibrate(wrong, MANY, key=key, index=index)
    assert eqx.tree_equal(wrong, before)
    assert isinstance(mended.tau, Shifted)
    _, error = inference.log_partition_with_error(ebm, MANY, method="importance", key=key)
    assert abs(float(mended.tau.shift) + 0.5) < 5 * float(error.max()) / len(MANY) ** 0.5
    assert inference.normalization(wrong, MANY, index=index).verdict == "not normalized"
    assert inference.normalization(mended, MANY, index=index).verdict == "normalized"


def test_a_shifted_table_knows_training_rows_only():
    """As the table itself: no number for another index, or for none."""
    ebm = exactly("unary")
    shifted = eqx.tree_at(lambda model: model.tau, ebm, Shifted(ebm.tau, jnp.asarray(0.5)))
    with pytest.raises(ValueError, match="index must be between 0 and 11"):
        inference.log_partition(shifted, MANY, method="learned", index=np.arange(12) + 1)
    for ask in (inference.normalization, inference.recalibrate):
        with pytest.raises(UnseenRowError, match="knows training rows only"):
            ask(shifted, MANY, key=jax.random.key(0))
