"""Comparisons of two rows cell by cell, with the spread over seeds, next to the same comparison of printed values."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from .document import NEAR, Cell, Table

__all__ = ["Comparison", "Outcome", "Pair", "list_differences", "pairs"]

Outcome = Literal["better", "worse", "undecided"]

# A difference of more standard errors than this is decided.
ERRORS = 2.0


class Pair(NamedTuple):
    """Two cells of one data set, both with a printed value."""

    name: str
    ours: Cell
    other: Cell

    @property
    def difference(self) -> float:
        """Mean over the seeds of `ours` less that of `other`; NaN where a cell was not run."""
        return math.nan if self.ours.ours is None or self.other.ours is None else self.ours.ours - self.other.ours

    @property
    def error(self) -> float | None:
        """Standard error of the difference, sqrt(s1^2 / n1 + s2^2 / n2); None where a cell has fewer than two seeds."""
        cells = (self.ours, self.other)
        if any(len(cell.values) < 2 for cell in cells):
            return None
        return math.sqrt(sum((cell.spread or 0.0) ** 2 / len(cell.values) for cell in cells))

    @property
    def outcome(self) -> Outcome:
        """Whether `ours` is better or worse by more than two standard errors; with one seed nothing is decided."""
        if self.error is None:
            return "undecided"
        if math.isnan(self.difference):
            return "worse"
        if abs(self.difference) <= ERRORS * self.error:
            return "undecided"
        return "better" if self.difference > 0 else "worse"

    @property
    def printed(self) -> float:
        """The difference of the printed values, to their decimals."""
        if self.ours.printed is None or self.other.printed is None:
            raise ValueError(f"{self.name} has no printed values to compare with.")
        return round(self.ours.printed - self.other.printed, 2)


class Comparison(NamedTuple):
    """Pairs, of which `kept` are judged: in the others a cell, named by `left_out`, is below its printed value."""

    pairs: Sequence[Pair]
    kept: Sequence[Pair]
    left_out: str

    @classmethod
    def against_baseline(cls, pairs: Sequence[Pair]) -> "Comparison":
        """Leave out pairs whose `other` fell short: a badly trained baseline is no evidence."""
        return cls(pairs, [pair for pair in pairs if pair.other.agreement != "below"], "baselines")

    @classmethod
    def of_equals(cls, pairs: Sequence[Pair]) -> "Comparison":
        """Leave out pairs in which either cell fell short."""
        kept = [pair for pair in pairs if "below" not in (pair.ours.agreement, pair.other.agreement)]
        return cls(pairs, kept, "pairs")

    @property
    def is_complete(self) -> bool:
        """Whether all cells were run."""
        return bool(self.pairs) and all(cell.values for pair in self.pairs for cell in (pair.ours, pair.other))

    @property
    def is_decidable(self) -> bool:
        """Whether at least half of the pairs are kept, two or more, and with several seeds."""
        enough = len(self.kept) >= max(2, len(self.pairs) / 2)
        return enough and all(pair.error is not None for pair in self.kept)

    @property
    def outcomes(self) -> Counter[Outcome]:
        return Counter(pair.outcome for pair in self.kept)

    @property
    def mean(self) -> float:
        """Mean difference over the kept pairs."""
        return _mean([pair.difference for pair in self.kept])[0]

    @property
    def error(self) -> float:
        """Standard error of the mean difference: the standard deviation over the pairs / sqrt(number of pairs)."""
        return _mean([pair.difference for pair in self.kept])[1]

    def is_better(self) -> bool | None:
        """Whether ours is better: in more pairs than it is worse, and on average by more than two standard errors.

        It is not if it is worse in as many pairs, or on average by more than two standard errors; else undecided.
        """
        if not self.is_complete or not self.is_decidable:
            return None
        better, worse = self.outcomes["better"], self.outcomes["worse"]
        if better > worse and self.mean > ERRORS * self.error:
            return True
        return False if 0 < worse >= better or not self.mean >= -ERRORS * self.error else None

    def is_as_good(self, *, both_ways: bool) -> bool | None:
        """Whether ours is on average at most 2 points worse, and with `both_ways` at most 2 points better.

        It is not if the average is beyond that by more than two standard errors; else undecided.
        """
        if not self.is_complete or not self.is_decidable:
            return None
        gap = abs(self.mean) if both_ways else -self.mean
        if gap <= NEAR:
            return True
        return None if gap <= NEAR + ERRORS * self.error else False

    def evidence(self) -> str:
        """Counts and the mean difference, what was left out, and the same of the printed values."""
        if not self.is_complete:
            return "Not all cells were run."
        sentences = [self._our_evidence()] if self.kept else []
        if left := len(self.pairs) - len(self.kept):
            sentences.append(
                f"{left} of {len(self.pairs)} {self.left_out} fell short of the printed figure by more than {NEAR:g} "
                f"points and {'is' if left == 1 else 'are'} left out."
            )
        return " ".join([*sentences, _printed_evidence(self.pairs)])

    def _our_evidence(self) -> str:
        counts = self.outcomes
        count = f"Better in {counts['better']}, worse in {counts['worse']}, undecided in {counts['undecided']}"
        text = f"{count} of {len(self.kept)} pairs; {self.mean:+.2f} ± {self.error:.2f} points on average."
        decided = [pair for pair in self.kept if pair.outcome != "undecided"]
        if decided:
            same = sum(pair.printed * pair.difference > 0 for pair in decided)
            text += f" The printed figures point the same way in {same} of the {len(decided)} decided pairs."
        elif all(pair.error is None for pair in self.kept):
            text += " With one seed nothing is decided."
        worse = {pair.name: pair.difference for pair in self.kept if pair.outcome == "worse"}
        return f"{text} Worse: {list_differences(worse)}." if worse else text


def list_differences(differences: Mapping[str, float], most: int = 6) -> str:
    """The lowest first, and the number of those left out: birds MLP Unary -5.8; scene MLP Unary -2.1."""
    lowest = sorted(differences.items(), key=lambda item: item[1])
    text = "; ".join(f"{name} {value:+.1f}" for name, value in lowest[:most])
    return f"{text}; and {len(lowest) - most} more" if len(lowest) > most else text


def pairs(table: Table, ours: Mapping[str, str], other: Mapping[str, str], same: Collection[str]) -> list[Pair]:
    """The cells of each row with the names `ours`, paired with those of the row with `other` and the `same` names.

    Only columns in which both have a printed value.
    """
    result = []
    for our_row in table.rows:
        for other_row in table.rows:
            if not (ours.items() <= our_row.setting.items() and other.items() <= other_row.setting.items()):
                continue
            if any(our_row.setting[name] != other_row.setting[name] for name in same):
                continue
            for column in table.columns:
                cells = our_row.cell(column), other_row.cell(column)
                if all(cell.printed is not None for cell in cells):
                    result.append(Pair(f"{column} {' '.join(our_row.heads[1:])}", *cells))
    return result


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error, NaN for a single value."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def _printed_evidence(pairs: Sequence[Pair]) -> str:
    differences = [pair.printed for pair in pairs]
    better, worse = (sum(sign * value > 0 for value in differences) for sign in (1, -1))
    mean, error = _mean(differences)
    return f"Printed: better in {better}, worse in {worse} of {len(pairs)}; {mean:+.2f} ± {error:.2f} on average."
