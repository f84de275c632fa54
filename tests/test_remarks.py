"""Remarks on figures that differ from the printed ones: whom they match, and that they name what there is."""

import dataclasses

import pytest

from paper import printed_values, remarks, tables
from paper.document import Cell, Report, Row, Table
from paper.remarks import Remark
from paper.report import latex, markdown, page
from paper.settings import FULL

SETTING = {"objective": "min-min", "loss": "logistic", "model": "mlp", "coupling": "unary", "tau": "constant"}


def table():
    """One cell below, one within, one above, one that was not run."""
    cells = {
        "birds": Cell(60.0, (50.0, 51.0)),
        "scene": Cell(60.0, (60.0, 61.0)),
        "yeast": Cell(60.0, (70.0, 71.0), "always"),
        "wine": Cell(60.0, ()),
    }
    return Table("t", "T", "", ("h",), tuple(cells), (Row(("x",), cells, setting=SETTING),))


def shown(*given):
    (row,) = remarks.annotate(table(), given).rows
    return {column: cell.notes for column, cell in row.cells.items()}


def test_remarks_are_shown_only_where_figures_differ():
    always = {"birds": (), "scene": (), "yeast": ("always",), "wine": ()}
    everywhere = {"birds": ("why",), "scene": (), "yeast": ("always", "why"), "wine": ()}
    assert shown() == always
    assert shown(Remark("why")) == everywhere
    assert shown(Remark("why", off="below")) == always | {"birds": ("why",)}
    assert shown(Remark("why", off="above")) == always | {"yeast": ("always", "why")}
    assert shown(Remark("why", dataset=("birds", "scene"))) == always | {"birds": ("why",)}
    assert shown(Remark("why", **{name: (value, "other") for name, value in SETTING.items()})) == everywhere
    for name in SETTING:
        assert shown(Remark("why", **{name: ("other",)})) == always
    # Even one that a cell carries without a pattern is not shown on a cell within two points.
    assert Cell(60.0, (61.0,), remarks=("why",)).notes == ()


def test_remarks_are_footnotes_in_every_form():
    found = remarks.annotate(table(), [Remark("because 2 < 3", off="below"), Remark("for both")])
    report = Report("R", {}, (found,), (), (), ())
    text = markdown.document(report)
    cells = "| x | **50.50** ± 0.71<sup>1, 2</sup><br>60.00 🟧 ▼ −9.50 | **60.50** ± 0.71<br>60.00 ⬜ ≈ +0.50 |"
    assert cells in text
    assert "- <sup>1</sup> because 2 &lt; 3\n- <sup>2</sup> for both\n- <sup>3</sup> always\n" in text
    text = latex.document(report)
    assert r"\cellcolor{below}50.50 \ensuremath{\pm} 0.71\textsuperscript{1,2} & \cellcolor{near}60.50" in text
    assert r"\item \textsuperscript{1} because 2 \textless{} 3" in text
    text = page.document(report)
    assert '<a href="#t_1" title="because 2 &lt; 3">1</a> <a href="#t_2" title="for both">2</a></sup>' in text
    assert '<li id="t_1"><sup>1</sup> because 2 &lt; 3</li>' in text


def test_cells_without_a_remark_are_listed_farthest_first():
    assert remarks.cells_without_remark([table()]) == [("t", "yeast", ("x",), 10.5), ("t", "birds", ("x",), -9.5)]
    found = remarks.annotate(table(), [Remark("why", off="above")])
    assert remarks.cells_without_remark([found]) == [("t", "birds", ("x",), -9.5)]


def test_a_table_may_have_notes_of_its_own(monkeypatch):
    monkeypatch.setattr(remarks, "TABLE_NOTES", {"t": ("about the whole",)})
    assert remarks.annotate(table()).notes == ("about the whole",)
    assert remarks.annotate(dataclasses.replace(table(), name="u")).notes == ()


NAMES = {
    "dataset": {column for spec in tables.TABLES.values() for column in spec.columns},
    **{
        name: {heads[place] for spec in tables.TABLES.values() for heads, _ in printed_values.rows(spec.printed)}
        for place, name in enumerate(remarks.NAMES)
    },
}


@pytest.mark.parametrize("remark", remarks.REMARKS, ids=lambda remark: remark.text[:30])
def test_patterns_name_what_the_tables_have(remark):
    for name, known in NAMES.items():
        assert set(getattr(remark, name)) <= known
    assert remark.text.endswith(".")
    # It matches some cell, if figures are off by enough.
    values = {"above": (1000.0,), "below": (-1000.0,)}[remark.off or "above"]
    built = [tables.build(name, lambda _: values, FULL) for name in tables.TABLES]
    assert any(remark.text in cell.remarks for one in built for row in one.rows for cell in row.cells.values())


def test_table_notes_name_tables():
    assert set(remarks.TABLE_NOTES) <= set(tables.TABLES)
