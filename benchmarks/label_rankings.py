"""LabelRanker with one default setting beside what one would use instead, on the paper's rankings and on sushi.

    python -m benchmarks.label_rankings [--splits 10] [--min-min 2] [--out out/bench] [iris wine ...]

Mean Kendall tau x 100 over random splits (seeds 0 to 9, 20 % test): of LabelRanker(); of
LabelRanker(objective="min-min"), on the first splits only, for it takes longer; of extra trees and of RBF kernel ridge
on rank vectors, the latter tuned by five-fold grid search. Every choice is made on train. sushi is named sushi_one_hot;
there kernel ridge takes minutes a split.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

import partita as pt
from benchmarks.data import RANKINGS, ranking
from benchmarks.report import show
from benchmarks.timing import timed, write
from paper.methods import kernel_ridge


def peers(features: int) -> dict[str, Any]:
    """What one would use instead."""
    return {"extra trees": ExtraTreesRegressor(300, random_state=0), "kernel ridge": kernel_ridge(0, features)}


def ours(objectives: tuple[str, ...]) -> dict[str, pt.LabelRanker]:
    return {objective: pt.LabelRanker(objective=objective, random_state=0) for objective in objectives}


def compare(name: str, seed: int, objectives: tuple[str, ...]) -> tuple[dict[str, float], dict[str, float]]:
    """Kendall tau and seconds of everyone on one split."""
    x, y, x_test, y_test = ranking(name, seed)
    scores, seconds = {}, {}
    for who, ranker in {**peers(x.shape[1]), **ours(objectives)}.items():
        fitted, seconds[who] = timed(lambda ranker=ranker: ranker.fit(x, y))
        answer = np.asarray(fitted.predict(x_test))
        ranks = np.argsort(np.argsort(answer, axis=1, kind="stable"), axis=1)
        scores[who] = 100 * pt.metrics.kendall(y_test, ranks)
    return scores, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(RANKINGS))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--min-min", type=int, default=2, help="how many of the splits min-min takes part in")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    table = []
    for name in options.names:
        rows = []
        for seed in range(options.splits):
            objectives = ("auto", "min-min") if seed < options.min_min else ("auto",)
            scores, seconds = compare(name, seed, objectives)
            write(options.out / "label_rankings.jsonl", {"set": name, "seed": seed, "kendall": scores, "s": seconds})
            rows.append((scores, seconds))
        mean = {who: float(np.mean([scores[who] for scores, _ in rows])) for who in rows[-1][0]}
        best = max(mean["extra trees"], mean["kernel ridge"])
        spent = {f"{who} s": float(np.median([seconds[who] for _, seconds in rows])) for who in rows[-1][1]}
        both = [scores["min-min"] - scores["auto"] for scores, _ in rows if "min-min" in scores]
        less = {"min-min - auto": float(np.mean(both))} if both else {}
        table.append({"set": name, **mean, "above the best": mean["auto"] - best, **less, **spent})
        show(f"{name}, {options.splits} splits", [table[-1]])
    show(f"Mean Kendall tau x 100 over {options.splits} splits", table)


if __name__ == "__main__":
    main()
