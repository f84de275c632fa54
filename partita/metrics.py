"""Metrics of predicted outputs, scores and probabilities: from numpy arrays to one float.

The true y comes first. It has shape (n, k): 0/1 for label sets, ranks (0 is best) for rankings. The paper's tables show
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
    """Marginals in bins, one entry per bin that is not empty.

    Parameters
    ----------
    low, high
        The least and the largest marginal.
    marginal
        The mean marginal.
    share
        The share of labels that are on.
    num
        The number of labels.
    """

    low: np.ndarray
    high: np.ndarray
    marginal: np.ndarray
    share: np.ndarray
    num: np.ndarray


def micro_f1(y: Any, answer: Any) -> float:
    """Compute F1 over all labels of all rows together.

    Parameters
    ----------
    y, answer
        True and predicted label sets, 0/1 of shape (n, k).

    Returns
    -------
    float
        From 0 to 1; higher is better. 1 if there are no labels at all.

    Examples
    --------
    >>> micro_f1([[1, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 1]])
    0.6666666666666666
    """
    return _f1(y, answer, "micro", 1)


def macro_f1(y: Any, answer: Any) -> float:
    """Compute the mean over the labels of their F1.

    Parameters
    ----------
    y, answer
        True and predicted label sets, 0/1 of shape (n, k).

    Returns
    -------
    float
        From 0 to 1; higher is better. A label that is neither true nor predicted anywhere counts 0.
    """
    return _f1(y, answer, "macro", 0)


def samples_f1(y: Any, answer: Any) -> float:
    """Compute the mean over the rows of their F1.

    Parameters
    ----------
    y, answer
        True and predicted label sets, 0/1 of shape (n, k).

    Returns
    -------
    float
        From 0 to 1; higher is better. Two empty sets count 1.
    """
    return _f1(y, answer, "samples", 1)


def hamming_loss(y: Any, answer: Any) -> float:
    """Compute the share of wrong labels.

    Parameters
    ----------
    y, answer
        True and predicted label sets, 0/1 of shape (n, k).

    Returns
    -------
    float
        From 0 to 1; lower is better.
    """
    return float(sk.hamming_loss(*_pair(y, answer, 2)))


def subset_accuracy(y: Any, answer: Any) -> float:
    """Compute the share of rows whose complete output is correct.

    Parameters
    ----------
    y, answer
        True and predicted label sets or ranks, of shape (n, k).

    Returns
    -------
    float
        From 0 to 1; higher is better.
    """
    y, answer = _pair(y, answer)
    return float(np.mean(np.all(y == answer, axis=1)))


def lrap(y: Any, scores: Any) -> float:
    """Compute the label ranking average precision of scores.

    Parameters
    ----------
    y
        True label sets, 0/1 of shape (n, k).
    scores
        Scores or marginals of the labels, of shape (n, k).

    Returns
    -------
    float
        From 0 to 1; higher is better.
    """
    return float(sk.label_ranking_average_precision_score(*_pair(y, scores, 1)))


def precision_at(y: Any, scores: Any, num: int) -> float:
    """Compute the share of the `num` labels with the largest scores that are on.

    Parameters
    ----------
    y
        True label sets, 0/1 of shape (n, k).
    scores
        Scores or marginals of the labels, of shape (n, k); of equal scores the first label counts.
    num
        How many labels, from 1 to k.

    Returns
    -------
    float
        From 0 to 1; higher is better.
    """
    y, scores = _pair(y, scores, 1)
    if not 1 <= num <= y.shape[1]:
        raise ValueError(f"num must be between 1 and the number of labels, {y.shape[1]}; got {num}.")
    best = np.argsort(-scores, axis=1, kind="stable")[:, :num]
    return float(np.take_along_axis(y, best, axis=1).mean())


def kendall(y: Any, answer: Any) -> float:
    """Compute the mean over the rows of Kendall's tau-b.

    Parameters
    ----------
    y, answer
        True and predicted ranks, of shape (n, k).

    Returns
    -------
    float
        From -1 to 1; higher is better. A row that is all ties counts 0.

    Examples
    --------
    >>> kendall([[0, 1, 2]], [[0, 2, 1]])
    0.3333333333333333
    """
    return float(np.mean(kendalls(y, answer)))


def kendalls(y: Any, answer: Any) -> np.ndarray:
    """Kendall's tau-b of each row, 0 if it is all ties."""
    y, answer = _pair(y, answer)
    a, b = np.triu_indices(y.shape[1], 1)
    return _correlations(np.sign(y[:, a] - y[:, b]), np.sign(answer[:, a] - answer[:, b]))


def spearman(y: Any, answer: Any) -> float:
    """Compute the mean over the rows of Spearman's rho, with ties at their mean rank.

    Parameters
    ----------
    y, answer
        True and predicted ranks, of shape (n, k).

    Returns
    -------
    float
        From -1 to 1; higher is better. A row that is all ties counts 0.
    """
    ranks = (scipy.stats.rankdata(values, axis=1) for values in _pair(y, answer))
    return float(np.mean(_correlations(*(values - values.mean(axis=1, keepdims=True) for values in ranks))))


def ndcg(y: Any, answer: Any) -> float:
    """Compute the mean over the rows of the normalized discounted gain of rankings.

    The label of true rank p gains k - 1 - p, divided by log2(2 + its predicted rank).

    Parameters
    ----------
    y, answer
        True and predicted ranks, of shape (n, k).

    Returns
    -------
    float
        From 0 to 1; higher is better.
    """
    y, answer = _pair(y, answer)
    return float(sk.ndcg_score(y.shape[1] - 1 - y, -answer))


def log_likelihood(log_prob: Any) -> float:
    """Compute the mean log-likelihood of outputs.

    Parameters
    ----------
    log_prob
        log p(y|x) of each row, for instance from `inference.log_prob`.

    Returns
    -------
    float
        In nats per row; higher is better.
    """
    return float(_filled(log_prob).mean())


def calibration_error(y: Any, marginals: Any, bins: int = 10) -> float:
    """Compute the expected |share of labels that are on - mean marginal| over bins of equal mass.

    All labels of all rows are binned together, between quantiles of the marginals; equal ones share a bin.

    Parameters
    ----------
    y
        True label sets, 0/1 of shape (n, k).
    marginals
        P(y_j = 1 | x), of shape (n, k).
    bins
        The number of bins.

    Returns
    -------
    float
        From 0 to 1; lower is better.
    """
    result = calibration_bins(y, marginals, bins)
    return float(result.num @ np.abs(result.share - result.marginal) / result.num.sum())


def calibration_bins(y: Any, marginals: Any, bins: int = 10) -> Bins:
    """Compute the bins of `calibration_error`.

    Parameters
    ----------
    y, marginals, bins
        As for `calibration_error`.

    Returns
    -------
    Bins
        The bins that are not empty, in rising order.
    """
    y, p = (values.ravel() for values in _pair(y, marginals, 1))
    if bins < 1 or p.min() < -1e-3 or p.max() > 1 + 1e-3:
        raise ValueError(
            f"bins must be at least 1 and marginals from 0 to 1; got {bins} bins and {p.min()} to {p.max()}."
        )
    edges = np.quantile(p, np.arange(1, bins) / bins)
    order = np.argsort(p, kind="stable")
    which = np.searchsorted(edges, p[order], side="right")
    first = np.flatnonzero(np.diff(which, prepend=-1))
    last = np.append(first[1:], p.size)
    count = last - first
    share, marginal = (np.add.reduceat(values[order], first) / count for values in (y, p))
    return Bins(p[order][first], p[order][last - 1], marginal, share, count)


def log_partition_error(tau: Any, lse: Any) -> float:
    """Compute the mean |tau - LSE| of log-partitions.

    Parameters
    ----------
    tau, lse
        Learned and exact log-partitions, one per row.

    Returns
    -------
    float
        In nats; lower is better.
    """
    tau, lse = _filled(tau), _filled(lse)
    if tau.shape != lse.shape:
        raise ValueError(f"There must be one tau and one LSE per row; got shapes {tau.shape} and {lse.shape}.")
    return float(np.abs(tau - lse).mean())


# For cross_val_score and GridSearchCV, by the output of `predict`; higher is always better.
SCORERS = {
    metric.__name__: sk.make_scorer(metric, greater_is_better=metric is not hamming_loss)
    for metric in (micro_f1, macro_f1, samples_f1, hamming_loss, subset_accuracy, kendall, spearman, ndcg)
}


def _f1(y: Any, answer: Any, average: Any, of_empty: Any) -> float:
    return float(sk.f1_score(*_pair(y, answer, 2), average=average, zero_division=of_empty))


def _correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """<a, b> / |a| |b| of each row, 0 if one of them is 0."""
    size = np.sqrt(np.sum(a**2, axis=1) * np.sum(b**2, axis=1))
    return np.sum(a * b, axis=1) / np.where(size > 0, size, 1)


def _pair(y: Any, answer: Any, sets: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Check both arrays and convert them to floats; the first `sets` of them must be 0/1."""
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
