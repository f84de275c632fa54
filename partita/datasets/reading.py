"""Files of data as x and y."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..estimators.codecs import Rankings
from .formats import Sparse, read_arff, read_csv, read_libsvm, read_parquet
from .registry import Task
from .text import PACKED, DataError, Fields, Matrix, dense, shown, unpacked

__all__ = ["Dataset", "parsed", "read"]

TABLES: dict[str, Callable[[bytes, str], Fields | Sparse]] = {
    ".csv": read_csv,
    ".txt": read_csv,
    ".arff": read_arff,
    ".parquet": read_parquet,
}
LIBSVM = (".libsvm", ".svm")
# How a label is written beside 0 and 1; an empty field is a label that is not known.
WORDS = {"true": "1", "false": "0", "": "nan", "?": "nan"}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows x with outputs y, and what their columns are called.

    x is an array, or csr where the file is sparse. Label sets y are 0/1 (n, k): csr where x is csr, else an array of
    int32 (scikit-learn mixes up more than 128 labels of int8), or of floats if labels are missing, which are NaN.
    Rankings are rank vectors (n, k), 0 is best, where every row ranks every label strictly; otherwise, with ties, they
    are the n strings of the file. The first `train` rows are the official training rows; None if there are none. `note`
    is what to know before numbers are compared.
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
        said = f"{n} rows, {d} features, {len(self.classes)} labels"
        return f"Dataset({self.name!r}, {self.task!r}, {said}, train={self.train})"


def read(
    path: str | os.PathLike[str],
    *,
    task: Task,
    labels: int | str | Sequence[str] | None = None,
    features: int | Sequence[str] | None = None,
) -> Dataset:
    """A file of one's own: .csv, .txt (as .csv), .arff, .parquet, .libsvm or .svm, each also packed as .gz or .bz2.

    | task | labels |
    |---|---|
    | multilabel | how many of the last columns are labels, or the names of the label columns |
    | multilabel, LIBSVM | how many labels there are, or all of "0", "1", ...; None: as many as the largest says |
    | ranking | the column of orderings such as "b>a>c", best first; None: the last one |
    | both | 0: only features are read, and y has no columns |

    `features` is how many there must be, or which columns they are, in this order, whatever other columns there are. A
    LIBSVM file, whose features have no names, may have fewer than so many, or any number if it is not given.
    """
    path = Path(path)
    return parsed(unpacked(path.read_bytes(), path.name), path.name, task=task, labels=labels, features=features)


def parsed(
    content: bytes,
    name: str,
    *,
    task: Task,
    labels: int | str | Sequence[str] | None,
    features: int | Sequence[str] | None = None,
    letters: str = "",
    coded: bool = False,
) -> Dataset:
    """The unpacked content of a file of this name; `letters` are all labels of its rankings, if they are known."""
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
    classes = tuple(columns[j] for j in outputs)
    if isinstance(table, Sparse):
        x, y = _sparse_sets(table, inputs, outputs, task)
    else:
        x = dense(_codes(table) if coded else table, inputs)
        if task == "ranking" and outputs:
            y, classes = _rankings(table, outputs[0], letters)
        else:
            y = _label_sets(table, outputs)
    return Dataset(name, task, x, y, tuple(columns[j] for j in inputs), classes)


def _suffix(name: str) -> str:
    path = Path(name.lower())
    return path.with_suffix("").suffix if path.suffix in PACKED else path.suffix


def _from_libsvm(content: bytes, name: str, task: Task, labels: object, features: int | None) -> Dataset:
    if task == "ranking" and labels != 0:
        raise DataError(f"{name}: LIBSVM files hold label sets, and no rankings.")
    if isinstance(labels, list | tuple) and list(labels) == [*map(str, range(len(labels)))]:
        # As they are called in what is read here.
        labels = len(labels)
    if not (labels is None or isinstance(labels, int)):
        raise ValueError(f"The labels of LIBSVM files have no names: labels must be their number; got {labels!r}.")
    for asked, number in {"labels": labels, "features": features}.items():
        if number is not None and number < (asked == "features"):
            raise ValueError(f"{asked} must be a number of columns; got {number}.")
    x, y = read_libsvm(content, name, features=features, labels=labels)
    return Dataset(name, task, x, y.astype(np.int32), (), tuple(map(str, range(y.shape[1]))))


def _label_columns(columns: tuple[str, ...], labels: int | str | Sequence[str] | None, name: str) -> list[int]:
    if labels is None:
        raise ValueError("labels must say which columns are labels: how many of the last ones, or their names.")
    if isinstance(labels, int):
        if not 0 <= labels < len(columns):
            raise DataError(f"{name} has {len(columns)} columns, features and labels together; got labels={labels}.")
        return list(range(len(columns) - labels, len(columns)))
    return [_located(column, columns, name) for column in ([labels] if isinstance(labels, str) else labels)]


def _ranking_column(columns: tuple[str, ...], labels: int | str | Sequence[str] | None, name: str) -> list[int]:
    if labels == 0:
        return []
    if labels is None:
        return [len(columns) - 1]
    if not isinstance(labels, str):
        raise ValueError(f"labels must name the column of rankings, or be None for the last one; got {labels!r}.")
    return [_located(labels, columns, name)]


def _feature_columns(
    columns: tuple[str, ...], outputs: list[int], features: int | Sequence[str] | None, name: str
) -> list[int]:
    if features is not None and not isinstance(features, int):
        return [_located(column, columns, name) for column in features]
    left = sorted({*range(len(columns))} - {*outputs})
    if not left or features not in (None, len(left)):
        raise DataError(f"{name}: expected {features or 'some'} features, got {len(left)}.")
    return left


def _located(column: str, columns: tuple[str, ...], name: str) -> int:
    if columns.count(column) != 1:
        few = ", ".join(map(shown, columns[-5:]))
        raise DataError(f"{name}: expected one column {column!r}, got {columns.count(column)}; the last are {few}.")
    return columns.index(column)


def _label_sets(table: Fields, outputs: list[int]) -> np.ndarray:
    rows = [[WORDS.get(row[j].strip().lower(), row[j]) for j in outputs] for row in table.rows]
    columns = tuple(table.columns[j] for j in outputs)
    y = dense(table._replace(columns=columns, rows=rows), range(len(outputs)), missing=True)
    wrong = ~(np.isnan(y) | (y == 0) | (y == 1))
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise table.error(int(i), f"expected 0 or 1 in the label {shown(columns[j])}, got {y[i, j]:g}.")
    return y if np.isnan(y).any() else y.astype(np.int32)


def _sparse_sets(table: Sparse, inputs: list[int], outputs: list[int], task: Task) -> tuple[Matrix, Matrix]:
    if task == "ranking" and outputs:
        raise DataError(f"{table.fields.name}: sparse rows hold label sets, and no rankings.")
    x, y = table.values[:, inputs], table.values[:, outputs]
    wrong = y.data != 1
    if wrong.any():
        at = int(np.argmax(wrong))
        i = int(np.searchsorted(y.indptr, at, side="right")) - 1
        column = shown(table.fields.columns[outputs[y.indices[at]]])
        raise table.fields.error(i, f"expected 0 or 1 in the label {column}, got {y.data[at]:g}.")
    return x, y.astype(np.int32)


def _rankings(table: Fields, column: int, letters: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Rank vectors, or the strings where some rank is not known; and the labels."""
    texts = [row[column].strip() for row in table.rows]
    for i, text in enumerate(texts if letters else ()):
        if unknown := sorted({*text} - {*letters, ">", "=", " "}):
            said = f"expected a ranking of the labels {letters[0]} to {letters[-1]}, got {shown(unknown[0])}"
            raise table.error(i, f"{said} in {shown(text)}.")
    if not any(">" in text for text in texts):
        said = f"expected rankings such as 'b>a>c' in the column {shown(table.columns[column])}, got {shown(texts[0])}."
        raise table.error(0, said)
    try:
        codec, (y, mask) = Rankings.fit_encode(np.array(texts, object), tuple(letters) or None)
    except ValueError as error:
        raise _at_its_line(table, str(error)) from error
    return (y if mask is None else np.array(texts, object)), tuple(map(str, codec.classes))


def _at_its_line(table: Fields, said: str) -> DataError:
    """What the codec of rankings says of a row, said of its line."""
    found = re.match(r"Row (\d+), (.*)", said, re.DOTALL)
    return table.error(int(found[1]), found[2]) if found else DataError(f"{table.name}: {said}")


def _codes(table: Fields) -> Fields:
    return table._replace(rows=[[field.partition(":")[0] for field in row] for row in table.rows])
