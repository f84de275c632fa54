"""Data sets as x and y: files of one's own, those that are known by name, and their splits."""

import os
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse
from sklearn.model_selection import train_test_split

from ..estimators.codecs import Rankings, shared_ranks
from .formats import (
    PACKED,
    DataError,
    Fields,
    Frame,
    Matrix,
    Sparse,
    quote,
    read_arff,
    read_csv,
    read_libsvm,
    read_parquet,
    unpack,
)
from .registry import SETS, Entry, File, Task, entry
from .store import Folder, read_content

__all__ = ["Dataset", "Split", "load", "parse", "read", "split"]

Table = Fields | Frame

TABLES: dict[str, Callable[[bytes, str], Table | Sparse]] = {
    ".csv": read_csv,
    ".txt": read_csv,
    ".arff": read_arff,
    ".parquet": read_parquet,
}
LIBSVM = (".libsvm", ".svm")
# cal500 is split by this seed whatever seed is asked for, so that results always refer to the same rows.
FIXED_SEEDS = {"cal500": 0}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows x with outputs y, and the names of their columns.

    Parameters
    ----------
    name : str
        The name of the set, or of the file.
    task : {"multilabel", "ranking"}
        What the outputs are.
    x : {ndarray, csr matrix} of shape (n_rows, n_features)
        Features; csr where the file is sparse.
    y : {ndarray, csr matrix} of shape (n_rows, n_labels)
        Label sets as 0/1: csr where x is csr, else int32, or float with NaN where labels are missing. Rankings as
        ranks, 0 is best; labels that are tied, or that a row does not name, share the least of their ranks.
    feature_names, classes : tuple of str
        The names of the features and of the labels.
    train : int or None, default=None
        How many of the first rows are the official training rows; None where there is no official split.
    note : str, default=""
        What to know before results are compared.
    """

    name: str
    task: Task
    x: Matrix
    y: Matrix
    feature_names: tuple[str, ...]
    classes: tuple[str, ...]
    train: int | None = None
    note: str = ""

    def __repr__(self) -> str:
        n, d = self.x.shape
        message = f"{n} rows, {d} features, {len(self.classes)} labels"
        return f"Dataset({self.name!r}, {self.task!r}, {message}, train={self.train})"


class Split(NamedTuple):
    """Training and test rows.

    Parameters
    ----------
    x, y : {ndarray, csr matrix}
        Features and outputs of the training rows.
    x_test, y_test : {ndarray, csr matrix}
        Features and outputs of the test rows.
    """

    x: Matrix
    y: Matrix
    x_test: Matrix
    y_test: Matrix


def load(name: str, *, folder: Folder = None, download: bool = True) -> Dataset:
    """Load a data set that is known by name, downloading it if need be.

    Parameters
    ----------
    name : str
        One of `datasets.names()`.
    folder : str or path-like, default=None
        Where to look for its files first; by default the folder PARTITA_DATA. The cache is next.
    download : bool, default=True
        Whether to download files that are in neither.

    Returns
    -------
    Dataset
        Its rows, the official training rows first.
    """
    known = entry(name)
    parts = [_parse_part(known, file, read_content(file, folder, download)[1]) for file in known.files]
    x, y = _stack([part.x for part in parts]), _stack([part.y for part in parts])
    if scipy.sparse.issparse(x) and not known.sparse:
        x, y = x.toarray(), y.toarray()
    train = parts[0].x.shape[0] if len(parts) > 1 else None
    return Dataset(name, known.task, x, y, parts[0].feature_names, parts[0].classes, train, known.note)


def split(dataset: Dataset, *, seed: int = 0) -> Split:
    """Split a data set into training and test rows.

    The official split where there is one, without rows of birds and mediamill that have no label, as in the paper. Else
    a random fifth are test rows; of cal500 always the same.

    Parameters
    ----------
    dataset : Dataset
        From `load` or `read`.
    seed : int, default=0
        The seed of a random split.

    Returns
    -------
    Split
        Training and test rows.
    """
    x, y = dataset.x, dataset.y
    known = SETS.get(dataset.name)
    if dataset.train is None:
        seed = FIXED_SEEDS.get(dataset.name, seed)
        x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=seed)
        return Split(x_train, y_train, x_test, y_test)
    rows = np.asarray(y.sum(axis=1)).ravel() > 0 if known and known.labeled else np.ones(x.shape[0], bool)
    train = np.arange(len(rows)) < dataset.train
    return Split(x[rows & train], y[rows & train], x[rows & ~train], y[rows & ~train])


def read(
    path: str | os.PathLike[str],
    *,
    task: Task,
    labels: int | str | Sequence[str] | None = None,
    features: int | Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """Read a data file of your own.

    Parameters
    ----------
    path : str or path-like
        A .csv, .txt (as .csv), .arff, .parquet, .libsvm or .svm file, also packed as .gz or .bz2.
    task : {"multilabel", "ranking"}
        What the outputs are.
    labels : int, str or sequence of str, default=None
        Of label sets, how many of the last columns are labels, or the names of the label columns; in LIBSVM files the
        number of labels, by default that of the largest. Of rankings, the column of orderings such as "b>a>c", best
        first; by default the last one. With 0 only features are read, and y has no columns.
    features : int or sequence of str, default=None
        How many features there must be, or which columns they are, in this order; by default all that are no labels.
        LIBSVM files, whose features have no names, may have fewer.
    classes : sequence of str, default=None
        All labels of rankings, in their order; by default those that the file names, sorted.

    Returns
    -------
    Dataset
        The rows of the file.

    Raises
    ------
    DataError
        Where the file cannot be read, with its line.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from partita import datasets
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "drinks.csv")
    ...     _ = path.write_text("age,ranking\\n30,tea>milk>water\\n40,water>milk=tea\\n")
    ...     drinks = datasets.read(path, task="ranking")
    >>> drinks.classes, drinks.y.tolist()
    (('milk', 'tea', 'water'), [[1, 0, 2], [1, 1, 0]])
    """
    path = Path(path)
    content = unpack(path.read_bytes(), path.name)
    return parse(content, path.name, task=task, labels=labels, features=features, classes=classes)


def parse(
    content: bytes,
    name: str,
    *,
    task: Task,
    labels: int | str | Sequence[str] | None,
    features: int | Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    coded: bool = False,
) -> Dataset:
    """The data in the unpacked content of a file; of `coded` features, 26:Osaka stands for 26."""
    if task not in ("multilabel", "ranking"):
        raise ValueError(f"task must be 'multilabel' or 'ranking'; got {task!r}.")
    suffix = _suffix(name)
    if suffix in LIBSVM:
        number = features if features is None or isinstance(features, int) else len(features)
        return _from_libsvm(content, name, task, labels, number)
    if suffix not in TABLES:
        kinds = ", ".join((*TABLES, *LIBSVM))
        raise DataError(f"{name}: expected a file that ends in {kinds}, or in one of these with .gz or .bz2.")
    table = TABLES[suffix](content, name)
    columns = table.fields.columns if isinstance(table, Sparse) else table.columns
    outputs = (_label_columns if task == "multilabel" else _ranking_column)(columns, labels, name)
    inputs = _feature_columns(columns, outputs, features, name)
    names = tuple(columns[j] for j in outputs)
    if isinstance(table, Sparse):
        x, y = _sparse_sets(table, inputs, outputs, task)
    else:
        x = table.numbers(inputs, coded=coded)
        if task == "ranking" and outputs:
            y, names = _rankings(table, outputs[0], classes)
        else:
            y = _label_sets(table, outputs)
    return Dataset(name, task, x, y, tuple(columns[j] for j in inputs), names)


def _suffix(name: str) -> str:
    path = Path(name.lower())
    return path.with_suffix("").suffix if path.suffix in PACKED else path.suffix


def _from_libsvm(content: bytes, name: str, task: Task, labels: object, features: int | None) -> Dataset:
    if task == "ranking" and labels != 0:
        raise DataError(f"{name}: LIBSVM files hold label sets, and no rankings.")
    if isinstance(labels, list | tuple) and list(labels) == [*map(str, range(len(labels)))]:
        # The names that labels of LIBSVM files get below.
        labels = len(labels)
    if not (labels is None or isinstance(labels, int)):
        raise ValueError(f"The labels of LIBSVM files have no names: labels must be their number; got {labels!r}.")
    for argument, number in {"labels": labels, "features": features}.items():
        if number is not None and number < (argument == "features"):
            raise ValueError(f"{argument} must be a number of columns; got {number}.")
    x, y = read_libsvm(content, name, features=features, labels=labels)
    return Dataset(name, task, x, y.astype(np.int32), (), tuple(map(str, range(y.shape[1]))))


def _label_columns(columns: tuple[str, ...], labels: int | str | Sequence[str] | None, name: str) -> list[int]:
    if labels is None:
        raise ValueError("labels must be the number of label columns, which are the last ones, or their names.")
    if isinstance(labels, int):
        if not 0 <= labels < len(columns):
            raise DataError(f"{name} has {len(columns)} columns, features and labels together; got labels={labels}.")
        return list(range(len(columns) - labels, len(columns)))
    return [_position(column, columns, name) for column in ([labels] if isinstance(labels, str) else labels)]


def _ranking_column(columns: tuple[str, ...], labels: int | str | Sequence[str] | None, name: str) -> list[int]:
    if labels == 0:
        return []
    if labels is None:
        return [len(columns) - 1]
    if not isinstance(labels, str):
        raise ValueError(f"labels must name the column of rankings, or be None for the last one; got {labels!r}.")
    return [_position(labels, columns, name)]


def _feature_columns(
    columns: tuple[str, ...], outputs: list[int], features: int | Sequence[str] | None, name: str
) -> list[int]:
    if features is not None and not isinstance(features, int):
        return [_position(column, columns, name) for column in features]
    others = sorted({*range(len(columns))} - {*outputs})
    if not others or features not in (None, len(others)):
        raise DataError(f"{name}: expected {features or 'some'} features, got {len(others)}.")
    return others


def _position(column: str, columns: tuple[str, ...], name: str) -> int:
    if columns.count(column) != 1:
        last = ", ".join(map(quote, columns[-5:]))
        raise DataError(f"{name}: expected one column {column!r}, got {columns.count(column)}; the last are {last}.")
    return columns.index(column)


def _label_sets(table: Table, outputs: list[int]) -> np.ndarray:
    y = table.label_values(outputs)
    wrong = ~(np.isnan(y) | (y == 0) | (y == 1))
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise table.error(int(i), f"expected 0 or 1 in the label {quote(table.columns[outputs[j]])}, got {y[i, j]:g}.")
    # Not int8: scikit-learn confuses more than 128 labels of it.
    return y if np.isnan(y).any() else y.astype(np.int32)


def _sparse_sets(table: Sparse, inputs: list[int], outputs: list[int], task: Task) -> tuple[Matrix, Matrix]:
    if task == "ranking" and outputs:
        raise DataError(f"{table.fields.name}: sparse rows hold label sets, and no rankings.")
    x, y = table.values[:, inputs], table.values[:, outputs]
    wrong = y.data != 1
    if wrong.any():
        at = int(np.argmax(wrong))
        i = int(np.searchsorted(y.indptr, at, side="right")) - 1
        column = quote(table.fields.columns[outputs[y.indices[at]]])
        raise table.fields.error(i, f"expected 0 or 1 in the label {column}, got {y.data[at]:g}.")
    return x, y.astype(np.int32)


def _rankings(table: Table, column: int, classes: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Rank vectors, and the labels."""
    texts = table.texts(column)
    letters = "".join(classes or ())
    for i, text in enumerate(texts if classes and len(letters) == len(classes) else ()):
        if unknown := sorted({*text} - {*letters, ">", "=", " "}):
            expected = f"expected a ranking of the labels {letters[0]} to {letters[-1]}"
            raise table.error(i, f"{expected}, got {quote(unknown[0])} in {quote(text)}.")
    if not any(">" in text for text in texts):
        expected = f"expected rankings such as 'b>a>c' in the column {quote(table.columns[column])}"
        raise table.error(0, f"{expected}, got {quote(texts[0])}.")
    try:
        codec, encoded = Rankings.fit_encode(np.array(texts, object), classes)
    except ValueError as error:
        raise _error_with_line(table, texts, str(error)) from error
    return shared_ranks(encoded), tuple(map(str, codec.classes))


def _error_with_line(table: Table, texts: list[str], message: str) -> DataError:
    """An error of the codec of rankings, which names a row or a label, with the line of the file."""
    if row := re.match(r"Row (\d+), (.*)", message, re.DOTALL):
        return table.error(int(row[1]), row[2])
    if label := re.match(r"Y has '(.*)', which is not among the classes", message):
        return table.error(next(i for i, text in enumerate(texts) if label[1] in text), message.removeprefix("Y "))
    return DataError(f"{table.name}: {message}")


def _parse_part(known: Entry, file: File, content: bytes) -> Dataset:
    ranked = known.task == "ranking"
    return parse(
        content,
        file.path.rpartition("/")[2],
        task=known.task,
        labels=None if ranked else known.k,
        features=known.features,
        classes=string.ascii_lowercase[: known.k] if ranked else None,
        coded=known.coded,
    )


def _stack(parts: list[Matrix]) -> Matrix:
    if len(parts) == 1:
        return parts[0]
    return scipy.sparse.vstack(parts, format="csr") if scipy.sparse.issparse(parts[0]) else np.concatenate(parts)
