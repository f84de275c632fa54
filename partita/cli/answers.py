"""Files in the terms of an estimator, its answers as columns, and how good they are."""

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from .. import metrics
from ..datasets import DataError, Dataset, Task, read
from ..estimators import InterruptedFitWarning, LabelRanker, MultilabelClassifier
from ..estimators.codecs import Rankings, orderings
from ..estimators.ranker import shared_ranks
from ..persistence import ConsentError, FileError, load

__all__ = ["answered", "check", "figures", "learn", "open_model", "outputs", "read_for", "remember_names", "task_of"]

Fitted = MultilabelClassifier | LabelRanker
Labels = int | str | list[str] | None
LOG_PROB, RANKING = "log_prob", "ranking"


def check(found: Dataset) -> None:
    """Refuse training data of which the columns could not be told apart later."""
    if len(found.classes) < 2:
        raise DataError(f"{found.name}: expected at least 2 labels, got {len(found.classes)}.")
    names = (*found.feature_names, *(found.classes if found.task == "multilabel" else ()))
    name, times = Counter(names).most_common(1)[0] if found.feature_names else ("", 1)
    if times > 1:
        raise DataError(f"{found.name}: expected columns of different names, got {times} that are called {name!r}.")


def learn(estimator: Fitted, data: Dataset, checkpoint: Path | None) -> None:
    """Fit the estimator, to the end: a model of half a fit is not written, and with a checkpoint the fit can go on."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptedFitWarning)
        try:
            estimator.fit(data.x, outputs(data), checkpoint=checkpoint)
        except InterruptedFitWarning as warning:
            raise KeyboardInterrupt from warning


def open_model(path: Path, trust: bool) -> Fitted:
    """The estimator in a file."""
    try:
        found = load(path, trusted=trust)
    except ConsentError as error:
        said = (
            f"{path} has a reference of scikit-learn, a pickle in {path}.sklearn, which executes whatever code is in it"
        )
        raise FileError(f"{said} when it is read. If you trust where it comes from, give --trust.") from error
    if not isinstance(found, Fitted) or not hasattr(found, "ebm_"):
        raise FileError(f"{path} holds no fitted MultilabelClassifier or LabelRanker, but a {type(found).__name__}.")
    return found


def task_of(fitted: Fitted) -> Task:
    return "ranking" if isinstance(fitted, LabelRanker) else "multilabel"


def remember_names(fitted: Fitted, found: Dataset) -> None:
    """Keep the names of the features where scikit-learn keeps those of frames, which needs no pandas."""
    if found.feature_names:
        fitted.feature_names_in_ = np.array(found.feature_names, object)


def read_for(fitted: Fitted, path: Path, labels: Labels) -> Dataset:
    """A file of rows such as those that the estimator was fitted on; columns that it does not know are left out.

    Of label sets, labels=None are those of the estimator.
    """
    if labels is None and task_of(fitted) == "multilabel":
        labels = [str(label) for label in fitted.classes_]
    names = getattr(fitted, "feature_names_in_", None)
    features = fitted.n_features_in_ if names is None else [str(name) for name in names]
    return read(path, task=task_of(fitted), labels=labels, features=features)


def as_rows(fitted: Fitted, found: Dataset) -> Any:
    """x, sparse only if it was so in fit."""
    centered = fitted.scaler_ is not None and not fitted.scaler_.sparse
    return found.x.toarray() if centered and scipy.sparse.issparse(found.x) else found.x


def outputs(found: Dataset) -> np.ndarray:
    """y: label sets as a 0/1 array, rankings as strings."""
    if found.task == "ranking":
        return found.y if found.y.dtype == object else orderings(found.y, found.classes)
    return found.y.toarray() if scipy.sparse.issparse(found.y) else found.y


def answered(fitted: Fitted, found: Dataset, proba: bool) -> dict[str, list[Any]]:
    """The columns of `partita predict`: the answer, the log of its probability, and marginals if asked for."""
    x, labels = as_rows(fitted, found), [str(label) for label in fitted.classes_]
    said = fitted.predict(x)
    y = fitted.codec_.encode(said).y
    ranked = isinstance(fitted, LabelRanker)
    made = [(RANKING, orderings(y, labels))] if ranked else list(zip(labels, y.T, strict=True))
    made.append((LOG_PROB, fitted.log_prob(x, said)))
    if proba:
        made += _marginals(np.asarray(fitted.predict_proba(x)), labels)
    columns = {name: np.asarray(values).tolist() for name, values in made}
    if len(columns) < len(made):
        raise ValueError(f"A label has the name of another column, {LOG_PROB} say. Rename it in the training file.")
    return columns


def figures(fitted: Fitted, found: Dataset) -> dict[str, float]:
    """The metrics of the task. Answers are compared with label sets that are known as a whole, log p is of all rows."""
    x, truth = as_rows(fitted, found), _in_kind(fitted, found)
    answer, known = fitted.codec_.encode(fitted.predict(x)), fitted.codec_.encode(truth)
    made = {"rows": len(known.y)}
    if isinstance(fitted, LabelRanker):
        pair = shared_ranks(known), answer.y
        made |= {"kendall": metrics.kendall(*pair), "spearman": metrics.spearman(*pair)}
    else:
        whole = np.full(len(known.y), True) if known.mask is None else ~known.mask.any(axis=1)
        if not whole.any():
            raise DataError(f"{found.name}: no row has all of its labels, so that no answer can be judged.")
        made |= {} if whole.all() else {"whole_rows": int(whole.sum())}
        each = (metrics.subset_accuracy, metrics.micro_f1, metrics.hamming_loss)
        made |= {metric.__name__: metric(known.y[whole], answer.y[whole]) for metric in each}
    return {**made, "log_likelihood": metrics.log_likelihood(fitted.log_prob(x, truth))}


def _in_kind(fitted: Fitted, found: Dataset) -> Any:
    """y in the kind of the y that the estimator was fitted on, which `partita fit` chose or someone's Python did."""
    y, kind, labels = outputs(found), fitted.codec_.kind, [str(label) for label in fitted.classes_]
    if found.task == "ranking":
        return shared_ranks(Rankings.fit_encode(y, labels)[1]) if kind == "ranks" else y
    if y.shape[1] != len(labels):
        raise DataError(f"{found.name}: expected {len(labels)} labels, as in the model, got {y.shape[1]}.")
    if set(found.classes) == set(labels):
        y = y[:, [found.classes.index(label) for label in labels]]
    if kind not in ("sets", "classes"):
        return y
    if np.isnan(y).any():
        raise DataError(f"{found.name}: the model was fitted on {kind}, which cannot be known in part.")
    return fitted.codec_.decode(y)


def _marginals(p: np.ndarray, labels: list[str]) -> list[tuple[str, np.ndarray]]:
    if p.ndim == 2:
        return [(f"P({label})", column) for label, column in zip(labels, p.T, strict=True)]
    return [(f"P({label}={rank})", p[:, j, rank]) for j, label in enumerate(labels) for rank in range(len(labels))]
