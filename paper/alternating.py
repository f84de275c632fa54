"""Alternating minimization, which the paper names and leaves open, compared with joint minimization over g and tau.

Full batch, linear h, tau(x) an MLP of width 128, min-min with draws from the uniform q, one set a step for all rows,
Adam with cosine decay. All runs make the same number of steps.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from partita import datasets, inference
from partita.couplings import AbstractCoupling, Bilinear, LinearQuadratic, Symmetric
from partita.model import EBM, Energy, Network
from partita.networks import MLP, Linear
from partita.objectives import AbstractObjective, ExactMLE, MinMin
from partita.structures import Cube
from partita.training import BOTH, ONLY_G, ONLY_TAU, AbstractTraining, Alternating, Solver, cosine, fit

from .document import Figure, Panel, Series
from .protocol import standardize
from .settings import PROTOCOL, Effort, Lookup

__all__ = [
    "DRAWS",
    "EXACT_FIRST",
    "Fit",
    "build",
    "compute",
    "configurations",
    "couplings",
    "errors",
    "start",
    "trainings",
]

DRAWS, RATE, PENALTY = 256, 1e-2, 1e-2
STEPS, QUICK_STEPS = 2000, 200
LENGTHS = ((5, 5), (100, 100))
EXACT_FIRST = "g by exact likelihood, then tau"
DATASET, KINDS = "emotions", ("unary", "pairwise")

# (model, (x, y), steps, seed, callback) -> the trained model; `callback` is called with step and model along the way.
Fit = Callable[[EBM, tuple, int, int, Callable[[int, EBM], None] | None], EBM]


def couplings(k: int) -> dict[str, AbstractCoupling]:
    """The paper's two for label sets, the pairwise one with one U for all x."""
    return {"unary": Bilinear(Cube(k)), "pairwise": LinearQuadratic(Symmetric(k), shared=True)}


def start(coupling: AbstractCoupling, features: int) -> EBM:
    """g = 0 and tau = 0."""
    h_key, tau_key = jax.random.split(jax.random.key(0))
    g = Energy(Linear(features, coupling.theta_shape, key=h_key), coupling)
    return EBM(g, Network(MLP(features, (), key=tau_key)))


def trainings(rate: float, penalty: float, lengths: tuple[tuple[int, int], ...] = LENGTHS) -> dict[str, Fit]:
    """Trainings by name: joint, alternating with these lengths, or half of the steps for g, exactly, before tau."""

    def minimize(objective: AbstractObjective, train: AbstractTraining, before: int = 0) -> Fit:
        def run(model, data, steps, seed, callback=None):
            solver = Solver(objective, learning_rate=rate, penalty=penalty, schedule=cosine(steps), train=train)
            callbacks = [] if callback is None else [lambda now: callback(before + now.step, now.model)]
            every = max(1, steps // 20)
            return fit(
                solver, model, data, steps=steps, key=jax.random.key(seed), every=every, callbacks=callbacks
            ).model

        return run

    def exact_first(model, data, steps, seed, callback=None):
        half = steps // 2
        model = minimize(ExactMLE(), ONLY_G)(model, data, half, seed, callback)
        return minimize(min_min, ONLY_TAU, half)(model, data, steps - half, seed, callback)

    min_min = MinMin(DRAWS, "shared", proposal=None)
    alternating = {f"g {g}, tau {tau}": minimize(min_min, Alternating(g, tau)) for g, tau in lengths}
    return {"joint": minimize(min_min, BOTH), **alternating, EXACT_FIRST: exact_first}


def errors(model: EBM, x: np.ndarray, y: np.ndarray, rows: str) -> dict[str, float]:
    """The exact negative log-likelihood, and the mean distance of tau from LSE."""
    exact, learned = (inference.log_partition(model, x, method=how) for how in ("exact", "learned"))
    return {
        f"{rows} NLL": -float(inference.log_prob(model, x, y, method="exact").mean()),
        f"{rows} |tau - LSE|": float(jnp.abs(learned - exact).mean()),
    }


def configurations(effort: Effort) -> list[dict[str, Any]]:
    """The configurations of the figure."""
    return [config for curves in _curves(effort).values() for config in curves.values()]


def compute(config: Mapping[str, Any]) -> dict[str, Any]:
    """The errors on train and test along a training, means over the seeds of the draws."""
    x, y, x_test, y_test = standardize(datasets.split(datasets.load(config["dataset"])))
    model = start(couplings(y.shape[1])[config["coupling"]], x.shape[1])
    train = trainings(config["rate"], config["penalty"])[config["training"]]
    # By step, one of each seed.
    history: dict[int, list[dict[str, float]]] = {}

    def record(step: int, model: EBM) -> None:
        history.setdefault(step, []).append(errors(model, x, y, "train") | errors(model, x_test, y_test, "test"))

    for seed in config["seeds"]:
        train(model, (x, y), config["steps"], seed, record)
    names = next(iter(history.values()))[0]
    return {"step": list(history)} | {
        name: [float(np.mean([values[name] for values in seeds])) for seeds in history.values()] for name in names
    }


def build(lookup: Lookup, effort: Effort) -> Figure:
    """The figure of the stored results."""
    labels = {
        "train NLL": "exact NLL (train, nats)",
        "train |tau - LSE|": "mean |τ − LSE| (train, nats)",
        "test |tau - LSE|": "mean |τ − LSE| (test, nats)",
    }
    panels = []
    for kind, curves in _curves(effort).items():
        results = {name: result for name, config in curves.items() if (result := lookup(config))}
        for quantity, label in labels.items():
            series = [
                Series(name, tuple(map(float, result["step"])), tuple(result[quantity]))
                for name, result in results.items()
            ]
            if series:
                panels.append(Panel(f"{DATASET}, {kind}", "step", label, tuple(series), log_y=True))
    return Figure("figure6", *_CAPTION, tuple(panels))


def _curves(effort: Effort) -> dict[str, dict[str, dict[str, Any]]]:
    """The configurations by coupling and by training."""
    shared = {"rate": RATE, "penalty": PENALTY, "draws": DRAWS, "seeds": list(effort.seeds)}
    steps = QUICK_STEPS if effort.quick else STEPS
    return {
        kind: {
            name: {
                "protocol": PROTOCOL,
                "kind": "alternating",
                "dataset": DATASET,
                "coupling": kind,
                "training": name,
                "steps": steps,
            }
            | shared
            for name in trainings(RATE, PENALTY)
        }
        for kind in KINDS
    }


_CAPTION = (
    "Alternating beside joint minimization",
    f"Not in the paper, which names alternating minimization and leaves it open. Linear h, tau(x) an MLP, {DRAWS} "
    f'uniform draws a step, full batch, Adam with cosine decay. "g 5, tau 5": 5 steps that train g, then 5 that train '
    f'tau, and so on. "{EXACT_FIRST}": half of the steps each.',
)
