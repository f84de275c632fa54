"""Joint minimization over g and tau beside alternating minimization, which the paper names and leaves open: emotions.

    python -m benchmarks.alternating [--steps 2000] [--rate 0.01] [--penalty 0.01] [--seeds 3] [--out out/bench]

Full batch, linear h, unary and pairwise g (one U for all x), tau(x) an MLP of width 128, min-min with 256 draws from
the uniform q a step, one set for all rows, Adam with cosine decay. All runs make the same number of steps: "g 5, tau 1"
makes 5 that train g, then 1 that trains tau. "g by exact likelihood, then tau" makes half of its steps each way.
"NLL" is the exact negative log-likelihood in nats (lower is better; 4.16 for the uniform q), whatever tau is; "|tau -
LSE|" the mean distance of the learned log-partition from the exact one. Both are means over seeds of the draws,
"worst" is the largest train NLL of a seed. Seconds are those of one run, without compilation.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import partita as pt
from benchmarks.data import LABELS, data_dir, multilabel
from benchmarks.report import show
from benchmarks.timing import pin, timed, write

LENGTHS = ((1, 1), (5, 1), (1, 5), (5, 5), (20, 20), (100, 100), (500, 500))
DRAWS = 256
Fit = Callable[[pt.EBM, tuple, int, int], pt.EBM]


def couplings(k: int) -> dict[str, pt.couplings.AbstractCoupling]:
    """The paper's two for label sets."""
    pairwise = pt.couplings.LinearQuadratic(pt.couplings.Symmetric(k), shared=True)
    return {"unary": pt.couplings.Bilinear(pt.polytopes.Cube(k)), "pairwise": pairwise}


def start(coupling: pt.couplings.AbstractCoupling, features: int) -> pt.EBM:
    """g = 0 and tau = 0."""
    h_key, tau_key = jax.random.split(jax.random.key(0))
    g = pt.Energy(pt.networks.Linear(features, coupling.theta_shape, key=h_key), coupling)
    return pt.EBM(g, pt.partition.Network(pt.networks.MLP(features, (), key=tau_key)))


def ways(rate: float, penalty: float) -> dict[str, Fit]:
    """How to train, by name."""

    def by(objective: pt.objectives.AbstractObjective, train: pt.solver.AbstractTraining) -> Fit:
        def run(model: pt.EBM, data: tuple, steps: int, seed: int) -> pt.EBM:
            schedule = pt.solver.cosine(steps)
            solver = pt.Solver(objective, learning_rate=rate, penalty=penalty, schedule=schedule, train=train)
            return pt.fit(solver, model, data, steps=steps, key=jax.random.key(seed)).model

        return run

    min_min = pt.objectives.MinMin(DRAWS, "shared", proposal=None)
    exactly, tau = by(pt.objectives.ExactMLE(), pt.solver.ONLY_G), by(min_min, pt.solver.ONLY_TAU)
    found = {"joint": by(min_min, pt.solver.BOTH)}
    found |= {f"g {g}, tau {t}": by(min_min, pt.solver.Alternating(g, t)) for g, t in LENGTHS}
    found["g by exact likelihood, then tau"] = lambda model, data, steps, seed: tau(
        exactly(model, data, steps // 2, seed), data, steps - steps // 2, seed
    )
    return found


def errors(model: pt.EBM, x: np.ndarray, y: np.ndarray, rows: str) -> dict[str, float]:
    """The exact negative log-likelihood, and how far tau is from LSE."""
    exact, learned = (pt.inference.log_partition(model, x, method=how) for how in ("exact", "learned"))
    return {
        f"{rows} NLL": -float(pt.inference.log_prob(model, x, y, method="exact").mean()),
        f"{rows} |tau - LSE|": float(jnp.abs(learned - exact).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=1e-2)
    parser.add_argument("--penalty", type=float, default=1e-2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    pin()
    split = multilabel(data_dir(), "emotions")
    for kind, coupling in couplings(LABELS["emotions"]).items():
        model, rows = start(coupling, split.x.shape[1]), []
        for name, fit in ways(options.rate, options.penalty).items():
            rows.append({"g": kind, "training": name, **averaged(fit, model, split, options.steps, options.seeds)})
            write(options.out / "alternating.jsonl", rows[-1])
        show(f"emotions, {kind} g", rows)


def averaged(fit: Fit, model: pt.EBM, split: pt.datasets.Split, steps: int, seeds: int) -> dict:
    """Means over the seeds of one way to train."""
    x, y, x_test, y_test = split
    # The first call compiles.
    fit(model, (x, y), steps, 0)
    runs = [timed(lambda seed=seed: fit(model, (x, y), steps, seed)) for seed in range(seeds)]
    each = [errors(trained, x, y, "train") | errors(trained, x_test, y_test, "test") for trained, _ in runs]
    found = {name: float(np.mean([row[name] for row in each])) for name in each[0]}
    worst, seconds = max(row["train NLL"] for row in each), float(np.mean([seconds for _, seconds in runs]))
    return found | {"worst": worst, "steps": steps, "seconds": seconds}


if __name__ == "__main__":
    main()
