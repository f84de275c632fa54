"""The paper's tables: the configurations that they need, and our values next to the printed ones."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from . import printed_values, remarks
from .document import Cell, Row, Table
from .methods import LIBRARY, METHODS, Method
from .settings import OVERLAPPING, Effort, Setting, configuration, is_costly

__all__ = ["CAL500", "TABLES", "Scores", "build", "configurations", "printed_columns", "setting", "source", "title"]

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
SETS = (*printed_values.SETS, OVERLAPPING)
# Our rows with the paper's training: one U for all x, in place of the paper's U(x).
SHARED = tuple(("min-min", "logistic", model, "pairwise-shared", "constant") for model in ("linear", "mlp"))

# The scores of a configuration, one per seed, empty where it was not run.
Scores = Callable[[Mapping[str, Any]], tuple[float, ...]]


class Spec(NamedTuple):
    """A table of the paper: its printed values, the sets in its columns, and which of the five heads vary in it."""

    title: str
    caption: str
    printed: str
    columns: tuple[str, ...]
    heads: tuple[str, ...]


HEADS: tuple[str, ...] = ("Objective", "Loss", "Model g", "Coupling", "Model τ")
TABLES = {
    "table1": Spec(
        "Table 1: label sets",
        "Micro-F1 x 100 on the test rows, for losses and models; the paper's τ is one number per training row.",
        printed_values.TABLE_1,
        SETS,
        ("Objective", "Loss", "Model g", "Coupling"),
    ),
    "table2": Spec(
        "Table 2: rankings",
        "Kendall's tau x 100 over random splits, for losses, polytopes and models; the paper's τ is an MLP.",
        printed_values.TABLE_2,
        printed_values.RANKINGS,
        ("Objective", "Loss", "Coupling", "Model g"),
    ),
    "table3": Spec(
        "Label sets, τ an ICNN",
        "Micro-F1 x 100 on the test rows (appendix).",
        printed_values.SETS_ICNN,
        SETS,
        ("Loss", "Model g", "Coupling"),
    ),
    "table4": Spec(
        "Label sets, models of τ",
        "Micro-F1 x 100 on the test rows, logistic loss (appendix).",
        printed_values.SETS_TAU,
        SETS,
        ("Model τ", "Model g", "Coupling"),
    ),
    "table5": Spec(
        "Rankings with ResNet",
        "Kendall's tau x 100 over random splits, τ an MLP (appendix).",
        printed_values.RANKINGS_RESNET,
        printed_values.RANKINGS,
        ("Loss", "Coupling", "Model g"),
    ),
    "table6": Spec(
        "Rankings, models of τ",
        "Kendall's tau x 100 over random splits, logistic loss (appendix).",
        printed_values.RANKINGS_TAU,
        printed_values.RANKINGS,
        ("Coupling", "Model τ", "Model g"),
    ),
}


def configurations(
    name: str, effort: Effort, datasets: Collection[str] = (), models: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The configurations of a table: of these sets and models, or of all."""
    spec = TABLES[name]
    columns = [column for column in spec.columns if not datasets or source(column) in datasets]
    rows = [heads for heads, _ in printed_values.rows(spec.printed)] + [*_shared(name)]
    settings = [setting(heads, column) for heads in rows for column in columns]
    methods = [] if models else [method for method in _methods(name) if method.installed]
    others = [method.configuration(column, effort) for method in methods for column in columns if column != OVERLAPPING]
    # The longest come last, so that an interrupted run has most of the table.
    settings.sort(key=lambda setting: (is_costly(setting), setting.objective in ("mcmc", "min-max")))
    return [configuration(setting, effort) for setting in settings if not models or setting.model in models] + others


def build(name: str, scores: Scores, effort: Effort) -> Table:
    """The table with the stored scores."""
    spec, rows = TABLES[name], []
    for heads, values in printed_values.rows(spec.printed):
        printed = dict(zip(printed_columns(spec), values, strict=True))
        rows.append(_row(heads, spec, scores, effort, printed, PAPER))
    rows += [_row(heads, spec, scores, effort, {}, LIBRARY) for heads in _shared(name)]
    for method in _methods(name):
        cells = {
            title(column): Cell(None, scores(method.configuration(column, effort)), _note(column))
            for column in spec.columns
            if column != OVERLAPPING
        }
        rows.append(Row((method.title, *[""] * (len(spec.heads) - 1)), cells, method.block))
    table = Table(
        name, spec.title, spec.caption, spec.heads, tuple(map(title, spec.columns)), tuple(rows), unit="x 100"
    )
    return remarks.annotate(table)


def title(column: str) -> str:
    """A column as a reader sees it."""
    return COLUMNS.get(column, column)


def _row(
    heads: tuple[str, ...], spec: Spec, scores: Scores, effort: Effort, printed: Mapping[str, float], block: str
) -> Row:
    cells = {
        title(column): Cell(printed.get(column), scores(configuration(setting(heads, column), effort)), _note(column))
        for column in spec.columns
    }
    titles = [NAMES.get(name) or OBJECTIVES.get(name) or name.capitalize() for name in heads]
    titles = dict(zip(HEADS, titles, strict=True))
    names = dict(zip(remarks.NAMES, heads, strict=True))
    return Row(tuple(titles[head] for head in spec.heads), cells, block, OBJECTIVES[heads[0]], names)


def printed_columns(spec: Spec) -> list[str]:
    """The column that each printed value is compared with: for cal500, the one with the paper's rows."""
    return [OVERLAPPING if column == "cal500" else column for column in spec.columns if column != OVERLAPPING]


def _shared(name: str) -> tuple[tuple[str, ...], ...]:
    return SHARED if name == "table1" else ()


def _methods(name: str) -> list[Method]:
    """The other methods of a table."""
    task = "multilabel" if TABLES[name].columns == SETS else "ranking"
    return [method for method in METHODS if method.task == task]


def setting(heads: tuple[str, ...], dataset: str) -> Setting:
    """The setting of a printed row on a set."""
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
