"""Estimators that learn from preferences and scores: the order they recover, what they answer, what they refuse."""

import pickle

import jaxtyping
import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import partita
from partita import LabelRanker, MultilabelClassifier, objectives
from partita.structures import ProductBernoulli


@pytest.fixture(scope="module", autouse=True)
def unchecked_module():
    """The library as a user meets it, for what is fitted once for all tests too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield


# Rows to learn from and rows to judge on. One shape for all, so that programs are compiled once.
N, M, D, K = 600, 600, 4, 4
SMALL = {"ensemble_size": 2, "steps": 300, "width": 16, "depth": 1, "random_state": 0}
_rng = np.random.default_rng(0)
X = _rng.normal(size=(N + M, D))
WEIGHTS, PAIRS = 2 * _rng.normal(size=(D, K)), np.triu(_rng.normal(size=(K, K)), 1)
OF_RANK = np.linspace(1, -1, K)


def energy_of_sets(y):
    return ((X @ WEIGHTS) * y).sum(axis=1) + np.einsum("ni,ij,nj->n", y, PAIRS, y)


def energy_of_ranks(y):
    return ((X @ WEIGHTS) * OF_RANK[y]).sum(axis=1)


def different(draw):
    """Two different outputs for each row."""
    first, second = draw(), draw()
    while (same := (first == second).all(axis=1)).any():
        second[same] = draw()[same]
    return first, second


class Triplets:
    """Pairs of outputs and scores whose laws are known: Bradley-Terry, and a normal or logistic law around g."""

    def __init__(self, make, energy, draw):
        self.make, self.energy = make, energy
        self.y, self.other = different(draw)
        self.margin = energy(self.y) - energy(self.other)
        better = (self.margin + _rng.logistic(size=N + M) > 0)[:, None]
        self.better, self.worse = np.where(better, self.y, self.other), np.where(better, self.other, self.y)
        self.signed = np.where(better[:, 0], self.margin, -self.margin)
        # Levels that no energy has: the mean of g over all rankings, and g of the empty set, are 0.
        self.real = 5 + energy(self.y) + _rng.normal(size=N + M)
        self.binary = energy(self.y) - 2 + _rng.logistic(size=N + M) > 0

    def fit(self, target, **options):
        """An estimator that has learned from the first rows."""
        made = self.make(**{**SMALL, **options})
        if target == "worse":
            return made.fit(X[:N], self.better[:N], worse=self.worse[:N])
        return made.fit(X[:N], self.y[:N], scores=getattr(self, target)[:N])


CASES = {
    "sets": Triplets(MultilabelClassifier, energy_of_sets, lambda: _rng.integers(0, 2, size=(N + M, K))),
    "rankings": Triplets(LabelRanker, energy_of_ranks, lambda: np.argsort(_rng.random(size=(N + M, K)), axis=1)),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def preferring(case):
    """An estimator fitted on preferences."""
    return case.fit("worse")


# ------------------------------------------------------------------------------------------------- what is recovered


def test_preferences_recover_the_order_of_outputs(case, preferring):
    """On new pairs: a standard error of agreement is at most 0.02."""
    margin = preferring.energy(X[N:], case.better[N:]) - preferring.energy(X[N:], case.worse[N:])
    truth = case.signed[N:]
    bayes = np.mean(truth > 0)
    assert np.mean((margin > 0) == (truth > 0)) > 0.85
    assert np.mean(margin > 0) > bayes - 0.04
    # The probability of each preference too, in nats: a guess loses log 2 = 0.69.
    lost, least = np.logaddexp(0, -margin).mean(), np.logaddexp(0, -truth).mean()
    assert lost < least + 0.1


@pytest.mark.parametrize(("target", "kind", "correlation"), [("real", "squared", 0.97), ("binary", "logistic", 0.88)])
def test_scores_recover_the_energy(case, target, kind, correlation, tmp_path):
    """On new rows, whatever the level of the scores; of the energies by which they were drawn."""
    made = case.fit(target)
    unit = case.real[:N].std() if kind == "squared" else 1.0
    assert (made.objective_.kind, made.objective_.intercept) == (kind, True)
    np.testing.assert_allclose(made.objective_.unit, unit, rtol=1e-6)
    found = made.energy(X[N:], case.y[N:])
    assert np.corrcoef(found, case.energy(case.y)[N:])[0, 1] > correlation
    copied = pickle.loads(pickle.dumps(made))
    made.save(tmp_path / "model.partita")
    for other in (copied, partita.load(tmp_path / "model.partita")):
        np.testing.assert_array_equal(other.energy(X[N:], case.y[N:]), found)
    if target == "real":
        # In their unit: the residuals of the truth have a standard deviation of 1.
        assert np.std(unit * found - case.real[N:]) < 1.25


def test_answers_follow_from_the_energy(case, preferring):
    """The mode has the largest energy, and probabilities are those of exp(g), by enumeration."""
    x, outputs = X[:3], np.unique(case.y, axis=0)
    assert len(outputs) == (2**K if case is CASES["sets"] else 24)
    g = preferring.energy(np.repeat(x, len(outputs), axis=0), np.tile(outputs, (3, 1))).reshape(3, -1)
    p = np.exp(g - g.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(preferring.predict(x), outputs[g.argmax(axis=1)])
    log_p = preferring.log_prob(np.repeat(x, len(outputs), axis=0), np.tile(outputs, (3, 1))).reshape(3, -1)
    np.testing.assert_allclose(np.exp(log_p), p, atol=1e-5)
    of_labels = outputs if case is CASES["sets"] else outputs[..., None] == np.arange(K)
    np.testing.assert_allclose(preferring.predict_proba(x), np.einsum("ny,y...->n...", p, of_labels), atol=1e-5)


def test_the_learned_normalizer_is_trained_where_training_does_not_sum():
    """9 labels with interactions: 512 outputs, whose exact log-partition is known. A tau of the logits starts at 0."""
    rng, k = np.random.default_rng(1), 9
    y, other = (rng.integers(0, 2, size=(N, k)) for _ in range(2))
    other[(other == y).all(axis=1), 0] ^= 1
    weights = rng.normal(size=(D, k))
    better = (((X[:N] @ weights) * (y - other)).sum(axis=1) + rng.logistic(size=N) > 0)[:, None]
    pairs = X[:N], np.where(better, y, other)
    worse = np.where(better, other, y)
    off = {}
    for train in ("both", "g"):
        made = MultilabelClassifier(**SMALL, penalty=0.03, tau="logits", train=train).fit(*pairs, worse=worse)
        exactly, learned = (made.log_partition(X[N:], method=method) for method in ("exact", "learned"))
        off[train] = np.abs(learned - exactly).mean()
        off[train, "energy"] = made.energy(X[:5], y[:5])
    np.testing.assert_array_equal(off["both", "energy"], off["g", "energy"])
    assert off["both"] < 0.25 * off["g"]
    assert off["both"] < 0.5


# ------------------------------------------------------------------------------------------------- scikit-learn, data


@pytest.mark.slow
def test_clones_refits_and_copies_answer_alike(case, preferring, tmp_path):
    rows = X[N : N + 50], case.y[N : N + 50]
    found = preferring.energy(*rows)
    again = clone(preferring).fit(X[:N], case.better[:N], worse=case.worse[:N])
    preferring.save(tmp_path / "model.partita")
    for other in (again, pickle.loads(pickle.dumps(preferring)), partita.load(tmp_path / "model.partita")):
        np.testing.assert_array_equal(other.energy(*rows), found)
    # A fit on observed outputs forgets the preferences.
    refitted = clone(preferring).set_params(steps=12).fit(X[:N], case.better[:N])
    observed = refitted.energy(*rows)
    refitted.fit(X[:N], case.better[:N], worse=case.worse[:N]).fit(X[:N], case.better[:N])
    np.testing.assert_array_equal(refitted.energy(*rows), observed)


FEW = {**SMALL, "steps": 12}


@pytest.mark.slow
def test_rows_come_in_every_form():
    """Sparse x, sets of names, a pipeline, rows to stop on, weights of 0: as for observed outputs."""
    case = CASES["sets"]
    names = np.array(["a", "b", "c", "d"])
    as_sets = [[set(names[row == 1]) for row in part[:N]] for part in (case.better, case.worse)]
    by_table = MultilabelClassifier(**FEW).fit(X[:N], case.better[:N], worse=case.worse[:N])
    by_name = MultilabelClassifier(**FEW).fit(X[:N], as_sets[0], worse=as_sets[1])
    g = by_table.energy(X[:9], case.y[:9])
    np.testing.assert_array_equal(by_name.energy(X[:9], [set(names[row == 1]) for row in case.y[:9]]), g)
    sparse = MultilabelClassifier(**FEW).fit(
        scipy.sparse.csr_matrix(X[:N]), scipy.sparse.csr_matrix(case.better[:N]), worse=case.worse[:N]
    )
    assert np.isfinite(sparse.energy(scipy.sparse.csr_matrix(X[:9]), case.y[:9])).all()
    piped = make_pipeline(StandardScaler(), MultilabelClassifier(**FEW, standardize=False))
    piped.fit(X[:N], case.better[:N], multilabelclassifier__worse=case.worse[:N])
    assert piped.predict(X[:9]).shape == (9, K)
    held = (X[N:], case.better[N:], case.worse[N:])
    stopped = MultilabelClassifier(**FEW).fit(X[:N], case.better[:N], worse=case.worse[:N], eval_set=held)
    assert np.isfinite([value for _, value in stopped.history_.validation]).all()
    part, weight = slice(0, N // 2), (np.arange(N) < N // 2).astype(float)
    weighted = MultilabelClassifier(**FEW).fit(X[:N], case.y[:N], weight, scores=case.real[:N])
    fewer = MultilabelClassifier(**FEW).fit(X[part], case.y[part], weight[part], scores=case.real[part])
    np.testing.assert_array_equal(weighted.energy(X[:9], case.y[:9]), fewer.energy(X[:9], case.y[:9]))


# ------------------------------------------------------------------------------------------------- what is refused

SETS, RANKS = (CASES[name] for name in ("sets", "rankings"))
Y, WORSE = SETS.better[:N], SETS.worse[:N]
T = SETS.real[:N]


def changed(values, row, value):
    made = np.array(values, float)
    made[row] = value
    return made


BAD = {
    "both": ({}, {"worse": WORSE, "scores": T}, "worse= or scores=, not both"),
    "another objective": ({"objective": "exact"}, {"worse": WORSE}, r"minimizes objectives.Preferences.*got 'exact'"),
    "scores for pairs": ({"objective": objectives.Scores()}, {"worse": WORSE}, "minimizes objectives.Preferences"),
    "pairs for scores": ({"objective": objectives.Preferences()}, {"scores": T}, r"objectives.Scores\('logistic'\)"),
    "no pairs": ({"objective": objectives.Preferences()}, {}, r"from X and y alone.*fit\(X, y, worse="),
    "no scores": ({"objective": objectives.Scores()}, {}, r"from X and y alone.*fit\(X, y, scores="),
    "too few worse": ({}, {"worse": WORSE[:-1]}, "each of the 600 rows of y; got 599"),
    "another number of labels": ({}, {"worse": WORSE[:, :3]}, "worse must hold outputs as y does.*4 columns"),
    "worse in another kind": ({}, {"worse": [{"a"}] * N}, "worse must hold outputs as y does.*kind"),
    "worse out of range": ({}, {"worse": WORSE + 2}, "worse must hold outputs as y does.*0/1"),
    "missing in worse": ({}, {"worse": changed(WORSE, (3, 1), np.nan)}, "1 rows of worse have missing.*row 3"),
    "missing in y": ({"y": changed(Y, (5, 0), np.nan)}, {"scores": T}, "whole outputs, but 1 rows of y.*row 5"),
    "same output twice": ({}, {"worse": np.where(np.arange(N)[:, None] == 7, Y, WORSE)}, "same output twice.*row 7"),
    "too few scores": ({}, {"scores": T[:-1]}, r"600 finite numbers, one per row; got shape \(599,\)"),
    "scores in a column": ({}, {"scores": T[:, None]}, r"one per row; got shape \(600, 1\)"),
    "sparse scores": ({}, {"scores": scipy.sparse.csr_matrix(T)}, "got a sparse matrix"),
    "nan scores": ({}, {"scores": changed(T, 2, np.nan)}, "got 1 that are NaN or infinite, the first in row 2"),
    "huge scores": ({}, {"scores": changed(T, 2, 1e300)}, "got 1 that are NaN or infinite"),
    "text scores": ({}, {"scores": ["good"] * N}, "got dtype <U4"),
    "one score": ({}, {"scores": np.ones(N)}, "All scores are 1: they do not say"),
    "logistic out of range": ({"objective": objectives.Scores("logistic")}, {"scores": T}, "from 0 .bad. to 1 .good."),
    "tau alone": ({"train": "tau"}, {"worse": WORSE}, "does not train tau"),
    "in turn": ({"train": "alternate"}, {"scores": T}, "does not train tau"),
    "a fitted reference": ({"reference": LogisticRegression()}, {"worse": WORSE}, "LogisticRegression as reference"),
    "class weights": ({"class_weight": "balanced"}, {"worse": WORSE}, "with worse= give sample_weight"),
    "a fitted threshold": ({"decision": "micro_f1"}, {"scores": T}, "with scores= use 'mode', 'hamming' or 'f1'"),
    "short eval_set": ({}, {"worse": WORSE, "eval_set": (X, Y)}, r"eval_set must be \(X, y, worse\)"),
    "bad eval_set": ({}, {"scores": T, "eval_set": (X[:N], Y, T[:-1])}, "600 finite numbers"),
}


@pytest.fixture(scope="module")
def observing():
    return MultilabelClassifier(**FEW).fit(X[:N], Y)


@pytest.mark.parametrize("name", BAD)
def test_bad_triplets_are_refused_before_any_work(name, observing, monkeypatch):
    """And a fitted estimator stays what it was."""
    options, given, message = BAD[name]
    y = options.get("y", Y)
    made = pickle.loads(pickle.dumps(observing))
    made.set_params(**{name: value for name, value in options.items() if name != "y"})
    monkeypatch.setattr(
        partita.training, "fit_stack", lambda *args, **options: pytest.fail("work was started on bad input")
    )
    before = dict(made.__dict__)
    with pytest.raises((ValueError, TypeError), match=message):
        made.fit(X[:N], y, **given)
    assert made.__dict__.keys() == before.keys()
    assert all(made.__dict__[name] is value for name, value in before.items())


def test_partial_rankings_and_regressors_are_refused_with_preferences():
    tied, orders = changed(RANKS.worse[:N], 4, [0, 1, 1, 3]), ["a>b>c", "b>a>c", "c>b>a"] * 4
    with pytest.raises(ValueError, match="1 rows of worse have missing labels or ties, the first is row 4"):
        LabelRanker(**FEW).fit(X[:N], RANKS.better[:N], worse=tied)
    with pytest.raises(ValueError, match="worse have missing labels or ties"):
        LabelRanker(**FEW).fit(X[:12], orders, worse=["c"] * 12)
    with pytest.raises(ValueError, match="A Ridge as reference"):
        LabelRanker(**FEW, reference=Ridge()).fit(X[:N], RANKS.better[:N], worse=RANKS.worse[:N])


def test_partial_fit_does_not_mix_pairs_with_observed_outputs(case, preferring):
    with pytest.raises(ValueError, match="Preferences cannot learn from X and y alone, as in partial_fit"):
        preferring.partial_fit(X[:N], case.better[:N])
    with pytest.raises(ValueError, match="as in partial_fit"):
        case.make(objective=objectives.Scores()).partial_fit(X[:N], case.better[:N])


@pytest.mark.slow
def test_a_measure_tilts_probabilities_but_not_the_energy():
    """DPO: the loss does not depend on q, p = q exp(g) / Z does."""
    q = ProductBernoulli(np.array([2.0, -2.0, 0.0, 0.0]))
    plain, tilted = (
        MultilabelClassifier(**FEW, reference=reference).fit(X[:N], Y, worse=WORSE) for reference in ("uniform", q)
    )
    np.testing.assert_array_equal(plain.energy(X[:9], Y[:9]), tilted.energy(X[:9], Y[:9]))
    ratio = tilted.log_prob(X[:9], Y[:9]) + tilted.log_partition(X[:9]) - tilted.energy(X[:9], Y[:9])
    np.testing.assert_allclose(ratio, [q.log_prob(y) for y in Y[:9]], atol=1e-4)


def test_energy_needs_whole_outputs(preferring, case):
    if case is SETS:
        with pytest.raises(ValueError, match="energy needs whole outputs"):
            preferring.energy(X[:N], changed(Y, (0, 0), np.nan))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        preferring.energy(X[:4], case.y[:3])
