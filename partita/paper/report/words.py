"""What all three forms of a report say alike: figures, signs, verdicts, footnotes, names of files."""

import re
from collections.abc import Iterable

from ..document import DECIMALS, NEAR, Agreement, Cell, Claim, Report, Table

__all__ = [
    "COUNTED",
    "KEY",
    "clean",
    "footnotes",
    "heading",
    "met",
    "number",
    "ours",
    "panel_names",
    "signed",
    "slugs",
    "spread",
    "summary",
    "verdict",
]

SIGNS = {"above": "▲", "near": "≈", "below": "▼", "none": ""}
KEY = (
    f"▲ more than {NEAR:g} points above the paper's figure, ≈ within {NEAR:g} points, ▼ more than {NEAR:g} below; "
    "± is the standard deviation over the seeds."
)
COUNTED: dict[Agreement, str] = {"above": "above", "near": "near", "below": "below", "none": "not run"}
VERDICTS = {True: ("✓", "holds"), False: ("✗", "does not hold"), None: ("?", "not judged")}
# XML allows none of these, escaped or not.
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """One line without control characters."""
    return " ".join(CONTROLS.sub("", text).split())


def number(value: float) -> str:
    return f"{value:.{DECIMALS}f}".replace("-", "−")


def ours(cell: Cell) -> str:
    """The mean, or why there is none."""
    if cell.ours is None:
        return "–" if cell.printed is None else "not run"
    return number(cell.ours)


def spread(cell: Cell) -> str:
    """± and the standard deviation; empty for one seed, which tells of no spread."""
    return f"± {number(cell.spread)}" if cell.spread is not None and len(cell.values) > 1 else ""


def signed(cell: Cell) -> str:
    """The difference with its sign: ▼ −3.10. Empty where there is nothing to compare."""
    if cell.difference is None:
        return ""
    # + 0.0: no minus before zero.
    return f"{SIGNS[cell.agreement]} {cell.difference + 0.0:+.{DECIMALS}f}".replace("-", "−")


def verdict(claim: Claim) -> tuple[str, str]:
    """A sign and words."""
    return VERDICTS[claim.verdict]


def heading(table: Table) -> str:
    return f"{table.title} ({table.unit})" if table.unit else table.title


def met(table: Table) -> str:
    """How many printed figures are reached."""
    tally, share = table.tally(), table.agreeing()
    if share is None:
        return "The paper prints no figures to compare with"
    reached = tally["above"] + tally["near"]
    return f"{reached} of {tally.total()} figures within {NEAR:g} points or above ({100 * share:.0f}%)"


def summary(table: Table) -> str:
    """The same as a sentence, and how the others fare."""
    tally = table.tally()
    counts = ", ".join(f"{tally[kind]} {said}" for kind, said in COUNTED.items() if tally[kind])
    return f"{met(table)}: {counts}." if counts else f"{met(table)}."


def footnotes(table: Table) -> dict[str, int]:
    """The number of each note that cells carry; the same words are one note."""
    notes = (row.cell(column).note for row in table.rows for column in table.columns)
    return {note: 1 + place for place, note in enumerate(dict.fromkeys(note for note in notes if note))}


def slugs(names: Iterable[str]) -> list[str]:
    """Names that are safe in files and addresses, no two the same."""
    taken: list[str] = []
    for name in names:
        slug = re.sub("[^a-z0-9]+", "-", name.lower())[:60].strip("-") or "unnamed"
        others = (f"{slug}-{count}" for count in range(2, len(taken) + 3))
        taken.append(slug if slug not in taken else next(other for other in others if other not in taken))
    return taken


def panel_names(report: Report) -> list[list[str]]:
    """A name for the picture of each panel of each figure."""
    wanted = [
        [
            figure.name if len(figure.panels) == 1 else f"{figure.name}-{1 + place}"
            for place in range(len(figure.panels))
        ]
        for figure in report.figures
    ]
    names = iter(slugs(name for figure in wanted for name in figure))
    return [[next(names) for _ in figure] for figure in wanted]
