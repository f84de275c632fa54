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
from pathlib import Path

import numpy as np

import partita as pt
from benchmarks.data import LABELS, multilabel
from benchmarks.report import show
from benchmarks.timing import pin, timed, write
from paper.alternating import Fit, couplings, errors, start, trainings

LENGTHS = ((1, 1), (5, 1), (1, 5), (5, 5), (20, 20), (100, 100), (500, 500))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=1e-2)
    parser.add_argument("--penalty", type=float, default=1e-2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    pin()
    split = multilabel("emotions")
    for kind, coupling in couplings(LABELS["emotions"]).items():
        model, rows = start(coupling, split.x.shape[1]), []
        for name, fit in trainings(options.rate, options.penalty, LENGTHS).items():
            rows.append({"g": kind, "training": name, **averaged(fit, model, split, options.steps, options.seeds)})
            write(options.out / "alternating.jsonl", rows[-1])
        show(f"emotions, {kind} g", rows)


def averaged(fit: Fit, model: pt.EBM, split: pt.datasets.Split, steps: int, seeds: int) -> dict:
    """Means over the seeds of one way to train."""
    x, y, x_test, y_test = split
    # The first call compiles.
    fit(model, (x, y), steps, 0, None)
    runs = [timed(lambda seed=seed: fit(model, (x, y), steps, seed, None)) for seed in range(seeds)]
    each = [errors(trained, x, y, "train") | errors(trained, x_test, y_test, "test") for trained, _ in runs]
    found = {name: float(np.mean([row[name] for row in each])) for name in each[0]}
    worst, seconds = max(row["train NLL"] for row in each), float(np.mean([seconds for _, seconds in runs]))
    return found | {"worst": worst, "steps": steps, "seconds": seconds}


if __name__ == "__main__":
    main()
