"""The paper's figures: training curves by the number of draws, and learned and exact log-partitions."""

from collections.abc import Collection, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax

from partita import datasets, inference, metrics, training
from partita.couplings import Bilinear
from partita.model import EBM, Energy, Network
from partita.networks import MLP, Linear
from partita.objectives import ExactMLE, MinMin
from partita.structures import Cube
from partita.training import Progress, Solver, fit

from . import alternating, convergence, printed_values, tables
from .document import Figure, Panel, Series
from .protocol import log_partitions, split, standardize
from .settings import OVERLAPPING, PROTOCOL, Effort, Lookup, Setting, configuration
from .tables import CAL500, source

__all__ = [
    "CURVES",
    "DRAWS",
    "FIGURES",
    "LARGE",
    "REDUCED",
    "build",
    "configurations",
    "correlation",
    "correlations",
    "curve",
    "curves",
    "title",
]

DRAWS = (10, 100, 1000)
# The paper's setting of the curves.
RATE, WIDTH, STEPS, QUICK_STEPS = 1e-4, 128, 5000, 300
# Figures of another kind have their own modules.
OTHERS = {"figure5": convergence, "figure6": alternating}
FIGURES = ("figure1", "figure2", "figure3", "figure4", *OTHERS)
LARGE, REDUCED = "mediamill", "mediamill_reduced"
CURVES = {"figure1": (OVERLAPPING, "cal500"), "figure3": ("yeast", "scene", "emotions", "birds", LARGE, REDUCED)}
POLYTOPES = ("permutahedron", "birkhoff")


def configurations(name: str, effort: Effort, sets: Collection[str] = ()) -> list[dict[str, Any]]:
    """The configurations of a figure: of these sets, or of all."""
    if name in CURVES:
        panels = [dataset for dataset in CURVES[name] if source(dataset) in sets or (not sets and _is_default(dataset))]
        return [config for dataset in panels for config in curves(dataset, effort).values()]
    configs = OTHERS[name].configurations(effort) if name in OTHERS else _partitions(name, effort).values()
    return [config for config in configs if not sets or source(config["dataset"]) in sets]


def curves(dataset: str, effort: Effort) -> dict[int | None, dict[str, Any]]:
    """The configurations of a set's curves, by the number of draws; None is exact maximum likelihood."""
    return {draws: _curve(dataset, draws, effort) for draws in (*DRAWS, None)}


def curve(config: Mapping[str, Any]) -> dict[str, Any]:
    """Exact loss and the norm of its gradient on train, micro-F1 on test, along a training by `draws` (None: exact).

    Linear unary energy, tau(x) an MLP with one hidden layer, Adam, full batch, no penalty; each step's draws are the
    same for all rows. Where tau is learned, also learned and exact log-partitions at the end.
    """
    x, y, x_test, y_test = standardize(split(config["dataset"]))
    k, features = y.shape[1], x.shape[1]
    h_key, tau_key, fit_key = jax.random.split(jax.random.key(config["seed"]), 3)
    energy = Energy(Linear(features, k, key=h_key), Bilinear(Cube(k)))
    start = EBM(energy, Network(MLP(features, (), width=WIDTH, key=tau_key)))
    objective = ExactMLE() if config["draws"] is None else MinMin(config["draws"], "shared", proposal=None)
    rows = training.batch(start, x, y)
    history: dict[str, list[float]] = {"step": [], "loss": [], "gradient": [], "f1": []}
    last = [start]

    def record(progress: Progress) -> None:
        last[0] = progress.model
        loss, gradient = _exact_loss_and_gradient_norm(progress.model, rows)
        answer = np.asarray(inference.mode(progress.model, x_test))
        values = (progress.step, loss, gradient, 100 * metrics.micro_f1(y_test, answer))
        for name, value in zip(history, values, strict=True):
            history[name].append(float(value))

    solver = Solver(objective, learning_rate=config["rate"])
    every = max(1, config["steps"] // 50)
    fit(solver, start, (x, y), steps=config["steps"], key=fit_key, every=every, callbacks=[record])
    return history if config["draws"] is None else {**history, **log_partitions(last[0], x_test)}


def build(name: str, lookup: Lookup, effort: Effort) -> Figure:
    """The figure of the stored results."""
    if name in CURVES:
        return Figure(name, *_CAPTIONS[name], _curve_panels(CURVES[name], lookup, effort))
    if name in OTHERS:
        return OTHERS[name].build(lookup, effort)
    configs = _partitions(name, effort)
    panels = [_partition_panel(title, result) for title, config in configs.items() if (result := lookup(config))]
    return Figure(name, *_CAPTIONS[name], tuple(panels))


def correlation(result: Mapping[str, Any]) -> float:
    """The correlation of the learned and the exact log-partitions."""
    return float(np.corrcoef(result["learned"], result["exact"])[0, 1])


def _is_default(dataset: str) -> bool:
    """Whether a set is run without being named: of the large one and its subset, the large one if its files exist."""
    if dataset not in (LARGE, REDUCED):
        return True
    has_files = all(state.path is not None for state in datasets.check(LARGE))
    return has_files if dataset == LARGE else not has_files


def _curve_panels(sets: Collection[str], lookup: Lookup, effort: Effort) -> tuple[Panel, ...]:
    labels = {"loss": "exact loss (train)", "gradient": "gradient norm (train)", "f1": "micro-F1 x 100 (test)"}
    panels = []
    for dataset in sets:
        results = {draws: lookup(config) for draws, config in curves(dataset, effort).items()}
        for quantity, label in labels.items():
            series = [
                Series(
                    "exact MLE" if draws is None else f"B' = {draws}", tuple(result["step"]), tuple(result[quantity])
                )
                for draws, result in results.items()
                if result is not None
            ]
            panels.append(Panel(title(dataset), "step", label, tuple(series), log_y=quantity == "gradient"))
    return tuple(panel for panel in panels if panel.series)


def _partition_panel(title: str, result: Mapping[str, Any]) -> Panel:
    """Rows in the order of their exact log-partition."""
    order = np.argsort(result["exact"])
    rows = tuple(map(float, range(1, len(order) + 1)))
    series = [
        Series(name, rows, tuple(np.asarray(result[name])[order].tolist()), "points") for name in ("learned", "exact")
    ]
    title = f"{title}: correlation {correlation(result):.3f}"
    return Panel(title, "test row, by exact value", "log-partition", tuple(series))


def _curve(dataset: str, draws: int | None, effort: Effort) -> dict[str, Any]:
    steps = QUICK_STEPS if effort.quick else STEPS
    return {
        "protocol": PROTOCOL,
        "kind": "curve",
        "dataset": dataset,
        "draws": draws,
        "rate": RATE,
        "steps": steps,
        "seed": 0,
    }


def title(dataset: str) -> str:
    """A set as a reader sees it."""
    if dataset == REDUCED:
        return "mediamill (1,500 of 30,993 training rows)"
    return tables.title(dataset)


def correlations(lookup: Lookup, effort: Effort) -> dict[str, dict[str, float | None]]:
    """Figure 2's correlations, by setting and then by set; None where one was not run."""
    values: dict[str, dict[str, float | None]] = {setting: {} for setting in (AS_CURVES, BY_DEV)}
    for (setting, dataset), config in _figure2(effort).items():
        result = lookup(config)
        values[setting][title(dataset)] = None if result is None else correlation(result)
    return values


AS_CURVES, BY_DEV = "settings of the curves", "chosen by dev F1"


def _figure2(effort: Effort) -> dict[tuple[str, str], dict[str, Any]]:
    """Configurations by setting and set: as the curves with the most draws, and with choices by dev rows."""
    sets = (*printed_values.SETS, OVERLAPPING)
    first = effort._replace(seeds=effort.seeds[:1])
    settings = {dataset: Setting(dataset, "min-min", "logistic", "linear", "unary", "mlp") for dataset in sets}
    return {
        **{(AS_CURVES, dataset): _curve(dataset, DRAWS[-1], effort) for dataset in sets},
        **{(BY_DEV, dataset): configuration(setting, first, "partition") for dataset, setting in settings.items()},
    }


def _partitions(name: str, effort: Effort) -> dict[str, dict[str, Any]]:
    """The configurations of a figure's panels, by title."""
    if name == "figure2":
        return {f"{title(dataset)}, {setting}": config for (setting, dataset), config in _figure2(effort).items()}
    settings = {
        f"{dataset}, {polytope}": Setting(dataset, "min-min", "logistic", "mlp", polytope, "mlp")
        for polytope in POLYTOPES
        for dataset in printed_values.RANKINGS
    }
    effort = effort._replace(seeds=effort.seeds[:1])
    return {title: configuration(setting, effort, "partition") for title, setting in settings.items()}


@eqx.filter_jit
def _exact_loss_and_gradient_norm(model: EBM, rows: Any) -> tuple[Any, Any]:
    """The gradient is that in the weights of g."""

    def loss(g):
        return ExactMLE().loss(eqx.tree_at(lambda m: m.g, model, g), None, rows, key=jax.random.key(0))[0]

    value, gradient = eqx.filter_value_and_grad(loss)(model.g)
    return value, optax.tree.norm(gradient)


_CAPTIONS = {
    "figure1": (
        "Figure 1: convergence on cal500",
        "Algorithm 1 with B' draws a step beside exact maximum likelihood; losses are relative to the uniform "
        f"reference. {CAL500}",
    ),
    "figure2": (
        "Figure 2: learned and exact log-partition, label sets",
        "100 test rows, linear unary energy, tau an MLP, the paper's Algorithm 1: with the settings of the curves "
        "(B' = 1000, rate 1e-4, 5,000 steps, no penalty), and with rate, penalty and steps chosen by F1 on dev rows. "
        f"{CAL500}",
    ),
    "figure3": (
        "Convergence on the other label sets",
        "As Figure 1 (appendix). The full mediamill is run where its files are at hand or it is asked for; elsewhere a "
        "subset of 1,500 training rows stands for it.",
    ),
    "figure4": (
        "Learned and exact log-partition, rankings",
        "Not in the paper: exact by the program over subsets of labels; MLP energy, tau an MLP, Algorithm 1.",
    ),
}
