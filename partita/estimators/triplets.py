"""Rows that say which of two outputs is better, or how good an output is, in place of observed outputs."""

import abc
from typing import Any

import numpy as np

from ..objectives import AbstractObjective, Preferences, Scores
from ..training.checks import check_pairs, check_scores
from .codecs import LabelSets, Rankings


class AbstractTriplets(abc.ABC):
    """What each row has besides x and y, and the objective that reads it."""

    keyword: str
    example: str
    objective: type[AbstractObjective]

    def __init__(self, values: Any):
        self.values = values

    @abc.abstractmethod
    def usual(self, values: Any) -> AbstractObjective:
        """The objective of "auto" for these values."""

    @abc.abstractmethod
    def encode(self, codec: LabelSets | Rankings, y: np.ndarray) -> np.ndarray:
        """One entry for each row of y, checked."""

    def choose(self, objective: Any, values: Any) -> AbstractObjective:
        """The objective that is minimized, for the estimator's `objective` and the values of the rows that count."""
        if isinstance(objective, str) and objective == "auto":
            return self.usual(values)
        if not isinstance(objective, self.objective):
            name = self.objective.__name__
            raise ValueError(
                f"fit(X, y, {self.keyword}=...) minimizes objectives.{name}: use objective='auto' or an object such as "
                f"objectives.{self.example}; got {objective!r}, which learns from observed outputs, fit(X, y)."
            )
        return objective

    def target(self, codec: LabelSets | Rankings, y: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """What the rows have besides x and y, for encoded outputs y that must be whole."""
        self.check_whole(mask, "y")
        return self.encode(codec, y)

    def check_whole(self, mask: np.ndarray | None, what: str) -> None:
        """Raise where outputs are known in part."""
        if mask is not None:
            bad = np.flatnonzero(mask.any(axis=1))
            raise ValueError(
                f"fit(X, y, {self.keyword}=...) needs whole outputs, but {bad.size} rows of {what} have missing labels "
                f"or ties, the first is row {bad[0]}. Leave these rows out."
            )


class Worse(AbstractTriplets):
    """(x, y, worse): y is preferred to `worse`, which is written as y is."""

    keyword, example, objective = "worse", "Preferences(scale=2.0)", Preferences

    def usual(self, values):
        return Preferences()

    def encode(self, codec, y):
        try:
            worse, mask = codec.encode(self.values)
        except ValueError as error:
            raise ValueError(f"worse must hold outputs as y does. {error}") from error
        if len(worse) != len(y):
            raise ValueError(f"worse must have a row for each of the {len(y)} rows of y; got {len(worse)}.")
        self.check_whole(mask, "worse")
        check_pairs(y, worse)
        return worse


class Scored(AbstractTriplets):
    """(x, y, score): how good y is."""

    keyword, example, objective = "scores", "Scores('logistic')", Scores

    def usual(self, values):
        scores = check_scores(values)
        if np.isin(scores, (0, 1)).all():
            return Scores("logistic", intercept=True)
        # In this unit learning rate and penalty suit scores of any size.
        return Scores("squared", intercept=True, unit=float(scores.std()) or 1.0)

    def choose(self, objective, values):
        chosen, scores = super().choose(objective, values), check_scores(values)
        if scores.size and scores.min() == scores.max():
            raise ValueError(f"All scores are {scores[0]:g}: they do not tell which outputs are better than others.")
        if isinstance(chosen, Scores) and chosen.kind == "logistic" and (scores.min() < 0 or scores.max() > 1):
            raise ValueError(
                f"Scores('logistic') needs scores from 0 (bad) to 1 (good); got {scores.min():g} to "
                f"{scores.max():g}. Use Scores('squared'), or scale them."
            )
        return chosen

    def encode(self, codec, y):
        return check_scores(self.values, len(y))


KINDS: tuple[type[AbstractTriplets], ...] = (Worse, Scored)


def given(worse: Any, scores: Any) -> AbstractTriplets | None:
    """What `fit` is given besides X and y, if anything."""
    if worse is not None and scores is not None:
        raise ValueError("fit takes worse= or scores=, not both: fit one estimator for each.")
    return Scored(scores) if scores is not None else None if worse is None else Worse(worse)


def check_observed(objective: Any, method: str) -> None:
    """Raise where observed outputs meet an objective that needs triplets."""
    for kind in KINDS:
        if isinstance(objective, kind.objective):
            advice = f"fit(X, y, {kind.keyword}=...)"
            raise ValueError(
                f"{type(objective).__name__} cannot learn from X and y alone, as in {method}. Use {advice}; to learn "
                "from observed outputs, another objective."
            )
