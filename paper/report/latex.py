"""A report as LaTeX that compiles alone: tables with booktabs and the claims. Figures are in the other two forms."""

import unicodedata
from collections.abc import Iterable

from ..document import Cell, Claim, Report, Row, Table
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
    spread,
    summaries,
    verdict,
)

__all__ = ["document", "escape"]

PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[utf8]{inputenc}
\usepackage[T1]{fontenc}
\usepackage{textcomp,amssymb,booktabs,longtable,array}
\usepackage[table]{xcolor}
\definecolor{near}{HTML}{E6E9ED}
\definecolor{above}{HTML}{CDE3F9}
\definecolor{below}{HTML}{FDDEBF}
\usepackage[a4paper,landscape,margin=15mm]{geometry}
\setlength{\tabcolsep}{4pt}
\setlength{\parindent}{0pt}
\setcounter{LTchunksize}{1000}
\begin{document}"""
LETTERS = "αβγδεηθλμνρστφχψωΦΩ"
NAMES = r"alpha beta gamma delta epsilon eta theta lambda mu nu rho sigma tau phi chi psi omega Phi Omega"
SYMBOLS = "±×≈≤≥→∞√▲▼✓✗"
COMMANDS = r"pm times approx leq geq to infty surd blacktriangle blacktriangledown checkmark times"
MATHEMATICS = zip(LETTERS + SYMBOLS, f"{NAMES} {COMMANDS}".split(), strict=True)
# A bracket or star at the beginning of a row would be an argument of the line break before it.
SPECIAL = {
    **{letter: f"\\{letter}" for letter in "{}$&#_%"},
    **{letter: f"{{{letter}}}" for letter in "[]*"},
    **{letter: rf"\ensuremath{{\{name}}}" for letter, name in MATHEMATICS},
    "−": r"\ensuremath{-}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "…": r"\ldots{}",
    "–": "--",
    "—": "---",
    "’": "'",
    "“": "``",
    "”": "''",
}


def escape(text: str) -> str:
    """The text without commands; characters that the fonts lack become their code points."""
    return "".join(map(_letter, unicodedata.normalize("NFC", clean(text))))


def document(report: Report) -> str:
    parts = [PREAMBLE, rf"\section*{{{escape(report.title)}}}"]
    parts += [rf"{escape(report.summary)}\par\medskip"] if report.summary else []
    parts += [rf"\textbf{{{escape(name)}}}: {escape(value)}\par" for name, value in report.about.items()]
    if report.claims:
        parts += [
            r"\subsection*{The paper's claims}",
            *_items(f"{_claim(claim)} {escape(claim.evidence)}" for claim in report.claims),
        ]
    if report.tables:
        parts += [
            r"\subsection*{Tables}",
            escape(
                "Each cell: ours ± standard deviation over the seeds; below it the paper's figure and the difference."
            ),
            *_items(
                rf"\colorbox{{{kind}}}{{{escape(sign)}}} {escape(KEY[kind])}" for kind, sign in SIGNS.items() if sign
            ),
        ]
        parts += [line for table in report.tables for line in _table(table)]
    if report.notes:
        parts += [r"\subsection*{Notes}", *_items(map(escape, report.notes))]
    return "\n".join([*parts, r"\end{document}", ""])


def _letter(letter: str) -> str:
    if letter in SPECIAL:
        return SPECIAL[letter]
    # Beyond ASCII, T1 has the letters of Latin-1.
    return letter if letter.isascii() or "À" <= letter <= "ÿ" else f"{{[}}U+{ord(letter):04X}{{]}}"


def _claim(claim: Claim) -> str:
    sign, words = verdict(claim)
    return rf"{escape(claim.text)} \textbf{{{escape(sign)} {words}.}}"


def _items(texts: Iterable[str]) -> list[str]:
    return [r"\begin{itemize}", *(rf"\item {text}" for text in texts), r"\end{itemize}"]


def _table(table: Table) -> list[str]:
    numbers = footnotes(table)
    heads = " & ".join(map(escape, (*table.heads, *table.columns)))
    lines = [
        rf"\subsubsection*{{{escape(heading(table))}}}",
        escape(table.caption),
        *_items(rf"\textbf{{{escape(name)}}}: {escape(text)}." for name, _, text in summaries(table)),
        rf"{{\small\begin{{longtable}}{{{'l' * len(table.heads)}{'r' * len(table.columns)}}}",
        rf"\toprule {heads} \\ \midrule \endhead",
    ]
    block = ""
    for row in table.rows:
        if row.block != block:
            block = row.block
            width = len(table.heads) + len(table.columns)
            lines.append(rf"\addlinespace \multicolumn{{{width}}}{{l}}{{\textit{{{escape(block)}}}}} \\*")
        lines += _row(row, table.columns, numbers)
    notes = [rf"\textsuperscript{{{place}}} {escape(note)}" for note, place in numbers.items()]
    notes += map(escape, table.notes)
    return [*lines, r"\bottomrule \end{longtable}}", *(_items(notes) if notes else [])]


def _row(row: Row, columns: tuple[str, ...], numbers: dict[str, int]) -> list[str]:
    """Our value, and below it the paper's."""
    cells = [row.cell(column) for column in columns]
    above = " & ".join([*map(escape, row.heads), *(_ours(cell, numbers) for cell in cells)])
    below = " & ".join([*("" for _ in row.heads), *map(_paper, cells)])
    return [rf"{above} \\*", rf"{below} \\"] if any(map(_paper, cells)) else [rf"{above} \\"]


def _ours(cell: Cell, numbers: dict[str, int]) -> str:
    notes = note_numbers(cell, numbers)
    note = rf"\textsuperscript{{{','.join(map(str, notes))}}}" if notes else ""
    return _color(cell) + escape(f"{ours(cell)} {spread(cell)}") + note


def _paper(cell: Cell) -> str:
    if cell.printed is None:
        return ""
    return _color(cell) + rf"{{\scriptsize {escape(f'{number(cell.printed)} {difference(cell)}')}}}"


def _color(cell: Cell) -> str:
    return "" if cell.agreement == "none" else rf"\cellcolor{{{cell.agreement}}}"
