"""Answers of an estimator between small and huge: exact sums beside mean field, on copies of a hidden coin.

    python -m benchmarks.reach [--labels 16 20] [--rows 1000] [--out out/bench]

Every label is a copy of one coin that x knows little about, wrong one time in ten: p has two modes, and mean field sees
one. The classifier is trained by min-min on 400 rows. For `--rows` new rows: seconds of each answer as it is given now,
and of mean field or the learned tau (with no time for exact sums); the largest and the mean error of the marginals, on
20 rows, against all outputs in float64; the mean log p of the labels by either normalizer.
"""

import argparse
import time
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import partita as pt
from benchmarks.report import show
from benchmarks.timing import in_turn, pin, spread, write

CHECKED = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, nargs="+", default=[16, 20])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    pin()
    warnings.simplefilter("ignore", pt.budget.ApproximationWarning)
    for k in options.labels:
        x, y = coins(400, k, seed=0)
        began = time.perf_counter()
        classifier = pt.MultilabelClassifier(random_state=0).fit(x, y)
        fitted = time.perf_counter() - began
        rows = compare(classifier, k, options.rows)
        for row in rows:
            write(options.out / "reach.jsonl", {"k": k, **row})
        show(f"{k} copies of a coin, {options.rows} rows (fit: {fitted:.0f} s)", rows)


def coins(n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three features, of which the first says a little about the coin."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    coin = rng.uniform(size=n) < 1 / (1 + np.exp(-x[:, 0] / 2))
    return x, (coin[:, None] ^ (rng.uniform(size=(n, k)) < 0.1)).astype(int)


def compare(classifier: pt.MultilabelClassifier, k: int, n: int) -> list[dict]:
    """A row for exact answers, and one for what serves without them."""
    x, y = coins(n, k, seed=1)
    truth = marginals(classifier, x[:CHECKED])
    rows = []
    for name, seconds in (("exact", pt.budget.SECONDS), ("mean field, learned tau", 0.0)):
        pt.budget.SECONDS, kept = seconds, pt.budget.SECONDS
        calls = {
            "marginals s": lambda: classifier.predict_proba(x),
            "log p s": lambda: classifier.log_prob(x, y),
            "mode s": lambda: classifier.predict(x),
            "3 best s": lambda: classifier.top_k(x[:100], 3),
            "5 draws s": lambda: classifier.sample(x[:100], 5),
        }
        times = in_turn(calls, 3)
        error = np.abs(classifier.predict_proba(x[:CHECKED]) - truth)
        row = {"answers": name, "largest error": f"{error.max():.1e}", "mean error": f"{error.mean():.1e}"}
        row |= {"mean log p": float(classifier.log_prob(x, y).mean())}
        rows.append(row | {name: spread(values)["median"] for name, values in times.items()})
        pt.budget.SECONDS = kept
    return rows


def marginals(classifier: pt.MultilabelClassifier, x: np.ndarray) -> np.ndarray:
    """By all outputs, in float64, chunk by chunk."""
    model, scaled = classifier.ebm_, classifier.scaler_(x)
    theta = np.asarray([model.g.h(jnp.asarray(row)) for row in scaled], np.float64)
    u, s = theta, np.asarray(model.g.coupling.shared, np.float64)
    k = u.shape[1]
    i, j = np.triu_indices(k, 1)
    top, mass, total = np.full(len(x), -np.inf), np.zeros(len(x)), np.zeros((len(x), k))
    for start in range(0, 2**k, 2**14):
        y = (np.arange(start, start + 2**14)[:, None] >> np.arange(k) & 1).astype(float)
        g = u @ y.T + (y[:, i] * y[:, j]) @ s
        new = np.maximum(top, g.max(axis=1))
        weight, kept = np.exp(g - new[:, None]), np.exp(top - new)
        top, mass, total = new, kept * mass + weight.sum(axis=1), kept[:, None] * total + weight @ y
    return total / mass[:, None]


if __name__ == "__main__":
    main()
