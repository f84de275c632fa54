"""Large and sparse label sets: MultilabelClassifier beside one-vs-rest logistic regression.

    python -m benchmarks.large [--out out/bench] [tmc2007-500 bibtex delicious]

Micro-F1 x 100 on test rows, with thresholds fitted on train: decision="micro_f1", and for logistic regression
(liblinear, binary features as they are) on its three-fold out-of-fold probabilities. Seconds include the thresholds.
The peak memory is that of a process of its own that only fits and predicts with partita.
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.multiclass import OneVsRestClassifier

import partita as pt
from benchmarks.data import sparse
from benchmarks.report import each, show
from benchmarks.timing import timed


def ours(name: str) -> dict[str, Any]:
    """Fit and predict; the peak of this process, in GB."""
    x, y, x_test, y_test = sparse(name)
    model = pt.MultilabelClassifier(decision="micro_f1", random_state=0)
    _, seconds = timed(lambda: model.fit(x, y))
    answer = model.predict(x_test)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    micro = 100 * pt.metrics.micro_f1(y_test.toarray(), answer.toarray())
    return {"partita": micro, "s": seconds, "peak GB": peak, "penalty": model.penalty_, "steps": model.n_iter_}


def peer(name: str) -> dict[str, Any]:
    """One-vs-rest logistic regression with a threshold fitted on train."""
    x, y, x_test, y_test = sparse(name)
    y, y_test = y.toarray(), y_test.toarray()
    model = OneVsRestClassifier(LogisticRegression(solver="liblinear"))

    def fit() -> tuple[Any, pt.decisions.MicroF1]:
        unseen = cross_val_predict(model, x, y, cv=3, method="predict_proba")
        return model.fit(x, y), pt.decisions.MicroF1.fit(unseen, y)

    (fitted, rule), seconds = timed(fit)
    return {"logistic": 100 * pt.metrics.micro_f1(y_test, rule(fitted.predict_proba(x_test)).y), "logistic s": seconds}


def compare(name: str) -> dict[str, Any]:
    """Both on one set, ours in a process of its own."""
    again = [sys.executable, "-m", "benchmarks.large", name, "--only-ours"]
    done = subprocess.run(again, stdout=subprocess.PIPE, text=True, check=True)
    return {"set": name, **json.loads(done.stdout.splitlines()[-1]), **peer(name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["tmc2007-500", "bibtex", "delicious"])
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    parser.add_argument("--only-ours", action="store_true", help="print one JSON line for the named set")
    options = parser.parse_args()
    if options.only_ours:
        print(json.dumps(ours(options.names[0])))
        return
    rows = each(options.names, compare, options.out / "large.jsonl")
    show("Micro-F1 x 100, threshold fitted on train", rows)


if __name__ == "__main__":
    main()
