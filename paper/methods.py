"""Methods to compare with the paper's: this library's estimators, and what people use today."""

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

from partita import datasets, decisions, metrics
from partita.estimators import LabelRanker, MultilabelClassifier

from .protocol import dev_split, standardize
from .settings import PROTOCOL, Effort

__all__ = ["LIBRARY", "METHODS", "TODAY", "Method", "kernel_ridge", "score"]

LIBRARY, TODAY = "This library", "What people use today"
# For a first look, which has no time to choose one.
QUICK_PENALTY = 3e-2
# The values from which dev rows choose; a first look takes the first, which is the default of the method's library.
INVERSE_PENALTIES = (1.0, 0.01, 0.1, 10.0)
NEIGHBORS = (10, 5, 20)
MULTILEARN = "scikit-multilearn-ng"
MODULES = {MULTILEARN: "skmultilearn"}


class Method(NamedTuple):
    """A method by name; `answer` predicts x_test of a split, by a seed, with options of the estimators."""

    name: str
    title: str
    block: str
    task: str
    answer: Callable[[datasets.Split, int, dict[str, Any]], np.ndarray]
    needs: str = ""

    @property
    def installed(self) -> bool:
        """Whether the package that it needs, if any, is installed."""
        return not self.needs or importlib.util.find_spec(MODULES[self.needs]) is not None

    def configuration(self, dataset: str, effort: Effort) -> dict[str, Any]:
        """The configuration of its scores on a set, as the store keeps it."""
        options = {"ensemble_size": 2, "steps": effort.steps, "penalty": QUICK_PENALTY} if effort.quick else {}
        names = {"protocol": PROTOCOL, "kind": "other", "name": self.name, "dataset": dataset}
        return {**names, "seeds": list(effort.seeds), "options": options}


def score(config: Mapping[str, Any]) -> dict[str, Any]:
    """Test scores x 100 of every seed."""
    method = next(method for method in METHODS if method.name == config["name"])
    data = datasets.load(config["dataset"])
    metric = metrics.micro_f1 if method.task == "multilabel" else metrics.kendall
    scores = []
    for seed in config["seeds"]:
        split = datasets.split(data, seed=seed)
        scores.append(100 * metric(split.y_test, method.answer(split, seed, config["options"])))
    return {"test": scores}


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


def _tune(values: Sequence[Any], answer: Callable[[datasets.Split, int, Any], np.ndarray]) -> Callable:
    """An `answer` with the value that has the best micro-F1 on dev rows."""

    def best(split, seed, options):
        if options:
            return answer(split, seed, values[0])
        train, dev = dev_split(len(split.y))
        inner = datasets.Split(split.x[train], split.y[train], split.x[dev], split.y[dev])
        scores = [metrics.micro_f1(inner.y_test, answer(inner, seed, value)) for value in values]
        return answer(split, seed, values[int(np.argmax(scores))])

    return best


def _logistic(inverse: float) -> LogisticRegression:
    return LogisticRegression(C=inverse, max_iter=1000)


def _logistics(split: datasets.Split, seed: int, inverse: float) -> np.ndarray:
    model = make_pipeline(StandardScaler(), OneVsRestClassifier(_logistic(inverse)))
    return _fit_threshold(model, split, seed)


def _chains(split: datasets.Split, seed: int, inverse: float) -> np.ndarray:
    """Ten chains of random orders, their probabilities averaged."""
    chains = [ClassifierChain(_logistic(inverse), order="random", random_state=10 * seed + i) for i in range(10)]
    x, _, x_test, _ = standardize(split)
    return (np.mean([chain.fit(x, split.y).predict_proba(x_test) for chain in chains], axis=0) > 0.5).astype(int)


def _nearest(split: datasets.Split, _: int, neighbors: int) -> np.ndarray:
    from skmultilearn.adapt import MLkNN

    return _fit_predict(MLkNN(k=neighbors), split)


def _powerset(split: datasets.Split, _: int, inverse: float) -> np.ndarray:
    from skmultilearn.problem_transform import LabelPowerset

    return _fit_predict(LabelPowerset(_logistic(inverse)), split)


def _rakel(split: datasets.Split, seed: int, inverse: float) -> np.ndarray:
    """A powerset for every three labels, which are drawn."""
    from skmultilearn.cluster import FixedLabelSpaceClusterer
    from skmultilearn.ensemble import LabelSpacePartitioningClassifier
    from skmultilearn.problem_transform import LabelPowerset

    order = np.random.RandomState(seed).permutation(split.y.shape[1])
    parts = [sorted(order[i : i + 3]) for i in range(0, len(order), 3)]
    base = LabelPowerset(_logistic(inverse))
    return _fit_predict(LabelSpacePartitioningClassifier(base, FixedLabelSpaceClusterer(parts)), split)


def _fit_predict(model: Any, split: datasets.Split) -> np.ndarray:
    """Answers of a model of scikit-multilearn for the test rows. Its `fit` changes y in place, hence the copy."""
    x, y, x_test, _ = standardize(split)
    with warnings.catch_warnings():
        # scikit-learn warns of cal500, where every row is a class of its own.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return np.asarray(model.fit(x, y.copy()).predict(x_test).toarray(), int)


def _fit_threshold(model: Any, split: datasets.Split, seed: int) -> np.ndarray:
    """Answers of a classifier with the threshold that has the best micro-F1 on rows that it was not fitted on."""
    # Shuffled: rows of some files are in the order of their labels.
    folds = KFold(5, shuffle=True, random_state=seed)
    unseen = _probabilities(cross_val_predict(model, split.x, split.y, cv=folds, method="predict_proba"))
    rule = decisions.MicroF1.fit(unseen, split.y)
    whole: Any = clone(model)
    return rule(_probabilities(whole.fit(split.x, split.y).predict_proba(split.x_test))).y


def _rank_regression(make: Callable[[int, int], Any]) -> Callable:
    """A regression of rank vectors whose predictions are sorted."""

    def answer(split, seed, _):
        x, _, x_test, _ = standardize(split)
        predicted = make(seed, x.shape[1]).fit(x, split.y).predict(x_test)
        return np.argsort(np.argsort(predicted, axis=1, kind="stable"), axis=1)

    return answer


def kernel_ridge(_: int, features: int) -> Any:
    """RBF kernel ridge, tuned by five folds."""
    grid = {"alpha": [1e-3, 1e-2, 1e-1, 1.0], "gamma": [scale / features for scale in (0.03, 0.1, 0.3, 1.0)]}
    return GridSearchCV(KernelRidge(kernel="rbf"), grid, cv=5)


def _probabilities(output: Any) -> np.ndarray:
    """(n, k), also of trees, which give a table for each label."""
    return np.stack([table[:, -1] for table in output], axis=1) if isinstance(output, list) else np.asarray(output)


METHODS = (
    Method("mode", "MultilabelClassifier(), the mode", LIBRARY, "multilabel", _classifier()),
    Method(
        "micro_f1", "MultilabelClassifier(decision='micro_f1')", LIBRARY, "multilabel", _classifier(decision="micro_f1")
    ),
    Method(
        "engine",
        "MultilabelClassifier(objective='min-min', decision='micro_f1')",
        LIBRARY,
        "multilabel",
        _classifier(objective="min-min", decision="micro_f1"),
    ),
    Method(
        "on-trees",
        "MultilabelClassifier(reference=ExtraTreesClassifier(), decision='micro_f1')",
        LIBRARY,
        "multilabel",
        _classifier(reference="trees", decision="micro_f1"),
    ),
    Method(
        "logistics",
        "Logistic regressions, fitted threshold",
        TODAY,
        "multilabel",
        _tune(INVERSE_PENALTIES, _logistics),
    ),
    Method("ten-chains", "Ten classifier chains", TODAY, "multilabel", _tune(INVERSE_PENALTIES, _chains)),
    Method(
        "trees",
        "Extra trees, fitted threshold",
        TODAY,
        "multilabel",
        lambda split, seed, _: _fit_threshold(_trees(seed), split, seed),
    ),
    Method("mlknn", "MLkNN", TODAY, "multilabel", _tune(NEIGHBORS, _nearest), MULTILEARN),
    Method(
        "powerset",
        "Label powerset of a logistic regression",
        TODAY,
        "multilabel",
        _tune(INVERSE_PENALTIES, _powerset),
        MULTILEARN,
    ),
    Method(
        "rakel",
        "RAkEL of logistic regressions, three labels each",
        TODAY,
        "multilabel",
        _tune(INVERSE_PENALTIES, _rakel),
        MULTILEARN,
    ),
    Method("ranker", "LabelRanker(): exact likelihood", LIBRARY, "ranking", _ranker()),
    Method("ranker-engine", "LabelRanker(objective='min-min')", LIBRARY, "ranking", _ranker(objective="min-min")),
    Method(
        "regressed-trees",
        "Extra trees on rank vectors",
        TODAY,
        "ranking",
        _rank_regression(lambda seed, _: ExtraTreesRegressor(300, random_state=seed)),
    ),
    Method("kernel-ridge", "Kernel ridge on rank vectors", TODAY, "ranking", _rank_regression(kernel_ridge)),
)
