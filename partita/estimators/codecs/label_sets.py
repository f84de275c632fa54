"""The codec of label sets: outputs as users write them, as 0/1 vectors, and back."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from ...structures import AbstractSpace
from ..names import SPACES
from .tables import (
    AbstractCodec,
    Encoded,
    class_positions,
    column_names,
    is_frame,
    is_missing,
    list_classes,
    missing_entries,
    read_labels,
    read_numbers,
    select_columns,
)

__all__ = ["LabelSets"]

TABLES = ("matrix", "frame", "sparse")


class LabelSets(AbstractCodec):
    """The encoding of label sets of one kind, learned by `fit_encode`.

    `encode` returns 0/1 vectors, `decode` writes them in the kind of Y.

    | kind | Y | decoded |
    |---|---|---|
    | matrix | array (n, k) of 0/1, NaN where a label is missing | array of its dtype, int for floats |
    | frame | pandas or polars frame of such columns | as for a matrix |
    | sparse | scipy indicator matrix | csr |
    | sets | list, series or object array of sets, lists or tuples, None where missing | list of sets or tuples |
    | classes | one class per row, (n,) or (n, 1) | the same |

    Lists of lists of numbers that are all equally long are a matrix; write sets of numbers as sets.

    Examples
    --------
    >>> sets, encoded = LabelSets.fit_encode([{"b"}, {"a", "c"}, set()])
    >>> sets.classes, encoded.y.tolist()
    (('a', 'b', 'c'), [[0, 1, 0], [1, 0, 1], [0, 0, 0]])
    >>> sets.encode([{"b", "c"}]).y.tolist()
    [[0, 1, 1]]
    """

    @classmethod
    def fit_encode(cls, Y: Any, classes: Sequence[Hashable] | None = None) -> "tuple[LabelSets, Encoded]":
        kind, values = _parse(Y)
        if kind in TABLES:
            table = _read_zero_one(values)
            names = column_names(values, table.shape[1], classes)
            dtype = table.dtype.name if table.dtype.kind in "iub" else "int64"
            if is_frame(values):
                table = table[:, [tuple(values.columns).index(name) for name in names]]
            form = "array" if isinstance(Y, scipy.sparse.sparray) else "matrix"
            return cls(kind, names, form, dtype), _encode_table(table)
        if kind == "sets":
            rows = _check_sets(values)
            first = next(row for row in values if not is_missing(row))
            seen = list_classes((label for row in rows for label in row or ()), classes)
            codec = cls(kind, seen, "set" if isinstance(first, set | frozenset) else "tuple", "object")
            return codec, codec._encode_sets(rows)
        present, column = _check_classes(values)
        seen = list_classes(present.tolist(), classes)
        # Text in `classes` may be longer than any in Y.
        dtype = np.array(seen).dtype if present.dtype.kind == "U" else present.dtype
        form = "column" if column else "flat"
        codec = cls(kind, seen, form, dtype.str if dtype.kind == "U" else dtype.name)
        return codec, codec._encode_classes(present)

    @property
    def space(self) -> AbstractSpace:
        return SPACES["classes" if self.kind == "classes" else "sets"](len(self.classes))

    def encode(self, Y: Any) -> Encoded:
        kind, values = _parse(Y, lists_are_sets=self.kind == "sets")
        if kind != self.kind and not {kind, self.kind} <= set(TABLES):
            raise ValueError(f"Y must be of kind {self.kind!r}, as in fit; got {kind!r}. See LabelSets for the kinds.")
        if kind == "sets":
            return self._encode_sets(_check_sets(values))
        if kind == "classes":
            return self._encode_classes(_check_classes(values)[0])
        table = _read_zero_one(select_columns(values, self.classes, self.kind == "frame"))
        return _encode_table(self._check_columns(table))

    def _encode_sets(self, rows: list[list[Hashable] | None]) -> Encoded:
        y = np.zeros((len(rows), len(self.classes)), bool)
        pairs = [(i, label) for i, row in enumerate(rows) for label in row or ()]
        y[[i for i, _ in pairs], class_positions(pairs, self.classes)] = True
        missing = np.array([row is None for row in rows], bool)
        return _encoded(y, np.broadcast_to(missing[:, None], y.shape))

    def _encode_classes(self, values: np.ndarray) -> Encoded:
        where = class_positions(enumerate(values.tolist()), self.classes)
        return _encoded(np.eye(len(self.classes), dtype=bool)[where], np.zeros(1, bool))

    def decode(self, y: Any) -> Any:
        y = self._check_outputs(y)
        if self.kind == "sparse":
            result = scipy.sparse.csr_array if self.form == "array" else scipy.sparse.csr_matrix
            return result(y.astype(self.dtype))
        if self.kind in TABLES:
            return y.astype(self.dtype)
        if self.kind == "sets":
            result, classes = set if self.form == "set" else tuple, self.classes
            return [result(classes[j] for j in np.flatnonzero(row)) for row in y]
        names = np.empty(len(self.classes), object)
        names[:] = self.classes
        flat = names.astype(self.dtype)[y.argmax(axis=1)]
        return flat[:, None] if self.form == "column" else flat


def _parse(Y: Any, lists_are_sets: bool = False) -> tuple[str, Any]:
    """The kind of Y, and Y as a table or as a list of rows.

    Equally long lists of numbers are a table, unless `lists_are_sets`.
    """
    if scipy.sparse.issparse(Y):
        return "sparse", Y
    if is_frame(Y):
        return "frame" if len(Y.columns) > 1 else "classes", Y
    rows = _rows(Y)
    if rows is not None and (lists_are_sets or not (isinstance(Y, list | tuple) and _are_numbers(rows))):
        return "sets", rows
    array = np.asarray(Y)
    if array.ndim not in (1, 2):
        raise ValueError(f"Y must be 0/1 with shape (n, k), sets, or one class per row; got shape {array.shape}.")
    if array.shape[1:] <= (1,):
        return "classes", Y
    # A masked array keeps its mask, which marks what is missing.
    return "matrix", Y if isinstance(Y, np.ma.MaskedArray) else array


def _rows(Y: Any) -> Any:
    """The rows of Y if some of them are collections of labels, else None."""
    if hasattr(Y, "to_list") and not is_frame(Y):
        rows = Y.to_list()
    elif isinstance(Y, list | tuple) or (isinstance(Y, np.ndarray) and Y.dtype == object and Y.ndim == 1):
        rows = list(Y)
    else:
        return None
    return rows if any(isinstance(row, set | frozenset | list | tuple | np.ndarray) for row in rows) else None


def _are_numbers(rows: list) -> bool:
    """Whether the rows are lists of numbers of one length."""
    if not all(isinstance(row, list | tuple | np.ndarray) for row in rows) or len({len(row) for row in rows}) > 1:
        return False
    number = (bool, int, float, np.number, np.bool_)
    return all(is_missing(value) or isinstance(value, number) for row in rows for value in row)


def _check_sets(rows: list) -> list[list[Hashable] | None]:
    """Every row as a list of labels, None if it is missing."""
    result: list[list[Hashable] | None] = []
    for i, row in enumerate(rows):
        if isinstance(row, str | bytes):
            raise ValueError(
                f"Row {i} is the string {row!r}, which would be read letter by letter. "
                f"Write the set {{{row!r}}}, or split it."
            )
        if not is_missing(row) and not isinstance(row, set | frozenset | list | tuple | np.ndarray):
            raise ValueError(f"Row {i} must be a set of labels, or None if it is missing; got {row!r}.")
        labels = None if is_missing(row) else list(row)
        if bad := [label for label in labels or () if is_missing(label) or not isinstance(label, Hashable)]:
            raise ValueError(f"Row {i} has the label {bad[0]!r}; labels must be strings or numbers.")
        result.append(labels)
    return result


def _check_classes(Y: Any) -> tuple[np.ndarray, bool]:
    """One class for each row, and whether Y is a column."""
    values, column = read_labels(Y)
    missing = missing_entries(values)
    if missing.any():
        raise ValueError(f"Row {int(np.argmax(missing))} has no class (NaN or None); drop such rows.")
    return values, column


def _read_zero_one(Y: Any) -> np.ndarray:
    values = read_numbers(Y, "Label sets may also be lists of sets.")
    if values.ndim != 2 or values.shape[1] < 2 or not values.shape[0]:
        raise ValueError(f"Y must be 0/1 with shape (n, k), k >= 2 labels; got shape {values.shape}.")
    wrong = values[~((values == 0) | (values == 1) | missing_entries(values))]
    if wrong.size:
        example = f"up to {wrong.max()}" if wrong.max() > 1 else f"such as {wrong[0]}"
        raise ValueError(
            f"Y must be 0/1 with shape (n, k); got {values.dtype} with values {example}. For rankings use LabelRanker."
        )
    return values


def _encode_table(values: np.ndarray) -> Encoded:
    return _encoded(values == 1, missing_entries(values))


def _encoded(y: np.ndarray, missing: np.ndarray) -> Encoded:
    return Encoded(y.astype(np.int32), missing.astype(np.int32) if missing.any() else None)
