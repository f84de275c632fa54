"""Every metric is its definition, row by row, with scikit-learn or scipy as the judge where they have it."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics as sk
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import MultiOutputClassifier

from partita import metrics

N, K = 40, 5
RNG = np.random.default_rng(0)
MARGINALS = RNG.uniform(size=(N, K)).round(1)
SETS = (RNG.uniform(size=(N, K)) < 0.7 * MARGINALS).astype(int)
ANSWERS = (MARGINALS > 0.5).astype(int)
# Two empty sets, and one of the two empty.
SETS[:2], ANSWERS[1:3] = 0, 0
ANSWERS[0] = 0
RANKS = np.argsort(RNG.normal(size=(N, K)), axis=1)
RANKED = np.argsort(np.argsort(RANKS + 2 * RNG.normal(size=(N, K)), axis=1), axis=1)
TIED = np.maximum(RANKED, 2)


def f1(y, a):
    both = y.sum() + a.sum()
    return 2 * (y & a).sum() / both if both else np.nan


def test_f1_micro_macro_and_of_samples():
    assert metrics.micro_f1(SETS, ANSWERS) == pytest.approx(f1(SETS, ANSWERS))
    rows = [f1(y, a) for y, a in zip(SETS, ANSWERS, strict=True)]
    assert np.isnan(rows[:2]).all()
    assert metrics.samples_f1(SETS, ANSWERS) == pytest.approx(np.mean(np.nan_to_num(rows, nan=1)))
    y, a = SETS.copy(), ANSWERS.copy()
    y[:, 0] = a[:, 0] = 0
    labels = [f1(*columns) for columns in zip(y.T, a.T, strict=True)]
    assert metrics.macro_f1(y, a) == pytest.approx(np.mean(np.nan_to_num(labels, nan=0)))
    assert metrics.macro_f1(y, a) == pytest.approx(sk.f1_score(y, a, average="macro", zero_division=0))
    assert metrics.micro_f1(0 * y, 0 * a) == 1


def test_shares_of_wrong_labels_and_of_right_rows():
    assert metrics.hamming_loss(SETS, ANSWERS) == pytest.approx(np.mean(SETS != ANSWERS))
    assert metrics.subset_accuracy(SETS, ANSWERS) == pytest.approx(sk.accuracy_score(SETS, ANSWERS))
    assert metrics.subset_accuracy(RANKS, RANKED) == np.mean(
        [list(y) == list(a) for y, a in zip(RANKS, RANKED, strict=True)]
    )


def test_scores_of_labels_are_judged_by_their_order():
    assert metrics.lrap(SETS, MARGINALS) == pytest.approx(sk.label_ranking_average_precision_score(SETS, MARGINALS))
    # Python's sort keeps the order of equal scores.
    rows = [
        sum(y[j] for j in sorted(range(K), key=lambda j: -p[j])[:2]) / 2 for y, p in zip(SETS, MARGINALS, strict=True)
    ]
    assert metrics.precision_at(SETS, MARGINALS, 2) == pytest.approx(np.mean(rows))
    assert metrics.precision_at(SETS, MARGINALS, K) == pytest.approx(SETS.mean())


@pytest.mark.parametrize("answer", [RANKED, TIED, RANKED + 0.25], ids=["ranks", "ties", "fractions"])
def test_correlations_are_those_of_scipy(answer):
    pairs = list(zip(RANKS, answer, strict=True))
    kendall = [scipy.stats.kendalltau(y, a).statistic for y, a in pairs]
    assert metrics.kendall(RANKS, answer) == pytest.approx(np.mean(kendall))
    spearman = [scipy.stats.spearmanr(y, a).statistic for y, a in pairs]
    assert metrics.spearman(RANKS, answer) == pytest.approx(np.mean(spearman))


def test_a_row_of_ties_counts_as_uncorrelated():
    answer = RANKS.copy()
    answer[: N // 2] = 3
    assert metrics.kendall(RANKS, answer) == pytest.approx(0.5)
    assert metrics.spearman(RANKS, answer) == pytest.approx(0.5)


def test_the_right_ranking_scores_one_and_its_reverse_minus_one():
    for metric in (metrics.kendall, metrics.spearman):
        assert metric(RANKS, RANKS) == pytest.approx(1)
        assert metric(RANKS, K - 1 - RANKS) == pytest.approx(-1)
    assert metrics.ndcg(RANKS, RANKS) == pytest.approx(1)


def test_discounted_gains_of_rankings():
    gain = np.sum((K - 1 - RANKS) / np.log2(2 + RANKED), axis=1)
    ideal = np.sum((K - 1 - np.arange(K)) / np.log2(2 + np.arange(K)))
    assert metrics.ndcg(RANKS, RANKED) == pytest.approx(np.mean(gain / ideal))


def test_calibration_error_is_the_mean_gap_of_the_bins():
    """Marginals of a grid: the quarters of 0, ..., 0.99 are the four bins."""
    p = np.arange(100).reshape(20, 5) / 100
    y = (np.arange(100) % 3 == 0).astype(int).reshape(20, 5)
    quarters = zip(y.ravel().reshape(4, 25), p.ravel().reshape(4, 25), strict=True)
    gaps = [abs(on.mean() - of.mean()) for on, of in quarters]
    assert metrics.calibration_error(y, p, bins=4) == pytest.approx(np.mean(gaps))
    mixed = RNG.permutation(20)
    assert metrics.calibration_error(y[mixed], p[mixed], bins=4) == pytest.approx(np.mean(gaps))


def test_calibrated_marginals_have_a_small_calibration_error():
    """100,000 labels in 10 bins: each gap has a deviation of .005 at most. Squared marginals are off by a sixth."""
    p = RNG.uniform(size=(1000, 100))
    y = (RNG.uniform(size=p.shape) < p).astype(int)
    assert metrics.calibration_error(y, p) < 0.01
    assert metrics.calibration_error(y, p**2) == pytest.approx(np.mean(p - p**2), abs=0.01)
    # All marginals equal: one bin.
    assert metrics.calibration_error(y, np.full(p.shape, 0.2)) == pytest.approx(y.mean() - 0.2)


def test_bins_hold_every_marginal_once():
    found = metrics.calibration_bins(SETS, MARGINALS, bins=4)
    p, y = MARGINALS.ravel(), SETS.ravel()
    inside = [(low <= p) & (p <= high) for low, high in zip(found.low, found.high, strict=True)]
    assert (np.sum(inside, axis=0) == 1).all()
    np.testing.assert_array_equal(found.num, [np.sum(bin) for bin in inside])
    np.testing.assert_allclose(found.marginal, [p[bin].mean() for bin in inside])
    np.testing.assert_allclose(found.share, [y[bin].mean() for bin in inside])
    # Equal mass, but for ties: MARGINALS has 11 different values.
    assert len(found.num) == 4
    assert np.abs(found.num - p.size / 4).max() <= np.bincount(np.rint(10 * p).astype(int)).max()


def test_means_of_log_numbers():
    assert metrics.log_likelihood([-1.0, -2.0]) == -1.5
    assert metrics.log_partition_error([1.0, 2.0], [2.0, -1.0]) == 2


def test_scorers_score_what_an_estimator_predicts():
    """Labels and ranks that are linear in x are found; the Hamming loss is turned around."""
    x = RNG.normal(size=(120, 3))
    sets = (x @ RNG.normal(size=(3, 4)) > 0).astype(int)
    ranks = np.argsort(np.argsort(x @ RNG.normal(size=(3, 4)), axis=1), axis=1)
    for name in ("micro_f1", "macro_f1", "samples_f1", "subset_accuracy", "hamming_loss"):
        found = cross_val_score(
            MultiOutputClassifier(LogisticRegression()), x, sets, cv=3, scoring=metrics.SCORERS[name]
        )
        least, largest = (-0.15, 0) if name == "hamming_loss" else (0.6, 1)
        assert ((least < found) & (found <= largest)).all()
    for name in ("kendall", "spearman", "ndcg"):
        found = cross_val_score(LinearRegression(), x, ranks, cv=3, scoring=metrics.SCORERS[name])
        assert ((found > 0.7) & (found <= 1)).all()
    assert set(metrics.SCORERS) <= set(metrics.__all__)


OF_PAIRS = [
    metrics.micro_f1,
    metrics.macro_f1,
    metrics.samples_f1,
    metrics.hamming_loss,
    metrics.subset_accuracy,
    metrics.lrap,
    metrics.kendall,
    metrics.spearman,
    metrics.ndcg,
    metrics.calibration_error,
]


@pytest.mark.parametrize("metric", OF_PAIRS, ids=lambda metric: metric.__name__)
def test_bad_shapes_and_numbers_are_refused(metric):
    with pytest.raises(ValueError, match=r"one shape \(n, k\); got \(40, 5\) and \(40, 4\)"):
        metric(SETS, SETS[:, :4])
    with pytest.raises(ValueError, match=r"one shape \(n, k\); got \(40,\) and \(40,\)"):
        metric(SETS[:, 0], SETS[:, 0])
    with pytest.raises(ValueError, match=r"at least one row and no NaN; got .* of shape \(0, 5\)"):
        metric(SETS[:0], SETS[:0])
    with pytest.raises(ValueError, match=r"no NaN; got [\s\S]*nan"):
        metric(SETS, SETS * np.nan)


@pytest.mark.parametrize("metric", [*OF_PAIRS[:4], metrics.lrap], ids=lambda metric: metric.__name__)
def test_rankings_are_no_label_sets(metric):
    with pytest.raises(ValueError, match=r"Label sets are 0/1.*kendall, spearman and ndcg"):
        metric(RANKS, RANKS)


def test_other_bad_input():
    with pytest.raises(ValueError, match="num must be between 1 and the number of labels, 5; got 6"):
        metrics.precision_at(SETS, MARGINALS, 6)
    with pytest.raises(ValueError, match=r"one tau and one LSE per row; got shapes \(2,\) and \(3,\)"):
        metrics.log_partition_error(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match=r"at least one row.*shape \(0,\)"):
        metrics.log_likelihood([])
    with pytest.raises(ValueError, match=r"bins must be at least 1 .* got 0 bins"):
        metrics.calibration_error(SETS, MARGINALS, bins=0)
    with pytest.raises(ValueError, match=r"marginals from 0 to 1; got 10 bins and 0.0 to 3.0"):
        metrics.calibration_error(SETS, 3.0 * SETS)
