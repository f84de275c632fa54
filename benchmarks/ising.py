"""cal500, 174 labels: does a joint model beat independent labels on held-out rows?

    python -m benchmarks.ising [--steps 1500] [--out out/bench]

Linear h, residual tau, min-min with 8 surrogate draws, batches of 100, Adam 1e-2 with cosine decay; one interaction
matrix U for all x, full or of rank 8, at three penalties. log p(y|x) of the 101 held-out rows needs LSE: exact for
unary; for Ising by annealed importance sampling, once from the surrogate and once hot from the uniform q, and on its
conservative side: per row the larger of the two estimates, each with two standard errors added. cal500 has no official
split: rows are those of train_test_split(test_size=0.2, random_state=0).
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np

import partita as pt
from benchmarks.data import LABELS, multilabel
from benchmarks.report import residual_tau, show, train
from benchmarks.timing import write

K = LABELS["cal500"]
COUPLINGS = {
    "unary": pt.couplings.Bilinear(pt.structures.Cube(K)),
    "Ising, U of rank 8": pt.couplings.LinearQuadratic(pt.couplings.Factored(K, 8, key=jax.random.key(3)), shared=True),
    "Ising, U full": pt.couplings.LinearQuadratic(pt.couplings.Symmetric(K), shared=True),
}
PENALTIES = (1e-1, 3e-1, 1.0)
ANNEALED = {
    "from r": pt.samplers.AnnealedImportanceSampling(chains=16, temperatures=100),
    "from q": pt.samplers.AnnealedImportanceSampling(chains=16, temperatures=200, hot=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    x, y, x_test, y_test = multilabel("cal500")
    rows = []
    for name, coupling in COUPLINGS.items():
        for penalty in PENALTIES:
            model, seconds = learn(name, coupling, (x, y), penalty, options.steps)
            began = time.perf_counter()
            row = {"coupling": name, "penalty": f"{penalty:g}", "train s": seconds, **held_out(model, x_test, y_test)}
            row["evaluate s"] = time.perf_counter() - began
            write(options.out / "ising.jsonl", row)
            rows.append(row)
    show(f"cal500, {len(x_test)} held-out rows: mean log p(y|x), {options.steps} steps", rows)


def learn(
    name: str, coupling: pt.couplings.AbstractCoupling, data: tuple, penalty: float, steps: int
) -> tuple[pt.EBM, float]:
    """A trained model, and its seconds."""
    h_key, tau_key = jax.random.split(jax.random.key(0))
    g = pt.Energy(pt.networks.Linear(data[0].shape[1], coupling.theta_shape, key=h_key), coupling)
    start = pt.EBM(g, residual_tau(coupling, width=64, key=tau_key))
    run = {"steps": steps, "rate": 1e-2, "tau_rate": 1e-3, "penalty": penalty, "batch_size": 100}
    solution, seconds = train(start, pt.objectives.MinMin(8), data, name=f"{name}, penalty {penalty:g}", **run)
    return solution.model, seconds


def held_out(model: pt.EBM, x: np.ndarray, y: np.ndarray) -> dict[str, object]:
    """Mean log p(y|x) with LSE as learned, and exactly or on its conservative side; mean LSE by each estimate."""
    learned = pt.inference.log_prob(model, x, y, method="learned")
    tau = pt.inference.log_partition(model, x, method="learned")
    found: dict[str, object] = {"learned": float(learned.mean())}
    if isinstance(model.g.coupling, pt.couplings.Bilinear):
        exact = pt.inference.log_prob(model, x, y)
        return found | {"exact or conservative": float(exact.mean()), "LSE - tau, from r": "", "from q": ""}
    keys = jax.random.split(jax.random.key(1), len(ANNEALED))
    highest, told = np.full(len(x), -np.inf), {}
    for (name, method), key in zip(ANNEALED.items(), keys, strict=True):
        value, error = pt.inference.log_partition_with_error(model, x, method=method, key=key)
        highest = np.maximum(highest, np.asarray(value + 2 * error))
        told[name] = f"{float((value - tau).mean()):.2f} +- {float(error.mean()):.2f}"
    conservative = float(np.mean(np.asarray(learned + tau) - highest))
    return found | {
        "exact or conservative": conservative,
        "LSE - tau, from r": told["from r"],
        "from q": told["from q"],
    }


if __name__ == "__main__":
    main()
