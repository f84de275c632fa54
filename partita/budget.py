"""What is affordable: the only place with limits, and the only one that decides between exact and approximate answers.

An exact method says what it sums for a row (`Work`). From that follows whether it serves answers, every row of every
training step, or outputs known in part, and whether all rows of a call can be answered in time.
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
    "affords_answer",
    "affords_partial",
    "can_enumerate",
    "can_list",
    "check_enumerate",
    "check_list",
    "count",
    "describe_excess",
    "find_method",
    "is_exact_in_time",
    "method",
    "reaches",
    "serves_fit",
    "serves_steps",
    "sums_many_terms",
]

# Bytes of a list of all outputs.
MAX_BYTES = 2**30
# Outputs that are listed with their probabilities, all at once: what decisions are made from.
LISTED_OUTPUTS = 2**14
# For one call, whatever its number of rows.
SECONDS = 600.0
# One term, on one core of a common CPU: from 3e-9 (sums over label sets) to 2e-8 (subset program, with gradient).
TERM_SECONDS = 1e-8
# From so many terms on a row is a chunk's work by itself, and rows that only pad it would be a waste.
MANY_TERMS = 2**14


class TooLargeError(ValueError):
    """An exact computation over Y was asked for, and Y is too large for it."""


class ApproximationWarning(UserWarning):
    """An answer is not exact: the message says how it was found, and how to get a better one."""


class Kind(enum.Enum):
    """How a method sums: by a formula, by a program over states, or over a list of all outputs."""

    CLOSED_FORM = "a closed form"
    PROGRAM = "the program"
    ENUMERATION = "enumeration"

    @property
    def unit(self) -> str:
        """What its states are."""
        return "outputs" if self is Kind.ENUMERATION else "steps"


class Limits(NamedTuple):
    """How many states a row may have: for an answer, for the choices that a fit makes on unseen rows, for every row of
    every step, for outputs known in part."""

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
    """What a method does for a row.

    Attributes
    ----------
    kind
        How it sums.
    states
        How many states it visits: outputs of a list, steps of a program.
    terms
        How many terms it adds up, all passes over the states included: its cost.
    """

    kind: Kind
    states: int
    terms: int


def find_method(model: Any, q: Any = None) -> Any:
    """The exact method for a model, and another q than its own, where its sums are affordable; else None."""
    exact_method = model.exact_method(q)
    return exact_method if affords_answer(exact_method.work) else None


def method(model: Any, q: Any = None) -> Any:
    """The exact method for a model, or a `TooLargeError` that names the alternatives."""
    exact_method = find_method(model, q)
    if exact_method is None:
        work = model.exact_method(q).work
        coupling, f = type(model.g.coupling).__name__, type(model.f).__name__
        raise TooLargeError(
            f"{model.space} has {count(model.space.size)} outputs; for a {coupling} coupling under {f}, "
            f"{work.kind.value} reaches {LIMITS[work.kind].answer:,} {work.kind.unit}, here are {count(work.states)}. "
            f"Train with objectives.MinMin, and ask for log-partitions and log-probabilities by "
            "method='learned', for modes by method='search', for samples and marginals by a kernel, "
            "method=kernels.Gibbs()."
        )
    return exact_method


def reaches(model: Any, q: Any = None) -> bool:
    """Whether an exact method serves answers."""
    return find_method(model, q) is not None


def serves_steps(model: Any) -> bool:
    """Whether exact sums are cheap enough for every row of every step: "auto" trains by them."""
    work = model.exact_method().work
    return work.states <= LIMITS[work.kind].step


def serves_fit(model: Any) -> bool:
    """Whether exact sums are cheap enough for the choices that a fit makes on unseen rows."""
    work = model.exact_method().work
    return work.states <= LIMITS[work.kind].fit


def affords_partial(work: Work) -> bool:
    """Whether so much work is cheap enough for outputs known in part, whose sums differ from row to row."""
    return work.states <= LIMITS[work.kind].partial


def affords_answer(work: Work) -> bool:
    """Whether so much work for a row is affordable in an answer."""
    return work.states <= LIMITS[work.kind].answer


def is_exact_in_time(model: Any, rows: int) -> bool:
    """Whether exact sums answer for so many rows within `SECONDS`."""
    exact_method = find_method(model)
    return exact_method is not None and _seconds(exact_method, rows) <= SECONDS


def sums_many_terms(exact_method: Any, width: int) -> bool:
    """Whether one row that answers with `width` outputs is a chunk's work by itself."""
    return exact_method.work.terms * width >= MANY_TERMS


def can_list(space: Any) -> bool:
    """Whether all outputs are listed with their probabilities for decisions."""
    return space.size <= LISTED_OUTPUTS


def can_enumerate(space: Any) -> bool:
    """Whether statistics of any kind are summed over all outputs."""
    return space.size <= LIMITS[Kind.ENUMERATION].answer


def check_enumerate(space: Any) -> None:
    """Raise where there are too many outputs to sum a statistic over."""
    if not can_enumerate(space):
        limit = LIMITS[Kind.ENUMERATION].answer
        raise TooLargeError(
            f"{space} has {count(space.size)} outputs; enumeration reaches {limit:,} outputs. Take means of a "
            "statistic over draws of `inference.sample` instead."
        )


def check_list(space: Any) -> None:
    """Raise where a list of all outputs would take more than `MAX_BYTES`."""
    needed = 4 * space.size * math.prod(space.shape)
    if needed > MAX_BYTES:
        raise TooLargeError(
            f"{space} has {count(space.size)} elements: listing them takes {count(needed)} bytes, the limit is "
            f"{count(MAX_BYTES)}. Draw from it with `sample`, or learn the normalizer with `objectives.MinMin`."
        )


def describe_excess(model: Any, rows: int) -> str:
    """Why exact sums do not answer for so many rows."""
    outputs, exact_method = count(model.space.size), find_method(model)
    if exact_method is None:
        return f"the {outputs} outputs are too many for exact sums"
    return (
        f"exact sums over {outputs} outputs of {rows:,} rows would take about {_seconds(exact_method, rows):,.0f} s, "
        f"more than the {SECONDS:,.0f} s of partita.budget.SECONDS"
    )


def count(n: int) -> str:
    """A number of outputs in words.

    >>> count(1_000_000), count(10**30)
    ('1,000,000', 'about 10^30')
    """
    return f"{n:,}" if n < 10**12 else f"about 10^{math.log10(n):.0f}"


def _seconds(exact_method: Any, rows: int) -> float:
    return TERM_SECONDS * exact_method.work.terms * rows
