"""Why values differ from the printed ones: sentences that are shown as footnotes of cells that differ."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

from .document import Cell, Row, Table

__all__ = ["NAMES", "REMARKS", "TABLE_NOTES", "Remark", "annotate", "cells_without_remark"]

# The names of a row; that of the data set belongs to the column.
NAMES: tuple[str, ...] = ("objective", "loss", "model", "coupling", "tau")


@dataclasses.dataclass(frozen=True)
class Remark:
    """A sentence for the cells that match all names, as in `printed_values`; an empty tuple matches every name.

    `off` restricts it to cells above or below the printed value. It is never shown on a cell within 2 points.
    """

    text: str
    off: Literal["above", "below"] | None = None
    dataset: tuple[str, ...] = ()
    objective: tuple[str, ...] = ()
    loss: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    coupling: tuple[str, ...] = ()
    tau: tuple[str, ...] = ()

    def matches(self, row: Row, column: str, cell: Cell) -> bool:
        if not cell.is_off or self.off not in (None, cell.agreement):
            return False
        names = {"dataset": column, **row.setting}
        return all(not getattr(self, part) or names.get(part) in getattr(self, part) for part in ("dataset", *NAMES))


REMARKS = (
    Remark(
        "The printed 44.53 is 20 points below the same model with pairwise coupling (64.58), and 19 below the one with "
        "an ICNN as τ (63.38): the paper's training probably failed here.",
        off="above",
        dataset=("emotions",),
        objective=("min-min",),
        loss=("sparsemax",),
        model=("resnet",),
        coupling=("unary",),
        tau=("constant",),
    ),
    Remark(
        "The paper prints the same figures for the linear model with unary and with pairwise coupling: its pairwise "
        "weights probably had no effect on the answers.",
        objective=("min-max",),
        model=("linear",),
        coupling=("pairwise",),
    ),
)
# Sentences about a whole table, by its name.
TABLE_NOTES: Mapping[str, tuple[str, ...]] = {}


def annotate(table: Table, remarks: Iterable[Remark] = REMARKS) -> Table:
    """The table with the remarks of each cell, and its own notes."""
    remarks = tuple(remarks)

    def cells(row: Row) -> dict[str, Cell]:
        return {
            column: dataclasses.replace(
                cell, remarks=tuple(remark.text for remark in remarks if remark.matches(row, column, cell))
            )
            for column, cell in row.cells.items()
        }

    rows = tuple(dataclasses.replace(row, cells=cells(row)) for row in table.rows)
    return dataclasses.replace(table, rows=rows, notes=(*table.notes, *TABLE_NOTES.get(table.name, ())))


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
