"""All limits on exact computations: only this module decides between exact and approximate answers.

An exact method reports its `Work` for one row. The limits say whether it is affordable for an answer, for every row of
every training step, for outputs known in part, and for all rows of a call in time.
"""

import enum
import math
from typing import Any, NamedTuple

__all__ = [
    "LIMITS",
    "LISTED_OUTPUTS",
    "SECONDS",
    "ApproximationWarning",
    "Kind",
    "Limits",
    "TooLargeError",
    "Work",
    "find_method",
    "method",
]

# Largest size of a list of all outputs, in bytes.
MAX_BYTES = 2**30
# Largest number of outputs that decisions list with their probabilities.
LISTED_OUTPUTS = 2**14
# Largest time of one call for all its rows, in seconds.
SECONDS = 600.0
# Seconds per term on one core of a common CPU: from 3e-9 (sums over label sets) to 2e-8 (subset program with gradient).
TERM_SECONDS = 1e-8
# A row with this many terms keeps a core busy: padding a chunk with more rows would be a waste.
MANY_TERMS = 2**14


class TooLargeError(ValueError):
    """Y is too large for the exact computation that was requested."""


class ApproximationWarning(UserWarning):
    """An answer is approximate; the message names the method, and how to get a better answer."""


class Kind(enum.Enum):  # numpydoc ignore=PR01
    """How a method sums: by a formula, by a dynamic program over states, or over a list of all outputs."""

    CLOSED_FORM = "a closed form"
    PROGRAM = "the program"
    ENUMERATION = "enumeration"

    @property
    def unit(self) -> str:
        """What one state of the method is, in the plural, for messages."""
        return "outputs" if self is Kind.ENUMERATION else "steps"


class Limits(NamedTuple):
    """The largest number of states per row, for each use of an exact method.

    Parameters
    ----------
    answer
        For an answer to a user.
    fit
        For the scores on unseen rows by which a fit makes its choices.
    step
        For every row of every training step.
    partial
        For outputs known in part, whose sums differ from row to row.
    """

    answer: float
    fit: float
    step: float
    partial: float


# The subset program of 16 ranked labels has 2^19 states, that of 12 has 12 x 2^11.
LIMITS = {
    Kind.CLOSED_FORM: Limits(math.inf, math.inf, math.inf, math.inf),
    Kind.PROGRAM: Limits(16 * 2**15, 16 * 2**15, 12 * 2**11, 12 * 2**11),
    Kind.ENUMERATION: Limits(2**20, 2**14, 2**8, 2**12),
}


class Work(NamedTuple):
    """The work of an exact method for one row.

    Parameters
    ----------
    kind
        How it sums.
    states
        The number of states it visits: outputs of a list, or steps of a program. `Limits` are compared with it.
    terms
        The number of terms it adds up, in all passes over the states: its cost.
    """

    kind: Kind
    states: int
    terms: int


def find_method(model: Any, q: Any = None) -> Any:
    """The exact method for a model, if it is affordable for an answer.

    Parameters
    ----------
    model
        An `EBM`.
    q
        A reference in place of the model's own.

    Returns
    -------
    AbstractMethod or None
        The method; None if it is not affordable.
    """
    exact_method = model.exact_method(q)
    return exact_method if affords_answer(exact_method.work) else None


def method(model: Any, q: Any = None) -> Any:
    """The exact method for a model.

    Parameters
    ----------
    model
        An `EBM`.
    q
        A reference in place of the model's own.

    Returns
    -------
    AbstractMethod
        The method.

    Raises
    ------
    TooLargeError
        If the method is not affordable; the message names the alternatives.
    """
    exact_method = find_method(model, q)
    if exact_method is None:
        work = model.exact_method(q).work
        coupling, f = type(model.g.coupling).__name__, type(model.f).__name__
        raise TooLargeError(
            f"{model.space} has {count(model.space.size)} outputs; for a {coupling} coupling under {f}, "
            f"{work.kind.value} reaches {LIMITS[work.kind].answer:,} {work.kind.unit}, here are {count(work.states)}. "
            "Train with objectives.MinMin, and compute log-partitions and log-probabilities with method='learned', "
            "modes with method='search', samples and marginals with a kernel, method=kernels.Gibbs()."
        )
    return exact_method


def reaches(model: Any, q: Any = None) -> bool:
    """Whether an exact method is affordable for an answer."""
    return find_method(model, q) is not None


def serves_steps(model: Any) -> bool:
    """Whether exact sums are cheap enough for every row of every training step; objective="auto" then uses them."""
    work = model.exact_method().work
    return work.states <= LIMITS[work.kind].step


def serves_fit(model: Any) -> bool:
    """Whether exact sums are cheap enough for the scores on unseen rows by which a fit makes its choices."""
    work = model.exact_method().work
    return work.states <= LIMITS[work.kind].fit


def affords_partial(work: Work) -> bool:
    """Whether the work per row is affordable for outputs known in part, whose sums differ from row to row."""
    return work.states <= LIMITS[work.kind].partial


def affords_answer(work: Work) -> bool:
    """Whether the work per row is affordable for an answer."""
    return work.states <= LIMITS[work.kind].answer


def is_exact_in_time(model: Any, rows: int) -> bool:
    """Whether exact answers for this number of rows take at most `SECONDS`."""
    exact_method = find_method(model)
    return exact_method is not None and _seconds(exact_method, rows) <= SECONDS


def sums_many_terms(exact_method: Any, width: int) -> bool:
    """Whether one row, answered with `width` outputs, keeps a core busy, so that it needs no others in its chunk."""
    return exact_method.work.terms * width >= MANY_TERMS


def can_list(space: Any) -> bool:
    """Whether decisions may list all outputs with their probabilities."""
    return space.size <= LISTED_OUTPUTS


def can_enumerate(space: Any) -> bool:
    """Whether a statistic may be summed over all outputs."""
    return space.size <= LIMITS[Kind.ENUMERATION].answer


def check_enumerate(space: Any) -> None:
    """Raise if there are too many outputs to sum a statistic over."""
    if not can_enumerate(space):
        limit = LIMITS[Kind.ENUMERATION].answer
        raise TooLargeError(
            f"{space} has {count(space.size)} outputs; enumeration reaches {limit:,} outputs. Take means of a "
            "statistic over draws of `inference.sample` instead."
        )


def check_list(space: Any) -> None:
    """Raise if a list of all outputs would take more than `MAX_BYTES`."""
    needed = 4 * space.size * math.prod(space.shape)
    if needed > MAX_BYTES:
        raise TooLargeError(
            f"{space} has {count(space.size)} elements: listing them takes {count(needed)} bytes, the limit is "
            f"{count(MAX_BYTES)}. Draw from it with `sample`, or learn the normalizer with `objectives.MinMin`."
        )


def describe_excess(model: Any, rows: int) -> str:
    """Why this number of rows has no exact answers, for messages."""
    outputs, exact_method = count(model.space.size), find_method(model)
    if exact_method is None:
        return f"the {outputs} outputs are too many for exact sums"
    return (
        f"exact sums over {outputs} outputs of {rows:,} rows would take about {_seconds(exact_method, rows):,.0f} s, "
        f"more than the {SECONDS:,.0f} s of partita.budget.SECONDS"
    )


def count(n: int) -> str:
    """A number as text, rounded to a power of ten if it is large.

    >>> count(1_000_000), count(10**30)
    ('1,000,000', 'about 10^30')
    """
    return f"{n:,}" if n < 10**12 else f"about 10^{math.log10(n):.0f}"


def _seconds(exact_method: Any, rows: int) -> float:
    return TERM_SECONDS * exact_method.work.terms * rows
