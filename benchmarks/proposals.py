"""cal500, 174 labels: surrogate draws against Algorithm 1 and exact maximum likelihood, and how soon each is near.

    python -m benchmarks.proposals [--steps 3000] [--out out/bench]

Linear unary energy, MLP tau(x) (not the residual, which is exact here), full batch, Adam 1e-3, penalty 1e-3. Losses are
the exact negative log-likelihood on the 401 training rows, relative to the uniform reference. cal500 has no official
split: rows are those of train_test_split(test_size=0.2, random_state=0).
"""

import argparse
import time
from pathlib import Path

import jax

import partita as pt
from benchmarks.data import multilabel
from benchmarks.report import non_finite, show, train, unary_model
from benchmarks.timing import pin, write

RUNS = {
    "exact MLE": pt.objectives.ExactMLE(),
    "surrogate, B' = 4": pt.objectives.MinMin(4),
    "surrogate, B' = 16": pt.objectives.MinMin(16),
    "Algorithm 1, B' = 1000 shared": pt.objectives.MinMin(1000, "shared", proposal=None),
    "Algorithm 1, B' = 100 per row": pt.objectives.MinMin(100, proposal=None),
}
NEAR = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    pin()
    x, y, _, _ = multilabel("cal500")
    start = unary_model(jax.random.key(0), x.shape[1], y.shape[1])
    exact = pt.training.ValidationLoss(pt.objectives.ExactMLE(), pt.training.batch(start, x, y), jax.random.key(0))
    exact(start)
    rows, best = [], None
    for name, objective in RUNS.items():
        curve, asking = [], [0.0]

        def record(told: pt.training.Progress, curve=curve, asking=asking) -> None:
            began = time.perf_counter()
            loss = exact(told.model)
            asking[0] += time.perf_counter() - began
            curve.append((told.step, time.perf_counter() - asking[0], loss))

        began = time.perf_counter()
        run = {"rate": 1e-3, "penalty": 1e-3, "decay": False, "callbacks": [record]}
        solution, _ = train(start, objective, (x, y), name=name, steps=options.steps, **run)
        loss = curve[-1][2]
        best = loss if best is None else best
        near = next(((s, t - began) for s, t, value in curve if value <= best + NEAR * abs(best)), None)
        row = {
            "estimator": name,
            "exact train loss": loss,
            "off exact MLE, %": 100 * (loss - best) / abs(best),
            "seconds": curve[-1][1] - began,
            f"within {NEAR:.0%}": "never" if near is None else f"{near[1]:.1f} s, step {near[0]}",
            "non-finite": non_finite(solution),
        }
        write(options.out / "proposals.jsonl", row | {"curve": [(s, value) for s, _, value in curve]})
        rows.append(row)
    show(f"cal500, linear unary, tau(x), {options.steps} steps, one core (seconds include compilation)", rows)


if __name__ == "__main__":
    main()
