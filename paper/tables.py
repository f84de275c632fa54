"""The paper's tables: which settings they need, and what they say with our figures beside the printed ones."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from . import printed, remarks
from .beyond import LIBRARY, OTHERS, Other
from .document import Cell, Row, Table
from .protocol import OVERLAPPING, Effort, Setting, config, is_costly

__all__ = ["CAL500", "TABLES", "build", "printed_columns", "source", "title", "wanted"]

CAL500 = (
    "cal500 has 502 rows and no official split. The paper's 376 training and 126 dev rows are all of them, so its 101 "
    'test rows are among them: the column "cal500, paper\'s rows" does the same and is compared with the printed '
    'figures. The column "cal500" has 101 test rows apart from 401 training rows, and nothing in print to compare with.'
)
PAPER = "The paper"
OBJECTIVES = {
    "min-min": "min-min",
    "exact": "exact MLE",
    "fenchel-young": "generalized Fenchel-Young",
    "mcmc": "MCMC",
    "min-max": "min-max",
}
NAMES = {"mlp": "MLP", "resnet": "ResNet", "icnn": "ICNN", "-": "none", "pairwise-shared": "Pairwise, one U for all x"}
COLUMNS = {OVERLAPPING: "cal500, paper's rows"}
SETS = (*printed.SETS, OVERLAPPING)
# Rows of ours with the paper's training: one U for all x, in place of the paper's U(x).
SHARED = tuple(("min-min", "logistic", model, "pairwise-shared", "constant") for model in ("linear", "mlp"))

# The figures of a configuration, one per seed, if they are there.
Look = Callable[[Mapping[str, Any]], tuple[float, ...]]


class Spec(NamedTuple):
    """A table of the paper: its figures, the sets in its columns, and which of the five heads change in it."""

    title: str
    caption: str
    figures: str
    columns: tuple[str, ...]
    heads: tuple[str, ...]


HEADS: tuple[str, ...] = ("Objective", "Loss", "Model g", "Coupling", "Model τ")
TABLES = {
    "table1": Spec(
        "Table 1: label sets",
        "Micro-F1 x 100 on the test rows, for losses and models; the paper's τ is one number per training row.",
        printed.TABLE_1,
        SETS,
        ("Objective", "Loss", "Model g", "Coupling"),
    ),
    "table2": Spec(
        "Table 2: rankings",
        "Kendall's tau x 100 over random splits, for losses, polytopes and models; the paper's τ is an MLP.",
        printed.TABLE_2,
        printed.RANKINGS,
        ("Objective", "Loss", "Coupling", "Model g"),
    ),
    "table3": Spec(
        "Label sets, τ an ICNN",
        "Micro-F1 x 100 on the test rows (appendix).",
        printed.SETS_ICNN,
        SETS,
        ("Loss", "Model g", "Coupling"),
    ),
    "table4": Spec(
        "Label sets, models of τ",
        "Micro-F1 x 100 on the test rows, logistic loss (appendix).",
        printed.SETS_TAU,
        SETS,
        ("Model τ", "Model g", "Coupling"),
    ),
    "table5": Spec(
        "Rankings with ResNet",
        "Kendall's tau x 100 over random splits, τ an MLP (appendix).",
        printed.RANKINGS_RESNET,
        printed.RANKINGS,
        ("Loss", "Coupling", "Model g"),
    ),
    "table6": Spec(
        "Rankings, models of τ",
        "Kendall's tau x 100 over random splits, logistic loss (appendix).",
        printed.RANKINGS_TAU,
        printed.RANKINGS,
        ("Coupling", "Model τ", "Model g"),
    ),
}


def wanted(
    name: str, effort: Effort, datasets: Collection[str] = (), models: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The configurations of a table: of some sets and models, or of all."""
    spec = TABLES[name]
    columns = [column for column in spec.columns if not datasets or source(column) in datasets]
    rows = [heads for heads, _ in printed.rows(spec.figures)] + [*_shared(name)]
    settings = [_setting(heads, column) for heads in rows for column in columns]
    peers = [] if models else [other for other in _others(name) if other.installed]
    beside = [other.config(column, effort) for other in peers for column in columns if column != OVERLAPPING]
    # What takes longest comes last, so that an interrupted run has most of the table.
    settings.sort(key=lambda setting: (is_costly(setting), setting.objective in ("mcmc", "min-max")))
    return [config(setting, effort) for setting in settings if not models or setting.model in models] + beside


def build(name: str, look: Look, effort: Effort) -> Table:
    """The table with what there is of ours."""
    spec, rows = TABLES[name], []
    for heads, figures in printed.rows(spec.figures):
        values = dict(zip(printed_columns(spec), figures, strict=True))
        rows.append(_row(heads, spec, look, effort, values, PAPER))
    rows += [_row(heads, spec, look, effort, {}, LIBRARY) for heads in _shared(name)]
    for other in _others(name):
        cells = {
            title(column): Cell(None, look(other.config(column, effort)), _note(column))
            for column in spec.columns
            if column != OVERLAPPING
        }
        rows.append(Row((other.title, *[""] * (len(spec.heads) - 1)), cells, other.block))
    table = Table(
        name, spec.title, spec.caption, spec.heads, tuple(map(title, spec.columns)), tuple(rows), unit="x 100"
    )
    return remarks.annotated(table)


def title(column: str) -> str:
    """A column as a reader sees it."""
    return COLUMNS.get(column, column)


def _row(
    heads: tuple[str, ...], spec: Spec, look: Look, effort: Effort, figures: Mapping[str, float], block: str
) -> Row:
    cells = {
        title(column): Cell(figures.get(column), look(config(_setting(heads, column), effort)), _note(column))
        for column in spec.columns
    }
    said = dict(zip(HEADS, map(_said, heads), strict=True))
    setting = dict(zip(remarks.NAMES, heads, strict=True))
    return Row(tuple(said[head] for head in spec.heads), cells, block, OBJECTIVES[heads[0]], setting)


def printed_columns(spec: Spec) -> list[str]:
    """The column that each printed figure is compared with: for cal500, the one with the paper's rows."""
    return [OVERLAPPING if column == "cal500" else column for column in spec.columns if column != OVERLAPPING]


def _shared(name: str) -> tuple[tuple[str, ...], ...]:
    return SHARED if name == "table1" else ()


def _others(name: str) -> list[Other]:
    """What stands beside the paper's method."""
    task = "multilabel" if TABLES[name].columns == SETS else "ranking"
    return [other for other in OTHERS if other.task == task]


def _setting(heads: tuple[str, ...], dataset: str) -> Setting:
    objective, loss, model, coupling, tau = heads
    # The paper's U is part of h(x); for generalized Fenchel-Young losses it is negative semi-definite.
    concave = objective == "fenchel-young"
    couplings = {"pairwise": "pairwise-concave" if concave else "pairwise-full", "pairwise-shared": "pairwise"}
    return Setting(dataset, objective, loss, model, couplings.get(coupling, coupling), None if tau == "-" else tau)


def source(column: str) -> str:
    """The data set that a column is of."""
    return "cal500" if column == OVERLAPPING else column


def _note(column: str) -> str:
    return CAL500 if source(column) == "cal500" else ""


def _said(name: str) -> str:
    return NAMES.get(name) or OBJECTIVES.get(name) or name.capitalize()
