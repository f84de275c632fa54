"""How good answers, scores and probabilities are: numpy arrays in, one float out.

Truth comes first: y is (n, k), 0/1 rows for label sets, rank vectors (0 is best) for rankings. The paper's tables show
100 times `micro_f1` and `kendall`.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from sklearn import metrics as sk

__all__ = [
    "SCORERS",
    "Bins",
    "calibration_bins",
    "calibration_error",
    "hamming_loss",
    "kendall",
    "kendalls",
    "log_likelihood",
    "log_partition_error",
    "lrap",
    "macro_f1",
    "micro_f1",
    "ndcg",
    "precision_at",
    "samples_f1",
    "spearman",
    "subset_accuracy",
]


class Bins(NamedTuple):
    """Marginals in bins: the least and the largest of each bin, their mean, the share of labels on, the number."""

    low: np.ndarray
    high: np.ndarray
    marginal: np.ndarray
    share: np.ndarray
    num: np.ndarray


def micro_f1(y: Any, answer: Any) -> float:
    """F1 over all labels of all rows together, 1 if there are none. Higher is better."""
    return _f1(y, answer, "micro", 1)


def macro_f1(y: Any, answer: Any) -> float:
    """Mean over the labels of their F1, 0 for a label that is neither there nor answered. Higher is better."""
    return _f1(y, answer, "macro", 0)


def samples_f1(y: Any, answer: Any) -> float:
    """Mean over the rows of their F1, 1 for two empty sets. Higher is better."""
    return _f1(y, answer, "samples", 1)


def hamming_loss(y: Any, answer: Any) -> float:
    """Share of wrong labels. Lower is better."""
    return float(sk.hamming_loss(*_pair(y, answer, 2)))


def subset_accuracy(y: Any, answer: Any) -> float:
    """Share of rows whose whole answer is right, for rankings too. Higher is better."""
    y, answer = _pair(y, answer)
    return float(np.mean(np.all(y == answer, axis=1)))


def lrap(y: Any, scores: Any) -> float:
    """Label ranking average precision of scores or marginals. Higher is better."""
    return float(sk.label_ranking_average_precision_score(*_pair(y, scores, 1)))


def precision_at(y: Any, scores: Any, num: int) -> float:
    """Share of the `num` labels with the largest scores that are on; of equal scores the first. Higher is better."""
    y, scores = _pair(y, scores, 1)
    if not 1 <= num <= y.shape[1]:
        raise ValueError(f"num must be between 1 and the number of labels, {y.shape[1]}; got {num}.")
    best = np.argsort(-scores, axis=1, kind="stable")[:, :num]
    return float(np.take_along_axis(y, best, axis=1).mean())


def kendall(y: Any, answer: Any) -> float:
    """Mean over the rows of Kendall's tau-b, 0 for a row that is all ties. Higher is better."""
    return float(np.mean(kendalls(y, answer)))


def kendalls(y: Any, answer: Any) -> np.ndarray:
    """Kendall's tau-b of each row, 0 where it is all ties."""
    y, answer = _pair(y, answer)
    a, b = np.triu_indices(y.shape[1], 1)
    return _correlations(np.sign(y[:, a] - y[:, b]), np.sign(answer[:, a] - answer[:, b]))


def spearman(y: Any, answer: Any) -> float:
    """Mean over the rows of Spearman's rho, ties at their mean rank, 0 for a row that is all ties. Higher is better."""
    ranks = (scipy.stats.rankdata(values, axis=1) for values in _pair(y, answer))
    return float(np.mean(_correlations(*(values - values.mean(axis=1, keepdims=True) for values in ranks))))


def ndcg(y: Any, answer: Any) -> float:
    """Mean over the rows of the normalized discounted gain of rankings. Higher is better.

    The label of true rank p gains k - 1 - p, divided by log2(2 + its rank in the answer).
    """
    y, answer = _pair(y, answer)
    return float(sk.ndcg_score(y.shape[1] - 1 - y, -answer))


def log_likelihood(log_prob: Any) -> float:
    """Mean log p(y|x) of whole outputs, in nats: of `inference.log_prob`, say. Higher is better."""
    return float(_filled(log_prob).mean())


def calibration_error(y: Any, marginals: Any, bins: int = 10) -> float:
    """Expected |share of labels that are on - mean marginal| over bins of equal mass. Lower is better.

    All labels of all rows are binned together, between quantiles of the marginals; equal ones share a bin.
    """
    result = calibration_bins(y, marginals, bins)
    return float(result.num @ np.abs(result.share - result.marginal) / result.num.sum())


def calibration_bins(y: Any, marginals: Any, bins: int = 10) -> Bins:
    """The bins of `calibration_error`, but for the empty ones."""
    y, p = (values.ravel() for values in _pair(y, marginals, 1))
    if bins < 1 or p.min() < -1e-3 or p.max() > 1 + 1e-3:
        raise ValueError(f"It takes a bin and marginals from 0 to 1; got {bins} bins and {p.min()} to {p.max()}.")
    edges = np.quantile(p, np.arange(1, bins) / bins)
    order = np.argsort(p, kind="stable")
    which = np.searchsorted(edges, p[order], side="right")
    first = np.flatnonzero(np.diff(which, prepend=-1))
    last = np.append(first[1:], p.size)
    count = last - first
    share, marginal = (np.add.reduceat(values[order], first) / count for values in (y, p))
    return Bins(p[order][first], p[order][last - 1], marginal, share, count)


def log_partition_error(tau: Any, lse: Any) -> float:
    """Mean |tau - LSE| of log-partitions, one per row. Lower is better."""
    tau, lse = _filled(tau), _filled(lse)
    if tau.shape != lse.shape:
        raise ValueError(f"There must be one tau and one LSE per row; got shapes {tau.shape} and {lse.shape}.")
    return float(np.abs(tau - lse).mean())


# For cross_val_score and GridSearchCV: of what `predict` gives, and always higher is better.
SCORERS = {
    metric.__name__: sk.make_scorer(metric, greater_is_better=metric is not hamming_loss)
    for metric in (micro_f1, macro_f1, samples_f1, hamming_loss, subset_accuracy, kendall, spearman, ndcg)
}


def _f1(y: Any, answer: Any, average: Any, of_empty: Any) -> float:
    return float(sk.f1_score(*_pair(y, answer, 2), average=average, zero_division=of_empty))


def _correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """<a, b> / |a| |b| of each row, 0 where one of them is 0."""
    size = np.sqrt(np.sum(a**2, axis=1) * np.sum(b**2, axis=1))
    return np.sum(a * b, axis=1) / np.where(size > 0, size, 1)


def _pair(y: Any, answer: Any, sets: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Both as numbers; the first `sets` of them must be 0/1."""
    y, answer = _filled(y), _filled(answer)
    if y.ndim != 2 or y.shape != answer.shape:
        raise ValueError(f"Truth and answer must have one shape (n, k); got {y.shape} and {answer.shape}.")
    if not all(np.isin(values, (0, 1)).all() for values in (y, answer)[:sets]):
        raise ValueError("Label sets are 0/1; got other values. Rankings have kendall, spearman and ndcg.")
    return y, answer


def _filled(values: Any) -> np.ndarray:
    values = np.asarray(values, float)
    if not values.size or np.isnan(values).any():
        raise ValueError(f"A metric needs at least one row and no NaN; got {values} of shape {values.shape}.")
    return values
