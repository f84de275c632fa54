"""What an answer may cost: the limits of exact sums, in one place.

An exact method says how many terms it sums for a row (`AbstractMethod.terms`). Where all rows of a call would take
longer than `SECONDS`, or no method reaches, the estimators answer by approximation, with a warning.
"""

__all__ = [
    "LISTED_OUTPUTS",
    "MAX_OUTPUTS",
    "MAX_RANKED",
    "SECONDS",
    "TERM_SECONDS",
    "ApproximationWarning",
    "in_time",
    "seconds",
]

# How far exact methods reach: outputs that are enumerated, labels that the subset program ranks.
MAX_OUTPUTS = 2**20
MAX_RANKED = 16
# Outputs that are listed with their probabilities, all at once: what decisions are made from.
LISTED_OUTPUTS = 2**14
# For one call, whatever its number of rows.
SECONDS = 600.0
# One term, on one core of a common CPU: from 3e-9 (sums over label sets) to 2e-8 (subset program, with gradient).
TERM_SECONDS = 1e-8


class ApproximationWarning(UserWarning):
    """An answer is not exact: the message says how it was found, and how to get a better one."""


def seconds(terms: int, rows: int) -> float:
    """How long exact sums of so many terms take for so many rows, about."""
    return TERM_SECONDS * terms * rows


def in_time(terms: int, rows: int) -> bool:
    """Whether that is within `SECONDS`."""
    return seconds(terms, rows) <= SECONDS
