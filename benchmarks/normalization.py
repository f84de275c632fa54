"""How often the intervals of `inference.normalization` contain the true mass, and what they cost.

    python -m benchmarks.normalization [--models 512] [--out out/bench]

Ising models of 10 to 16 labels, every row of x a model of its own, truth by enumeration in float64: "unimodal" with
interactions of a standard deviation up to 0.5, "strong" with 1, 2 or 3, "two-mode" ferromagnets with modes of equal and
unequal weight. Nominal 99% intervals by draws and chains (method="sampled"), beside those of 1000 draws from the
surrogate's one mode with a normal error, which the library gave before. Seconds are those of 100 rows, compiled.
"""

import argparse
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import scipy.special
import scipy.stats

import partita as pt
from benchmarks.report import show
from benchmarks.timing import timed, write

LABELS = (10, 12, 14, 16)
# Too many outputs for the truth: seconds only.
TIMED = (16, 30)
NUM, CONFIDENCE = 1000, 0.99


class Logits(eqx.Module):
    """h(x) = x."""

    def __call__(self, x):
        return x


def model(k: int) -> pt.EBM:
    """Its rows of x are logits; tau is the bound of mean field."""
    coupling = pt.couplings.LinearQuadratic(pt.couplings.Symmetric(k), shared=False)
    return pt.EBM(pt.Energy(Logits(), coupling), pt.model.Bound())


def logits(kind: str, n: int, k: int) -> np.ndarray:
    """Of n models of one kind."""
    rng = np.random.default_rng(0)
    u, pairs = rng.normal(size=(n, k)), rng.normal(size=(n, k, k))
    if kind == "two-mode":
        pairs = np.triu(rng.uniform(0.5, 3, (n, 1, 1)) * rng.uniform(0.5, 1.5, (n, k, k)), 1)
        pattern = np.where(rng.random((n, 1)) < 0.5, 1, rng.choice([-1, 1], (n, k)))
        pairs = (pairs + pairs.swapaxes(1, 2)) * pattern[:, :, None] * pattern[:, None]
        u = rng.choice([0, 1, 2, 3], (n, 1)) / k * pattern - pairs.sum(axis=2) / 2
    else:
        pairs *= rng.uniform(0, 0.5, (n, 1, 1)) if kind == "unimodal" else rng.choice([1, 2, 3], (n, 1, 1))
    return np.concatenate([u, pairs[:, *np.triu_indices(k, 1)]], axis=1).astype(np.float32)


def truth(x: np.ndarray, k: int) -> np.ndarray:
    """log E_q[exp g] in float64."""
    y = (np.arange(2**k)[:, None] >> np.arange(k) & 1).astype(float)
    i, j = np.triu_indices(k, 1)
    scores = np.concatenate([y, y[:, i] * y[:, j]], axis=1)
    return np.array([scipy.special.logsumexp(scores @ row) for row in x.astype(float)]) - k * np.log(2)


def single_start(ebm: pt.EBM, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log of the ends of the interval by draws from one mode: of the mass, up to tau."""
    method = pt.samplers.ImportanceSampling(NUM)
    value, error = pt.inference.log_partition_with_error(ebm, x, method=method, key=jax.random.key(1))
    half = scipy.stats.norm.ppf((1 + CONFIDENCE) / 2) * np.asarray(error, float)
    with np.errstate(divide="ignore"):
        return value + np.log(np.maximum(1 - half, 0)), value + np.log1p(half)


def several_starts(ebm: pt.EBM, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by `inference.normalization`."""
    options = {"num": NUM, "confidence": CONFIDENCE, "key": jax.random.key(1)}
    result = pt.inference.normalization(ebm, x, method="sampled", **options)
    tau = np.asarray(pt.inference.log_partition(ebm, x, method="learned"), float)
    with np.errstate(divide="ignore"):
        return tau + np.log(result.low), tau + np.log(result.high)


def coverage(kind: str, n: int, k: int) -> dict:
    """A row of the table."""
    x = logits(kind, n, k)
    lse, row = truth(x, k), {"kind": kind, "k": k, "models": n}
    for name, interval in (("one start", single_start), ("now", several_starts)):
        low, high = interval(model(k), x)
        row[f"covered, {name}"] = float(np.mean((low <= lse) & (lse <= high)))
        row[f"width, {name}"] = float(np.median(high - low))
    return row | {"open": float(np.mean(np.isinf(high)))}


def seconds(k: int) -> dict:
    """Of 100 rows, after a call that compiles."""
    x, ebm = logits("strong", 100, k), model(k)
    calls = {"one start": lambda: single_start(ebm, x), "now": lambda: several_starts(ebm, x)}
    if k in LABELS:
        calls["exact"] = lambda: pt.inference.normalization(ebm, x)
    for call in calls.values():
        call()
    measured = {name: timed(call)[1] for name, call in calls.items()}
    return {"k": k, "exact": "too many outputs"} | measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=512)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    rows = []
    for kind in ("unimodal", "strong", "two-mode"):
        for k in LABELS:
            rows.append(coverage(kind, options.models, k))
            write(options.out / "normalization.jsonl", rows[-1])
    show(f"Share of nominal {CONFIDENCE:.0%} intervals that contain the mass, and their median width in nats", rows)
    costs = [seconds(k) for k in TIMED]
    for row in costs:
        write(options.out / "normalization.jsonl", row)
    show("100 rows", costs)


if __name__ == "__main__":
    main()
