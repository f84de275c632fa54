"""The rules: each finds the output with the smallest expected loss under p, for one loss."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from ..structures import subset_layers
from .distribution import ADVICE, KINDS, Joint, check_joint, largest_weights, preferences

BLOCK = 256
# Probabilities are float32 sums, accurate to ROUNDING; a gain below GAIN is rounding error.
ROUNDING, GAIN = 1e-3, 1e-10


class Answer(NamedTuple):
    """One output per row.

    Parameters
    ----------
    y
        The outputs, of shape (n, *y).
    exact
        False if p was estimated by draws or the rule is a heuristic.
    """

    y: Int[np.ndarray, " n *y"]
    exact: bool


class AbstractRule(eqx.Module):
    """A rule that minimizes the expected value of one loss."""

    @abc.abstractmethod
    def __call__(self, p: Any) -> Answer:
        """Decide for each row of p: a `Joint`, or an array of marginals for the rules that need no more."""


class Mode(AbstractRule):
    """A most probable output, which minimizes the 0/1 loss of complete outputs.

    From draws it is the most frequent one: prefer `inference.mode`.
    """

    def __call__(self, p):
        p = check_joint(p, "Mode")
        return Answer(largest_weights(p, 1).y[:, 0], p.exact)


class Hamming(AbstractRule):
    """The labels with P(y_j = 1 | x) > 1/2, which minimize the number of wrong labels. Marginals suffice."""

    def __call__(self, p):
        marginals, exact = _marginals(p, "Hamming", False)
        return Answer((marginals > 0.5).astype(int), exact)


class F1(AbstractRule):
    """The set a with the largest expected F1 = 2 |y and a| / (|y| + |a|), 1 for two empty sets.

    Among sets of l labels, label j contributes sum_s P(y_j = 1, |y| = s) 2 / (s + l), so the best set has the l largest
    contributions. The rule needs the joint, or these probabilities, the mean of `statistic`, of shape (n, k, k + 1).

    References
    ----------
    Dembczynski, Waegeman, Cheng and Hullermeier (2011). An exact algorithm for F-measure maximization. NeurIPS.

    Examples
    --------
    >>> from partita.structures import Hypercube
    >>> p = Joint(Hypercube(2), [[0, 0], [1, 0], [1, 1]], [[0.4, 0.35, 0.25]], exact=True)
    >>> F1()(p).y.tolist()
    [[1, 0]]
    """

    def __call__(self, p):
        if not isinstance(p, Joint) and np.ndim(p) == 3 and np.shape(p)[2] == np.shape(p)[1] + 1:
            return Answer(np.stack([self._of_row(table) for table in np.asarray(p, float)]), True)
        p = check_joint(p, "F1", False)
        sizes = np.arange(p.space.shape[0] + 1)
        tables = ((weight[:, None] * y).T @ (y.sum(axis=1)[:, None] == sizes) for y, weight in p.rows())
        return Answer(np.stack([self._of_row(table) for table in tables]), p.exact)

    @staticmethod
    def statistic(y: Any) -> Any:
        """Compute the indicators of (y_j = 1, |y| = s).

        Parameters
        ----------
        y
            Label sets, of shape (m, k).

        Returns
        -------
        array of shape (m, k, k + 1)
            1 at [:, j, s] where y_j = 1 and |y| = s.
        """
        return y[:, :, None] * (y.sum(axis=1)[:, None, None] == np.arange(y.shape[1] + 1))

    def _of_row(self, table):
        k = len(table)
        sizes = np.arange(k + 1)
        empty = 1 - np.sum(table.sum(axis=0)[1:] / sizes[1:])
        worth = table @ (2 / (sizes[:, None] + sizes[1:]))
        order = np.argsort(-worth, axis=0, kind="stable")
        best = np.cumsum(np.take_along_axis(worth, order, axis=0), axis=0).diagonal()
        num = int(np.argmax([empty, *best]))
        answer = np.zeros(k, int)
        answer[order[:num, num - 1]] = 1
        return answer


class MicroF1(AbstractRule):
    """The labels whose marginals reach a threshold.

    Parameters
    ----------
    threshold
        From 0 to 1. None: `fit` must find it first.
    """

    threshold: float | None = None

    @classmethod
    def fit(cls, marginals: Any, y: Any) -> "MicroF1":
        """Find the threshold with the largest micro-F1, midway between two marginals.

        Parameters
        ----------
        marginals
            P(y_j = 1 | x) of rows that the model was not trained on, of shape (n, k).
        y
            Their true label sets, of shape (n, k).

        Returns
        -------
        MicroF1
            The rule with this threshold.
        """
        p, y = _marginals(marginals, "MicroF1.fit", False)[0], np.asarray(y)
        if y.shape != p.shape or not np.isin(y, (0, 1)).all():
            raise ValueError(f"y must be 0/1 with the shape of the marginals, {p.shape}; got shape {y.shape}.")
        if not y.any():
            raise ValueError("No row of y has a label: every threshold has a micro-F1 of 0. Give rows with labels.")
        order = np.argsort(-p, axis=None)
        values, hits = p.ravel()[order], np.cumsum(y.ravel()[order])
        f1 = 2 * hits / (np.arange(1, p.size + 1) + hits[-1])
        # Equal marginals get equal answers: a cut is possible after the last of them only.
        after = np.append(values[1:], 0)
        cuts = np.append(values[1:] < values[:-1], True)
        best = int(np.argmax(np.where(cuts, f1, -1)))
        middle = (values[best] + after[best]) / 2
        return cls(float(middle if middle > after[best] else values[best]))

    def __call__(self, p):
        if self.threshold is None:
            raise ValueError("MicroF1 has no threshold yet: MicroF1.fit(marginals, y) finds one on validation rows.")
        marginals, exact = _marginals(p, "MicroF1", False)
        return Answer((marginals >= self.threshold).astype(int), exact)


class Borda(AbstractRule):
    """The labels in the order of their mean ranks, which minimizes squared differences of ranks, as in Spearman's rho.

    Marginals suffice.
    """

    def __call__(self, p):
        marginals, exact = _marginals(p, "Borda", True)
        order = np.argsort(marginals @ np.arange(marginals.shape[-1]), axis=1, kind="stable")
        return Answer(np.argsort(order, axis=1), exact)


class Kemeny(AbstractRule):
    """The ranking with the fewest expected pairs in the wrong order, which is best for Kendall's tau.

    The rule needs the joint, or P(label a before label b) from `inference.before`, of shape (n, k, k).

    Parameters
    ----------
    max_exact
        The largest number of labels for the exact dynamic program over subsets of labels. With more, labels of Borda's
        ranking are moved one at a time to their best ranks until no move improves it.
    """

    max_exact: int = eqx.field(static=True, default=12)

    def __call__(self, p):
        known = not isinstance(p, Joint) and _are_preferences(np.asarray(p, float))
        before = np.asarray(p, float) if known else preferences(check_joint(p, "Kemeny", True))
        if before.shape[-1] > self.max_exact:
            return Answer(np.stack([_insertion_search(row) for row in before]), False)
        blocks = [_best_order(before[i : i + BLOCK]) for i in range(0, len(before), BLOCK)]
        return Answer(np.concatenate(blocks), known or p.exact)


def _best_order(before: Float[np.ndarray, "n k k"]) -> Int[np.ndarray, "n k"]:
    """The rankings of least cost: cost(S) = min_j cost(S - j) + sum over a in S - j of P(j before a), j last in S."""
    n, k, _ = before.shape
    cost, choices, tables = np.zeros((n, 1)), [], subset_layers(k)
    for masks, previous, label in tables:
        placed = (masks[:, None] >> np.arange(k) & 1).astype(float)
        price = placed @ before.transpose(0, 2, 1)
        total = cost[:, previous] + price[:, previous, label]
        choices.append(total.argmin(axis=-1))
        cost = total.min(axis=-1)
    y, row, at = np.zeros((n, k), int), np.arange(n), np.zeros(n, int)
    for rank in range(k - 1, -1, -1):
        _, previous, label = tables[rank]
        choice = choices[rank][row, at]
        y[row, label[at, choice]] = rank
        at = previous[at, choice]
    return y


def _are_preferences(p: np.ndarray) -> bool:
    """Whether these are P(label a before label b), not marginals: the two orders of each pair sum to 1."""
    if p.ndim != 3 or p.shape[1] != p.shape[2]:
        return False
    either = p + p.transpose(0, 2, 1) + np.eye(p.shape[1])
    return bool(np.allclose(either, 1, atol=ROUNDING))


def _insertion_search(before: Float[np.ndarray, "k k"]) -> Int[np.ndarray, " k"]:
    """Borda's ranking, improved by the best insertion of a label until there is none."""
    k = len(before)
    margin, position = before - before.T, np.arange(k)
    order = np.argsort(before.sum(axis=0), kind="stable")
    while True:
        # Moved down, the label at i costs its margin over each label that it passes; moved up, it gains that.
        ordered = margin[np.ix_(order, order)]
        total = np.cumsum(ordered, axis=1)
        down = total - total.diagonal()[:, None]
        cost = np.where(position > position[:, None], down, down - ordered)
        i, j = np.unravel_index(cost.argmin(), cost.shape)
        if cost[i, j] > -GAIN:
            return np.argsort(order)
        order = np.insert(np.delete(order, i), j, order[i])


def _marginals(p: Any, rule: str, rankings: bool) -> tuple[np.ndarray, bool]:
    """The marginals of a joint, or p itself; and whether they are exact."""
    if isinstance(p, Joint):
        return check_joint(p, rule, rankings).marginals(), p.exact
    p = np.asarray(p, float)
    if p.ndim != 2 + rankings or p.shape[1:] != p.shape[-1:] * (1 + rankings) or not p.size:
        shape = "(n, k, k)" if rankings else "(n, k)"
        raise ValueError(
            f"{rule} is for {KINDS[rankings]}: a Joint, or marginals of shape {shape}; got shape {p.shape}. "
            f"{ADVICE[rankings]}"
        )
    if not ((p > -ROUNDING) & (p < 1 + ROUNDING)).all():
        raise ValueError(f"Marginals are probabilities; got values from {p.min()} to {p.max()}. Are these logits?")
    return p, True
