"""How far the learned log-partition is from the truth on unseen rows: residual tau, tau(theta) and the paper's tau(x).

    python -m benchmarks.log_partition [--steps 2000] [--out out/bench]

emotions, scene and yeast, Ising energy with one U for all x, MLP h of width 128, min-min with 16 surrogate draws,
batches of 64, Adam 1e-3 with cosine decay, penalty 1e-3; LSE by enumeration. The same for rankings:
`python -m benchmarks.rankings`.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import partita as pt
from benchmarks.data import LABELS, multilabel
from benchmarks.report import residual_tau, show, train
from benchmarks.timing import write

SETS = ("emotions", "scene", "yeast")
RUN = {"rate": 1e-3, "penalty": 1e-3, "batch_size": 64}


def taus(coupling: pt.couplings.AbstractCoupling, features: int) -> dict[str, pt.model.AbstractTau]:
    """The three kinds, each an MLP of width 128."""
    key = jax.random.key(1)
    logits = int(np.prod(coupling.theta_shape))
    return {
        "residual": residual_tau(coupling, key=key),
        "tau(theta)": pt.model.Network(pt.networks.MLP(logits, (), key=key), of_logits=True),
        "tau(x)": pt.model.Network(pt.networks.MLP(features, (), key=key)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    rows = []
    for name in SETS:
        x, y, x_test, y_test = multilabel(name)
        coupling = pt.couplings.LinearQuadratic(pt.couplings.Symmetric(LABELS[name]), shared=True)
        g = pt.Energy(pt.networks.MLP(x.shape[1], coupling.theta_shape, key=jax.random.key(0)), coupling)
        for kind, tau in taus(coupling, x.shape[1]).items():
            objective = pt.objectives.MinMin(16)
            told = f"{name} {kind}"
            solution, seconds = train(pt.EBM(g, tau), objective, (x, y), name=told, steps=options.steps, **RUN)
            model = solution.model
            lse = pt.inference.log_partition(model, x_test)
            off = jnp.abs(pt.inference.log_partition(model, x_test, method="learned") - lse)
            answer = pt.inference.normalization(model, x_test, key=jax.random.key(2))
            row = {
                "set": name,
                "tau": kind,
                "mean |tau - LSE|": float(off.mean()),
                "largest": float(off.max()),
                "normalization": f"{answer.verdict}, {answer.error[0]:.3f} to {answer.error[1]:.3f}",
                "log p(y|x)": float(pt.inference.log_prob(model, x_test, y_test).mean()),
                "largest |g|": float(solution.history.steps["scale"][-1]),
                "seconds": seconds,
            }
            write(options.out / "log_partition.jsonl", row)
            rows.append(row)
    show(f"Test rows, {options.steps} steps", rows)


if __name__ == "__main__":
    main()
