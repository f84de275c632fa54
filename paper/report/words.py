"""Texts that all three forms of a report have in common: numbers, signs, verdicts, footnotes, names of files."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from ..document import DECIMALS, NEAR, Agreement, Cell, Claim, Report, Table

__all__ = [
    "COUNT_LABELS",
    "KEY",
    "SIGNS",
    "clean",
    "counts",
    "difference",
    "footnotes",
    "heading",
    "note_numbers",
    "number",
    "ours",
    "panel_names",
    "slugs",
    "spread",
    "summaries",
    "verdict",
]

SIGNS: dict[Agreement, str] = {"near": "≈", "above": "▲", "below": "▼", "none": ""}
KEY: dict[Agreement, str] = {
    "near": f"within {NEAR:g} points of the paper's figure",
    "above": f"more than {NEAR:g} points above it",
    "below": f"more than {NEAR:g} points below it",
    "none": "not run",
}
COUNT_LABELS: dict[Agreement, str] = {
    "near": f"within {NEAR:g} points",
    "above": "above",
    "below": "below",
    "none": "not run",
}
VERDICTS = {True: ("✓", "holds"), False: ("✗", "does not hold"), None: ("?", "undecided")}
# XML allows none of these, not even escaped.
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
    """± and the standard deviation; empty for one seed."""
    return f"± {number(cell.spread)}" if cell.spread is not None and len(cell.values) > 1 else ""


def difference(cell: Cell) -> str:
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


def counts(tally: Mapping[Agreement, int]) -> str:
    """Agreement both ways: 58 of 150 within 2 points, 63 above, 29 below."""
    total = sum(tally.values())
    if not total:
        return "The paper prints no figures to compare with"
    parts = [f"{tally.get('near', 0)} of {total} {COUNT_LABELS['near']}"]
    parts += [f"{tally.get(kind, 0)} {COUNT_LABELS[kind]}" for kind in ("above", "below")]
    return ", ".join(parts + ([f"{tally['none']} {COUNT_LABELS['none']}"] if tally.get("none") else []))


def summaries(table: Table) -> list[tuple[str, Counter[Agreement], str]]:
    """(name, tally, text) of all cells, then of each group where there are several.

    "Within or above" is apart from the counts: a value far above the printed one does not agree with it.
    """
    tallies = {"All": table.tally()}
    if len(groups := table.tallies()) > 1:
        tallies |= groups
    return [(name, tally, counts(tally) + _reached(tally)) for name, tally in tallies.items()]


def _reached(tally: Mapping[Agreement, int]) -> str:
    total, reached = sum(tally.values()), tally.get("near", 0) + tally.get("above", 0)
    return f" (within or above: {reached}, {100 * reached / total:.0f}%)" if total else ""


def footnotes(table: Table) -> dict[str, int]:
    """The notes of all cells with their numbers; equal texts are one note."""
    notes = (note for row in table.rows for column in table.columns for note in row.cell(column).notes)
    return {note: 1 + place for place, note in enumerate(dict.fromkeys(notes))}


def note_numbers(cell: Cell, numbers: Mapping[str, int]) -> list[int]:
    """The numbers of the cell's notes."""
    return sorted({numbers[note] for note in cell.notes})


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
