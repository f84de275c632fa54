"""A remark, the cells that it is about, and the values of simple methods that remarks compare with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..document import Cell, Row

__all__ = ["NAMES", "Remark", "listing"]

# The names of a row; that of the data set belongs to the column.
NAMES: tuple[str, ...] = ("objective", "loss", "model", "coupling", "tau")


@dataclass(frozen=True)
class Remark:
    """A sentence for the cells that match all names, as in `printed_values`; an empty tuple matches every name.

    `off` restricts it to cells above or below the printed value. It is never shown on a cell within 2 points. A data
    set is named as its column is titled. `reference` has values of a simple method by data set: the remark says that
    the printed values of its cells are below them.
    """

    text: str
    off: Literal["above", "below"] | None = None
    dataset: tuple[str, ...] = ()
    objective: tuple[str, ...] = ()
    loss: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    coupling: tuple[str, ...] = ()
    tau: tuple[str, ...] = ()
    reference: Mapping[str, float] = field(default_factory=dict)

    def matches(self, row: Row, column: str, cell: Cell) -> bool:
        if not cell.is_off or self.off not in (None, cell.agreement):
            return False
        names = {"dataset": column, **row.setting}
        return all(not getattr(self, part) or names.get(part) in getattr(self, part) for part in ("dataset", *NAMES))


def listing(values: Mapping[str, float]) -> str:
    """The values by name: scene 73.1, birds 47.5."""
    return ", ".join(f"{name} {value:.1f}" for name, value in values.items())
