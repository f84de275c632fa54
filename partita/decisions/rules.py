"""The rules: each the best answer under p for one loss."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from ..structures import subset_layers
from .distribution import ADVICE, KINDS, Joint, as_joint, most_weight, preferences

BLOCK = 256
# Marginals are float32 sums; a gain below the second is rounding.
ROUNDING, GAIN = 1e-3, 1e-10


class Answer(NamedTuple):
    """One output per row. It is `exact` unless p was estimated by draws or the search for it is a heuristic."""

    y: Int[np.ndarray, " n *y"]
    exact: bool


class AbstractRule(eqx.Module):
    """The answer that is best for one loss."""

    @abc.abstractmethod
    def __call__(self, p: Any) -> Answer:
        """One answer per row of p: a `Joint`, or marginals for the rules that need no more."""


class Mode(AbstractRule):
    """A most probable output: best for subset 0/1 loss. From draws, the most frequent: prefer `inference.mode`."""

    def __call__(self, p):
        p = as_joint(p, "Mode")
        return Answer(most_weight(p, 1)[0][:, 0], p.exact)


class Hamming(AbstractRule):
    """The labels that are more probable than not: best for the number of wrong labels. Marginals suffice."""

    def __call__(self, p):
        marginals, exact = _marginals(p, "Hamming", False)
        return Answer((marginals > 0.5).astype(int), exact)


class F1(AbstractRule):
    """The set with the largest expected F1 = 2 |y and answer| / (|y| + |answer|), 1 for two empty sets.

    By general F-measure maximization (Dembczynski et al., 2011): for answers of l labels, label j is worth
    sum_s P(y_j = 1, |y| = s) 2 / (s + l), and the l best are taken. Needs the joint, or these probabilities, the mean
    of `statistic`, (n, k, k + 1).
    """

    def __call__(self, p):
        if not isinstance(p, Joint) and np.ndim(p) == 3 and np.shape(p)[2] == np.shape(p)[1] + 1:
            return Answer(np.stack([self._of_row(table) for table in np.asarray(p, float)]), True)
        p = as_joint(p, "F1", False)
        sizes = np.arange(p.space.shape[0] + 1)
        tables = ((weight[:, None] * y).T @ (y.sum(axis=1)[:, None] == sizes) for y, weight in p.rows())
        return Answer(np.stack([self._of_row(table) for table in tables]), p.exact)

    @staticmethod
    def statistic(y: Any) -> Any:
        """Entry (j, s) is 1 where y_j = 1 and |y| = s; of each of several outputs."""
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
    """The labels whose marginals reach a threshold, which `fit` finds on held-out rows; `threshold=0.5` without fit."""

    threshold: float | None = None

    @classmethod
    def fit(cls, marginals: Any, y: Any) -> "MicroF1":
        """With the threshold of largest micro-F1 on these rows, midway between two marginals."""
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
            raise ValueError("MicroF1 has no threshold yet: MicroF1.fit(marginals, y) finds one on held-out rows.")
        marginals, exact = _marginals(p, "MicroF1", False)
        return Answer((marginals >= self.threshold).astype(int), exact)


class Borda(AbstractRule):
    """Labels in the order of their mean ranks: best for squared rank differences, as in Spearman. Marginals suffice."""

    def __call__(self, p):
        marginals, exact = _marginals(p, "Borda", True)
        order = np.argsort(marginals @ np.arange(marginals.shape[-1]), axis=1, kind="stable")
        return Answer(np.argsort(order, axis=1), exact)


class Kemeny(AbstractRule):
    """The ranking with the fewest expected pairs in the wrong order: best for Kendall. Needs the joint, or P(label a
    before label b), (n, k, k), as `inference.before` gives it.

    Up to `max_exact` labels by a program over the sets of labels placed so far; above, labels of Borda's ranking
    move one at a time to where they gain most, until none gains.
    """

    max_exact: int = eqx.field(static=True, default=12)

    def __call__(self, p):
        known = not isinstance(p, Joint) and _are_preferences(np.asarray(p, float))
        before = np.asarray(p, float) if known else preferences(as_joint(p, "Kemeny", True))
        if before.shape[-1] > self.max_exact:
            return Answer(np.stack([_inserted(row) for row in before]), False)
        blocks = [_best_order(before[i : i + BLOCK]) for i in range(0, len(before), BLOCK)]
        return Answer(np.concatenate(blocks), known or p.exact)


def _best_order(before: Float[np.ndarray, "n k k"]) -> Int[np.ndarray, "n k"]:
    """cost(S) = min_j cost(S - j) + sum of P(j before a) over a in S - j, where j has the last rank in S."""
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
        chosen = choices[rank][row, at]
        y[row, label[at, chosen]] = rank
        at = previous[at, chosen]
    return y


def _are_preferences(p: np.ndarray) -> bool:
    """Whether these can be P(label a before label b): of a pair one way or the other, and not marginals."""
    if p.ndim != 3 or p.shape[1] != p.shape[2]:
        return False
    either = p + p.transpose(0, 2, 1) + np.eye(p.shape[1])
    return bool(np.allclose(either, 1, atol=ROUNDING))


def _inserted(before: Float[np.ndarray, "k k"]) -> Int[np.ndarray, " k"]:
    """Borda's ranking, then best insertions until none helps."""
    k = len(before)
    margin, position = before - before.T, np.arange(k)
    order = np.argsort(before.sum(axis=0), kind="stable")
    while True:
        # Past the labels between, the one at i pays its margin over each on the way down, and gains it on the way up.
        ordered = margin[np.ix_(order, order)]
        total = np.cumsum(ordered, axis=1)
        down = total - total.diagonal()[:, None]
        cost = np.where(position > position[:, None], down, down - ordered)
        i, j = np.unravel_index(cost.argmin(), cost.shape)
        if cost[i, j] > -GAIN:
            return np.argsort(order)
        order = np.insert(np.delete(order, i), j, order[i])


def _marginals(p: Any, rule: str, rankings: bool) -> tuple[np.ndarray, bool]:
    """Those of a joint, or p itself; and whether they are exact."""
    if isinstance(p, Joint):
        return as_joint(p, rule, rankings).marginals(), p.exact
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
