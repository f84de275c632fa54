"""What the commands do: read files in the terms of an estimator, predict, score, and write the results."""

import contextlib
import csv
import importlib
import io
import json
import math
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from rich.console import Console
from rich.table import Column, Table

from .. import metrics
from ..atomic import write
from ..datasets import DataError, Dataset, Task, read
from ..estimators import InterruptedFitWarning, LabelRanker, MultilabelClassifier
from ..estimators.codecs import orderings, shared_ranks
from ..persistence import ConsentError, FileError, load

__all__ = [
    "as_json",
    "check_suffix",
    "check_training_data",
    "check_writable",
    "fit_estimator",
    "name_file",
    "open_model",
    "predictions",
    "read_for",
    "scores",
    "show",
    "store",
    "task_of",
]

Fitted = MultilabelClassifier | LabelRanker
Labels = int | str | list[str] | None
Columns = dict[str, list[Any]]
LOG_PROB, RANKING = "log_prob", "ranking"
# The width of a table where the output is no terminal.
WIDE = 160


def check_training_data(data: Dataset) -> None:
    """Raise for fewer than two labels, or columns of the same name."""
    if len(data.classes) < 2:
        raise DataError(f"{data.name}: expected at least 2 labels, got {len(data.classes)}.")
    names = (*data.feature_names, *(data.classes if data.task == "multilabel" else ()))
    name, count = Counter(names).most_common(1)[0] if data.feature_names else ("", 1)
    if count > 1:
        raise DataError(f"{data.name}: expected columns of different names, got {count} that are called {name!r}.")


def fit_estimator(estimator: Fitted, data: Dataset, checkpoint: Path | None) -> None:
    """Fit the estimator; an interruption raises, where the estimator alone would keep the best model so far."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptedFitWarning)
        try:
            estimator.fit(data.x, _dense(data.y), checkpoint=checkpoint)
        except InterruptedFitWarning as warning:
            raise KeyboardInterrupt from warning
    if data.feature_names:
        # As scikit-learn does for frames, without pandas.
        estimator.feature_names_in_ = np.array(data.feature_names, object)


def open_model(path: Path, trust: bool) -> Fitted:
    """The fitted estimator in a file."""
    try:
        model = load(path, trusted=trust)
    except ConsentError as error:
        raise FileError(
            f"{path} has a reference of scikit-learn, a pickle in {path}.sklearn, which executes whatever code is in "
            "it when it is read. If you trust where it comes from, add --trust."
        ) from error
    if not isinstance(model, Fitted) or not hasattr(model, "ebm_"):
        raise FileError(f"{path} holds no fitted MultilabelClassifier or LabelRanker, but a {type(model).__name__}.")
    return model


def task_of(model: Fitted) -> Task:
    """The task of an estimator."""
    return "ranking" if isinstance(model, LabelRanker) else "multilabel"


def read_for(model: Fitted, path: Path, labels: Labels) -> Dataset:
    """Read rows with the features of the estimator; other columns are left out.

    Of label sets, labels=None stands for the labels of the estimator.
    """
    classes, task = [str(label) for label in model.classes_], task_of(model)
    if labels is None and task == "multilabel":
        labels = classes
    names = getattr(model, "feature_names_in_", None)
    features = model.n_features_in_ if names is None else [str(name) for name in names]
    return read(path, task=task, labels=labels, features=features, classes=classes if task == "ranking" else None)


def predictions(model: Fitted, data: Dataset, proba: bool) -> dict[str, list[Any]]:
    """The columns of `partita predict`: the prediction, the log of its probability, and with `proba` marginals."""
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
        raise ValueError(f"A label has the name of another column, as {LOG_PROB}. Rename it in the training file.")
    return table


def scores(model: Fitted, data: Dataset) -> dict[str, float]:
    """The metrics of the task: of label sets over the rows without missing labels, log p over all rows."""
    x, truth = _rows(model, data), _in_kind(model, data)
    answer, known = model.codec_.encode(model.predict(x)), model.codec_.encode(truth)
    values = {"rows": len(known.y)}
    if isinstance(model, LabelRanker):
        pair = shared_ranks(known), answer.y
        values |= {"kendall": metrics.kendall(*pair), "spearman": metrics.spearman(*pair)}
    else:
        whole = np.full(len(known.y), True) if known.mask is None else ~known.mask.any(axis=1)
        if not whole.any():
            raise DataError(f"{data.name}: every row has missing labels, so that no prediction can be scored.")
        values |= {} if whole.all() else {"whole_rows": int(whole.sum())}
        set_metrics = (metrics.subset_accuracy, metrics.micro_f1, metrics.hamming_loss)
        values |= {metric.__name__: metric(known.y[whole], answer.y[whole]) for metric in set_metrics}
    return {**values, "log_likelihood": metrics.log_likelihood(model.log_prob(x, truth))}


def _rows(model: Fitted, data: Dataset) -> Any:
    """x, dense where the estimator was fitted on dense x."""
    centered = model.scaler_ is not None and not model.scaler_.sparse
    return data.x.toarray() if centered and scipy.sparse.issparse(data.x) else data.x


def _dense(y: Any) -> np.ndarray:
    return y.toarray() if scipy.sparse.issparse(y) else y


def _in_kind(model: Fitted, data: Dataset) -> Any:
    """y in the kind of y that the estimator was fitted on, by `partita fit` or in Python."""
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
        raise DataError(f"{data.name}: the model was fitted on {kind}, which cannot have missing labels.")
    return model.codec_.decode(y)


def _marginals(p: np.ndarray, labels: list[str]) -> list[tuple[str, np.ndarray]]:
    if p.ndim == 2:
        return [(f"P({label})", column) for label, column in zip(labels, p.T, strict=True)]
    return [(f"P({label}={rank})", p[:, j, rank]) for j, label in enumerate(labels) for rank in range(len(labels))]


def check_writable(path: Path, force: bool) -> None:
    """Raise before any work is done where a file cannot be written, or exists without `force`."""
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {path.parent}. Create it first.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} cannot be written: it is no plain file.")
    if path.exists() and not force:
        raise ValueError(f"{path} exists already; choose another name, or add --force to overwrite it.")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: the folder {path.parent} does not allow it.")


def check_suffix(path: Path) -> None:
    """Raise for a suffix that no table can be written as."""
    if path.suffix.lower() not in WRITERS:
        raise ValueError(f"The output must end in {', '.join(WRITERS)}; got {path}.")
    if path.suffix.lower() == ".parquet":
        importlib.import_module("polars")


@contextlib.contextmanager
def name_file(path: Path) -> Iterator[None]:
    """Name the file in an error of the disk."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"it could not be written: {error.strerror}", str(path)) from error


def store(columns: Columns, path: Path | None) -> None:
    """Write a table as a file, in the format of its suffix, or as CSV to standard output."""
    if path is None:
        sys.stdout.buffer.write(as_csv(columns))
        return
    content = WRITERS[path.suffix.lower()](columns)
    with name_file(path):
        write({os.fspath(path): content})


def as_csv(columns: Columns) -> bytes:
    result = io.StringIO(newline="")
    writer = csv.writer(result, lineterminator="\n")
    writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
    return result.getvalue().encode()


def as_lines(columns: Columns) -> bytes:
    rows = zip(*columns.values(), strict=True)
    return "".join(as_json(dict(zip(columns, row, strict=True))) + "\n" for row in rows).encode()


def as_parquet(columns: Columns) -> bytes:
    import polars

    result = io.BytesIO()
    polars.DataFrame(columns).write_parquet(result)
    return result.getvalue()


def as_json(values: dict[str, Any]) -> str:
    """Values on one line; null for infinity and NaN, which JSON does not have."""
    plain = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


WRITERS: dict[str, Callable[[Columns], bytes]] = {".csv": as_csv, ".jsonl": as_lines, ".parquet": as_parquet}


def show(columns: Columns) -> None:
    """Print a table."""
    table = Table(*(Column(name, overflow="fold") for name in columns))
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    # Without markup, so that brackets in names are printed.
    Console(width=None if sys.stdout.isatty() else WIDE, markup=False, highlight=False).print(table)
