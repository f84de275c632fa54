"""Every objective on one set of each kind, the same budget: emotions (pairwise label sets), vehicle (rankings).

    python -m benchmarks.objectives [--steps 1000] [--out out/bench]

MLP h of width 128, batches of 64, Adam (min-max: optimistic Adam, the generator at ten times the rate), cosine decay,
the paper's test rows or 20 %. A fifth of the training rows chooses rate and penalty for each objective, by log p, or by
F1 or Kendall for those that learn no probabilities; then all of them are trained on. "log p" is the held-out joint
log-likelihood with the exact normalizer, for all of them: what an objective that does not learn probabilities is worth
as one. The answer is the mode (for Fenchel-Young losses the rounded argmax of their own oracle). Preferences and scores
see each y beside a random output, ten times over. Seconds are those of the last run, compilation included.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track
from sklearn.model_selection import train_test_split

import partita as pt
from benchmarks.data import multilabel, ranking
from benchmarks.report import non_finite, show
from benchmarks.timing import write

RATES = (1e-3, 3e-3)
PENALTIES = (1e-3, 1e-2, 1e-1)
NEGATIVES = 10
WITHOUT_PROBABILITIES = (
    pt.objectives.GeneralizedFenchelYoung,
    pt.objectives.Perceptron,
    pt.objectives.Preferences,
    pt.objectives.Scores,
)


def problems() -> dict[str, tuple[tuple, pt.couplings.AbstractCoupling]]:
    """Data and coupling by name."""
    pairwise = pt.couplings.LinearQuadratic(pt.couplings.Symmetric(6), shared=False)
    bilinear = pt.couplings.Bilinear(pt.structures.Permutahedron(4))
    return {
        "emotions": (multilabel("emotions"), pairwise),
        "vehicle": (ranking("vehicle", 0), bilinear),
    }


def objectives(space: pt.structures.AbstractSpace, features: int) -> dict[str, Any]:
    """All that apply to a space, by name."""
    generator = pt.objectives.Generator(space, pt.networks.MLP(features, space.shape, key=jax.random.key(2)))
    kernels = pt.kernels
    found = {
        "exact MLE": pt.objectives.ExactMLE(),
        "min-min, Algorithm 1": pt.objectives.MinMin(16, proposal=None),
        "min-min, engine": pt.objectives.MinMin(16),
        "min-max": pt.objectives.MinMax(generator, 16),
        "MCMC, uniform Metropolis": pt.objectives.MCMC(),
        "contrastive divergence": pt.objectives.MCMC(kernels.Metropolis("local"), start="data"),
        "NCE, uniform noise": pt.objectives.NCE(16),
        "NCE, noise near p": pt.objectives.NCE(16, pt.objectives.SurrogateProposal()),
        "Fenchel-Young, squared norm": pt.objectives.GeneralizedFenchelYoung(),
        "perceptron": pt.objectives.Perceptron(),
        "concrete score matching": pt.objectives.ConcreteScoreMatching(),
        "preferences": pt.objectives.Preferences(),
        "scores, logistic": pt.objectives.Scores("logistic"),
    }
    if isinstance(space, pt.structures.Hypercube):
        found |= {
            "pseudo-likelihood": pt.objectives.PseudoLikelihood(),
            "ratio matching": pt.objectives.RatioMatching(),
        }
    return found


def source(
    objective: Any, space: pt.structures.AbstractSpace, x: np.ndarray, y: np.ndarray
) -> pt.training.AbstractRows:
    """The rows as the objective wants them."""
    if not isinstance(objective, pt.objectives.Preferences | pt.objectives.Scores):
        return pt.training.Rows(x, y, batch_size=64)
    x, y = np.repeat(x, NEGATIVES, axis=0), np.repeat(y, NEGATIVES, axis=0)
    other = np.asarray(space.sample(len(y), key=jax.random.key(3)))
    different = (other != y).any(axis=1)
    x, y, other = x[different], y[different], other[different]
    if isinstance(objective, pt.objectives.Preferences):
        return pt.training.Preferences(x, y, other, batch_size=64)
    t = np.repeat([1.0, 0.0], len(y))
    return pt.training.Scores(np.tile(x, (2, 1)), np.concatenate([y, other]), t, batch_size=64)


def best(objective: Any, data: tuple, coupling: pt.couplings.AbstractCoupling, steps: int) -> dict:
    """Choose rate and penalty on a fifth of the training rows, then train on all and judge on the test rows."""
    x, y, x_test, y_test = data
    x_less, x_held, y_less, y_held = train_test_split(x, y, test_size=0.2, random_state=1)
    found = {
        (rate, penalty): run(objective, (x_less, y_less, x_held, y_held), coupling, steps, rate, penalty)
        for rate in RATES
        for penalty in PENALTIES
    }
    criterion = "F1 / Kendall" if isinstance(objective, WITHOUT_PROBABILITIES) else "log p"
    rate, penalty = max(found, key=lambda setting: found[setting][criterion])
    chosen = run(objective, (x, y, x_test, y_test), coupling, steps, rate, penalty)
    bad = sum(row["non-finite"] for row in found.values())
    return {"rate": rate, "penalty": penalty, **chosen, "non-finite": chosen["non-finite"] + bad}


def run(
    objective: Any, data: tuple, coupling: pt.couplings.AbstractCoupling, steps: int, rate: float, penalty: float
) -> dict:
    """Train, and judge on the other rows."""
    x, y, x_test, y_test = data
    if isinstance(objective, pt.objectives.MinMax):
        objective = eqx.tree_at(lambda o: o.learning_rate, objective, jnp.asarray(10 * rate))
    h_key, tau_key = jax.random.split(jax.random.key(0))
    g = pt.Energy(pt.networks.MLP(x.shape[1], coupling.theta_shape, key=h_key), coupling)
    start = pt.EBM(g, pt.model.Network(pt.networks.MLP(x.shape[1], (), key=tau_key)))
    solver = pt.Solver(objective, learning_rate=rate, penalty=penalty, schedule=pt.training.cosine(steps))
    began = time.perf_counter()
    solution = pt.fit(solver, start, source(objective, start.space, x, y), steps=steps, key=jax.random.key(1))
    seconds = time.perf_counter() - began
    answer = np.asarray(decoder(objective)(solution.model, x_test))
    return {
        "log p": float(pt.inference.log_prob(solution.model, x_test, y_test).mean()),
        **scores(y_test, answer),
        "seconds": seconds,
        "non-finite": non_finite(solution),
    }


def decoder(objective: Any) -> Callable[[pt.EBM, np.ndarray], Any]:
    """How a model trained with it answers."""
    if isinstance(objective, pt.objectives.GeneralizedFenchelYoung | pt.objectives.Perceptron):
        return lambda model, x: pt.inference.relaxed_mode(model, x, objective.regularizer)
    return pt.inference.mode


def scores(y: np.ndarray, answer: np.ndarray) -> dict[str, float]:
    """Micro-F1 and subset accuracy of sets; Kendall's tau and exact hits of rankings."""
    first = pt.metrics.micro_f1 if y.max() == 1 else pt.metrics.kendall
    return {"F1 / Kendall": 100 * first(y, answer), "all right": 100 * float((y == answer).all(axis=1).mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    for name, (data, coupling) in problems().items():
        rows = []
        for title, objective in track(objectives(coupling.space, data[0].shape[1]).items(), name):
            row = {"set": name, "objective": title, **best(objective, data, coupling, options.steps)}
            write(options.out / "objectives.jsonl", row)
            rows.append(row)
        show(f"{name}, {options.steps} steps", rows)


if __name__ == "__main__":
    main()
