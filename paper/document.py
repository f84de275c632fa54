"""The content of a report as plain data: tables of printed and of new values, figures, claims with verdicts."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Cell", "Claim", "Figure", "Panel", "Report", "Row", "Series", "Table"]

Agreement = Literal["above", "near", "below", "none"]

# Points within which a value agrees with the printed one.
NEAR = 2.0
# Values are printed with so many decimals, and compared as they are printed.
DECIMALS = 2


@dataclass(frozen=True)
class Cell:
    """The paper's value, None where it has none, and ours, one per seed, empty where it was not run.

    `note` is always shown. `remarks` explain a difference, and are shown only where there is one.
    """

    printed: float | None
    values: tuple[float, ...]
    note: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def ours(self) -> float | None:
        """Mean over the seeds."""
        return sum(self.values) / len(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds, with n - 1 in the denominator; 0 for one seed."""
        if self.ours is None:
            return None
        squares = sum((value - self.ours) ** 2 for value in self.values)
        return math.sqrt(squares / max(1, len(self.values) - 1))

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, to the printed decimals."""
        return None if self.ours is None or self.printed is None else round(self.ours - self.printed, DECIMALS)

    @property
    def agreement(self) -> Agreement:
        """How ours compares with the paper's: "near" is within 2 points, "none" is nothing to compare.

        A value that is not a number is "below".
        """
        if self.difference is None:
            return "none"
        if self.difference > NEAR:
            return "above"
        return "near" if self.difference >= -NEAR else "below"

    @property
    def is_off(self) -> bool:
        """Whether ours differs from the paper's by more than 2 points, either way."""
        return self.agreement in ("above", "below")

    @property
    def notes(self) -> tuple[str, ...]:
        """The footnotes: the note, and the remarks where ours differs."""
        return (*([self.note] if self.note else []), *(self.remarks if self.is_off else ()))


NO_CELL = Cell(None, ())


@dataclass(frozen=True)
class Row:
    """The names of what was run (`heads`) and its cells by column.

    `block` says whose method it is, and rows of the same `group` are counted together. `setting` has the names of a row
    of the paper: objective, loss, model, coupling, tau.
    """

    heads: tuple[str, ...]
    cells: Mapping[str, Cell]
    block: str = ""
    group: str = ""
    setting: Mapping[str, str] = field(default_factory=dict)

    def cell(self, column: str) -> Cell:
        return self.cells.get(column, NO_CELL)


@dataclass(frozen=True)
class Table:
    """Rows of equally many heads; `unit` is that of the values; larger ones are better."""

    name: str
    title: str
    caption: str
    heads: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    unit: str = ""

    def __post_init__(self):
        for row in self.rows:
            if len(row.heads) != len(self.heads):
                raise ValueError(
                    f"A row of table {self.name!r} needs a text for each of the heads {self.heads}; got {row.heads}."
                )
            if unknown := set(row.cells) - set(self.columns):
                raise ValueError(
                    f"Table {self.name!r} has the columns {self.columns}; row {row.heads} fills {sorted(unknown)} too. "
                    "Name these among the columns, or leave them out."
                )

    def tally(self, rows: Iterable[Row] | None = None, columns: Iterable[str] | None = None) -> Counter[Agreement]:
        """The number of cells with a printed value by agreement; "none" is not run."""
        columns = self.columns if columns is None else tuple(columns)
        cells = (row.cell(column) for row in (self.rows if rows is None else rows) for column in columns)
        return Counter(cell.agreement for cell in cells if cell.printed is not None)

    def tallies(self) -> dict[str, Counter[Agreement]]:
        """The tally of each group of rows that has printed values."""
        groups = dict.fromkeys(row.group for row in self.rows)
        tallies = {group: self.tally(row for row in self.rows if row.group == group) for group in groups}
        return {group: tally for group, tally in tallies.items() if tally}


@dataclass(frozen=True)
class Series:
    """Values y at x, joined by a line or as points."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    kind: Literal["line", "points"] = "line"

    def __post_init__(self):
        if len(self.x) != len(self.y):
            raise ValueError(f"Series {self.name!r} needs one y for each x; got {len(self.x)} x and {len(self.y)} y.")


@dataclass(frozen=True)
class Panel:
    """Series on common axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Figure:
    """Panels side by side."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, whether our values confirm it (None: undecided), and these values."""

    text: str
    verdict: bool | None
    evidence: str


@dataclass(frozen=True)
class Report:
    """The content of one page; `about` says when, with which versions and how it was run.

    `summary` is a paragraph that says what reproduces and what does not.
    """

    title: str
    about: Mapping[str, str]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    summary: str = ""
