"""Each rule is the best of all answers for its loss; a joint is the model's distribution, or comes close by draws."""

import functools

import equinox as eqx
import jax
import numpy as np
import pytest
from cases import COUPLINGS, FEATURES, model, references
from hypothesis import given, settings
from hypothesis import strategies as st

from partita import budget, decisions, inference
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.decisions import F1, RULES, Borda, Hamming, Joint, Kemeny, MicroF1, Mode
from partita.divergences import ChiSquare
from partita.structures import Birkhoff, Cube, Hypercube, KSubsets, Permutations, Simplex

X = np.random.default_rng(0).normal(size=(5, FEATURES))
# Sums of a few float64 terms of size 1.
ROUNDING = 1e-9


def f1_loss(y, a):
    size = y.sum(-1) + a.sum(-1)
    return 1 - np.where(size == 0, 1, 2 * (y * a).sum(-1) / np.maximum(size, 1))


def kendall_loss(y, a):
    i, j = np.triu_indices(y.shape[-1], 1)
    return ((y[..., i] < y[..., j]) != (a[..., i] < a[..., j])).sum(-1)


LOSSES = {
    "mode": lambda y, a: (y != a).any(-1),
    "hamming": lambda y, a: (y != a).sum(-1),
    "f1": f1_loss,
    "borda": lambda y, a: ((y - a) ** 2).sum(-1),
    "kemeny": kendall_loss,
}
SETS = (Hypercube(3), Hypercube(4), KSubsets(5, 2), Simplex(4))
RANKINGS = (Permutations(3), Permutations(4))
CASES = [
    (name, space)
    for name, spaces in {
        "mode": SETS + RANKINGS,
        "hamming": SETS,
        "f1": SETS,
        "borda": RANKINGS,
        "kemeny": RANKINGS,
    }.items()
    for space in spaces
]


@functools.cache
def elements(space):
    return np.asarray(space.elements())


def expected(loss, p, answers):
    """The expected loss of answers, (n, a, *y) or (a, *y) for all rows: (n, a)."""
    answers = np.broadcast_to(answers, (len(p.weight), *answers.shape[-2:]))
    found = [loss(y, a[:, None]) @ weight for (y, weight), a in zip(p.rows(), answers, strict=True)]
    return np.stack(found)


def all_answers(space):
    """All rankings, or all label sets, of Y or not."""
    return elements(space if isinstance(space, Permutations) else Hypercube(space.shape[0]))


def assert_best(name, p):
    """No answer has a smaller expected loss; of several that are best, any will do."""
    answer = RULES[name](p)
    assert answer.exact == p.exact
    (achieved,) = expected(LOSSES[name], p, answer.y[:, None]).T
    best = expected(LOSSES[name], p, all_answers(p.space)).min(axis=1)
    np.testing.assert_allclose(achieved, best, atol=ROUNDING)


@st.composite
def weights(draw, rows, size):
    """Small whole numbers, many of them 0: ties and sparse distributions are the rule."""
    row = st.lists(st.integers(0, 4), min_size=size, max_size=size).filter(any)
    return np.array(draw(st.lists(row, min_size=rows, max_size=rows)))


@pytest.mark.parametrize(("name", "space"), CASES, ids=str)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_rule_is_best_for_its_loss(name, space, data):
    weight = data.draw(weights(2, space.size))
    assert_best(name, Joint(space, elements(space), weight, exact=True))


@pytest.mark.parametrize(("name", "space"), CASES, ids=str)
def test_a_rule_is_best_on_draws_of_each_row(name, space):
    """Five draws a row with weights of their own, some of them equal."""
    rng = np.random.default_rng(0)
    y = elements(space)[rng.integers(0, min(space.size, 7), size=(30, 5))]
    assert_best(name, Joint(space, y, rng.uniform(size=(30, 5))))


def test_f1_answers_the_empty_set_where_it_is_best():
    """P(nothing) = .5 beats any set here; at .3 it does not, though it is still the mode."""
    y = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 0, 1]])
    p = Joint(Hypercube(3), y, [[0.5, 0.2, 0.15, 0.15], [0.3, 0.25, 0.25, 0.2]], exact=True)
    np.testing.assert_array_equal(F1()(p).y, [[0, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(Mode()(p).y, 0)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_micro_f1_fits_the_best_threshold(data):
    """Against all cuts between marginals of a coarse grid, with 0 and 1 and many ties."""
    n = data.draw(st.integers(1, 4))
    p = data.draw(weights(n, 3)) / 4
    y = data.draw(weights(n, 3)) > 2
    y[0, 0] = True
    rule = MicroF1.fit(p, y)

    def micro_f1(a):
        return 2 * (a & y).sum() / (a.sum() + y.sum())

    assert micro_f1(rule(p).y == 1) == max(micro_f1(p >= cut) for cut in np.unique(p))
    # Where there is room it is midway, not at a marginal.
    if rule.threshold > 0 and (p < rule.threshold).any():
        assert rule.threshold not in p


def test_neighboring_floats_are_told_apart():
    p = np.array([[np.nextafter(0.5, 1), 0.5]])
    np.testing.assert_array_equal(MicroF1.fit(p, [[1, 0]])(p).y, [[1, 0]])


def peaked(space, rows, num, seed):
    """`num` rankings a row with random weights: majorities that run in circles are common."""
    rng = np.random.default_rng(seed)
    y = rng.permuted(np.tile(np.arange(space.k), (rows, num, 1)), axis=-1)
    return Joint(space, y, rng.dirichlet(np.ones(num), rows), exact=True)


def test_insertions_never_lose_to_borda_and_mostly_find_the_best():
    """400 rows, 7 rankings of 6 labels each: Borda is best on 2 rows in 10, insertions on more than 95 in 100."""
    p = peaked(Permutations(6), 400, 7, seed=0)
    answers = [Kemeny()(p), Kemeny(max_exact=0)(p), Borda()(p)]
    assert [answer.exact for answer in answers] == [True, False, True]
    best, found, start = (expected(kendall_loss, p, answer.y[:, None])[:, 0] for answer in answers)
    assert (best <= found + ROUNDING).all()
    assert (found <= start + ROUNDING).all()
    assert np.mean(found < best + ROUNDING) > 0.95
    assert np.mean(start < best + ROUNDING) < 0.3


def test_above_the_reach_of_the_program_no_insertion_gains():
    """Every label of every answer, moved to every rank."""
    p = peaked(Permutations(14), 80, 5, seed=1)
    answer = Kemeny()(p)
    assert not answer.exact
    order = np.argsort(answer.y, axis=1)
    moves = [(i, j) for i in range(14) for j in range(14)]
    moved = [[np.insert(np.delete(row, i), j, row[i]) for i, j in moves] for row in order]
    losses = expected(kendall_loss, p, np.argsort(moved, axis=-1))
    np.testing.assert_allclose(losses.min(axis=1), expected(kendall_loss, p, answer.y[:, None])[:, 0], atol=ROUNDING)


def test_preferences_are_the_shares_of_rankings_that_agree():
    p = Joint(Permutations(3), [[0, 1, 2], [2, 0, 1]], [[0.75, 0.25]], exact=True)
    expected = [[0, 0.75, 0.75], [0.25, 0, 1], [0.25, 0, 0]]
    np.testing.assert_allclose(decisions.preferences(p), [expected], atol=ROUNDING)


def test_equal_draws_are_added_up_but_no_counts_are_taken_for_probabilities():
    p = Joint(Hypercube(2), [[[0, 1], [1, 0], [0, 1]], [[1, 1], [1, 1], [1, 1]]], [[2, 3, 2], [1, 1, 2]])
    np.testing.assert_array_equal(Mode()(p).y, [[0, 1], [1, 1]])
    np.testing.assert_allclose(p.effective, [49 / 17, 16 / 6])
    with pytest.raises(ValueError, match=r"needs a joint of all outputs.*inference.top_k"):
        decisions.top_k(p, 2)


MODELS = {
    "unary": {},
    "birkhoff": {"q": references(Permutations(4))[-1]},
    "ising": {"f": ChiSquare()},
}


@functools.cache
def enumerated(name):
    """A model and its joint on X."""
    ebm = model(COUPLINGS[name], **MODELS[name])
    return ebm, decisions.joint(ebm, X)


@pytest.mark.parametrize("name", MODELS)
def test_an_enumerated_joint_is_the_model(name):
    """float32 sums of up to 24 terms."""
    ebm, p = enumerated(name)
    assert p.exact
    assert np.isinf(p.effective).all()
    np.testing.assert_array_equal(p.y, ebm.space.elements())
    np.testing.assert_allclose(p.marginals(), inference.marginals(ebm, X), atol=1e-5)
    y, probability = decisions.top_k(p, 3)
    np.testing.assert_allclose(np.log(probability[:, 0]), inference.log_prob(ebm, X, y[:, 0]), atol=1e-4)
    assert (np.diff(probability) <= 0).all()
    assert (probability[:, 0] == p.weight.max(axis=1)).all()


@pytest.mark.parametrize("weighted", [False, True], ids=["exact draws", "weighted draws"])
@pytest.mark.parametrize("name", MODELS)
def test_a_joint_of_draws_converges_to_the_enumerated_one(name, weighted, key, monkeypatch):
    """20,000 draws: every marginal within 5 deviations, which are at most 1/2 over the root of the effective number."""
    ebm, truth = enumerated(name)
    monkeypatch.setattr(budget, "LISTED_OUTPUTS", 1)
    if weighted:
        for kind in budget.Kind:
            monkeypatch.setitem(budget.LIMITS, kind, budget.LIMITS[kind]._replace(answer=0))
    p = decisions.joint(ebm, X, key=key, num=20_000)
    assert not p.exact
    assert p.y.shape == (5, 20_000, *ebm.space.shape)
    assert np.ptp(p.weight) > 0 if weighted else np.allclose(p.effective, 20_000)
    assert p.effective.min() > 500
    error = np.abs(p.marginals() - truth.marginals()).reshape(5, -1).max(axis=1)
    assert (error < 2.5 / np.sqrt(p.effective)).all()
    few = Joint(p.space, p.y[:, :20], p.weight[:, :20])
    assert np.abs(few.marginals() - truth.marginals()).mean() > 3 * error.mean()


LARGE = {
    "unary": Bilinear(Cube(40)),
    "ising": LinearQuadratic(Symmetric(30), shared=False),
    "birkhoff": Bilinear(Birkhoff(18)),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_spaces_are_drawn_from(name, key):
    """Exact draws where there are any, the surrogate's elsewhere; every rule of the space answers."""
    ebm = model(LARGE[name], scale=0.4)
    with pytest.raises(ValueError, match="give a key to draw"):
        decisions.joint(ebm, X)
    p = decisions.joint(ebm, X, key=key, num=200)
    assert (p.effective > 20).all()
    for rule in ("mode", "borda", "kemeny") if name == "birkhoff" else ("mode", "hamming", "f1"):
        answer = RULES[rule](p)
        assert not answer.exact
        assert jax.vmap(ebm.space.contains)(answer.y).all()


def test_rows_bring_their_own_reference():
    q = references(Hypercube(4))[-1]
    ebm = model(COUPLINGS["unary"], q=q)
    many = eqx.tree_at(lambda q: q.logits, q, np.linspace(-2, 2, 20).reshape(5, 4).astype(np.float32))
    p = decisions.joint(ebm, X, reference=many)
    np.testing.assert_allclose(p.marginals(), inference.marginals(ebm, X, reference=many), atol=1e-5)


SET, RANKS = np.zeros((4, 3), int), np.tile([0, 2, 1], (4, 1))
A_SET, A_RANKING = Joint(Hypercube(3), SET, np.ones((2, 4))), Joint(Permutations(3), RANKS, np.ones((2, 4)))
MARGINALS, MATRICES = np.full((2, 3), 0.5), np.full((2, 3, 3), 1 / 3)
BAD = {
    "F1 from marginals": (lambda: F1()(MARGINALS), "F1 needs a Joint"),
    "mode from marginals": (lambda: Mode()(MARGINALS), "Mode needs a Joint"),
    "Kemeny from marginals": (lambda: Kemeny()(MATRICES), "Kemeny needs a Joint"),
    "top_k of marginals": (lambda: decisions.top_k(MARGINALS, 1), "top_k needs a Joint"),
    "Kemeny of sets": (lambda: Kemeny()(A_SET), r"Kemeny is for rankings, but .* Hypercube.* Mode, Hamming, F1"),
    "preferences of sets": (lambda: decisions.preferences(A_SET), "preferences is for rankings"),
    "Borda of sets": (lambda: Borda()(A_SET), "Borda is for rankings"),
    "Borda of set marginals": (lambda: Borda()(MARGINALS), r"shape \(n, k, k\); got shape \(2, 3\)"),
    "F1 of rankings": (lambda: F1()(A_RANKING), r"F1 is for label sets.* Mode, Borda and Kemeny"),
    "Hamming of rankings": (lambda: Hamming()(A_RANKING), "Hamming is for label sets"),
    "Hamming of rank marginals": (lambda: Hamming()(MATRICES), r"shape \(n, k\); got shape \(2, 3, 3\)"),
    "Hamming of logits": (lambda: Hamming()(7 * MARGINALS), "Are these logits"),
    "nan": (lambda: Hamming()(np.nan * MARGINALS), "Marginals are probabilities"),
    "nothing": (lambda: Hamming()(MARGINALS[:0]), r"got shape \(0, 3\)"),
    "no threshold": (lambda: MicroF1()(MARGINALS), r"no threshold yet: MicroF1.fit"),
    "y of another shape": (
        lambda: MicroF1.fit(MARGINALS, SET),
        r"shape of the marginals, \(2, 3\); got shape \(4, 3\)",
    ),
    "y of ranks": (lambda: MicroF1.fit(MARGINALS, RANKS[:2]), "y must be 0/1"),
    "no labels": (lambda: MicroF1.fit(MARGINALS, SET[:2]), "No row of y has a label"),
    "too many": (lambda: decisions.top_k(A_SET, 5), "num must be between 1 and the number of outputs, 4; got 5"),
    "weight": (lambda: Joint(Hypercube(3), SET, np.ones(4)), r"weight must have shape \(n, m\)"),
    "no weights": (lambda: Joint(Hypercube(3), SET, np.ones((0, 4))), r"weight must have shape \(n, m\)"),
    "y of another space": (lambda: Joint(Hypercube(4), SET, np.ones((2, 4))), r"has shape \(4,\)"),
    "ranks from 1": (lambda: Joint(Permutations(3), RANKS + 1, np.ones((2, 4))), "from 0 to 2.*Ranks start at 0"),
    "ranks for a set": (lambda: Joint(Hypercube(3), RANKS, np.ones((2, 4))), "integers from 0 to 1"),
    "fractions": (lambda: Joint(Hypercube(3), SET / 2, np.ones((2, 4))), "got float64"),
    "negative weight": (lambda: Joint(Hypercube(3), SET, -np.ones((2, 4))), "finite and non-negative"),
    "no mass": (lambda: Joint(Hypercube(3), SET, np.eye(2, 4) * [[1], [0]]), "not all zero in any row"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.usefixtures("unchecked")
def test_what_a_rule_cannot_use_is_refused(name):
    ask, message = BAD[name]
    with pytest.raises((ValueError, TypeError), match=message):
        ask()
