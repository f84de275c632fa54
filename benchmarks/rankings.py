"""Label ranking with 16 surrogate draws a step against exact maximum likelihood, trained alike in the same run.

    python -m benchmarks.rankings [--splits 5] [--steps 1500] [--out out/bench] [vowel glass ...]

MLP with two hidden layers of 128, batches of 64, Adam 3e-3 (tau 1e-2) with cosine decay, penalty 1e-3; 20 % test rows
by seeds 0, 1, ...; Kendall tau x 100 of the mode on test rows, mean over the splits. Log-partition errors are mean
|tau - LSE| on test rows, LSE by the subset program: of the learned residual tau, of its bound tau_0, and of the paper's
tau(x).
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import partita as pt
from benchmarks.data import RANKINGS, ranking
from benchmarks.report import residual_tau, show, train
from benchmarks.timing import write

POLYTOPES = {"Birkhoff": pt.structures.Birkhoff, "Permutahedron": pt.structures.Permutahedron}
RUN = {"rate": 3e-3, "tau_rate": 1e-2, "penalty": 1e-3, "batch_size": 64}


def start(coupling: pt.couplings.Bilinear, features: int, residual: bool) -> pt.EBM:
    """An energy with two hidden layers, and a tau of the neighbor's summary or of x."""
    h_key, tau_key = jax.random.split(jax.random.key(0))
    g = pt.Energy(pt.networks.MLP(features, coupling.theta_shape, depth=2, key=h_key), coupling)
    if not residual:
        return pt.EBM(g, pt.model.Network(pt.networks.MLP(features, (), depth=2, key=tau_key)))
    return pt.EBM(g, residual_tau(coupling, key=tau_key))


def bound(model: pt.EBM, x: np.ndarray) -> jax.Array:
    """tau_0 of each row."""
    return jax.vmap(lambda x: model.row(x).surrogate.tau)(jnp.asarray(x, float))


def compare(name: str, polytope: str, split: int, steps: int) -> dict[str, float]:
    """One split: min-min with the residual tau and with tau(x), and exact maximum likelihood."""
    x, y, x_test, y_test = ranking(name, split)
    coupling = pt.couplings.Bilinear(POLYTOPES[polytope](y.shape[1]))
    found = {}
    for what, residual in {"residual": True, "tau(x)": False, "exact": True}.items():
        objective = pt.objectives.ExactMLE() if what == "exact" else pt.objectives.MinMin(16)
        told = f"{name} {polytope} {split} {what}"
        model = start(coupling, x.shape[1], residual)
        solution, seconds = train(model, objective, (x, y), name=told, steps=steps, seed=split, **RUN)
        model = solution.model
        found[f"{what} kendall"] = 100 * pt.metrics.kendall(y_test, pt.inference.mode(model, x_test))
        found[f"{what} log p"] = float(pt.inference.log_prob(model, x_test, y_test).mean())
        found[f"{what} s"] = seconds
        if what == "exact":
            continue
        lse = pt.inference.log_partition(model, x_test)
        tau = pt.inference.log_partition(model, x_test, method="learned")
        found[f"{what} error"] = float(jnp.abs(tau - lse).mean())
        found[f"{what} scale"] = float(solution.history.steps["scale"][-1])
        if residual:
            found["tau_0 error"] = float(jnp.abs(bound(model, x_test) - lse).mean())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(RANKINGS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    rows = []
    for name in options.names:
        for polytope in POLYTOPES:
            splits = [compare(name, polytope, split, options.steps) for split in range(options.splits)]
            for split, found in enumerate(splits):
                write(options.out / "rankings.jsonl", {"set": name, "polytope": polytope, "split": split, **found})
            mean = {key: float(np.mean([found[key] for found in splits])) for key in splits[0]}
            rows.append({"set": name, "polytope": polytope[0], **mean})
    columns = (
        "set",
        "polytope",
        "residual kendall",
        "exact kendall",
        "tau(x) kendall",
        "residual log p",
        "exact log p",
    )
    show(f"Kendall tau x 100, {options.splits} splits", [{key: row[key] for key in columns} for row in rows])
    columns = ("set", "polytope", "residual error", "tau_0 error", "tau(x) error", "residual scale", "tau(x) scale")
    columns += ("residual s", "exact s")
    show("mean |tau - LSE| on test rows, largest |g|, seconds", [{key: row[key] for key in columns} for row in rows])


if __name__ == "__main__":
    main()
