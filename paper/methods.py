"""What stands beside the paper's method: this library's estimators, and what people use today."""

import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .. import datasets, decisions, metrics
from ..estimators import LabelRanker, MultilabelClassifier
from .protocol import PROTOCOL, Effort, dev_split, standardized

__all__ = ["OTHERS", "Other", "kernel_ridge", "score"]

LIBRARY, TODAY = "This library", "What people use today"
# A first look has no time to choose one.
QUICK_PENALTY = 3e-2
# What peers choose from on dev rows; a first look takes the first, which is the default of their libraries.
INVERSE_PENALTIES = (1.0, 0.01, 0.1, 10.0)
NEIGHBORS = (10, 5, 20)
MULTILEARN = "scikit-multilearn-ng"
MODULES = {MULTILEARN: "skmultilearn"}


class Other(NamedTuple):
    """A method by name: what answers x_test, given a split, a seed and how long an estimator may train."""

    name: str
    title: str
    block: str
    task: str
    answer: Callable[[datasets.Split, int, dict[str, Any]], np.ndarray]
    needs: str = ""

    @property
    def installed(self) -> bool:
        """Whether the package that it needs, if any, is there."""
        return not self.needs or importlib.util.find_spec(MODULES[self.needs]) is not None

    def config(self, dataset: str, effort: Effort) -> dict[str, Any]:
        quick = {"members": 2, "steps": effort.steps, "penalty": QUICK_PENALTY} if effort.quick else {}
        seeds = list(effort.seeds)
        known = {"protocol": PROTOCOL, "kind": "other", "name": self.name, "dataset": dataset}
        return {**known, "seeds": seeds, "options": quick}


def score(given: Mapping[str, Any]) -> dict[str, Any]:
    """Test scores x 100 of every seed."""
    other = next(other for other in OTHERS if other.name == given["name"])
    data = datasets.load(given["dataset"])
    rate = metrics.micro_f1 if other.task == "multilabel" else metrics.kendall
    found = []
    for seed in given["seeds"]:
        split = datasets.split(data, seed=seed)
        found.append(100 * rate(split.y_test, other.answer(split, seed, given["options"])))
    return {"test": found}


def _classifier(**settings: Any) -> Callable:
    def answer(split, seed, options):
        reference = {"reference": _trees(seed)} if settings.get("reference") == "trees" else {}
        estimator: Any = MultilabelClassifier(**{**settings, **options, **reference}, random_state=seed)
        return estimator.fit(split.x, split.y).predict(split.x_test)

    return answer


def _ranker(**settings: Any) -> Callable:
    def answer(split, seed, options):
        estimator: Any = LabelRanker(**settings, **options, random_state=seed)
        return estimator.fit(split.x, split.y).predict(split.x_test)

    return answer


def _trees(seed: int) -> ExtraTreesClassifier:
    return ExtraTreesClassifier(300, min_samples_leaf=2, random_state=seed)


def _chosen(values: Sequence[Any], answer: Callable[[datasets.Split, int, Any], np.ndarray]) -> Callable:
    """What answers with the value under which the dev rows are answered best."""

    def best(split, seed, options):
        if options:
            return answer(split, seed, values[0])
        train, dev = dev_split(len(split.y))
        look = datasets.Split(split.x[train], split.y[train], split.x[dev], split.y[dev])
        scores = [metrics.micro_f1(look.y_test, answer(look, seed, value)) for value in values]
        return answer(split, seed, values[int(np.argmax(scores))])

    return best


def _logistic(inverse: float) -> LogisticRegression:
    return LogisticRegression(C=inverse, max_iter=1000)


def _logistics(split: datasets.Split, seed: int, inverse: float) -> np.ndarray:
    model = make_pipeline(StandardScaler(), OneVsRestClassifier(_logistic(inverse)))
    return _thresholded(model, split, seed)


def _chains(split: datasets.Split, seed: int, inverse: float) -> np.ndarray:
    """Ten chains of random orders, their probabilities averaged."""
    chains = [ClassifierChain(_logistic(inverse), order="random", random_state=10 * seed + i) for i in range(10)]
    x, _, x_test, _ = standardized(split)
    return (np.mean([chain.fit(x, split.y).predict_proba(x_test) for chain in chains], axis=0) > 0.5).astype(int)


def _nearest(split: datasets.Split, _: int, neighbors: int) -> np.ndarray:
    from skmultilearn.adapt import MLkNN

    return _answered(MLkNN(k=neighbors), split)


def _powerset(split: datasets.Split, _: int, inverse: float) -> np.ndarray:
    from skmultilearn.problem_transform import LabelPowerset

    return _answered(LabelPowerset(_logistic(inverse)), split)


def _rakel(split: datasets.Split, seed: int, inverse: float) -> np.ndarray:
    """A powerset for every three labels, which are drawn."""
    from skmultilearn.cluster import FixedLabelSpaceClusterer
    from skmultilearn.ensemble import LabelSpacePartitioningClassifier
    from skmultilearn.problem_transform import LabelPowerset

    order = np.random.RandomState(seed).permutation(split.y.shape[1])
    parts = [sorted(order[i : i + 3]) for i in range(0, len(order), 3)]
    base = LabelPowerset(_logistic(inverse))
    return _answered(LabelSpacePartitioningClassifier(base, FixedLabelSpaceClusterer(parts)), split)


def _answered(model: Any, split: datasets.Split) -> np.ndarray:
    """What a model of scikit-multilearn says of the test rows. It changes the labels that it is given."""
    x, y, x_test, _ = standardized(split)
    with warnings.catch_warnings():
        # Of cal500 every row is a class of its own, of which scikit-learn warns.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return np.asarray(model.fit(x, y.copy()).predict(x_test).toarray(), int)


def _thresholded(model: Any, split: datasets.Split, seed: int) -> np.ndarray:
    """A classifier with the threshold under which rows that it has not seen have the best micro-F1."""
    # Shuffled: rows of some files are in the order of their labels.
    folds = KFold(5, shuffle=True, random_state=seed)
    unseen = _probabilities(cross_val_predict(model, split.x, split.y, cv=folds, method="predict_proba"))
    rule = decisions.MicroF1.fit(unseen, split.y)
    whole: Any = clone(model)
    return rule(_probabilities(whole.fit(split.x, split.y).predict_proba(split.x_test))).y


def _regressed(make: Callable[[int, int], Any]) -> Callable:
    """A regression of rank vectors, sorted."""

    def answer(split, seed, _):
        x, _, x_test, _ = standardized(split)
        said = make(seed, x.shape[1]).fit(x, split.y).predict(x_test)
        return np.argsort(np.argsort(said, axis=1, kind="stable"), axis=1)

    return answer


def kernel_ridge(_: int, features: int) -> Any:
    """RBF kernel ridge, tuned by five folds."""
    grid = {"alpha": [1e-3, 1e-2, 1e-1, 1.0], "gamma": [scale / features for scale in (0.03, 0.1, 0.3, 1.0)]}
    return GridSearchCV(KernelRidge(kernel="rbf"), grid, cv=5)


def _probabilities(found: Any) -> np.ndarray:
    """(n, k), also of trees, which give a table for each label."""
    return np.stack([table[:, -1] for table in found], axis=1) if isinstance(found, list) else np.asarray(found)


OTHERS = (
    Other("mode", "MultilabelClassifier(), the mode", LIBRARY, "multilabel", _classifier()),
    Other(
        "micro_f1", "MultilabelClassifier(decision='micro_f1')", LIBRARY, "multilabel", _classifier(decision="micro_f1")
    ),
    Other(
        "engine",
        "MultilabelClassifier(objective='min-min', decision='micro_f1')",
        LIBRARY,
        "multilabel",
        _classifier(objective="min-min", decision="micro_f1"),
    ),
    Other(
        "on-trees",
        "MultilabelClassifier(reference=ExtraTreesClassifier(), decision='micro_f1')",
        LIBRARY,
        "multilabel",
        _classifier(reference="trees", decision="micro_f1"),
    ),
    Other(
        "logistics",
        "Logistic regressions, fitted threshold",
        TODAY,
        "multilabel",
        _chosen(INVERSE_PENALTIES, _logistics),
    ),
    Other("ten-chains", "Ten classifier chains", TODAY, "multilabel", _chosen(INVERSE_PENALTIES, _chains)),
    Other(
        "trees",
        "Extra trees, fitted threshold",
        TODAY,
        "multilabel",
        lambda split, seed, _: _thresholded(_trees(seed), split, seed),
    ),
    Other("mlknn", "MLkNN", TODAY, "multilabel", _chosen(NEIGHBORS, _nearest), MULTILEARN),
    Other(
        "powerset",
        "Label powerset of a logistic regression",
        TODAY,
        "multilabel",
        _chosen(INVERSE_PENALTIES, _powerset),
        MULTILEARN,
    ),
    Other(
        "rakel",
        "RAkEL of logistic regressions, three labels each",
        TODAY,
        "multilabel",
        _chosen(INVERSE_PENALTIES, _rakel),
        MULTILEARN,
    ),
    Other("ranker", "LabelRanker(): exact likelihood", LIBRARY, "ranking", _ranker()),
    Other("ranker-engine", "LabelRanker(objective='min-min')", LIBRARY, "ranking", _ranker(objective="min-min")),
    Other(
        "regressed-trees",
        "Extra trees on rank vectors",
        TODAY,
        "ranking",
        _regressed(lambda seed, _: ExtraTreesRegressor(300, random_state=seed)),
    ),
    Other("kernel-ridge", "Kernel ridge on rank vectors", TODAY, "ranking", _regressed(kernel_ridge)),
)
