"""The paper's figures: curves of training by the number of draws, and learned beside exact log-partitions."""

from collections.abc import Collection, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax

from .. import batches, datasets, inference, metrics
from ..couplings import Bilinear
from ..energy import Energy
from ..model import EBM
from ..networks import MLP, Linear
from ..objectives import ExactMLE, MinMin
from ..partition import Network
from ..polytopes import Cube
from ..solver import Progress, Solver, fit
from . import alternating, convergence, printed
from .document import Figure, Panel, Series
from .protocol import Effort, Look, Setting, config, standardized
from .tables import CAL500

__all__ = ["CURVES", "DRAWS", "FIGURES", "LARGE", "Look", "build", "correlation", "curve", "curves", "wanted"]

DRAWS = (10, 100, 1000)
# The paper's setting of the curves.
RATE, WIDTH, STEPS, QUICK_STEPS = 1e-4, 128, 5000, 300
# Figures that are no training curves by draws and no log-partitions have modules of their own.
OTHERS = {"figure5": convergence, "figure6": alternating}
FIGURES = ("figure1", "figure2", "figure3", "figure4", *OTHERS)
LARGE = "mediamill"
CURVES = {"figure1": ("cal500",), "figure3": ("yeast", "scene", "emotions", "birds", LARGE)}
POLYTOPES = ("permutahedron", "birkhoff")


def wanted(name: str, effort: Effort, chosen: Collection[str] = ()) -> list[dict[str, Any]]:
    """The configurations of a figure: of some sets, or of all."""
    if name in CURVES:
        sets = [each for each in CURVES[name] if each in chosen or (not chosen and _at_hand(each))]
        return [each for dataset in sets for each in curves(dataset, effort).values()]
    found = OTHERS[name].wanted(effort) if name in OTHERS else _partitions(name, effort).values()
    return [each for each in found if not chosen or each["dataset"] in chosen]


def curves(dataset: str, effort: Effort) -> dict[int | None, dict[str, Any]]:
    """The configurations of a set's curves, by the number of draws; None is exact maximum likelihood."""
    return {draws: _curve(dataset, draws, effort) for draws in (*DRAWS, None)}


def curve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Exact loss and the norm of its gradient on train, micro-F1 on test, along a training by `draws` (None: exact).

    Linear unary energy, tau(x) an MLP, Adam, full batch; each step's draws serve all rows.
    """
    x, y, x_test, y_test = standardized(datasets.split(datasets.load(given["dataset"])))
    k, features = y.shape[1], x.shape[1]
    h_key, tau_key, fit_key = jax.random.split(jax.random.key(given["seed"]), 3)
    energy = Energy(Linear(features, k, key=h_key), Bilinear(Cube(k)))
    start = EBM(energy, Network(MLP(features, (), width=WIDTH, key=tau_key)))
    objective = ExactMLE() if given["draws"] is None else MinMin(given["draws"], "shared", proposal=None)
    rows = batches.batch(start, x, y)
    told: dict[str, list[float]] = {"step": [], "loss": [], "gradient": [], "f1": []}

    def look(now: Progress) -> None:
        loss, gradient = _exact(now.model, rows)
        answer = np.asarray(inference.mode(now.model, x_test))
        values = (now.step, loss, gradient, 100 * metrics.micro_f1(y_test, answer))
        for name, value in zip(told, values, strict=True):
            told[name].append(float(value))

    solver = Solver(objective, learning_rate=given["rate"])
    every = max(1, given["steps"] // 50)
    fit(solver, start, (x, y), steps=given["steps"], key=fit_key, every=every, callbacks=[look])
    return told


def build(name: str, look: Look, effort: Effort) -> Figure:
    """The figure with what there is."""
    if name in CURVES:
        return Figure(name, *_CAPTIONS[name], _curves(CURVES[name], look, effort))
    if name in OTHERS:
        return OTHERS[name].build(look, effort)
    panels = [_beside(title, found) for title, given in _partitions(name, effort).items() if (found := look(given))]
    return Figure(name, *_CAPTIONS[name], tuple(panels))


def correlation(found: Mapping[str, Any]) -> float:
    """Of the learned and the exact log-partitions."""
    return float(np.corrcoef(found["learned"], found["exact"])[0, 1])


def _at_hand(dataset: str) -> bool:
    """Whether a set is drawn without being asked for: a large one, where its files are there."""
    return dataset != LARGE or all(state.path is not None for state in datasets.check(dataset))


def _curves(sets: Collection[str], look: Look, effort: Effort) -> tuple[Panel, ...]:
    labels = {"loss": "exact loss (train)", "gradient": "gradient norm (train)", "f1": "micro-F1 x 100 (test)"}
    panels = []
    for dataset in sets:
        found = {draws: look(given) for draws, given in curves(dataset, effort).items()}
        for what, label in labels.items():
            series = [
                Series("exact MLE" if draws is None else f"B' = {draws}", tuple(curve["step"]), tuple(curve[what]))
                for draws, curve in found.items()
                if curve is not None
            ]
            panels.append(Panel(dataset, "step", label, tuple(series), log_y=what == "gradient"))
    return tuple(panel for panel in panels if panel.series)


def _beside(title: str, found: Mapping[str, Any]) -> Panel:
    """Rows in the order of their exact log-partition."""
    order = np.argsort(found["exact"])
    rows = tuple(map(float, range(1, len(order) + 1)))
    series = [
        Series(what, rows, tuple(np.asarray(found[what])[order].tolist()), "points") for what in ("learned", "exact")
    ]
    title = f"{title}: correlation {correlation(found):.3f}"
    return Panel(title, "test row, by exact value", "log-partition", tuple(series))


def _curve(dataset: str, draws: int | None, effort: Effort) -> dict[str, Any]:
    steps = QUICK_STEPS if effort.quick else STEPS
    return {"kind": "curve", "dataset": dataset, "draws": draws, "rate": RATE, "steps": steps, "seed": 0}


def _partitions(name: str, effort: Effort) -> dict[str, dict[str, Any]]:
    """The configurations of a figure's panels, by title."""
    if name == "figure2":
        settings = {each: Setting(each, "min-min", "logistic", "linear", "unary", "mlp") for each in printed.SETS}
    else:
        settings = {
            f"{each}, {polytope}": Setting(each, "min-min", "logistic", "mlp", polytope, "mlp")
            for polytope in POLYTOPES
            for each in printed.RANKINGS
        }
    effort = effort._replace(seeds=effort.seeds[:1])
    return {title: config(setting, effort, "partition") for title, setting in settings.items()}


@eqx.filter_jit
def _exact(model: EBM, rows: Any) -> tuple[Any, Any]:
    """The exact loss, and the norm of its gradient in the weights of g."""

    def loss(g):
        return ExactMLE().loss(eqx.tree_at(lambda m: m.g, model, g), None, rows, key=jax.random.key(0))[0]

    value, slope = eqx.filter_value_and_grad(loss)(model.g)
    return value, optax.tree.norm(slope)


_CAPTIONS = {
    "figure1": (
        "Figure 1: convergence on cal500",
        "Algorithm 1 with B' draws a step beside exact maximum likelihood; losses are relative to the uniform "
        f"reference. {CAL500}",
    ),
    "figure2": (
        "Figure 2: learned and exact log-partition, label sets",
        f"100 test rows, linear unary energy, tau an MLP, the paper's Algorithm 1. {CAL500}",
    ),
    "figure3": (
        "Convergence on the other label sets",
        "As Figure 1 (appendix); mediamill only where its files are at hand or it was asked for.",
    ),
    "figure4": (
        "Learned and exact log-partition, rankings",
        "Not in the paper: exact by the program over subsets of labels; MLP energy, tau an MLP, Algorithm 1.",
    ),
}
