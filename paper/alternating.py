"""Alternating minimization, which the paper names and leaves open, beside joint minimization over g and tau.

Full batch, linear h, tau(x) an MLP of width 128, min-min with draws from the uniform q, one set a step for all rows,
Adam with cosine decay. All runs make the same number of steps.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import datasets, inference
from ..couplings import AbstractCoupling, Bilinear, LinearQuadratic, Symmetric
from ..energy import Energy
from ..model import EBM
from ..networks import MLP, Linear
from ..objectives import AbstractObjective, ExactMLE, MinMin
from ..partition import Network
from ..polytopes import Cube
from ..solver import BOTH, ONLY_G, ONLY_TAU, AbstractTraining, Alternating, Solver, cosine, fit
from .document import Figure, Panel, Series
from .protocol import PROTOCOL, Effort, Look, standardized

__all__ = ["DRAWS", "EXACT_FIRST", "Fit", "build", "compute", "couplings", "errors", "start", "wanted", "ways"]

DRAWS, RATE, PENALTY = 256, 1e-2, 1e-2
STEPS, QUICK_STEPS = 2000, 200
LENGTHS = ((5, 5), (100, 100))
EXACT_FIRST = "g by exact likelihood, then tau"
DATASET, KINDS = "emotions", ("unary", "pairwise")

# (model, (x, y), steps, seed, look) -> the trained model; `look` is told the step and the model along the way.
Fit = Callable[[EBM, tuple, int, int, Callable[[int, EBM], None] | None], EBM]


def couplings(k: int) -> dict[str, AbstractCoupling]:
    """The paper's two for label sets, the pairwise one with one U for all x."""
    return {"unary": Bilinear(Cube(k)), "pairwise": LinearQuadratic(Symmetric(k), shared=True)}


def start(coupling: AbstractCoupling, features: int) -> EBM:
    """g = 0 and tau = 0."""
    h_key, tau_key = jax.random.split(jax.random.key(0))
    g = Energy(Linear(features, coupling.theta_shape, key=h_key), coupling)
    return EBM(g, Network(MLP(features, (), key=tau_key)))


def ways(rate: float, penalty: float, lengths: tuple[tuple[int, int], ...] = LENGTHS) -> dict[str, Fit]:
    """How to train, by name: jointly, in turns of these lengths, or half of the steps for g, exactly, before tau."""

    def by(objective: AbstractObjective, train: AbstractTraining, before: int = 0) -> Fit:
        def run(model, data, steps, seed, look=None):
            solver = Solver(objective, learning_rate=rate, penalty=penalty, schedule=cosine(steps), train=train)
            callbacks = [] if look is None else [lambda now: look(before + now.step, now.model)]
            every = max(1, steps // 20)
            return fit(
                solver, model, data, steps=steps, key=jax.random.key(seed), every=every, callbacks=callbacks
            ).model

        return run

    def exactly(model, data, steps, seed, look=None):
        half = steps // 2
        found = by(ExactMLE(), ONLY_G)(model, data, half, seed, look)
        return by(min_min, ONLY_TAU, half)(found, data, steps - half, seed, look)

    min_min = MinMin(DRAWS, "shared", proposal=None)
    turns = {f"g {g}, tau {tau}": by(min_min, Alternating(g, tau)) for g, tau in lengths}
    return {"joint": by(min_min, BOTH), **turns, EXACT_FIRST: exactly}


def errors(model: EBM, x: np.ndarray, y: np.ndarray, rows: str) -> dict[str, float]:
    """The exact negative log-likelihood, and how far tau is from LSE."""
    exact, learned = (inference.log_partition(model, x, method=how) for how in ("exact", "learned"))
    return {
        f"{rows} NLL": -float(inference.log_prob(model, x, y, method="exact").mean()),
        f"{rows} |tau - LSE|": float(jnp.abs(learned - exact).mean()),
    }


def wanted(effort: Effort) -> list[dict[str, Any]]:
    """The configurations of the figure."""
    return [given for curves in _configs(effort).values() for given in curves.values()]


def compute(given: Mapping[str, Any]) -> dict[str, Any]:
    """The errors on train and test along a training, means over the seeds of the draws."""
    x, y, x_test, y_test = standardized(datasets.split(datasets.load(given["dataset"])))
    model = start(couplings(y.shape[1])[given["coupling"]], x.shape[1])
    train = ways(given["rate"], given["penalty"])[given["training"]]
    told: dict[int, list[dict[str, float]]] = {}

    def look(step: int, model: EBM) -> None:
        told.setdefault(step, []).append(errors(model, x, y, "train") | errors(model, x_test, y_test, "test"))

    for seed in given["seeds"]:
        train(model, (x, y), given["steps"], seed, look)
    names = next(iter(told.values()))[0]
    return {"step": list(told)} | {
        name: [float(np.mean([each[name] for each in seeds])) for seeds in told.values()] for name in names
    }


def build(look: Look, effort: Effort) -> Figure:
    """The figure with what there is."""
    labels = {
        "train NLL": "exact NLL (train, nats)",
        "train |tau - LSE|": "mean |τ − LSE| (train, nats)",
        "test |tau - LSE|": "mean |τ − LSE| (test, nats)",
    }
    panels = []
    for kind, curves in _configs(effort).items():
        results = {name: found for name, given in curves.items() if (found := look(given))}
        for what, label in labels.items():
            series = [
                Series(name, tuple(map(float, found["step"])), tuple(found[what])) for name, found in results.items()
            ]
            if series:
                panels.append(Panel(f"{DATASET}, {kind}", "step", label, tuple(series), log_y=True))
    return Figure("figure6", *_CAPTION, tuple(panels))


def _configs(effort: Effort) -> dict[str, dict[str, dict[str, Any]]]:
    """By coupling and by way to train."""
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
            for name in ways(RATE, PENALTY)
        }
        for kind in KINDS
    }


_CAPTION = (
    "Alternating beside joint minimization",
    f"Not in the paper, which names alternating minimization and leaves it open. Linear h, tau(x) an MLP, {DRAWS} "
    f'uniform draws a step, full batch, Adam with cosine decay. "g 5, tau 5": 5 steps that train g, then 5 that train '
    f'tau, and so on. "{EXACT_FIRST}": half of the steps each.',
)
