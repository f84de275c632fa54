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
from . import alternating, convergence, printed, tables
from .document import Figure, Panel, Series
from .protocol import OVERLAPPING, PROTOCOL, Effort, Look, Setting, beside, config, split, standardized
from .tables import CAL500, source

__all__ = [
    "CURVES",
    "DRAWS",
    "FIGURES",
    "LARGE",
    "Look",
    "build",
    "correlation",
    "correlations",
    "curve",
    "curves",
    "title",
    "wanted",
]

DRAWS = (10, 100, 1000)
# The paper's setting of the curves.
RATE, WIDTH, STEPS, QUICK_STEPS = 1e-4, 128, 5000, 300
# Figures that are no training curves by draws and no log-partitions have modules of their own.
OTHERS = {"figure5": convergence, "figure6": alternating}
FIGURES = ("figure1", "figure2", "figure3", "figure4", *OTHERS)
LARGE, REDUCED = "mediamill", "mediamill_reduced"
CURVES = {"figure1": (OVERLAPPING, "cal500"), "figure3": ("yeast", "scene", "emotions", "birds", LARGE, REDUCED)}
POLYTOPES = ("permutahedron", "birkhoff")


def wanted(name: str, effort: Effort, chosen: Collection[str] = ()) -> list[dict[str, Any]]:
    """The configurations of a figure: of some sets, or of all."""
    if name in CURVES:
        sets = [each for each in CURVES[name] if source(each) in chosen or (not chosen and _at_hand(each))]
        return [each for dataset in sets for each in curves(dataset, effort).values()]
    found = OTHERS[name].wanted(effort) if name in OTHERS else _partitions(name, effort).values()
    return [each for each in found if not chosen or source(each["dataset"]) in chosen]


def curves(dataset: str, effort: Effort) -> dict[int | None, dict[str, Any]]:
    """The configurations of a set's curves, by the number of draws; None is exact maximum likelihood."""
    return {draws: _curve(dataset, draws, effort) for draws in (*DRAWS, None)}


def curve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Exact loss and the norm of its gradient on train, micro-F1 on test, along a training by `draws` (None: exact);
    and of a learned tau, learned and exact log-partitions at the end.

    Linear unary energy, tau(x) an MLP with one hidden layer, Adam, full batch, no penalty; each step's draws serve all
    rows.
    """
    x, y, x_test, y_test = standardized(split(given["dataset"]))
    k, features = y.shape[1], x.shape[1]
    h_key, tau_key, fit_key = jax.random.split(jax.random.key(given["seed"]), 3)
    energy = Energy(Linear(features, k, key=h_key), Bilinear(Cube(k)))
    start = EBM(energy, Network(MLP(features, (), width=WIDTH, key=tau_key)))
    objective = ExactMLE() if given["draws"] is None else MinMin(given["draws"], "shared", proposal=None)
    rows = batches.batch(start, x, y)
    told: dict[str, list[float]] = {"step": [], "loss": [], "gradient": [], "f1": []}
    last = [start]

    def look(now: Progress) -> None:
        last[0] = now.model
        loss, gradient = _exact(now.model, rows)
        answer = np.asarray(inference.mode(now.model, x_test))
        values = (now.step, loss, gradient, 100 * metrics.micro_f1(y_test, answer))
        for name, value in zip(told, values, strict=True):
            told[name].append(float(value))

    solver = Solver(objective, learning_rate=given["rate"])
    every = max(1, given["steps"] // 50)
    fit(solver, start, (x, y), steps=given["steps"], key=fit_key, every=every, callbacks=[look])
    return told if given["draws"] is None else {**told, **beside(last[0], x_test)}


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
    """Whether a set is drawn without being asked for: the large one where its files are there, else its subset."""
    if dataset not in (LARGE, REDUCED):
        return True
    whole = all(state.path is not None for state in datasets.check(LARGE))
    return whole if dataset == LARGE else not whole


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
            panels.append(Panel(title(dataset), "step", label, tuple(series), log_y=what == "gradient"))
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


def correlations(look: Look, effort: Effort) -> dict[str, dict[str, float | None]]:
    """Figure 2's correlations, by setting and then by set; None where one was not run."""
    found: dict[str, dict[str, float | None]] = {setting: {} for setting in (AS_CURVES, BY_DEV)}
    for (setting, dataset), given in _figure2(effort).items():
        result = look(given)
        found[setting][title(dataset)] = None if result is None else correlation(result)
    return found


AS_CURVES, BY_DEV = "settings of the curves", "chosen by dev F1"


def _figure2(effort: Effort) -> dict[tuple[str, str], dict[str, Any]]:
    """By setting and set: trained as the curves with the most draws, and with hyper-parameters chosen on dev."""
    sets = (*printed.SETS, OVERLAPPING)
    first = effort._replace(seeds=effort.seeds[:1])
    return {
        **{(AS_CURVES, each): _curve(each, DRAWS[-1], effort) for each in sets},
        **{
            (BY_DEV, each): config(Setting(each, "min-min", "logistic", "linear", "unary", "mlp"), first, "partition")
            for each in sets
        },
    }


def _partitions(name: str, effort: Effort) -> dict[str, dict[str, Any]]:
    """The configurations of a figure's panels, by title."""
    if name == "figure2":
        return {f"{title(dataset)}, {setting}": given for (setting, dataset), given in _figure2(effort).items()}
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
