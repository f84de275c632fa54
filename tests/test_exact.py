"""Exact answers: each against enumeration in float64, a closed form, or scipy."""

import functools
import itertools
import math
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from cases import COUPLINGS, DIVERGENCES, FEATURES, jit, model, references, some
from jaxtyping import Array, Float

from partita import budget, exact, inference, structures
from partita.budget import TooLargeError
from partita.couplings import Bilinear, LinearQuadratic, Neural, Symmetric
from partita.divergences import KL, ChiSquare, JensenShannon
from partita.model import EBM, Energy, Table
from partita.networks import MLP, Paired
from partita.structures import (
    AbstractSequentialMeasure,
    Birkhoff,
    Cube,
    Hypersimplex,
    Mallows,
    Permutahedron,
    Permutations,
    PlackettLuce,
    ProbabilitySimplex,
    Uniform,
)
from partita.types import Row

# Scores in the cases are of order 1 and sums have at most 24 terms: float32 leaves errors of some 1e-6.
TOLERANCE = 2e-5

ROWS = 4
DRAWS = 20_000
# The row whose p is spread the most in nearly all cases: it tells the most about draws.
SPREAD = 1
X = jax.random.normal(jax.random.key(3), (ROWS, FEATURES))


def untrained(coupling, **choices):
    """A model of any size, for questions that bring their own theta."""
    return EBM(Energy(None, coupling), Table(1), **choices)


@jit
def _enumerate(coupling, q, theta):
    def of_output(y):
        g, slope = jax.value_and_grad(coupling)(theta, y)
        if isinstance(coupling, Bilinear):
            slope = coupling.polytope.encode(y)
        return {"y": y, "log_q": q.log_prob(y), "g": g, "slope": slope, "indicators": coupling.space.indicators(y)}

    return jax.vmap(of_output)(coupling.space.elements())


def enumerated(coupling, q, theta):
    """Of every y: log q, g, dg/dtheta (phi(y) where g is bilinear) and the indicators. All truth is made of these."""
    found = jax.tree.map(np.asarray, _enumerate(coupling, q, jnp.asarray(theta)))
    return SimpleNamespace(**{name: a if name == "y" else a.astype(float) for name, a in found.items()})


def mean(p, statistics):
    """E_p[statistics]."""
    return np.tensordot(p, statistics, axes=1)


def positions(y, draws):
    """Where each draw stands in the list y of all outputs."""
    code = y.shape[1] ** np.arange(y.shape[1])
    order = np.argsort(y @ code)
    found = order[np.searchsorted(y @ code, draws @ code, sorter=order)]
    np.testing.assert_array_equal(y[found], draws)
    return found


def chi_square(observed, p):
    """p-value of the counts under p; cells with fewer than 5 expected are merged, cells without probability refused."""
    assert observed[p == 0].sum() == 0
    expected = p * observed.sum()
    small = expected < 5
    cells = [
        (observed[~small], expected[~small]),
        (observed[small].sum(keepdims=True), expected[small].sum(keepdims=True)),
    ]
    o, e = (np.concatenate(c) for c in zip(*cells, strict=True))
    o, e = o[e > 0], e[e > 0]
    return scipy.stats.chi2.sf(np.sum((o - e) ** 2 / e), len(e) - 1)


# --- KL: every coupling and every q of the cases -------------------------------------------------------------------


def stirred(coupling):
    """The coupling with random parameters: those that start at or near zero would play no part."""
    learned, fixed = eqx.partition(coupling, eqx.is_inexact_array)
    learned = jax.tree.map(lambda a: a + jax.random.normal(jax.random.key(4), a.shape), learned)
    return eqx.combine(learned, fixed)


KL_CASES = {
    f"{name}-{type(q).__name__}": (stirred(coupling), q)
    for name, coupling in COUPLINGS.items()
    for q in references(coupling.space)
}


@jit
def ask(model, x, key):
    """Every question that `exact` answers, for all rows, in one program."""
    serving = budget.method(model)

    def of_row(x):
        row = model.row(x)
        tau, gradient = jax.value_and_grad(serving.log_partition)(row.theta, row.q)
        return {
            "theta": row.theta,
            "log_partition": tau,
            "gradient": gradient,
            "log_prob": jax.vmap(lambda y: exact.log_prob(model, row, y))(model.space.elements()),
            "marginals": exact.marginals(model, row),
            "mode": exact.mode(model, row),
        }

    return jax.vmap(of_row)(x) | {"sample": exact.sample(model, model.row(x[SPREAD]), DRAWS, key=key)}


@pytest.fixture(scope="module", params=KL_CASES)
def kl(request):
    """The answers for one coupling and q, and the enumerated truth."""
    coupling, q = KL_CASES[request.param]
    answers = jax.tree.map(np.asarray, ask(model(coupling, q=q), X, jax.random.key(11)))
    rows = [enumerated(coupling, q, theta) for theta in answers["theta"]]
    score = np.array([row.log_q + row.g for row in rows])
    log_z = scipy.special.logsumexp(score, axis=1)
    p = np.exp(score - log_z[:, None])
    return SimpleNamespace(rows=rows, y=rows[0].y, score=score, log_z=log_z, p=p, **answers)


def test_log_partition_is_the_logsumexp_of_all_outputs(kl):
    np.testing.assert_allclose(kl.log_partition, kl.log_z, atol=TOLERANCE)


def test_probabilities_are_the_enumerated_ones_and_sum_to_one(kl):
    np.testing.assert_allclose(np.exp(kl.log_prob), kl.p, atol=TOLERANCE)
    np.testing.assert_allclose(np.exp(kl.log_prob).sum(1), 1, atol=TOLERANCE)


def test_marginals_are_means_of_the_indicators(kl):
    np.testing.assert_allclose(kl.marginals, mean(kl.p, kl.rows[0].indicators), atol=TOLERANCE)


def test_gradient_of_the_log_partition_is_the_mean_of_phi(kl):
    truth = [mean(p, row.slope) for p, row in zip(kl.p, kl.rows, strict=True)]
    np.testing.assert_allclose(kl.gradient, truth, atol=TOLERANCE)


def test_samples_follow_the_enumerated_probabilities(kl):
    counts = np.bincount(positions(kl.y, kl.sample), minlength=len(kl.y))
    assert chi_square(counts, kl.p[SPREAD]) > 1e-3


def test_mode_attains_the_largest_probability(kl):
    best = kl.score[np.arange(ROWS), positions(kl.y, kl.mode)]
    np.testing.assert_allclose(best, kl.score.max(1), atol=TOLERANCE)


METHODS = {
    "unary": structures.Unary,
    "subsets": structures.ElementarySymmetric,
    "classes": structures.Enumeration,
    "permutahedron": structures.SubsetDP,
    "birkhoff": structures.SubsetDP,
    "ising": structures.Enumeration,
    "neural-sets": structures.Enumeration,
    "neural-rankings": structures.Enumeration,
}


@pytest.mark.parametrize("name", METHODS)
def test_method_is_the_fastest_that_serves(name):
    coupling = COUPLINGS[name]
    for q in references(coupling.space):
        assert type(budget.method(model(coupling, q=q))) is METHODS[name]
        assert type(budget.method(model(coupling, q=q, f=ChiSquare()))) is structures.Enumeration


# --- every divergence -------------------------------------------------------------------------------------------------

# Enumeration meets f in the density only and the coupling in the scores only, so a cross of the table serves by
# default: every f on sets, ChiSquare on every coupling. The other pairs are slow: a minute together.
F_CASES = [
    pytest.param((name, f), id=f"{name}-{f}", marks=() if name == "unary" or f == "ChiSquare()" else pytest.mark.slow)
    for name in ("unary", "ising", "neural-sets", "subsets", "permutahedron")
    for f in DIVERGENCES
]


def varied(space):
    """A q for each row: in turn uniform (zero logits) and the other one of the cases; uniform where there is none."""
    *_, q = references(space)
    return jax.tree.map(lambda a: jnp.stack([0 * a, a] * (ROWS // 2)), q)


@jit
def ask_softmax(model, x, q):
    serving = budget.method(model)

    def of_row(x, q):
        theta = model.g.h(x)
        tau, tau_slope = jax.value_and_grad(serving.log_partition)(theta, q)
        softmax = jax.value_and_grad(serving.softmax, argnums=(0, 2))
        value, (slope, marginals) = softmax(theta, q, serving.no_tilt(theta))
        return {
            "theta": theta,
            "tau": tau,
            "tau_slope": tau_slope,
            "value": value,
            "slope": slope,
            "marginals": marginals,
        }

    return jax.vmap(of_row)(x, q)


@functools.cache
def in_float64(f, name):
    """f's method of that name, over an array of float64."""
    over = jax.jit(jnp.vectorize(getattr(f, name)))

    def evaluate(a):
        with jax.enable_x64(True):
            return np.asarray(over(np.asarray(a, float)))

    return evaluate


def multiplier(f, log_q, g):
    """The tau with sum_y q (f+*)'(g - tau) = 1, by scipy in float64."""
    density = in_float64(f, "density")
    ends = g.min() + f.start - 1e-6, g.max() + f.start + 1e-6
    return scipy.optimize.brentq(lambda tau: np.exp(log_q) @ density(g - tau) - 1, *ends, xtol=1e-13)


def regularized(f, log_q, g, p):
    """<g, p> - D_f(p, q), for a p or for many."""
    return p @ g - in_float64(f, "f")(p / np.exp(log_q)) @ np.exp(log_q)


@pytest.fixture(scope="module", params=F_CASES)
def general(request):
    """Answers for one f and coupling, row by row with the enumerated log q, g, tau and p."""
    name, f = request.param
    coupling, f = COUPLINGS[name], DIVERGENCES[f]
    q = varied(coupling.space)
    # Scores half as large again as elsewhere: with ChiSquare some p are 0.
    asked = model(coupling, f=f, q=references(coupling.space)[-1], scale=1.25)
    answers = jax.tree.map(np.asarray, ask_softmax(asked, X, q))
    rows = []
    for i in range(ROWS):
        row = enumerated(coupling, jax.tree.map(lambda a, i=i: a[i], q), answers["theta"][i])
        row.truth = multiplier(f, row.log_q, row.g)
        row.p = np.exp(row.log_q) * in_float64(f, "density")(row.g - row.truth)
        row.answer = SimpleNamespace(**{name: a[i] for name, a in answers.items()})
        rows.append(row)
    return SimpleNamespace(f=f, rows=rows)


def test_multiplier_is_the_root_that_scipy_finds(general):
    np.testing.assert_allclose([r.answer.tau for r in general.rows], [r.truth for r in general.rows], atol=TOLERANCE)


def test_densities_at_the_multiplier_sum_to_one(general):
    density = in_float64(general.f, "density")
    mass = [np.exp(r.log_q) @ density(r.g - float(r.answer.tau)) for r in general.rows]
    # A unit in the last place of tau, 2e-7, times the slope of the mass, here up to 100.
    np.testing.assert_allclose(mass, 1, atol=1e-4)


def test_softmax_is_the_largest_regularized_score(general):
    rng = np.random.default_rng(0)
    for r in general.rows:
        best = regularized(general.f, r.log_q, r.g, r.p)
        np.testing.assert_allclose(r.answer.value, best, atol=TOLERANCE)
        anywhere = rng.dirichlet(np.ones(len(r.p)), size=200)
        nearby = 0.99 * r.p + 0.01 * anywhere
        for other in (anywhere, nearby):
            assert regularized(general.f, r.log_q, r.g, other).max() < best


def test_gradient_of_the_softmax_is_the_mean_under_p(general):
    for r in general.rows:
        np.testing.assert_allclose(r.answer.slope, mean(r.p, r.slope), atol=TOLERANCE)
        np.testing.assert_allclose(r.answer.marginals, mean(r.p, r.indicators), atol=TOLERANCE)


def test_gradient_of_the_multiplier_is_its_finite_difference(general):
    rng = np.random.default_rng(1)
    for r in general.rows:
        direction = rng.normal(size=r.answer.tau_slope.shape)
        step = 1e-5 * np.tensordot(r.slope, direction, axes=direction.ndim)
        ends = [multiplier(general.f, r.log_q, r.g + sign * step) for sign in (-1, 1)]
        # Central differences of a root known to 1e-13: errors of 1e-8 from rounding and 1e-9 from curvature.
        np.testing.assert_allclose(
            np.vdot(r.answer.tau_slope, direction), (ends[1] - ends[0]) / 2e-5, atol=10 * TOLERANCE
        )


# One f with p = 0 somewhere, one whose density is bounded.
@pytest.mark.parametrize("f", ["ChiSquare()", "JensenShannon()"])
def test_samples_and_mode_follow_the_enumerated_probabilities_for_other_f(f):
    coupling, f = COUPLINGS["unary"], DIVERGENCES[f]
    asked = model(coupling, f=f, q=references(coupling.space)[-1], scale=1.25)

    @jit
    def ask(model, x):
        row = model.row(x)
        return row.theta, exact.sample(model, row, DRAWS, key=jax.random.key(5)), exact.mode(model, row)

    theta, sample, mode = ask(asked, X[0])
    row = enumerated(coupling, asked.q, theta)
    p = np.exp(row.log_q) * in_float64(f, "density")(row.g - multiplier(f, row.log_q, row.g))
    assert np.any(p == 0) == isinstance(f, ChiSquare)
    assert chi_square(np.bincount(positions(row.y, np.asarray(sample)), minlength=len(p)), p) > 1e-3
    assert p[positions(row.y, np.asarray(mode)[None])] == pytest.approx(p.max(), rel=TOLERANCE)


def project_onto_simplex(a):
    """The nearest point of the probability simplex, by the sorted thresholds of Held, Wolfe and Crowder."""
    ordered = np.sort(a)[::-1]
    thresholds = (np.cumsum(ordered) - 1) / np.arange(1, len(a) + 1)
    return np.maximum(a - thresholds[ordered > thresholds][-1], 0)


def test_sparsemax_of_classes_is_a_projection_onto_the_simplex():
    """p = [g - tau]_+ / k is [g/k - tau/k]_+: the projection of g/k."""
    k = 4
    theta = jnp.asarray(np.random.default_rng(2).normal(scale=k / 2, size=(50, k)))
    serving = structures.Enumeration(Bilinear(ProbabilitySimplex(k)), ChiSquare())
    p = jit(jax.vmap(lambda t: serving.marginals(t, Uniform(serving.coupling.space))))(theta)
    truth = np.array([project_onto_simplex(t / k) for t in np.asarray(theta, float)])
    assert set((truth > 0).sum(1)) >= {1, 2, 3}
    np.testing.assert_allclose(p, truth, atol=TOLERANCE)


@pytest.mark.parametrize("f", DIVERGENCES)
def test_multiplier_stays_between_its_bounds_for_any_scores(f):
    """min g - f'(1) <= tau <= max g - f'(1), with a finite gradient, up to scores of 1e6 in float32."""
    f = DIVERGENCES[f]
    serving = structures.Enumeration(Bilinear(ProbabilitySimplex(1000)), f)
    theta = jnp.asarray(np.random.default_rng(4).normal(size=(40, 1000))) * jnp.logspace(0, 6, 40)[:, None]
    ask = jax.value_and_grad(lambda t: serving.log_partition(t, Uniform(serving.coupling.space)))
    tau, slope = jit(jax.vmap(ask))(theta)
    # A few units in the last place of the scores.
    slack = 4 * np.finfo(np.float32).eps * np.abs(theta).max(1)
    assert np.all(tau >= theta.min(1) + f.start - slack)
    assert np.all(tau <= theta.max(1) + f.start + slack)
    assert np.all(np.isfinite(slope))


# --- Y in chunks --------------------------------------------------------------------------------------------------

# 4 full chunks, and 40,320 rankings: 9 chunks and a part of a tenth.
CHUNKED = {"ising": LinearQuadratic(Symmetric(14), shared=False), "rankings": Bilinear(Birkhoff(8))}


def large(coupling, f):
    """A random theta with uniform q, and its enumeration with tau and p."""
    theta = jax.random.normal(jax.random.key(6), coupling.theta_shape) / 2
    case = enumerated(coupling, Uniform(coupling.space), theta)
    case.theta, case.q = theta, Uniform(coupling.space)
    case.tau = multiplier(f, case.log_q, case.g)
    case.p = np.exp(case.log_q) * in_float64(f, "density")(case.g - case.tau)
    return case


@pytest.mark.parametrize("f", [KL(), ChiSquare()], ids=str)
@pytest.mark.parametrize("name", CHUNKED)
def test_chunks_make_no_difference(name, f):
    coupling = CHUNKED[name]
    assert coupling.space.size > 3 * structures.enumeration.CHUNK
    case, serving = large(coupling, f), structures.Enumeration(coupling, f)
    ask = jit(lambda theta, q: (serving.log_partition(theta, q), serving.marginals(theta, q)))
    tau, marginals = ask(case.theta, case.q)
    # Sums of 16,384 and 40,320 float32 terms.
    np.testing.assert_allclose(tau, case.tau, atol=1e-4)
    np.testing.assert_allclose(marginals, mean(case.p, case.indicators), atol=1e-4)


@pytest.mark.parametrize("name", CHUNKED)
def test_draws_and_mode_see_every_chunk(name):
    coupling = CHUNKED[name]
    case, serving = large(coupling, KL()), structures.Enumeration(coupling, KL())
    draw = jit(lambda theta, q, key: (serving.sample(theta, q, 400, key=key), serving.mode(theta, q)))
    sample, mode = map(np.asarray, draw(case.theta, case.q, jax.random.key(7)))
    assert case.p[positions(case.y, mode[None])] == pytest.approx(case.p.max(), rel=1e-4)
    # Too many outputs for 400 draws: they are counted by chunk, and by position modulo 31, which cuts across chunks.
    for cells in (np.arange(len(case.y)) // structures.enumeration.CHUNK, np.arange(len(case.y)) % 31):
        counts = np.bincount(cells[positions(case.y, sample)], minlength=cells.max() + 1)
        assert chi_square(counts, np.bincount(cells, weights=case.p)) > 1e-3


def chain_log_partition(u, s):
    """log E[exp g] under uniform q of g = sum_j u_j y_j + sum_j s_j y_j y_{j+1}, by transfer matrices in float64."""
    message = np.array([0.0, u[0]])
    for unary, pair in zip(u[1:], s, strict=True):
        message = np.logaddexp(message[0], message[1] + np.array([0, pair])) + np.array([0, unary])
    return np.logaddexp(*message) - len(u) * math.log(2)


def test_memory_is_one_chunk_and_never_all_outputs():
    """Ising with 2^20 outputs and 8 rows: their scores alone are 32 MiB, the outputs 80 MiB; a chunk takes 4."""
    k, rows = 20, 8
    coupling = LinearQuadratic(Symmetric(k), shared=False)
    serving = structures.Enumeration(coupling, KL())
    rng = np.random.default_rng(8)
    u, s = rng.normal(size=(rows, k)), rng.normal(size=(rows, k - 1))
    neighbors = np.flatnonzero(np.diff(np.triu_indices(k, 1), axis=0)[0] == 1)
    theta = np.zeros((rows, *coupling.theta_shape))
    theta[:, :k], theta[:, k + neighbors] = u, s
    theta = jnp.asarray(theta)

    def one(theta):
        return serving.log_partition(theta, Uniform(coupling.space))

    answers = {}
    for name, fn in {"value": one, "gradient": jax.grad(one)}.items():
        compiled = jax.jit(jax.vmap(fn)).lower(theta).compile()
        assert compiled.memory_analysis().temp_size_in_bytes < 8 * 2**20
        answers[name] = compiled(theta)
    # A million float32 terms of order 1, added chunk by chunk.
    np.testing.assert_allclose(answers["value"], list(map(chain_log_partition, u, s)), atol=1e-4)
    assert np.all((answers["gradient"][:, :k] > 0) & (answers["gradient"][:, :k] < 1))


# --- rankings by the subset program -------------------------------------------------------------------------------


class History(AbstractSequentialMeasure):
    """A choice that depends on the labels already placed, on the label and on the rank."""

    by_rank: Float[Array, "k k"]
    after: Float[Array, "k k"]

    @property
    def space(self):
        return Permutations(self.by_rank.shape[0])

    def sample(self, num, *, key):
        raise NotImplementedError

    def log_prob(self, y):
        raise NotImplementedError

    def log_choice(self, placed):
        score = self.by_rank[:, placed.sum()] + placed @ self.after
        return jax.nn.log_softmax(jnp.where(placed, -jnp.inf, score))


def sequential_references(k):
    """{name: (q, the same choice in numpy: (placed, rank) -> scores of the labels)}."""
    rng = np.random.default_rng(k)
    scores, by_rank, after = rng.normal(size=k), rng.normal(size=(k, k)), rng.normal(size=(k, k))
    center = np.argsort(scores)
    return {
        "uniform": (Uniform(Permutations(k)), lambda placed, rank: np.zeros(k)),
        "plackett-luce": (PlackettLuce(jnp.asarray(scores)), lambda placed, rank: scores),
        "mallows": (
            Mallows(jnp.asarray(center), 0.6),
            lambda placed, rank: -0.6 * ((1 - placed) @ np.less.outer(center, center)),
        ),
        "history": (
            History(jnp.asarray(by_rank), jnp.asarray(after)),
            lambda placed, rank: by_rank[:, rank] + placed @ after,
        ),
    }


def rankings(k):
    """All rank vectors."""
    return np.array(list(itertools.permutations(range(k))))


def sequential_log_prob(y, choice):
    """log q of every ranking, by filling the ranks in turn."""
    n, k = y.shape
    order = np.argsort(y, axis=1)
    placed, log_q = np.zeros((n, k)), np.zeros(n)
    for rank in range(k):
        score = np.where(placed == 1, -np.inf, choice(placed, rank))
        score = score - scipy.special.logsumexp(score, axis=1, keepdims=True)
        log_q += score[np.arange(n), order[:, rank]]
        placed[np.arange(n), order[:, rank]] = 1
    return log_q


@pytest.mark.parametrize("k", some(range(2, 9), (2, 3, 6)))
def test_subset_program_is_the_sum_over_all_rankings(k):
    rng = np.random.default_rng(100 + k)
    logits = {Birkhoff(k): rng.normal(size=(k, k)), Permutahedron(k): rng.normal(size=k)}
    references = sequential_references(k)

    @jit
    def ask():
        return [
            [
                budget.method(untrained(Bilinear(c), q=q)).log_partition(jnp.asarray(t), q)
                for q, _ in references.values()
            ]
            for c, t in logits.items()
        ]

    y = rankings(k)
    matrices = (logits[Birkhoff(k)], np.outer(logits[Permutahedron(k)], np.linspace(1, -1, k)))
    log_q = [sequential_log_prob(y, choice) for _, choice in references.values()]
    truth = [[scipy.special.logsumexp(b + m[np.arange(k), y].sum(1)) for b in log_q] for m in matrices]
    np.testing.assert_allclose(ask(), truth, atol=TOLERANCE)


def test_subset_program_draws_and_finds_the_mode_under_a_choice_with_memory():
    k = 4
    q, choice = sequential_references(k)["history"]
    theta = np.random.default_rng(9).normal(size=(k, k))
    serving = budget.method(untrained(Bilinear(Birkhoff(k)), q=q))
    assert isinstance(serving, structures.SubsetDP)

    @jit
    def ask(theta, q):
        return serving.sample(theta, q, DRAWS, key=jax.random.key(10)), serving.mode(theta, q)

    sample, mode = map(np.asarray, ask(jnp.asarray(theta), q))
    y = rankings(k)
    score = sequential_log_prob(y, choice) + theta[np.arange(k), y].sum(1)
    counts = np.bincount(positions(y, sample), minlength=len(y))
    assert chi_square(counts, scipy.special.softmax(score)) > 1e-3
    assert positions(y, mode[None]) == np.argmax(score)


def log_permanent(theta):
    """log sum_y exp(sum_j theta[j, y_j]) in float64, by a program over sets of ranks, label after label."""
    k = len(theta)
    found = {0: 0.0}
    for row in theta:
        longer = {}
        for ranks, value in found.items():
            for p in range(k):
                if not ranks >> p & 1:
                    longer.setdefault(ranks | 1 << p, []).append(value + row[p])
        found = {ranks: np.logaddexp.reduce(values) for ranks, values in longer.items()}
    return found[2**k - 1]


@pytest.fixture(scope="module")
def eleven():
    """The subset program at k = 11: logits of several scales, log-partitions and their gradients, by jit and vmap."""
    k, scales = 11, np.array([0.1, 1, 5, 100, 1000])
    theta = np.float32(scales[:, None, None] * np.random.default_rng(11).normal(size=(k, k)))
    serving = budget.method(untrained(Bilinear(Birkhoff(k))))
    ask = jax.value_and_grad(lambda t: serving.log_partition(t, Uniform(Permutations(k))))
    value, gradient = jit(jax.vmap(ask))(jnp.asarray(theta))
    return SimpleNamespace(k=k, theta=np.asarray(theta, float), value=np.asarray(value), gradient=np.asarray(gradient))


def test_subset_program_of_eleven_labels_is_the_permanent(eleven):
    for theta, value in zip(eleven.theta[:3], eleven.value, strict=False):
        assert abs(value - (log_permanent(theta) - math.lgamma(eleven.k + 1))) < 1e-4


def test_gradient_of_the_subset_program_is_doubly_stochastic_and_made_of_minors(eleven):
    """P[label 0 has rank p] = exp(theta[0, p]) perm(minor) / perm."""
    for axis in (1, 2):
        np.testing.assert_allclose(eleven.gradient.sum(axis), 1, atol=1e-4)
    theta, gradient = eleven.theta[1], eleven.gradient[1]
    minors = [log_permanent(np.delete(theta[1:], p, axis=1)) for p in range(eleven.k)]
    np.testing.assert_allclose(gradient[0], np.exp(theta[0] + minors - log_permanent(theta)), atol=TOLERANCE)


def test_subset_program_tends_to_the_best_ranking_for_large_logits(eleven):
    """At scale 1,000 one ranking has all the mass: tau = max g - log k!, and the marginals are its matrix."""
    theta = eleven.theta[-1]
    best = scipy.optimize.linear_sum_assignment(theta, maximize=True)
    # Scores of 1e4 in float32 are known to 1e-3.
    assert eleven.value[-1] == pytest.approx(theta[best].sum() - math.lgamma(eleven.k + 1), abs=1e-2)
    np.testing.assert_allclose(eleven.gradient[-1][best], 1, atol=1e-4)
    assert np.all(np.isfinite(eleven.value))
    assert np.all(np.isfinite(eleven.gradient))


# --- sets of m labels ---------------------------------------------------------------------------------------------


def test_sets_of_twelve_of_thirty_labels_are_polynomial_coefficients():
    """E[exp g] = e_m / C(k, m), e_m the coefficient of z^m in prod_j (1 + exp(theta_j) z)."""
    k, m = 30, 12
    theta = np.asarray(np.float32(np.random.default_rng(12).normal(size=k)), float)
    asked = untrained(Bilinear(Hypersimplex(k, m)))

    @jit
    def ask(model, theta):
        row = Row(X[0], theta, None, model.q)
        draws = exact.sample(model, row, DRAWS, key=jax.random.key(13))
        return exact.log_partition(model, row), exact.marginals(model, row), draws

    def coefficient(weights, power):
        return functools.reduce(np.polynomial.polynomial.polymul, [[1, w] for w in weights])[power]

    tau, marginals, sample = map(np.asarray, ask(asked, jnp.asarray(theta)))
    w = np.exp(theta)
    total = coefficient(w, m)
    truth = np.array([w[j] * coefficient(np.delete(w, j), m - 1) for j in range(k)]) / total
    np.testing.assert_allclose(tau, math.log(total) - math.log(math.comb(k, m)), atol=TOLERANCE)
    np.testing.assert_allclose(marginals, truth, atol=TOLERANCE)
    assert np.all(sample.sum(1) == m)
    # 30 frequencies, each |z| < 4.5: wrong by chance with probability 2e-4.
    z = (sample.mean(0) - truth) / np.sqrt(truth * (1 - truth) / DRAWS)
    assert np.abs(z).max() < 4.5


# --- limits -------------------------------------------------------------------------------------------------------


TOO_LARGE = {
    "ising": (LinearQuadratic(Symmetric(174), shared=False), r"10\^52", "1,048,576"),
    "rankings": (Bilinear(Birkhoff(17)), r"10\^15", "524,288"),
    "neural": (
        Neural(Cube(21), (2,), Paired(MLP(2 + 21, (), width=4, key=jax.random.key(0)))),
        "2,097,152",
        "1,048,576",
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_refusal_names_the_size_the_limit_and_an_alternative(name):
    coupling, size, limit = TOO_LARGE[name]
    asked = untrained(coupling)
    row = Row(X[0], jnp.zeros(coupling.theta_shape), None, asked.q)
    with pytest.raises(TooLargeError, match=f"{size}.*{limit}.*MinMin"):
        exact.log_partition(asked, row)


MODES = {
    "sets": (Cube(174), lambda t: t[t > 0].sum()),
    "rankings by matrix": (Birkhoff(17), lambda t: t[scipy.optimize.linear_sum_assignment(t, maximize=True)].sum()),
    "rankings by score": (Permutahedron(50), lambda t: np.sort(t) @ np.linspace(-1, 1, 50)),
}


@pytest.mark.parametrize("name", MODES)
def test_mode_of_a_bilinear_score_needs_no_exact_method(name):
    polytope, largest = MODES[name]
    asked = untrained(Bilinear(polytope), f=ChiSquare())
    theta = jax.random.normal(jax.random.key(14), polytope.shape)
    with pytest.raises(TooLargeError):
        budget.method(asked)
    y = jit(exact.mode)(asked, Row(X[0], theta, None, asked.q))
    assert polytope.space.contains(y)
    assert float(polytope.score(theta, y)) == pytest.approx(largest(np.asarray(theta, float)), rel=1e-5)


def test_independent_labels_have_a_log_partition_at_any_size():
    asked = untrained(Bilinear(Cube(174)))
    theta = jax.random.normal(jax.random.key(15), (174,))
    truth = np.logaddexp(0, np.asarray(theta, float)).sum() - 174 * math.log(2)
    assert float(exact.log_partition(asked, Row(X[0], theta, None, asked.q))) == pytest.approx(truth, abs=1e-4)


# --- every f, where float32 is not enough ---------------------------------------------------------------------------

# (density as a function of the distance d = sup - v, sup) of a bounded domain; else of v itself.
BOUNDED = {
    "JensenShannon": (lambda d: 1 / np.expm1(np.minimum(d, 700)), math.log(2)),
    "SquaredHellinger": (lambda d: d**-2, 1.0),
    "ReverseKL": (lambda d: 1 / d, 1.0),
    "Tsallis": (lambda d: (d / 2) ** -2, 2.0),
}
UNBOUNDED = {
    "KL": np.exp,
    "ChiSquare": lambda v: np.maximum(v, 0),
    "Tsallis": lambda v: np.maximum(1 + v / 2, 0) ** 2,
}


def solved(f, g, log_q):
    """(p, tau) of scores g in float64: of a bounded domain by the distance from its end, to any density."""
    name, top = type(f).__name__, g.max()
    if name in UNBOUNDED and getattr(f, "alpha", 2.0) > 1:

        def mass(tau):
            return np.exp(log_q) * UNBOUNDED[name](g - tau)

        tau = scipy.optimize.brentq(lambda tau: mass(tau).sum() - 1, top - 50, top + 50, xtol=1e-13)
        return mass(tau), tau
    density, sup = BOUNDED[name]

    def weights(s):
        return np.exp(log_q) * density(np.exp(s) + (top - g))

    s = scipy.optimize.brentq(lambda s: weights(s).sum() - 1, -30, 10, xtol=1e-13)
    return weights(s), np.exp(s) + top - sup


# Those whose density needs more than 10^4 where there are more outputs than that, and one that does not.
DENSE = [name for name in DIVERGENCES if name.startswith(("KL", "JensenShannon", "ReverseKL"))]


@pytest.mark.parametrize("f", some(DIVERGENCES, DENSE))
def test_probabilities_of_many_outputs_are_those_of_f(f):
    """2^14 outputs, one of them far ahead: densities above 10^4, where the conjugate continues linearly in float32."""
    f, k = DIVERGENCES[f], 14
    ebm = EBM(Energy(eqx.nn.Identity(), Bilinear(Cube(k))), Table(1), f=f)
    x = np.full((1, k), 3.0, np.float32) + np.random.default_rng(0).normal(size=(1, k)).astype(np.float32)
    y = np.asarray(ebm.space.elements())
    p, tau = solved(f, y @ x[0].astype(np.float64), np.full(2**k, -k * np.log(2)))
    value, error = inference.log_partition_with_error(ebm, x)
    assert abs(value[0] - tau) <= 4 * error[0] < 1e-4
    best = np.argmax(p)
    np.testing.assert_array_equal(inference.mode(ebm, x)[0], y[best])
    np.testing.assert_allclose(inference.log_prob(ebm, x, y[[best]])[0], np.log(p[best]), atol=1e-5)
    np.testing.assert_allclose(inference.marginals(ebm, x)[0], p @ y, atol=1e-5)
    top = inference.top_k(ebm, x, 3)
    np.testing.assert_allclose(np.exp(top.log_prob[0]), np.sort(p)[:-4:-1], atol=1e-5)


@pytest.mark.parametrize("f", some(DIVERGENCES, ("JensenShannon(bound=0.6930471805599453)",)))
def test_marginals_hold_at_scores_of_a_thousand(f):
    f = DIVERGENCES[f]
    ebm = EBM(Energy(eqx.nn.Identity(), Bilinear(Cube(4))), Table(1), f=f)
    x = np.array([[1000.0, 1000.25, -999.5, 0.01]], np.float32)
    y = np.asarray(ebm.space.elements())
    p, _ = solved(f, y @ x[0].astype(np.float64), np.full(16, -4 * np.log(2)))
    np.testing.assert_allclose(inference.marginals(ebm, x)[0], p @ y, atol=1e-5)


def test_a_bound_that_is_chosen_is_kept_and_said():
    """With a density of at most 4.7 the mode of 16 outputs has no more than 0.29, which is not what f would give it."""
    f = JensenShannon(bound=0.5)
    ebm = EBM(Energy(eqx.nn.Identity(), Bilinear(Cube(4))), Table(1), f=f)
    _, error = inference.log_partition_with_error(ebm, np.full((1, 4), 5.0))
    assert np.isinf(error).all()
    _, error = inference.log_partition_with_error(ebm, np.full((1, 4), 0.01))
    assert (error < 1e-5).all()
