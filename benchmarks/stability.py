"""Every learning rate from 1e-4 to 1e-1, every coupling, divergence and set of the paper: are all numbers finite?

    python -m benchmarks.stability [--steps 200] [--out out/bench] [yeast vowel ...]

MLP h of width 128, MLP tau, batches of 64, Adam. KL with the engine's proposals and residual tau, and every divergence
by Algorithm 1 with 100 draws and tau(x). A cell of the table is the largest |g| of the last step; counted are numbers
in the histories (loss, mass, gradient norm, ...) that are not finite, and runs that diverged with finite ones
(`training.has_diverged`). `growth` is the largest quotient, over the rates, of |g| in the last tenth of the steps and
in the tenth before the middle: 4 is what steady steps of both layers of h give, and a run that explodes gives far more.
ChiSquare and Tsallis above 1 want g of the size of |Y|: their |g| is large where Y is. mediamill is not here.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
from rich.progress import track

import partita as pt
from benchmarks.data import LABELS, RANKINGS, multilabel, ranking
from benchmarks.report import non_finite, residual_tau, show
from benchmarks.timing import write

RATES = (1e-4, 1e-3, 1e-2, 1e-1)
DIVERGENCES = (
    pt.divergences.KL(),
    pt.divergences.ChiSquare(),
    pt.divergences.Tsallis(1.5),
    pt.divergences.Tsallis(0.5),
    pt.divergences.JensenShannon(),
    pt.divergences.SquaredHellinger(),
    pt.divergences.ReverseKL(),
)


def couplings(name: str, k: int) -> dict[str, pt.couplings.AbstractCoupling]:
    """The paper's couplings for a set."""
    if name in RANKINGS:
        polytopes = {"permutahedron": pt.structures.Permutahedron(k), "birkhoff": pt.structures.Birkhoff(k)}
        return {name: pt.couplings.Bilinear(polytope) for name, polytope in polytopes.items()}
    pairwise = pt.couplings.LinearQuadratic(pt.couplings.Symmetric(k), shared=True)
    return {"unary": pt.couplings.Bilinear(pt.structures.Cube(k)), "pairwise": pairwise}


def estimators(coupling: pt.couplings.AbstractCoupling, features: int) -> dict[str, tuple]:
    """(model, objective) by name."""
    h_key, tau_key = jax.random.split(jax.random.key(0))
    g = pt.Energy(pt.networks.MLP(features, coupling.theta_shape, key=h_key), coupling)
    corrected = residual_tau(coupling, key=tau_key)
    found: dict[str, tuple] = {"KL, engine": (pt.EBM(g, corrected), pt.objectives.MinMin(16))}
    for f in DIVERGENCES:
        tau = pt.model.Network(pt.networks.MLP(features, (), key=tau_key))
        name = f"Tsallis {f.alpha}" if isinstance(f, pt.divergences.Tsallis) else type(f).__name__
        found[name] = pt.EBM(g, tau, f=f), pt.objectives.MinMin(100, proposal=None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*LABELS, *RANKINGS])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    rows = []
    for name in track(options.names, "sets"):
        x, y, _, _ = ranking(name, 0) if name in RANKINGS else multilabel(name)
        for kind, coupling in couplings(name, y.shape[1]).items():
            for estimator, (model, objective) in estimators(coupling, x.shape[1]).items():
                row = {"set": name, "coupling": kind, "estimator": estimator}
                row |= cells(model, objective, pt.training.Rows(x, y, batch_size=64), options.steps)
                write(options.out / "stability.jsonl", row)
                rows.append(row)
    show(f"Largest |g| after {options.steps} steps, by learning rate", rows)
    worst = max(row[f"{rate:g}"] for row in rows for rate in RATES)
    bad, diverged = (sum(row[name] for row in rows) for name in ("non-finite", "diverged"))
    growth = max(row["growth"] for row in rows)
    print(f"{len(RATES) * len(rows)} runs, {bad} non-finite numbers, {diverged} diverged runs, ", end="")
    print(f"largest |g| {worst:.3g}, growth {growth:.3g}")


def cells(model: pt.EBM, objective: pt.objectives.MinMin, rows: pt.training.Rows, steps: int) -> dict:
    """One run per rate; the rate is traced, so all are one program."""
    found, bad, diverged, growth = {}, 0, 0, 0.0
    tenth, half = max(steps // 10, 1), steps // 2
    for rate in RATES:
        solver = pt.Solver(objective, learning_rate=rate)
        solution = pt.fit(solver, model, rows, steps=steps, key=jax.random.key(0))
        bad += non_finite(solution)
        diverged += solution.result is pt.types.RESULTS.diverged
        scale = np.asarray(solution.history.steps["scale"], float)
        found[f"{rate:g}"] = float(scale[-1])
        growth = max(growth, float(np.median(scale[-tenth:]) / np.median(scale[half - tenth : half])))
    return found | {"growth": growth, "non-finite": bad, "diverged": diverged}


if __name__ == "__main__":
    main()
