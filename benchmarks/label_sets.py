"""MultilabelClassifier with one default setting on the paper's label sets, alone and on top of extra trees.

    python -m benchmarks.label_sets [--out out/bench] [emotions scene ...]

Micro-F1 x 100 on test rows, every choice made on train: of the estimator with decision="micro_f1" and no reference;
of ExtraTreesClassifier(300, min_samples_leaf=2) with a threshold fitted on its out-of-fold probabilities; of the
estimator with these trees as its reference. Then mean log p(y|x) of whole label sets on test rows, of the trees alone
(independent labels) and of the joint model: its log-partition is exact, by enumeration up to 19 labels; for cal500 the
largest of two annealed estimates, from r and from q, plus three standard errors each. The learned tau plays no part.
cal500 has no official split: its test rows are those of train_test_split(test_size=0.2, random_state=0).
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

import partita as pt
from benchmarks.data import LABELS, multilabel
from benchmarks.report import each, show
from benchmarks.timing import timed
from partita.estimators import cross_fitting, references

MAX_LISTED = 20


def trees() -> ExtraTreesClassifier:
    return ExtraTreesClassifier(300, min_samples_leaf=2, random_state=0)


def log_partition(model: pt.MultilabelClassifier, x: np.ndarray) -> np.ndarray:
    """Exact, or an estimate on its conservative side: a larger one makes every probability smaller."""
    if len(model.classes_) <= MAX_LISTED:
        return model.log_partition(x, method="exact")
    estimates = (pt.samplers.AnnealedImportanceSampling(hot=hot) for hot in (False, True))
    found = [model.log_partition_with_error(x, method=method) for method in estimates]
    return np.max([value + 3 * error for value, error in found], axis=0)


def joint_log_likelihood(model: pt.MultilabelClassifier, x: np.ndarray, y: np.ndarray) -> float:
    """log q + g - LSE."""
    unnormalized = model.log_prob(x, y, method="learned") + model.log_partition(x, method="learned")
    return float(np.mean(unnormalized - log_partition(model, x)))


def compare(name: str) -> dict[str, Any]:
    """One set."""
    x, y, x_test, y_test = multilabel(name)
    alone, alone_seconds = timed(lambda: pt.MultilabelClassifier(decision="micro_f1", random_state=0).fit(x, y))
    on_top = pt.MultilabelClassifier(decision="micro_f1", reference=trees(), random_state=0)
    on_top, seconds = timed(lambda: on_top.fit(x, y))
    q = on_top.reference_(x_test)
    of_trees = pt.decisions.MicroF1.fit(*unseen(x, y))
    told = of_trees(np.asarray(jax.nn.sigmoid(q.logits))).y
    by_trees = float(np.mean(jax.vmap(lambda q, y: q.log_prob(y))(q, y_test)))
    by_joint = joint_log_likelihood(on_top, x_test, y_test)
    return {
        "set": name,
        "micro-F1, alone": 100 * pt.metrics.micro_f1(y_test, alone.predict(x_test)),
        "trees": 100 * pt.metrics.micro_f1(y_test, told),
        "on trees": 100 * pt.metrics.micro_f1(y_test, on_top.predict(x_test)),
        "log p, alone": joint_log_likelihood(alone, x_test, y_test),
        "trees ": by_trees,
        "on trees ": by_joint,
        "gain": by_joint - by_trees,
        "penalty": f"{alone.penalty_:g}, {on_top.penalty_:g}",
        "fit s": f"{alone_seconds:.1f}, {seconds:.1f}",
    }


def unseen(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Out-of-fold probabilities of the trees, and the labels of those rows."""
    folds = cross_fitting.folds_of(len(y), 5, np.random.RandomState(0))
    space = pt.structures.Hypercube(y.shape[1])
    _, measures = references.fit_reference(trees(), x, y, space, folds=folds, rng=np.random.RandomState(0))
    return np.asarray(jax.nn.sigmoid(measures.logits)), y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(LABELS))
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    rows = each(options.names, compare, options.out / "label_sets.jsonl")
    show("MultilabelClassifier, one default setting; cal500 has no official split", rows)


if __name__ == "__main__":
    main()
