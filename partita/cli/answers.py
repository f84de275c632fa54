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
from ..estimators.codecs import orderings, shared_ranks
from ..persistence import ConsentError, FileError, load

__all__ = ["check", "learn", "open_model", "predictions", "read_for", "scores", "task_of"]

Fitted = MultilabelClassifier | LabelRanker
Labels = int | str | list[str] | None
LOG_PROB, RANKING = "log_prob", "ranking"


def check(data: Dataset) -> None:
    """Refuse training data of which the columns could not be told apart later."""
    if len(data.classes) < 2:
        raise DataError(f"{data.name}: expected at least 2 labels, got {len(data.classes)}.")
    names = (*data.feature_names, *(data.classes if data.task == "multilabel" else ()))
    name, times = Counter(names).most_common(1)[0] if data.feature_names else ("", 1)
    if times > 1:
        raise DataError(f"{data.name}: expected columns of different names, got {times} that are called {name!r}.")


def learn(estimator: Fitted, data: Dataset, checkpoint: Path | None) -> None:
    """Fit the estimator, to the end: a model of half a fit is not written, and with a checkpoint the fit can go on."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptedFitWarning)
        try:
            estimator.fit(data.x, _dense(data.y), checkpoint=checkpoint)
        except InterruptedFitWarning as warning:
            raise KeyboardInterrupt from warning
    if data.feature_names:
        # Where scikit-learn keeps those of frames, which needs no pandas.
        estimator.feature_names_in_ = np.array(data.feature_names, object)


def open_model(path: Path, trust: bool) -> Fitted:
    """The estimator in a file."""
    try:
        model = load(path, trusted=trust)
    except ConsentError as error:
        raise FileError(
            f"{path} has a reference of scikit-learn, a pickle in {path}.sklearn, which executes whatever code is in "
            "it when it is read. If you trust where it comes from, give --trust."
        ) from error
    if not isinstance(model, Fitted) or not hasattr(model, "ebm_"):
        raise FileError(f"{path} holds no fitted MultilabelClassifier or LabelRanker, but a {type(model).__name__}.")
    return model


def task_of(model: Fitted) -> Task:
    """What its outputs are."""
    return "ranking" if isinstance(model, LabelRanker) else "multilabel"


def read_for(model: Fitted, path: Path, labels: Labels) -> Dataset:
    """A file of rows such as those that the estimator was fitted on; columns that it does not know are left out.

    Of label sets, labels=None are those of the estimator.
    """
    classes, task = [str(label) for label in model.classes_], task_of(model)
    if labels is None and task == "multilabel":
        labels = classes
    names = getattr(model, "feature_names_in_", None)
    features = model.n_features_in_ if names is None else [str(name) for name in names]
    return read(path, task=task, labels=labels, features=features, classes=classes if task == "ranking" else None)


def predictions(model: Fitted, data: Dataset, proba: bool) -> dict[str, list[Any]]:
    """The columns of `partita predict`: the answer, the log of its probability, and marginals if asked for."""
    x, labels = _rows(model, data), [str(label) for label in model.classes_]
    answer = model.predict(x)
    y = model.codec_.encode(answer).y
    ranked = isinstance(model, LabelRanker)
    columns = [(RANKING, orderings(y, labels))] if ranked else list(zip(labels, y.T, strict=True))
    columns.append((LOG_PROB, model.log_prob(x, answer)))
    if proba:
        columns += _marginals(np.asarray(model.predict_proba(x)), labels)
    table = {name: np.asarray(values).tolist() for name, values in columns}
    if len(table) < len(columns):
        raise ValueError(f"A label has the name of another column, {LOG_PROB} say. Rename it in the training file.")
    return table


def scores(model: Fitted, data: Dataset) -> dict[str, float]:
    """The metrics of the task. Answers are compared with label sets that are known as a whole, log p is of all rows."""
    x, truth = _rows(model, data), _in_kind(model, data)
    answer, known = model.codec_.encode(model.predict(x)), model.codec_.encode(truth)
    values = {"rows": len(known.y)}
    if isinstance(model, LabelRanker):
        pair = shared_ranks(known), answer.y
        values |= {"kendall": metrics.kendall(*pair), "spearman": metrics.spearman(*pair)}
    else:
        whole = np.full(len(known.y), True) if known.mask is None else ~known.mask.any(axis=1)
        if not whole.any():
            raise DataError(f"{data.name}: no row has all of its labels, so that no answer can be judged.")
        values |= {} if whole.all() else {"whole_rows": int(whole.sum())}
        compared = (metrics.subset_accuracy, metrics.micro_f1, metrics.hamming_loss)
        values |= {metric.__name__: metric(known.y[whole], answer.y[whole]) for metric in compared}
    return {**values, "log_likelihood": metrics.log_likelihood(model.log_prob(x, truth))}


def _rows(model: Fitted, data: Dataset) -> Any:
    """x, sparse only if it was so in fit."""
    centered = model.scaler_ is not None and not model.scaler_.sparse
    return data.x.toarray() if centered and scipy.sparse.issparse(data.x) else data.x


def _dense(y: Any) -> np.ndarray:
    return y.toarray() if scipy.sparse.issparse(y) else y


def _in_kind(model: Fitted, data: Dataset) -> Any:
    """y in the kind of the y that the estimator was fitted on, which `partita fit` chose or someone's Python did."""
    y, kind, labels = _dense(data.y), model.codec_.kind, [str(label) for label in model.classes_]
    if data.task == "ranking":
        return y if kind == "ranks" else orderings(y, labels)
    if y.shape[1] != len(labels):
        raise DataError(f"{data.name}: expected {len(labels)} labels, as in the model, got {y.shape[1]}.")
    if set(data.classes) == set(labels):
        y = y[:, [data.classes.index(label) for label in labels]]
    if kind not in ("sets", "classes"):
        return y
    if np.isnan(y).any():
        raise DataError(f"{data.name}: the model was fitted on {kind}, which cannot be known in part.")
    return model.codec_.decode(y)


def _marginals(p: np.ndarray, labels: list[str]) -> list[tuple[str, np.ndarray]]:
    if p.ndim == 2:
        return [(f"P({label})", column) for label, column in zip(labels, p.T, strict=True)]
    return [(f"P({label}={rank})", p[:, j, rank]) for j, label in enumerate(labels) for rank in range(len(labels))]
