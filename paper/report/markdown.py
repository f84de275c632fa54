"""A report as Markdown for GitHub: tables, claims, and links to the pictures."""

import re

from ..document import Agreement, Cell, Figure, Report, Table
from .words import (
    KEY,
    SIGNS,
    clean,
    difference,
    footnotes,
    heading,
    note_numbers,
    number,
    ours,
    panel_names,
    spread,
    summaries,
    verdict,
)

__all__ = ["document", "escape"]

# GitHub shows no other colors. Blue, white and orange differ for the color-blind too, and each is followed by a sign.
COLORS: dict[Agreement, str] = {"near": "⬜", "above": "🟦", "below": "🟧", "none": ""}
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def escape(text: str) -> str:
    """The text without markup, HTML, or the end of a table's cell."""
    text = re.sub(r"([\\`*_\[\]#|~$])", r"\\\1", clean(text))
    return re.sub("[&<>]", lambda match: ENTITIES[match[0]], text)


def document(report: Report) -> str:
    about = [f"- {escape(name)}: {escape(value)}" for name, value in report.about.items()]
    parts = [f"# {escape(report.title)}", escape(report.summary), "\n".join(about)]
    if report.claims:
        parts += ["## The paper's claims", "\n".join(_claims(report))]
    if report.tables:
        parts += [
            "## Tables",
            "Each cell: ours ± standard deviation over the seeds; the paper's figure, the difference.",
        ]
        parts.append("\n".join(f"- {COLORS[kind]} {sign} {KEY[kind]}" for kind, sign in SIGNS.items() if sign))
        parts += [part for table in report.tables for part in _table(table)]
    if report.figures:
        parts.append("## Figures")
        pairs = zip(report.figures, panel_names(report), strict=True)
        parts += [part for figure, names in pairs for part in _figure(figure, names)]
    if report.notes:
        parts += ["## Notes", "\n".join(f"- {escape(note)}" for note in report.notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _claims(report: Report) -> list[str]:
    rows = [("Claim", "Verdict", "Evidence"), ("---",) * 3]
    rows += [(escape(claim.text), " ".join(verdict(claim)), escape(claim.evidence)) for claim in report.claims]
    return [_row(row) for row in rows]


def _table(table: Table) -> list[str]:
    numbers = footnotes(table)
    blocks = any(row.block for row in table.rows)
    heads = [*(["Block"] if blocks else []), *map(escape, table.heads)]
    lines = [_row([*heads, *map(escape, table.columns)]), _row(["---"] * len(heads) + ["--:"] * len(table.columns))]
    for row in table.rows:
        row_heads = [*([escape(row.block)] if blocks else []), *map(escape, row.heads)]
        lines.append(_row([*row_heads, *(_cell(row.cell(column), numbers) for column in table.columns)]))
    notes = [f"- <sup>{place}</sup> {escape(note)}" for note, place in numbers.items()]
    notes += [f"- {escape(note)}" for note in table.notes]
    return [
        f"### {escape(heading(table))}",
        escape(table.caption),
        "\n".join(f"- **{escape(name)}**: {text}." for name, _, text in summaries(table)),
        "\n".join(lines),
        "\n".join(notes),
    ]


def _cell(cell: Cell, numbers: dict[str, int]) -> str:
    value = ours(cell) if cell.ours is None else f"**{ours(cell)}** {spread(cell)}".rstrip()
    note = f"<sup>{', '.join(map(str, notes))}</sup>" if (notes := note_numbers(cell, numbers)) else ""
    agreement = f"{COLORS[cell.agreement]} {difference(cell)}".strip()
    paper = "" if cell.printed is None else f"<br>{number(cell.printed)} {agreement}".rstrip()
    return value + note + paper


def _figure(figure: Figure, names: list[str]) -> list[str]:
    pairs = zip(figure.panels, names, strict=True)
    pictures = "\n".join(f"![{escape(panel.title)}](figures/{name}.svg)" for panel, name in pairs)
    return [f"### {escape(figure.title)}", pictures, escape(figure.caption)]


def _row(cells) -> str:
    return "| " + " | ".join(cells) + " |"
