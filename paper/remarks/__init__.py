"""Why values differ from the printed ones: sentences that are shown as footnotes of cells that differ.

A remark on cells below says what was tried (`trials`), one on cells above the likely reason; both give their numbers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..document import Cell, Row, Table
from . import label_sets, rankings
from .pattern import NAMES, Remark

__all__ = ["NAMES", "REMARKS", "TABLE_NOTES", "Remark", "annotate", "cells_without_remark"]

REMARKS: tuple[Remark, ...] = (*label_sets.REMARKS, *rankings.REMARKS)
# Sentences about a whole table, by its name.
TABLE_NOTES: Mapping[str, tuple[str, ...]] = {}


def annotate(table: Table, remarks: Iterable[Remark] = REMARKS) -> Table:
    """The table with the remarks of each cell, and its own notes."""
    remarks = tuple(remarks)

    def cells(row: Row) -> dict[str, Cell]:
        return {
            column: replace(cell, remarks=tuple(remark.text for remark in remarks if remark.matches(row, column, cell)))
            for column, cell in row.cells.items()
        }

    rows = tuple(replace(row, cells=cells(row)) for row in table.rows)
    return replace(table, rows=rows, notes=(*table.notes, *TABLE_NOTES.get(table.name, ())))


def cells_without_remark(tables: Iterable[Table]) -> list[tuple[str, str, tuple[str, ...], float]]:
    """(table, column, heads, difference) of cells off by more than 2 points that have no remark, farthest first."""
    cells = [
        (table.name, column, row.heads, cell.difference)
        for table in tables
        for row in table.rows
        for column, cell in row.cells.items()
        if cell.is_off and not cell.remarks and cell.difference is not None
    ]
    return sorted(cells, key=lambda cell: -abs(cell[-1]))
