"""Both estimators as people use them: laws of their answers, every kind of data, every name, scikit-learn's tools."""

import contextlib
import copy
import io
import itertools
import logging
import pickle
import re
import subprocess
import sys
import warnings

import equinox as eqx
import jax
import jaxtyping
import joblib
import numpy as np
import optax
import pandas
import polars
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import partita
from partita import inference, training
from partita.couplings import Bilinear
from partita.decisions import Kemeny
from partita.divergences import KL
from partita.estimators import (
    InterruptedFitWarning,
    LabelRanker,
    MultilabelClassifier,
    base,
    cross_fitting,
    learning,
    names,
)
from partita.estimators.references import fit_reference
from partita.networks import MLP
from partita.objectives import ExactMLE, MinMin
from partita.structures import Cube, Hypercube, Mallows, Permutations, PlackettLuce, ProductBernoulli, Uniform
from partita.training import BOTH, Alternating, Features


@pytest.fixture(scope="module", autouse=True)
def unchecked_module():
    """The library as a user meets it, for what is fitted once for all tests too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield


# One shape for all, so that programs are compiled once.
N, D, K = 24, 3, 3
SMALL = {"ensemble_size": 2, "steps": 12, "width": 4, "depth": 1, "batch_size": 12, "random_state": 0}
_rng = np.random.RandomState(0)
X = _rng.randn(N, D)
SCORES = X @ _rng.randn(D, K) + 0.3 * _rng.randn(N, K)
SETS = (SCORES > 0).astype(int)
RANKS = np.argsort(np.argsort(-SCORES, axis=1), axis=1)
ALL_SETS = np.array(list(itertools.product([0, 1], repeat=K)))
ALL_RANKS = np.array(list(itertools.permutations(range(K))))


def classifier(**more):
    return MultilabelClassifier(**{**SMALL, **more})


def ranker(**more):
    return LabelRanker(**{**SMALL, "penalty": 0.01, "refit": False, **more})


@pytest.fixture(scope="module")
def of_sets():
    return classifier(learning_rate=0.1).fit(X, SETS)


@pytest.fixture(scope="module")
def of_ranks():
    return ranker(learning_rate=0.1).fit(X, RANKS)


@pytest.fixture(params=["sets", "rankings"])
def fitted(request):
    """(estimator, its Y, all outputs)"""
    sets = request.param == "sets"
    estimator = request.getfixturevalue("of_sets" if sets else "of_ranks")
    return estimator, *((SETS, ALL_SETS) if sets else (RANKS, ALL_RANKS))


def law(estimator, outputs, rows=2):
    """p(y|x) of every output, by log_prob."""
    x = np.repeat(X[:rows], len(outputs), axis=0)
    return np.exp(estimator.log_prob(x, np.tile(outputs, (rows, 1)))).reshape(rows, -1)


def indicators(outputs):
    return outputs if len(outputs) == len(ALL_SETS) else outputs[..., None] == np.arange(K)


# ------------------------------------------------------------------------------------------------- laws of the answers


def test_answers_are_those_of_one_law(fitted):
    # float32: sums of at most 8 terms.
    estimator, _, outputs = fitted
    p = law(estimator, outputs)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)
    assert p.max() > 2 / len(outputs), "it has learned something"
    expected = np.einsum("ny,y...->n...", p, indicators(outputs).astype(float))
    np.testing.assert_allclose(estimator.predict_proba(X[:2]), expected, atol=1e-5)
    np.testing.assert_array_equal(estimator.predict(X[:2]), outputs[p.argmax(axis=1)])
    best, probability = estimator.top_k(X[:2], 3)
    np.testing.assert_allclose(probability, np.sort(p, axis=1)[:, ::-1][:, :3], atol=1e-5)
    np.testing.assert_array_equal(best[:, 0], outputs[p.argmax(axis=1)])


def test_conditional_answers_agree_with_enumeration(fitted):
    estimator, _, outputs = fitted
    p = law(estimator, outputs) * (outputs[:, 1] == 1)
    p /= p.sum(axis=1, keepdims=True)
    expected = np.einsum("ny,y...->n...", p, indicators(outputs).astype(float))
    np.testing.assert_allclose(estimator.predict_proba(X[:2], given={1: 1}), expected, atol=1e-4)
    table = np.full((2, K), np.nan)
    table[:, 1] = 1
    np.testing.assert_array_equal(estimator.predict(X[:2], given=table), outputs[p.argmax(axis=1)])
    with pytest.raises(ValueError, match="given names"):
        estimator.predict(X[:2], given={"nobody": 1})


def test_draws_follow_the_law_and_repeat(fitted):
    estimator, _, outputs = fitted
    drawn = estimator.sample(X[:1], 500)[0]
    # Frequencies of 500 draws are within 5 standard errors, at most 0.12: p < 1e-5 for 8 outputs.
    found = (drawn[:, None] == outputs).all(axis=2).mean(axis=0)
    np.testing.assert_allclose(found, law(estimator, outputs, 1)[0], atol=0.12)
    np.testing.assert_array_equal(drawn, estimator.sample(X[:1], 500)[0])
    assert (drawn != estimator.sample(X[:1], 500, random_state=5)[0]).any()


def test_the_normalizer_can_be_asked(fitted):
    estimator, _, _ = fitted
    value, error = estimator.log_partition_with_error(X[:2])
    np.testing.assert_allclose(value, estimator.log_partition(X[:2]), rtol=1e-5)
    assert value.shape == error.shape == (2,)
    # Exact normalizers: the mass is one up to its rounding error.
    checked = estimator.normalization(X[:2])
    assert ((checked.low <= 1) & (checked.high >= 1) & (checked.high - checked.low < 1e-3)).all()
    assert checked.verdict == "normalized"


def test_scores_are_subset_accuracy_and_kendall_tau(fitted):
    estimator, y, _ = fitted
    answer = estimator.predict(X)
    each = (answer == y).all(axis=1)
    if y is RANKS:
        a, b = np.triu_indices(K, 1)
        each = (np.sign(y[:, a] - y[:, b]) * np.sign(answer[:, a] - answer[:, b])).mean(axis=1)
    assert estimator.score(X, y) == pytest.approx(each.mean())
    weight = np.arange(N)
    assert estimator.score(X, y, sample_weight=weight) == pytest.approx(np.average(each, weights=weight))
    assert estimator.score(X, y) > estimator.score(X, np.roll(y, 7, axis=0)), "better than answers for other rows"


# ------------------------------------------------------------------------------------------------------------- fitting


def test_the_same_seed_gives_the_same_bits(of_sets):
    again = classifier(learning_rate=0.1).fit(X, SETS)
    np.testing.assert_array_equal(again.predict_proba(X), of_sets.predict_proba(X))
    other = classifier(learning_rate=0.1, random_state=1).fit(X, SETS)
    assert (other.predict_proba(X) != of_sets.predict_proba(X)).any()
    assert len(of_sets.history_.loss) == of_sets.n_iter_ <= 12
    assert of_sets.history_.loss[-1] < of_sets.history_.loss[0]
    assert of_sets.history_.validation


@pytest.mark.parametrize("make", [classifier, ranker])
def test_x_is_checked_once_and_y_is_read_once(make, monkeypatch):
    """In every call: X by scikit-learn and nowhere else, y by its codec."""
    passes, reads = [], []

    def counted(check):
        def counting(values, *args, **options):
            # Five features: nothing else has the shape of X.
            if np.ndim(values) == 2 and np.shape(values)[1] == 5 and np.asarray(values).dtype.kind == "f":
                passes.append(check.__name__)
            return check(values, *args, **options)

        return counting

    for where, name in ((np, "isfinite"), (np, "isnan"), (sklearn.utils.validation, "_assert_all_finite")):
        monkeypatch.setattr(where, name, counted(getattr(where, name)))
    y = SETS if make is classifier else RANKS
    codec = sys.modules[make()._codec.__module__]
    parse = codec._parse
    monkeypatch.setattr(codec, "_parse", lambda *args, **options: reads.append("y") or parse(*args, **options))
    x = np.hstack([X, X[:, :2] ** 2])
    made = make(decision="micro_f1") if make is classifier else make(penalty=[0.01, 0.1], refit=True)
    for call, checks, encodings in (
        (lambda: made.fit(x, y), 1, 1),
        (lambda: made.partial_fit(x, y), 1, 1),
        (lambda: made.predict(x), 1, 0),
        (lambda: made.predict_proba(x, given={0: 0}), 1, 0),
        (lambda: made.log_prob(x, y), 1, 1),
        (lambda: made.fit(x, y, eval_set=(x[:6], y[:6])), 2, 2),
    ):
        passes.clear()
        reads.clear()
        call()
        assert passes == ["_assert_all_finite"] * checks
        assert len(reads) == encodings


def test_callbacks_and_the_rows_to_stop_on():
    told = []
    asked = [lambda now: told.append(now) or now.step >= 30]
    stopped = classifier(steps=50).fit(X, SETS, eval_set=(X[:6], SETS[:6]), callbacks=asked)
    assert [t.step for t in told] == [10, 20, 30]
    assert stopped.n_iter_ == 30
    assert all(t.validation is not None for t in told)


def test_warm_start_goes_on_and_partial_fit_too():
    warm = classifier(warm_start=True).fit(X, SETS)
    before = warm.history_.loss[-1]
    assert warm.fit(X, SETS).history_.loss[0] < before + 0.1
    online = classifier()
    losses = []
    for _ in range(4):
        online.partial_fit(X, SETS)
        losses.append(online.history_.loss[-1])
    assert online.n_iter_ == 8
    assert losses[-1] < losses[0]
    online.fit(X, SETS)
    np.testing.assert_array_equal(online.predict_proba(X), classifier().fit(X, SETS).predict_proba(X))
    with pytest.raises(ValueError, match="out of fold"):
        classifier(reference=ExtraTreesClassifier(2)).partial_fit(X, SETS)


def test_weights_are_heard():
    weight = np.where(SETS[:, 0] == 1, 5.0, 0.01)
    plain, weighted = classifier().fit(X, SETS), classifier().fit(X, SETS, sample_weight=weight)
    balanced = classifier(class_weight={0: 9.0}).fit(X, SETS)
    mean = plain.predict_proba(X)[:, 0].mean()
    assert weighted.predict_proba(X)[:, 0].mean() > mean
    assert balanced.predict_proba(X)[:, 0].mean() > mean
    with pytest.raises(ValueError, match=r"class_weight must be None, 'balanced', or weights by label; got .'nobody'"):
        classifier(class_weight={"nobody": 1}).fit(X, SETS)
    with pytest.raises(ValueError, match=r"The 'class_weight' parameter .*'balanced'"):
        classifier(class_weight="heavy").fit(X, SETS)
    with pytest.raises(ValueError, match="zero"):
        classifier().fit(X, SETS, sample_weight=np.zeros(N))


def test_a_progress_bar_is_shown_if_asked(capsys):
    classifier(verbose=1).fit(X, SETS)
    assert "loss" in capsys.readouterr().err


def test_a_loss_that_explodes_is_told_and_leaves_an_answer():
    with pytest.warns(ConvergenceWarning, match="models became infinite.*Lower learning_rate"):
        found = classifier(learning_rate=1e30).fit(X, SETS)
    assert np.isfinite(found.predict_proba(X)).all()


def interrupt(*_, **__):
    raise KeyboardInterrupt


class Broken(ExtraTreesClassifier):
    """Fails in the third fold."""

    fits = itertools.count()

    def fit(self, *args, **options):
        if next(self.fits) == 2:
            raise RuntimeError("broken")
        return super().fit(*args, **options)


class Interrupted(ExtraTreesClassifier):
    """Interrupted while it is fitted, before any validation of the energy."""

    def fit(self, *args, **options):
        raise KeyboardInterrupt


# Where a second fit ends: in what comes in, in the reference, in an argument.
ENDS = {
    "X": (ValueError, {"X": np.where(X > 1, np.nan, X)}, {}),
    "y": (ValueError, {"y": SETS + 0.5}, {}),
    "reference": (RuntimeError, {}, {"reference": Broken(5)}),
    "argument": (ValueError, {}, {"learning_rate": -1.0}),
    "interrupted": (KeyboardInterrupt, {}, {"reference": Interrupted(5)}),
}


@pytest.mark.parametrize("stage", ENDS)
def test_a_refit_that_does_not_succeed_changes_nothing(of_sets, stage):
    """Other rows and other labels come in; what was fitted stays, bit for bit."""
    error, options, settings = ENDS[stage]
    made = copy.deepcopy(of_sets)
    before, answers = pickle.dumps(vars(made)), made.predict_proba(X)
    with pytest.raises(error):
        made.set_params(**settings).fit(**{"X": 3 * X + 1, "y": 1 - SETS, **options})
    made.set_params(**{name: getattr(of_sets, name) for name in settings})
    assert pickle.dumps(vars(made)) == before
    np.testing.assert_array_equal(made.predict_proba(X), answers)


@pytest.mark.parametrize("stage", ["_calibrate", "average", "_begin"])
def test_a_refit_that_fails_inside_changes_nothing(fitted, stage, monkeypatch):
    estimator, y, _ = fitted
    made = copy.deepcopy(estimator)
    before = pickle.dumps(vars(made))

    def fails(*_, **__):
        raise MemoryError

    # The mean of the ensemble is the last that is computed.
    monkeypatch.setattr(base if stage == "average" else type(made), stage, fails)
    with pytest.raises(MemoryError):
        made.fit(2 * X, y[::-1])
    with pytest.raises(MemoryError):
        made.partial_fit(2 * X, y[::-1]) if stage != "_begin" else made.fit(X, y)
    assert pickle.dumps(vars(made)) == before


def assert_same(a, b):
    """The same model, bit for bit, by the same steps."""
    assert eqx.tree_equal(a.ebm_, b.ebm_)
    np.testing.assert_array_equal(a.history_.loss, b.history_.loss)
    assert (a.scale_, a.threshold_, a.penalty_) == (b.scale_, b.threshold_, b.penalty_)


def test_a_fit_that_is_interrupted_before_its_first_validation_is_no_fit(monkeypatch):
    """In the reference, or in the first steps."""
    made = classifier(reference=Interrupted(5))
    with pytest.raises(KeyboardInterrupt):
        made.fit(X, SETS)
    monkeypatch.setattr(training.loop._Program, "advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        made.set_params(reference="uniform").fit(X, SETS)
    with pytest.raises(NotFittedError):
        made.predict(X)
    assert not [name for name in vars(made) if name.endswith("_")]


def test_a_fit_that_is_interrupted_later_keeps_its_best(of_sets):
    """As if a callback had ended it there. A refit too: then it is the model of the new rows."""
    small = {"learning_rate": 0.1, "decision": "micro_f1", "steps": 40}
    stopped = classifier(**small).fit(2 * X, 1 - SETS, callbacks=[lambda now: now.step == 20])
    for made in (classifier(**small), copy.deepcopy(of_sets).set_params(**small)):
        with pytest.warns(InterruptedFitWarning, match="interrupted after 20 of 40 steps: the model is the best"):
            assert made.fit(2 * X, 1 - SETS, callbacks=[lambda now: now.step == 20 and interrupt(now)]) is made
        assert_same(made, stopped)
        assert made.n_iter_ == 20


def test_an_interruption_after_the_steps_keeps_what_they_led_to(monkeypatch):
    """In the calibration, or in the refit on all rows."""
    trained = ranker(steps=40, refit=False).fit(X, RANKS)
    monkeypatch.setattr(cross_fitting, "refit", interrupt)
    with pytest.warns(InterruptedFitWarning, match="after 40 of 40 steps"):
        assert_same(ranker(steps=40, refit=True).fit(X, RANKS), trained)
    monkeypatch.setattr(MultilabelClassifier, "_calibrate", interrupt)
    with pytest.warns(InterruptedFitWarning):
        made = classifier(decision="micro_f1").fit(X, SETS)
    assert made.threshold_ == 0.5


@pytest.fixture(scope="module")
def away():
    """(a fit whose members all run away from a good start, what it warned of)"""
    with pytest.warns(ConvergenceWarning) as told:
        made = classifier(learning_rate=300.0).fit(X, SETS)
    return made, [str(one.message) for one in told]


def test_members_that_ran_away_are_told_of(away):
    assert any(re.match("2 of 2 models diverged: .* Lower learning_rate or raise penalty", one) for one in away[1])


def test_a_fit_that_learned_nothing_says_so(away):
    """No validation was better than the start, where p is q: every set is as probable as any other."""
    made, messages = away
    assert any(
        one.startswith("None of 2 models improved on held-out rows: the ensemble is the reference itself")
        for one in messages
    )
    np.testing.assert_array_equal(made.predict_proba(X), np.full((N, K), 0.5, np.float32))


def test_how_many_members_improved_is_counted():
    now = cross_fitting.Endings(5, 0, 0, 2)
    with pytest.warns(ConvergenceWarning, match="^3 of 5 models improved on held-out rows: each of the others is what"):
        learning._warn_of_endings(now)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learning._warn_of_endings(cross_fitting.Endings(5, 0, 0, 0))


def test_tau_is_learned_for_the_energy_of_the_last_fit():
    """Exact likelihood leaves tau where it began. Trained alone it comes near LSE, and no bit of g changes."""
    small = {"ensemble_size": 1, "coupling": "unary", "network": "linear", "tau": "mlp", "patience": None}
    made = classifier(objective="exact", learning_rate=0.1, **small).fit(X, SETS)

    def off():
        learned, exact = (
            inference.log_partition(made.ebm_, made.scaler_(X), method=how) for how in ("learned", "exact")
        )
        return float(np.abs(learned - exact).mean())

    before, g, members_g = off(), made.ebm_.g, made.ensemble_.g
    made.set_params(objective="min-min", train="tau", warm_start=True, steps=60, num_samples=32).fit(X, SETS)
    assert eqx.tree_equal(made.ebm_.g, g)
    assert eqx.tree_equal(made.ensemble_.g, members_g)
    assert off() < before / 2
    with pytest.raises(ValueError, match=r"train='tau' needs a trained energy.*same coupling"):
        made.set_params(coupling="pairwise").fit(X, SETS)


def test_passes_over_rows_alternate_too():
    """Two steps make a pass: the first is of g, the second of tau."""
    small = {"ensemble_size": 1, "coupling": "unary", "network": "linear", "tau": "mlp"}
    online, seen = classifier(train=Alternating(g=2, tau=2), learning_rate=0.1, **small), []
    for _ in range(3):
        seen.append(online.partial_fit(X, SETS).ensemble_)
    assert isinstance(online.objective_, MinMin)
    same = [
        [eqx.tree_equal(getattr(a, part), getattr(b, part)) for part in ("g", "tau")]
        for a, b in itertools.pairwise(seen)
    ]
    assert np.array(same).tolist() == [[True, False], [False, True]]


def test_both_players_of_min_max_have_optimistic_adam():
    made = names.objective("min-max", "reference", training.take(fresh(), 0), 8, D, key=jax.random.key(0))
    plan = cross_fitting.Plan(made, 1e-2, (0.1,), 8, 10, None, [], 2, 1.0, BOTH)
    assert plan.solver([0.1]).optimizer is made.optimizer is optax.optimistic_adam_v2


def fresh():
    """Two models before training."""
    recipe = names.Recipe(Bilinear(Cube(K)), "linear", "linear", Uniform(Hypercube(K)), KL(), (D,), 0, 4, 1)
    return training.stack([recipe(key) for key in jax.random.split(jax.random.key(0), 2)])


# ------------------------------------------------------------------------------------------------------- kinds of data


def test_frames_come_in_and_go_out(of_sets):
    frame = pandas.DataFrame(X, columns=["a", "b", "c"], index=np.arange(N) + 100)
    made = classifier(learning_rate=0.1).set_output(transform="pandas").fit(frame, pandas.DataFrame(SETS))
    answer = clone(made).set_output(transform=None)
    assert answer._sklearn_output_config == {"transform": "pandas"}
    p = made.predict_proba(frame)
    assert list(p.columns) == ["0", "1", "2"]
    assert list(p.index) == list(frame.index)
    np.testing.assert_array_equal(p, of_sets.predict_proba(X))
    assert isinstance(made.predict(frame), pandas.DataFrame)
    with pytest.raises(ValueError, match="feature names"):
        made.predict(frame.rename(columns={"a": "z"}))
    table = polars.DataFrame(X, schema=["a", "b", "c"])
    out = classifier(learning_rate=0.1).set_output(transform="polars").fit(table, SETS).predict_proba(table)
    np.testing.assert_array_equal(out.to_numpy(), of_sets.predict_proba(X))


SAME_SETS = {
    "bool": SETS.astype(bool),
    "float": SETS.astype(float),
    "sparse": scipy.sparse.csr_matrix(SETS),
    "sets": [{j for j in range(K) if row[j]} for row in SETS],
}


@pytest.mark.parametrize("kind", SAME_SETS)
def test_sets_of_any_kind_are_learned_alike_and_answered_in_kind(of_sets, kind):
    made = classifier(learning_rate=0.1).fit(X, SAME_SETS[kind])
    np.testing.assert_array_equal(made.predict_proba(X), of_sets.predict_proba(X))
    answer = made.predict(X)
    if kind == "sets":
        assert answer == [{j for j in range(K) if row[j]} for row in of_sets.predict(X)]
    else:
        assert type(answer) is type(SETS) or scipy.sparse.issparse(answer)
        dense = answer.toarray() if kind == "sparse" else answer
        np.testing.assert_array_equal(dense, of_sets.predict(X))


def test_rankings_in_letters_are_answered_in_letters(of_ranks):
    text = [">".join("abc"[j] for j in np.argsort(row)) for row in RANKS]
    made = ranker(learning_rate=0.1).fit(X, text)
    expected = [">".join("abc"[j] for j in np.argsort(row)) for row in of_ranks.predict(X)]
    assert list(made.predict(X)) == expected
    assert made.score(X, text) == pytest.approx(of_ranks.score(X, RANKS))
    assert list(made.classes_) == ["a", "b", "c"]


def test_missing_labels_and_ties_are_summed_over():
    y = SETS.astype(float)
    y[::3, 0] = np.nan
    made = classifier().fit(X, y)
    assert made.completion_ == "exact"
    assert np.isfinite(made.predict_proba(X)).all()
    p = law(made, ALL_SETS, 1)[0]
    known = made.log_prob(X[:1], [[np.nan, 1, 0]])
    np.testing.assert_allclose(np.exp(known), p[[2, 6]].sum(), rtol=1e-4)
    with pytest.raises(ValueError, match="whole label sets"):
        made.score(X, y)


def test_labels_that_are_never_observed_are_told_of():
    y = SETS.astype(float)
    y[:, 1] = np.nan
    with pytest.warns(UserWarning, match="Labels that are missing in every row cannot be learned: 1[.]"):
        classifier().fit(X, y)
    with pytest.warns(UserWarning, match="Nothing of y is observed in any row: the model is the reference"):
        made = classifier().fit(X, np.full((N, K), np.nan))
    np.testing.assert_array_equal(made.predict_proba(X), np.full((N, K), 0.5, np.float32))


def test_no_more_than_five_labels_are_named():
    """Of 8 that are never observed; said before any work."""
    rows = cross_fitting.Data(Features(X), np.zeros((N, 9), int), np.tile([1] * 8 + [0], (N, 1)))
    with pytest.warns(UserWarning, match="'label 0', 'label 1', 'label 2', 'label 3', 'label 4' and 3 more[.]"):
        classifier()._warn_of_unobserved(rows, tuple(f"label {j}" for j in range(9)))


@pytest.mark.slow
def test_best_labels_and_top_lists_are_rankings_too():
    best = np.array(["a", "b", "c"])[RANKS.argmin(axis=1)]
    made = ranker(learning_rate=0.1, steps=40).fit(X, best)
    assert made.completion_ == "exact"
    assert made.predict(X).shape == (N, K)
    assert (made.predict(X).argmin(axis=1) == RANKS.argmin(axis=1)).mean() > 0.6
    assert np.isfinite(made.score(X, best))
    # All rankings that begin with b, together.
    p = law_of_ranks(made, X[:1])
    np.testing.assert_allclose(np.exp(made.log_prob(X[:1], ["b"])), p[ALL_RANKS[:, 1] == 0].sum(), rtol=1e-4)


def law_of_ranks(made, x):
    """Of an estimator of best labels, which takes no whole rankings: by its draws' probabilities."""
    y, p = made.top_k(x, len(ALL_RANKS))
    return np.array([p[0][(y[0] == order).all(axis=1)][0] for order in ALL_RANKS])


def test_odd_rows_and_labels_are_learned_from():
    y = SETS.copy()
    y[:, 0], y[:, 1] = 1, 0
    made = classifier().fit(X, y)
    p = made.predict_proba(X)
    assert np.isfinite(p).all()
    assert (p[:, 0] > p[:, 1]).all()
    twice = classifier().fit(np.repeat(X[:12], 2, axis=0), np.repeat(SETS[:12], 2, axis=0))
    assert np.isfinite(twice.predict_proba(X)).all()


@pytest.mark.slow
def test_more_features_than_rows():
    x = np.random.RandomState(1).randn(N, 60)
    assert np.isfinite(classifier().fit(x, SETS).predict_proba(x)).all()


def test_sparse_features_are_never_dense_as_a_whole(monkeypatch):
    n, d = 600, 40
    x = scipy.sparse.random(n, d, density=0.1, format="csr", random_state=0)
    y = (x[:, :3].toarray() > 0).astype(int)
    largest, real = [0], scipy.sparse.csr_matrix.toarray

    def watched(self, *args, **options):
        largest.append(self.shape[0])
        return real(self, *args, **options)

    for kind in (scipy.sparse.csr_matrix, scipy.sparse.csr_array):
        monkeypatch.setattr(kind, "toarray", watched)
    made = classifier(ensemble_size=1, coupling="unary").fit(x, y)
    assert np.isfinite(made.predict_proba(x)).all()
    assert 0 < max(largest) <= 256


class Convolved(eqx.Module):
    """A user's own h, of tensors."""

    inner: MLP

    def __call__(self, x):
        return self.inner(x.mean(axis=0))


def test_a_user_module_takes_tensors():
    x = np.random.RandomState(0).randn(N, 2, D)
    h = Convolved(MLP(D, (K,), width=4, key=jax.random.key(0)))
    made = classifier(network=h, coupling="unary", ensemble_size=1).fit(x, SETS)
    assert made.predict(x).shape == (N, K)
    assert pickle.loads(pickle.dumps(made)).predict(x).shape == (N, K)


def test_a_new_number_of_rows_runs_the_same_program(of_sets):
    of_sets.predict_proba(X[:5])
    with jax.log_compiles(True), caught() as log:
        for n in (1, 3, 7, 16):
            of_sets.predict_proba(X[:n])
    assert "Compiling" not in log.getvalue()


def rows_of(kind, n):
    """n rows, and an estimator that learns from them in few steps."""
    rng = np.random.RandomState(n)
    x = rng.randn(n, 3)
    scores = x @ rng.randn(3, 4) + rng.randn(n, 4)
    if kind == "sets":
        return MultilabelClassifier(steps=20, width=4, random_state=0), x, (scores > 0).astype(int)
    return LabelRanker(steps=20, width=4, random_state=0), x, scores.argsort(axis=1).argsort(axis=1)


@pytest.mark.parametrize("kind", ["sets", "rankings"])
def test_a_fit_of_another_number_of_rows_compiles_nothing(kind):
    """Within a bucket, here 65 to 80 rows; calibration, choice of penalties and answers included."""
    estimator, x, y = rows_of(kind, 80)
    estimator.fit(x, y).predict(x)
    with jax.log_compiles(True), caught() as log:
        for n in (65, 71):
            estimator, x, y = rows_of(kind, n)
            estimator.fit(x, y).predict(x)
    assert "Compiling" not in log.getvalue()


@pytest.mark.parametrize("kind", ["sets", "rankings"])
def test_partial_fit_of_another_number_of_rows_compiles_nothing(kind):
    estimator, x, y = rows_of(kind, 40)
    estimator.partial_fit(x, y)
    with jax.log_compiles(True), caught() as log:
        for n in (47, 53, 59):
            _, x, y = rows_of(kind, n)
            estimator.partial_fit(x, y)
    assert "Compiling" not in log.getvalue()


@pytest.mark.parametrize("kind", ["sets", "rankings"])
def test_padded_rows_count_for_nothing(kind):
    """Fewer rows than a batch has, by exact likelihood, in which nothing is drawn: as with batches of all the rows."""
    estimator, x, y = rows_of(kind, 50)
    exact = {"objective": "exact", "ensemble_size": 1, "penalty": 0.1, "dtype": "float64"}
    padded, whole = (clone(estimator).set_params(batch_size=size, **exact).fit(x, y) for size in (64, 50))
    np.testing.assert_allclose(padded.predict_proba(x), whole.predict_proba(x), atol=1e-9)


@contextlib.contextmanager
def caught():
    """What jax logs."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger("jax").addHandler(handler)
    yield stream
    logging.getLogger("jax").removeHandler(handler)


# --------------------------------------------------------------------------------------------------------------- names

EVEN = ProductBernoulli(jax.numpy.zeros(K))
OF_SETS = [
    *[{"objective": name} for name in names.OBJECTIVES],
    *[{"loss": name, "objective": "exact"} for name in names.LOSSES],
    *[{"coupling": name} for name in names.SET_COUPLINGS],
    *[{"tau": name} for name in names.LOG_PARTITIONS],
    *[{"network": name} for name in names.NETWORKS],
    *[{"proposal": name, "objective": "min-min"} for name in names.PROPOSALS],
    *[{"decision": name} for name in ("mode", "hamming", "f1", "micro_f1")],
    {
        "objective": ExactMLE(),
        "loss": KL(),
        "coupling": Bilinear(Cube(K)),
        "reference": ProductBernoulli(jax.numpy.zeros(K)),
    },
]
OF_RANKS = [
    *[{"objective": name} for name in names.OBJECTIVES if name not in ("pseudo-likelihood", "ratio-matching")],
    *[{"coupling": name} for name in names.RANKING_COUPLINGS],
    *[{"decision": name} for name in ("mode", "borda", "kemeny")],
    {"decision": Kemeny()},
]
QUICK = ({"decision": "micro_f1"}, {"decision": "f1"})


def named(choices):
    for choice in choices:
        marks = [] if choice in QUICK else [pytest.mark.slow]
        yield pytest.param(choice, marks=marks, id="-".join(str(value)[:20] for value in choice.values()))


@pytest.mark.parametrize("choice", list(named(OF_SETS)))
def test_every_name_serves_sets(choice):
    made = classifier(**choice).fit(X, SETS)
    assert set(np.unique(made.predict(X))) <= {0, 1}
    assert np.isfinite(made.predict_proba(X)).all()


@pytest.mark.parametrize("choice", list(named(OF_RANKS)))
def test_every_name_serves_rankings(choice):
    made = ranker(**choice).fit(X, RANKS)
    np.testing.assert_array_equal(np.sort(made.predict(X), axis=1), np.tile(np.arange(K), (N, 1)))
    assert np.isfinite(made.predict_proba(X)).all()


BAD = {
    "objective": ("maximum", "'auto', 'min-min', 'exact'"),
    "loss": ("hinge", "'logistic', 'sparsemax'"),
    "coupling": ("quadratic", "got 'quadratic'"),
    "network": ("transformer", "'linear', 'mlp', 'resnet'"),
    "tau": ("table", "'residual', 'logits'"),
    "proposal": ("gibbs", "'surrogate', 'reference'"),
    "decision": ("best", "'mode'"),
    "reference": ("forest", "'uniform', a measure of partita, or an estimator with predict"),
    "train": ("everything", "'both', 'g', 'tau', 'alternate', or a AbstractTraining"),
}


# What scikit-learn says of a value of the wrong type, or out of its range.
CONSTRAINED = {
    "objective": (ExactMLE, "'str' or an instance of '.*AbstractObjective'. Got <class"),
    "network": (3, "a callable. Got 3"),
    "ensemble_size": (0, "an int in the range \\[1, inf\\). Got 0"),
    "steps": (2.5, "an int in the range \\[1, inf\\) or None. Got 2.5"),
    "patience": (0, "an int in the range \\[1, inf\\) or None. Got 0"),
    "learning_rate": (-1.0, "a float in the range \\(0.0, inf\\). Got -1.0"),
    "penalty": (np.nan, "a float in the range \\[0.0, inf\\), an array-like or None. Got nan"),
    "refit": (3, "an instance of 'bool'"),
    "dtype": ("float16", "a str among {'float(32|64)', 'float(32|64)'}. Got 'float16'"),
    "random_state": ("zero", "an instance of 'numpy.random.mtrand.RandomState' or None. Got 'zero'"),
    "verbose": (-1, "Got -1"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("make", [classifier, ranker])
def test_a_name_that_there_is_not_is_refused_before_any_work(make, name):
    value, said = BAD[name]
    with pytest.raises(ValueError, match=f"^{name} must be .*{said}".replace("(", "[(]")):
        make(**{name: value}).fit(object(), object())


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.parametrize("make", [classifier, ranker])
def test_a_bad_argument_is_refused_before_any_work(make, name):
    value, said = CONSTRAINED[name]
    for learn in (make(**{name: value}).fit, make(**{name: value}).partial_fit):
        with pytest.raises(ValueError, match=f"^The '{name}' parameter of {type(make()).__name__} must be .*{said}"):
            learn(object(), object())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"penalty": [0.1, -1]}, r"penalty must be finite numbers of at least 0; got \[0.1, -1\]"),
        ({"penalty": [0.1, np.inf]}, "penalty must be finite numbers of at least 0"),
        ({"penalty": []}, r"penalty must be a number, several in a list, or None; got \[\]"),
        ({"penalty": ["small"]}, "penalty must be a number, several in a list, or None"),
        ({"steps": True}, "steps must be a number; got True"),
        ({"reference_family": "gauss"}, "reference_family must be one of"),
    ],
)
def test_other_bad_arguments_are_refused_before_any_work(arguments, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        ranker(**arguments).fit(object(), object())


def test_all_arguments_are_constrained_and_given_by_name():
    for make in (MultilabelClassifier, LabelRanker):
        assert set(make._parameter_constraints) == set(make().get_params())
        with pytest.raises(TypeError, match="positional argument"):
            make("exact")


@pytest.mark.parametrize("make", [classifier, ranker])
def test_what_cannot_learn_tau_is_refused_before_any_work(make):
    with pytest.raises(ValueError, match=r"train='tau' needs a trained energy.*warm_start=True"):
        make(train="tau", warm_start=True).fit(object(), object())
    for objective in ("exact", "min-max", "mcmc", "fenchel-young", "perceptron", ExactMLE()):
        with pytest.raises(ValueError, match=r"train='alternate' has steps that train tau alone.*does not train tau"):
            make(train="alternate", objective=objective).fit(object(), object())


# ------------------------------------------------------------------------------------------------ scikit-learn's tools


def test_arguments_can_be_read_set_and_cloned(of_sets):
    assert of_sets.get_params()["tau"] == "residual"
    other = clone(of_sets).set_params(tau="mlp", reference=ExtraTreesClassifier(), reference__n_estimators=7)
    assert other.get_params()["tau"] == "mlp"
    assert clone(other).reference.n_estimators == 7
    assert "tau='mlp'" in repr(other)
    with pytest.raises(NotFittedError):
        other.predict(X)
    with pytest.raises(ValueError, match="threshold"):
        copy.copy(of_sets).set_params(decision="micro_f1").predict(X)


def test_it_works_in_pipelines_and_searches(of_sets):
    piped = make_pipeline(StandardScaler(), classifier(ensemble_size=1))
    assert cross_val_predict(piped, X, SETS, cv=2).shape == SETS.shape
    for other in (pickle.loads(pickle.dumps(of_sets)), _by_joblib(of_sets)):
        np.testing.assert_array_equal(other.predict_proba(X), of_sets.predict_proba(X))


def _by_joblib(made):
    buffer = io.BytesIO()
    joblib.dump(made, buffer)
    buffer.seek(0)
    return joblib.load(buffer)


@pytest.mark.slow
def test_a_search_in_two_processes():
    found = GridSearchCV(ranker(ensemble_size=1), {"learning_rate": [1e-9, 0.2]}, cv=2).fit(X, RANKS)
    assert found.best_params_ == {"learning_rate": 0.2}
    search = GridSearchCV(
        classifier(ensemble_size=1), {"learning_rate": [1e-6, 0.2]}, cv=2, n_jobs=2, scoring="f1_micro"
    )
    assert search.fit(X, SETS).best_params_ == {"learning_rate": 0.2}


@pytest.mark.slow
def test_weights_are_routed():
    weight, alone = np.linspace(0.1, 2, N), {"ensemble_size": 1, "patience": None}
    with sklearn.config_context(enable_metadata_routing=True):
        asked = classifier(**alone).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        found = cross_validate(asked, X, SETS, cv=2, params={"sample_weight": weight}, return_estimator=True)
        plain = cross_validate(classifier(**alone), X, SETS, cv=2, return_estimator=True)
    one, other = (result["estimator"][0].predict_proba(X) for result in (found, plain))
    assert (one != other).any()


# ---------------------------------------------------------------------------------------------------------- references

FOLDS = np.array_split(np.random.RandomState(3).permutation(60), 5)
NOISE = np.random.RandomState(1).randint(0, 2, (60, 4))
X60 = np.random.RandomState(2).randn(60, 3)


def test_a_reference_that_memorizes_does_not_leak():
    """Labels are noise: measures of the training rows must not know them. 240 coins: 0.5 +- 4 standard errors."""
    nearest = KNeighborsClassifier(1)
    made, measures = fit_reference(nearest, X60, NOISE, Hypercube(4), folds=FOLDS, rng=np.random.RandomState(0))
    said = np.asarray(measures.logits) > 0
    assert abs((said == NOISE).mean() - 0.5) < 0.13
    assert ((np.asarray(made(X60).logits) > 0) == NOISE).all(), "the one for new rows has seen all of these"
    # On noise nothing is sure: the largest floor is the most probable.
    assert made.floor == 0.03


@pytest.mark.parametrize(
    "classifier",
    [
        ExtraTreesClassifier(5),
        MLPClassifier((8,), learning_rate_init=0.03, max_iter=100),
        make_pipeline(StandardScaler(), ExtraTreesClassifier(5)),
    ],
    ids=["list", "array", "pipeline"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_any_classifier_is_a_reference(classifier):
    y = NOISE.copy()
    y[:, 0], y[:, 1] = 1, 0
    y[FOLDS[0], 2], y[np.concatenate(FOLDS[1:]), 2] = 1, 0
    made = [
        fit_reference(classifier, X60, y, Hypercube(4), folds=FOLDS, rng=np.random.RandomState(0)) for _ in range(2)
    ]
    logits = np.asarray(made[0][1].logits)
    assert logits.shape == (60, 4)
    assert np.isfinite(logits).all()
    assert (logits[:, 0] > logits[:, 1]).mean() > 0.9
    np.testing.assert_array_equal(logits, made[1][1].logits)


def test_missing_labels_teach_a_reference_nothing():
    y, mask = NOISE.copy(), np.zeros_like(NOISE)
    y[:, 0] = 1
    # Unknown labels are held as 0, which must not be learned.
    y[:30, 0], mask[:30, 0] = 0, 1
    options = {"mask": mask, "folds": FOLDS, "rng": np.random.RandomState(0)}
    _, measures = fit_reference(ExtraTreesClassifier(5), X60, y, Hypercube(4), **options)
    assert (np.asarray(measures.logits)[:, 0] > 3).all()


@pytest.mark.parametrize(("family", "kind"), [("plackett-luce", PlackettLuce), ("mallows", Mallows)])
def test_a_regressor_is_a_reference_of_rankings(family, kind):
    y = np.argsort(np.argsort(X60 @ np.random.RandomState(0).randn(3, 3), axis=1), axis=1)
    options = {"folds": FOLDS, "family": family}
    made, measures = fit_reference(Ridge(), X60, y, Permutations(3), **options)
    assert isinstance(measures, kind)
    good = jax.vmap(lambda q, y: q.log_prob(y))(measures, y).mean()
    assert good > -np.log(6) / 2, "sharper than all six alike"
    noise = np.argsort(np.random.RandomState(5).rand(60, 3), axis=1)
    loose, _ = fit_reference(DecisionTreeRegressor(), X60, noise, Permutations(3), **options)
    assert loose.scale < made.scale / 5, "what cannot be predicted is spread out"


def test_ties_have_their_mean_rank_in_a_reference():
    mask = np.tile([0, 1, 1], (60, 1))
    y = np.tile([0, 1, 2], (60, 1))
    made, _ = fit_reference(Ridge(), X60, y, Permutations(3), mask=mask, folds=FOLDS)
    np.testing.assert_allclose(made.fitted.predict(X60), np.tile([0, 1.5, 1.5], (60, 1)), atol=1e-6)


@pytest.mark.slow
def test_a_saved_estimator_predicts_the_same_bits_elsewhere(tmp_path):
    made = classifier(learning_rate=0.1, reference=ExtraTreesClassifier(5)).fit(X, SETS)
    path, x, p = tmp_path / "model", tmp_path / "x.npy", tmp_path / "p.npy"
    made.save(path)
    np.save(x, X)
    with pytest.raises(ValueError, match="trusted=True"):
        partita.load(path)
    code = f"""
import numpy, partita
made = partita.load({str(path)!r}, trusted=True)
numpy.save({str(p)!r}, made.predict_proba(numpy.load({str(x)!r})))"""
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_array_equal(np.load(p), made.predict_proba(X))
