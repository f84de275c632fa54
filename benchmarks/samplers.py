"""Which kernel gives the most effective draws a second, on sets and on rankings?

    python -m benchmarks.samplers [--steps 1000] [--out out/bench]

An Ising model of yeast (14 labels, interactions that depend on x) and a Birkhoff model of vowel (11 ranked labels):
MLP h of width 128, residual tau, min-min with 16 surrogate draws, batches of 64, Adam 1e-3 with cosine decay, penalty
1e-3. On 20 test rows each kernel runs 8 chains of 1000 draws from the surrogate's r, after 100 steps of burn-in.
Effective draws are those of the mean of g and of each marginal between 1 and 99 %: the least and the median over them,
then the median over the rows. The largest error of the marginals, against exact ones, says whether to believe them.
"""

import argparse
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import partita as pt
from benchmarks.data import LABELS, multilabel, ranking
from benchmarks.report import residual_tau, show, train
from benchmarks.timing import pin, timed, write
from partita import kernels

ROWS, CHAINS, DRAWS, BURN_IN, REPEATS = 20, 8, 1000, 100, 3
RUN = {"rate": 1e-3, "penalty": 1e-3, "batch_size": 64}
KERNELS = {
    "Metropolis, uniform": kernels.Metropolis("uniform"),
    "Metropolis, local": kernels.Metropolis("local"),
    "Gibbs": kernels.Gibbs(),
    "informed, exact": kernels.Informed(),
    "informed, gradient": kernels.Informed(gradient=True),
    "independence (r)": kernels.Metropolis("surrogate"),
    "guided, c = 2, 4 tries": kernels.Guided(2.0, 4),
}
# The others say nothing new about rankings, and compiling takes longer than running.
ON_RANKINGS = ("Gibbs", "independence (r)", "guided, c = 2, 4 tries")


@eqx.filter_jit
def chains(kernel: kernels.AbstractKernel, model: pt.EBM, x: jax.Array, key: jax.Array):
    """Draws of every row, and their mean acceptance."""

    def of_row(x, key):
        p = kernels.target(model, model.row(x))
        start_key, run_key = jax.random.split(key)
        start = p.r.sample(CHAINS, key=start_key)
        y, info = kernels.run(kernel, p, start, DRAWS, burn_in=BURN_IN, key=run_key)
        return y, info.acceptance.mean()

    return jax.vmap(of_row)(x, jax.random.split(key, len(x)))


@eqx.filter_jit
def effective(model: pt.EBM, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The marginals by the draws, and the effective number of these for each marginal and for g."""
    stat = jax.vmap(jax.vmap(jax.vmap(lambda y: model.space.indicators(y).ravel())))(y)
    g = jax.vmap(lambda x, y: jax.vmap(jax.vmap(lambda y: model.g(x, y)))(y))(x, y)
    size = jax.vmap(kernels.effective_sample_size)(jnp.concatenate([stat, g[..., None]], axis=-1))
    return stat.mean((1, 2)), size


def measure(name: str, model: pt.EBM, x: jax.Array, marginals: np.ndarray) -> dict:
    """One row of the table."""
    kernel, key = KERNELS[name], jax.random.key(3)
    _, first = timed(lambda: chains(kernel, model, x, key))
    runs = [timed(lambda i=i: chains(kernel, model, x, jax.random.fold_in(key, i))) for i in range(REPEATS)]
    seconds = min(spent for _, spent in runs)
    y, acceptance = runs[0][0]
    found, size = map(np.asarray, effective(model, x, y))
    # What is all but certain has no draws to count; what should change, and never did, has none.
    counted = np.append((marginals > 0.01) & (marginals < 0.99), np.ones((len(x), 1), bool), axis=1)
    size = np.where(counted, np.nan_to_num(size), np.nan)
    least, middle = np.nanmin(size, axis=1), np.nanmedian(size, axis=1)
    per_second = len(x) / seconds
    return {
        "kernel": name,
        "acceptance": float(acceptance.mean()),
        "least ESS / s": float(np.median(least) * per_second),
        "median ESS / s": float(np.median(middle) * per_second),
        "least ESS / draw": float(np.median(least) / (CHAINS * DRAWS)),
        "us / step": 1e6 * seconds / (len(x) * CHAINS * (DRAWS + BURN_IN)),
        "marginals off by": float(np.abs(found - marginals).max()),
        "compile, s": first - seconds,
    }


def models() -> dict[str, tuple]:
    """Name -> coupling, data, names of kernels."""
    ising = pt.couplings.LinearQuadratic(pt.couplings.Symmetric(LABELS["yeast"]), shared=False)
    birkhoff = pt.couplings.Bilinear(pt.structures.Birkhoff(11))
    return {
        "yeast, Ising": (ising, multilabel("yeast"), tuple(KERNELS)),
        "vowel, Birkhoff": (birkhoff, ranking("vowel", 0), ON_RANKINGS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    pin()
    for told, (coupling, (x, y, x_test, _), names) in models().items():
        h_key, tau_key = jax.random.split(jax.random.key(0))
        tau = residual_tau(coupling, key=tau_key)
        start = pt.EBM(pt.Energy(pt.networks.MLP(x.shape[1], coupling.theta_shape, key=h_key), coupling), tau)
        solution, spent = train(start, pt.objectives.MinMin(16), (x, y), name=told, steps=options.steps, **RUN)
        model, few = solution.model, jnp.asarray(x_test[:ROWS], float)
        marginals = np.asarray(pt.inference.marginals(model, few)).reshape(ROWS, -1)
        learned = pt.inference.log_partition(model, few, method="learned")
        off = float(jnp.abs(learned - pt.inference.log_partition(model, few)).mean())
        rows = [measure(name, model, few, marginals) for name in names]
        for row in rows:
            extra = {"model": told, "mean |tau - LSE|": off, "training, s": spent}
            write(options.out / "samplers.jsonl", extra | row)
        show(f"{told}, {ROWS} test rows, one core; mean |tau - LSE| {off:.3f}", rows)


if __name__ == "__main__":
    main()
