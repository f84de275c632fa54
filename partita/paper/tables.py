"""The paper's tables: which settings they need, and what they say with our figures beside the printed ones."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from . import printed, remarks
from .beyond import OTHERS, Other
from .document import Cell, Row, Table
from .protocol import Effort, Setting, config

__all__ = ["CAL500", "TABLES", "build", "wanted"]

CAL500 = "cal500 has no official split, and the paper's test rows are among its training rows; ours are 101 rows apart."
PAPER = "The paper's method"
OBJECTIVES = {
    "min-min": "min-min",
    "exact": "exact MLE",
    "fenchel-young": "generalized Fenchel-Young",
    "mcmc": "MCMC",
    "min-max": "min-max",
}
NAMES = {"mlp": "MLP", "resnet": "ResNet", "icnn": "ICNN", "-": "none"}

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
        printed.SETS,
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
        printed.SETS,
        ("Loss", "Model g", "Coupling"),
    ),
    "table4": Spec(
        "Label sets, models of τ",
        "Micro-F1 x 100 on the test rows, logistic loss (appendix).",
        printed.SETS_TAU,
        printed.SETS,
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
    columns = [column for column in spec.columns if not datasets or column in datasets]
    settings = [_setting(heads, column) for heads, _ in printed.rows(spec.figures) for column in columns]
    others = [] if models else [other for other in _others(name) if other.installed]
    beside = [other.config(column, effort) for other in others for column in columns]
    # What takes longest comes first, so that nothing waits for it in the end.
    settings.sort(key=lambda setting: setting.objective != "fenchel-young")
    return beside + [config(setting, effort) for setting in settings if not models or setting.model in models]


def build(name: str, look: Look, effort: Effort) -> Table:
    """The table with what there is of ours."""
    spec, rows = TABLES[name], []
    for heads, figures in printed.rows(spec.figures):
        cells = {
            column: Cell(figure, look(config(_setting(heads, column), effort)), _note(column))
            for column, figure in zip(spec.columns, figures, strict=True)
        }
        said = dict(zip(HEADS, map(_said, heads), strict=True))
        setting = dict(zip(remarks.NAMES, heads, strict=True))
        rows.append(Row(tuple(said[head] for head in spec.heads), cells, PAPER, OBJECTIVES[heads[0]], setting))
    for other in _others(name):
        cells = {column: Cell(None, look(other.config(column, effort)), _note(column)) for column in spec.columns}
        rows.append(Row((other.title, *[""] * (len(spec.heads) - 1)), cells, other.block))
    table = Table(name, spec.title, spec.caption, spec.heads, spec.columns, tuple(rows), unit="x 100")
    return remarks.annotated(table)


def _others(name: str) -> list[Other]:
    """What stands beside the paper's method."""
    task = "multilabel" if TABLES[name].columns == printed.SETS else "ranking"
    return [other for other in OTHERS if other.task == task]


def _setting(heads: tuple[str, ...], dataset: str) -> Setting:
    objective, loss, model, coupling, tau = heads
    return Setting(dataset, objective, loss, model, coupling, None if tau == "-" else tau)


def _note(column: str) -> str:
    return CAL500 if column == "cal500" else ""


def _said(name: str) -> str:
    return NAMES.get(name) or OBJECTIVES.get(name) or name.capitalize()
