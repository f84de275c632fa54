"""A report as one HTML page that holds its styles and its script, and loads nothing."""

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template

from ..document import Agreement, Cell, Claim, Figure, Report, Row, Table
from . import svg
from .words import (
    COUNT_LABELS,
    KEY,
    SIGNS,
    clean,
    counts,
    difference,
    footnotes,
    heading,
    number,
    ours,
    slugs,
    spread,
    summaries,
    verdict,
)

__all__ = ["document"]

# What can be shown first, and the content of a cell then.
VIEWS = {
    "ours": "Ours ± spread; below it the paper's figure and the difference.",
    "paper": "The paper's figure; below it ours ± spread and the difference.",
    "difference": "Ours less the paper's figure; below it ours ± spread and the paper's.",
}
SPREAD = "± is the standard deviation over the seeds."
# Names of the parts of every page.
PART_NAMES = ("claims", "tables", "figures", "notes", "theme", "tools", "filter", "count", "tip", "heard")
# More columns do not fit on a screen.
MOST_COLUMNS = 10


def document(report: Report) -> str:
    parts = files(__name__.rpartition(".")[0])
    style, script = ((parts / name).read_text("utf-8") for name in ("page.css", "page.js"))
    names = slugs([*PART_NAMES, *(item.name for item in (*report.tables, *report.figures))])[len(PART_NAMES) :]
    tables = list(zip(report.tables, names, strict=False))
    figures = list(zip(report.figures, names[len(tables) :], strict=True))
    about = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in report.about.items())
    sections = [
        _section("claims", "The paper’s claims", _claims(report.claims)),
        _section(
            "tables", "Tables", [_tools(report), *(_table(table, name) for table, name in tables)] if tables else []
        ),
        _section("figures", "Figures", [_figure(figure, name) for figure, name in figures]),
        _section("notes", "Notes", [_notes(report.notes)] if report.notes else []),
    ]
    return Template((parts / "page.html").read_text("utf-8")).substitute(
        title=_text(report.title),
        summary=f'<p class="lead">{_text(report.summary)}</p>' if report.summary else "",
        about=f'<dl class="about">{about}</dl>' if about else "",
        overview=_overview(tables),
        links=_links(report, tables, figures),
        sections="\n".join(section for section in sections if section) or '<p class="empty">Nothing was run yet.</p>',
        # No other script runs, whatever the report says.
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=style,
        script=script,
    )


def _text(text: str) -> str:
    return escape(clean(text))


def _section(name: str, title: str, parts: list[str]) -> str:
    return f'<section id="{name}"><h2>{title}</h2>{"".join(parts)}</section>' if parts else ""


def _links(report: Report, tables: list[tuple[Table, str]], figures: list[tuple[Figure, str]]) -> str:
    links = [("claims", "Claims")] if report.claims else []
    links += [(name, item.title) for item, name in (*tables, *figures)]
    return "".join(f'<a href="#{name}">{_text(title)}</a>' for name, title in links)


def _overview(tables: list[tuple[Table, str]]) -> str:
    """One bar per table: the number of values near the printed ones, above, below, and not run."""
    lines = [
        _counts(f'<a href="#{name}">{_text(table.title)}</a>', tally := table.tally(), counts(tally))
        for table, name in tables
    ]
    return f'{_legend()}<ul class="overview">{"".join(lines)}</ul>' if lines else ""


def _counts(name: str, tally: Mapping[Agreement, int], text: str) -> str:
    """A name, a bar and the counts in words, as an item of a list."""
    shares = "".join(
        f'<i class="{kind}" style="flex-grow:{tally[kind]}" title="{tally[kind]} {label}">{SIGNS[kind]}</i>'
        for kind, label in COUNT_LABELS.items()
        if tally.get(kind)
    )
    bar = f'<span class="bar" aria-hidden="true">{shares}</span>' if shares else ""
    return f"<li>{name}{bar}<span>{_text(text)}</span></li>"


def _legend() -> str:
    """The color and the sign of each agreement."""
    kinds = "".join(
        f'<li><span class="cell {kind}" aria-hidden="true">{SIGNS[kind] or "–"}</span> {_text(meaning)}</li>'
        for kind, meaning in KEY.items()
    )
    return f'<ul class="legend" aria-label="Colors and signs">{kinds}</ul>'


def _claims(claims: tuple[Claim, ...]) -> list[str]:
    def item(claim: Claim) -> str:
        sign, words = verdict(claim)
        kind = words.replace(" ", "-")
        badge = f'<span class="verdict {kind}"><b aria-hidden="true">{sign}</b> {words}</span>'
        return f'<li>{badge}<div><p>{_text(claim.text)}</p><p class="evidence">{_text(claim.evidence)}</p></div></li>'

    return [f'<ul class="claims">{"".join(map(item, claims))}</ul>'] if claims else []


def _tools(report: Report) -> str:
    """Filter, chips and switch for all tables; hidden until the script that serves them shows them."""
    blocks = dict.fromkeys(row.block for table in report.tables for row in table.rows if row.block)
    chips = [
        f'<button type="button" class="chip" aria-pressed="false" data-block="{_text(block)}">{_text(block)}</button>'
        for block in blocks
    ]
    off: tuple[Agreement, ...] = ("below", "above")
    chips += [
        f'<button type="button" class="chip" aria-pressed="false" data-off="{kind}">{SIGNS[kind]} some {kind}</button>'
        for kind in off
    ]
    switch = "".join(
        f'<label><input type="radio" name="show" value="{view}"{checked}><span>{view}</span></label>'
        for view, checked in zip(VIEWS, (" checked", "", ""), strict=True)
    )
    texts = "".join(f'<span class="{view}">{_text(text)}</span>' for view, text in VIEWS.items())
    sample = _numbers(Cell(63.0, (65.8, 66.6)))
    return f"""
<form class="tools" id="tools" hidden>
<input type="search" id="filter" placeholder="Filter rows" aria-label="Filter rows" autocomplete="off">
<fieldset class="switch"><legend class="aside">Show first</legend>{switch}</fieldset>
<div class="chips">{"".join(chips)}</div>
<output id="count"></output>
</form>
<div class="key"><div class="cell above" aria-hidden="true">{sample}</div><p>{texts} {SPREAD}</p></div>
{_legend()}"""


def _table(table: Table, name: str) -> str:
    numbers = footnotes(table)
    # No part of a page has an underscore in its name.
    links = {note: f'<a href="#{name}_{place}" title="{_text(note)}">{place}</a>' for note, place in numbers.items()}
    heads = "".join(
        f'<th scope="col" aria-sort="none" class="{kind}"><button type="button">{_text(text)}</button></th>'
        for kind, texts in (("head", table.heads), ("figure", table.columns))
        for text in texts
    )
    rows, before = [], Row((), {})
    for row in table.rows:
        if row.block != before.block:
            width = len(table.heads) + len(table.columns)
            rows.append(f'<tr class="group"><th scope="rowgroup" colspan="{width}">{_text(row.block)}</th></tr>')
        repeats_head = row.block == before.block and row.heads[:1] == before.heads[:1]
        rows.append(_row(table, row, repeats_head, links))
        before = row
    notes = [f'<li id="{name}_{place}"><sup>{place}</sup> {_text(note)}</li>' for note, place in numbers.items()]
    notes += [f"<li>{_text(note)}</li>" for note in table.notes]
    summary = "".join(_counts(f"<b>{_text(group)}</b>", tally, text) for group, tally, text in summaries(table))
    wide = len(table.heads) + len(table.columns) > MOST_COLUMNS
    begin = f'<table class="results" style="--columns:{len(table.columns)}">'
    return f"""
<article id="{name}"><h3>{_text(heading(table))}</h3>
<p class="caption">{_text(table.caption)}</p>
<ul class="summary">{summary}</ul>
<div class="scroll{" wide" * wide}">{begin}<thead><tr>{heads}</tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody></table></div>
<p class="empty" hidden>No row matches.</p>
{f'<ul class="notes">{"".join(notes)}</ul>' if notes else ""}</article>"""


def _row(table: Table, row: Row, repeats_head: bool, links: Mapping[str, str]) -> str:
    """`repeats_head`: its first head is that of the row above, and is hidden."""
    label = f'<small class="block">{_text(row.block)}</small>' if row.block else ""
    texts = [_text(text) for text in row.heads]
    if any(texts[1:]):
        heads = [f'<th scope="row">{text}{"" if place else label}</th>' for place, text in enumerate(texts)]
    else:
        # Other methods have a title in place of all heads.
        heads = [f'<th scope="row" colspan="{len(texts)}">{texts[0]}{label}</th>']
    cells = (_cell(column, row.cell(column), links) for column in table.columns)
    kind = ' class="again"' if repeats_head else ""
    return f'<tr{kind} data-block="{_text(row.block)}">{"".join(heads)}{"".join(cells)}</tr>'


def _cell(column: str, cell: Cell, links: Mapping[str, str]) -> str:
    values = {"ours": cell.ours, "paper": cell.printed, "difference": cell.difference}
    data = "".join(f' data-{name}="{value!r}"' for name, value in values.items() if value is not None)
    seeds = f' title="Seeds: {", ".join(map(number, cell.values))}"' if len(cell.values) > 1 else ""
    numbers = " ".join(link for note, link in links.items() if note in cell.notes)
    note = f"<sup>{numbers}</sup>" if numbers else ""
    return f'<td class="cell {cell.agreement}" data-label="{_text(column)}"{data}{seeds}>{_numbers(cell)}{note}</td>'


def _numbers(cell: Cell) -> str:
    """Three values, each with its name for screen readers."""
    parts = {"ours": f"{ours(cell)}<small>{spread(cell).replace(' ', '')}</small>"}
    if cell.printed is not None:
        parts["paper"] = number(cell.printed)
    if cell.difference is not None:
        parts["difference"] = difference(cell)
    spans = (f'<span class="{name}"><span class="aside">{name} </span>{text}</span>' for name, text in parts.items())
    return f'<div class="figures">{" ".join(spans)}</div>'


def _notes(notes: tuple[str, ...]) -> str:
    return f'<ul class="notes">{"".join(f"<li>{_text(note)}</li>" for note in notes)}</ul>'


def _figure(figure: Figure, name: str) -> str:
    panels = "".join(f"<div>{svg.panel(panel)}</div>" for panel in figure.panels)
    return f"""
<figure id="{name}"><h3>{_text(figure.title)}</h3><div class="panels">{panels}</div>
<figcaption>{_text(figure.caption)}</figcaption></figure>"""
