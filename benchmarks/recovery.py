"""Beyond the reach of exact methods: rankings of 50 labels and sets of 500 labels from known parameters.

    python -m benchmarks.recovery [--steps 1000] [--out out/bench]

Rankings: permutahedron energy, theta = W x. Sets: pairwise energy <W x, y> + 1/2 <y, U y>, U on the edges of a known
ring. Data are drawn from the model itself (rankings by resampling weighted draws of the surrogate, sets by Gibbs
sweeps), then W and U are learned from zero with more and more draws a step, from the surrogate and, as in the paper,
from the uniform q. The error is the distance of the learned parameters from the true ones, relative to these; rankings
do not see a constant added to theta, so it is removed.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import partita as pt
from benchmarks.report import non_finite, residual_tau, show, train
from benchmarks.timing import write

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DRAWS = (1, 4, 16, 64)
FEATURES = 5
ROWS = 2000
RANKED, LABELS = 50, 500
EDGES = [(j, (j + 1) % LABELS) for j in range(LABELS)]
GIBBS_SWEEPS = 30


def rankings() -> tuple[tuple, pt.couplings.AbstractCoupling, Callable[[pt.EBM], float]]:
    """Data, a coupling to learn with, and the error of what was learned."""
    rng = np.random.default_rng(0)
    w = 2 * rng.normal(size=(RANKED, FEATURES))
    w -= w.mean(axis=0)
    x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    coupling = pt.couplings.Bilinear(pt.structures.Permutahedron(RANKED))
    near, q = pt.structures.surrogate(coupling), pt.structures.Uniform(coupling.space)

    def draw(theta, key):
        many_key, one_key = jax.random.split(key)
        r = near(coupling, theta, q).r
        y = r.sample(200, key=many_key)
        weights = jax.vmap(lambda y: coupling(theta, y) - r.log_prob(y))(y)
        return y[jax.random.categorical(one_key, weights)]

    keys = jax.random.split(jax.random.key(1), ROWS)
    theta = jnp.asarray(x @ w.T, jnp.float32)
    y = np.asarray(jax.lax.map(lambda args: draw(*args), (theta, keys), batch_size=100))

    def error(model: pt.EBM) -> float:
        found = np.asarray(model.g.h.layer.weight)
        return float(np.linalg.norm(found - found.mean(axis=0) - w) / np.linalg.norm(w))

    return (x, y), coupling, error


def sets() -> tuple[tuple, pt.couplings.AbstractCoupling, Callable[[pt.EBM], float]]:
    """The same for label sets; the error is over W and the edges together."""
    rng = np.random.default_rng(1)
    w = rng.normal(size=(LABELS, FEATURES)) / 2
    interaction = pt.couplings.Sparse(LABELS, EDGES)
    strengths = 0.6 * rng.normal(size=LABELS)
    u = np.asarray(interaction.matrix(jnp.asarray(strengths)))
    x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    field = x @ w.T
    y = (rng.random((ROWS, LABELS)) < 1 / (1 + np.exp(-field))).astype(np.float32)
    for _ in range(GIBBS_SWEEPS):
        for j in range(LABELS):
            y[:, j] = rng.random(ROWS) < 1 / (1 + np.exp(-field[:, j] - y @ u[:, j].astype(np.float32)))
    coupling = pt.couplings.LinearQuadratic(interaction, shared=True)

    def error(model: pt.EBM) -> float:
        off = [np.asarray(model.g.h.layer.weight) - w, np.asarray(model.g.coupling.shared) - strengths]
        return float(np.sqrt(sum(np.sum(a**2) for a in off) / (np.sum(w**2) + np.sum(strengths**2))))

    return (x, y.astype(int)), coupling, error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    rows = []
    problems = {f"rankings of {RANKED} labels": (rankings, 2e-2), f"sets of {LABELS} labels": (sets, 1e-2)}
    for axis, (name, (make, rate)) in zip(axes, problems.items(), strict=True):
        data, coupling, error = make()
        run = {"steps": options.steps, "rate": rate}
        for kind in ("surrogate", "uniform"):
            errors = []
            for draws in DRAWS:
                found = learn(f"{name}, {kind}, B' = {draws}", data, coupling, (kind, draws), **run)
                errors.append(error(found["model"]))
                row = {"data": name, "draws from": kind, "B'": draws, "error of parameters": errors[-1]}
                row |= {key: value for key, value in found.items() if key != "model"}
                write(options.out / "recovery.jsonl", row)
                rows.append(row)
            axis.loglog(DRAWS, errors, "o-", label=kind)
        axis.set(title=name, xlabel="draws a step, B'", ylabel="relative error of the parameters")
        axis.legend()
    figure.savefig(options.out / "recovery.png", dpi=120)
    show(f"Known parameters, {ROWS} rows, {options.steps} steps", rows)


def learn(
    told: str, data: tuple, coupling: pt.couplings.AbstractCoupling, how: tuple[str, int], *, steps: int, rate: float
) -> dict:
    """A linear energy with a residual tau, learned from zero."""
    kind, draws = how
    h_key, tau_key = jax.random.split(jax.random.key(0))
    g = pt.Energy(pt.networks.Linear(FEATURES, coupling.theta_shape, key=h_key), coupling)
    start = pt.EBM(g, residual_tau(coupling, width=64, key=tau_key))
    objective = pt.objectives.MinMin(draws) if kind == "surrogate" else pt.objectives.MinMin(draws, proposal=None)
    solution, seconds = train(start, objective, data, name=told, steps=steps, rate=rate, tau_rate=3e-3, batch_size=100)
    history = solution.history.steps
    return {
        "model": solution.model,
        "effective": float(history["effective"][-50:].mean()),
        "largest |g|": float(history["scale"][-1]),
        "non-finite": non_finite(solution),
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
