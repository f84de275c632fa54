"""Tables of outputs as numpy arrays, and back: from arrays, masked arrays, frames, series, sparse matrices and lists.

Frames are recognized by their attributes, so that neither pandas nor polars has to be installed.
"""

import abc
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import scipy.sparse

from ...structures import AbstractSpace

__all__ = [
    "AbstractCodec",
    "Encoded",
    "class_positions",
    "column_names",
    "is_frame",
    "is_missing",
    "list_classes",
    "missing_entries",
    "read_labels",
    "read_numbers",
    "select_columns",
    "to_frame",
]


class Encoded(NamedTuple):
    """Outputs in the space, and the mask of what is not known of them.

    Parameters
    ----------
    y : ndarray of shape (n, k)
        Outputs; where they are masked, any that agree with what is known.
    mask : ndarray of shape (n, k) or None
        For label sets 1 where a label is missing. For rankings, labels of a row with the same positive number share
        their ranks in y, in unknown order. None where everything is known.
    """

    y: np.ndarray
    mask: np.ndarray | None


class AbstractCodec(eqx.Module):
    """The encoding of outputs of one kind, learned by `fit_encode`.

    Attributes
    ----------
    kind : str
        The kind of Y.
    classes : tuple
        The labels, in the order of columns.
    form, dtype : str
        The container and the type of decoded outputs.
    """

    kind: str = eqx.field(static=True)
    classes: tuple[Hashable, ...] = eqx.field(static=True)
    form: str = eqx.field(static=True)
    dtype: str = eqx.field(static=True)

    @classmethod
    @abc.abstractmethod
    def fit_encode(cls, Y: Any, classes: Sequence[Hashable] | None = None) -> "tuple[AbstractCodec, Encoded]":
        """Learn the codec of Y, and encode Y by it.

        Parameters
        ----------
        Y : {array-like, frame, sparse matrix, list}
            Outputs of any kind.
        classes : sequence, default=None
            The names of the columns of a table; of any other kind, all labels in their order. By default the columns
            of a frame, 0, ..., k - 1, or the labels that occur in Y, sorted.

        Returns
        -------
        codec : AbstractCodec
            The codec.
        encoded : Encoded
            What `codec.encode(Y)` returns.
        """

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """The space of encoded outputs."""

    @abc.abstractmethod
    def encode(self, Y: Any) -> Encoded:
        """Encode outputs of the kind of `fit_encode`.

        Parameters
        ----------
        Y : {array-like, frame, sparse matrix, list}
            Outputs. Frames are matched by the names of their columns; of label sets, any table serves for another.

        Returns
        -------
        Encoded
            Outputs of shape (n, k), and the mask of what is not known.
        """

    @abc.abstractmethod
    def decode(self, y: Any) -> Any:
        """Write outputs in the kind of Y.

        Parameters
        ----------
        y : array-like of shape (n, k)
            Encoded outputs.

        Returns
        -------
        {ndarray, csr matrix, list}
            As the column "decoded" in the table of the codec says.
        """

    def _check_columns(self, table: np.ndarray) -> np.ndarray:
        """A table that has the columns of fit."""
        if table.shape[1] != len(self.classes):
            raise ValueError(f"Y must have {len(self.classes)} columns, as in fit; got {table.shape[1]}.")
        return table

    def _check_outputs(self, y: Any) -> np.ndarray:
        """Outputs to decode, as an array."""
        y = np.asarray(y)
        if y.ndim != 2 or y.shape[1] != len(self.classes):
            raise ValueError(f"y must have shape (n, {len(self.classes)}); got {y.shape}.")
        return y


def is_frame(table: Any) -> bool:
    return hasattr(table, "columns") and hasattr(table, "dtypes")


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or the NA of pandas, whose comparisons are neither true nor false."""
    if value is None or type(value).__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def missing_entries(values: np.ndarray) -> np.ndarray:
    """Where the entries of an array are missing."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(values.shape, bool)
    return np.array([is_missing(value) for value in values.ravel()], bool).reshape(values.shape)


def read_numbers(table: Any, advice: str) -> np.ndarray:
    """A table as an array of numbers, NaN where an entry is missing."""
    if isinstance(table, np.ma.MaskedArray):
        return np.ma.filled(table.astype(float), np.nan)
    try:
        values = np.asarray(table.toarray() if scipy.sparse.issparse(table) else table)
    except ValueError as error:
        raise ValueError(f"Y must have shape (n, k); got rows of different lengths. {advice}") from error
    if values.dtype.kind in "fiub":
        return values
    entries = [np.nan if is_missing(value) else value for value in values.ravel().tolist()]
    if wrong := [value for value in entries if not isinstance(value, int | float | np.number)]:
        raise ValueError(f"Y must hold numbers; got {values.dtype} with {wrong[0]!r}. {advice}")
    return np.array(entries, float).reshape(values.shape)


def read_labels(column: Any) -> tuple[np.ndarray, bool]:
    """One label per row as a 1-d array, and whether they came as a column of shape (n, 1)."""
    if isinstance(column, np.ma.MaskedArray):
        values = column.data.astype(object)
        values[np.ma.getmaskarray(column)] = None
    elif isinstance(column, list | tuple) and len({type(value) for value in column}) > 1:
        # numpy would convert numbers beside text to text, and NaN to "nan".
        values = np.empty(len(column), object)
        values[:] = column
    else:
        values = np.asarray(column)
    if values.ndim > 2 or values.ndim == 0 or values.shape[1:] not in ((), (1,)):
        raise ValueError(f"Expected one label per row, shape (n,) or (n, 1); got shape {values.shape}.")
    if values.dtype.kind not in "fiubUO":
        raise ValueError(f"Labels must be integers, strings or booleans; got {values.dtype}. Convert them first.")
    if not values.size:
        raise ValueError("Y has no rows; give at least one.")
    for value in values.ravel().tolist() if values.dtype.kind in "fO" else ():
        _check_label(value)
    return values.ravel(), values.ndim == 2


def list_classes(seen: Iterable[Any], classes: Sequence[Hashable] | None) -> tuple[Hashable, ...]:
    """The argument `classes`, which must hold all labels of Y; without it, the labels of Y, sorted."""
    seen = {value.item() if isinstance(value, np.generic) else value for value in seen}
    if classes is not None:
        result = _distinct(classes)
        if missing := seen - set(result):
            raise ValueError(f"Y has {next(iter(missing))!r}, which is not among the classes {list(result)}.")
    else:
        try:
            result = tuple(sorted(seen))
        except TypeError as error:
            kinds = sorted({type(value).__name__ for value in seen})
            raise ValueError(
                f"Labels must be of one type; got {' and '.join(kinds)}. Make them all strings."
            ) from error
    if len(result) < 2:
        raise ValueError(
            f"At least 2 classes are needed, but only one was seen in Y: {list(result)}. "
            "If there are more, pass them as `classes`."
        )
    return result


def column_names(table: Any, k: int, classes: Sequence[Hashable] | None) -> tuple[Hashable, ...]:
    """The names of the k columns of a table: the argument `classes`, else its own, else 0, ..., k - 1."""
    own = tuple(table.columns) if is_frame(table) else tuple(range(k))
    result = _distinct(own if classes is None else classes)
    if len(result) != k or (is_frame(table) and set(result) != set(own)):
        raise ValueError(f"classes must name the {k} columns of Y, {list(own)}; got {list(result)}.")
    return result


def select_columns(table: Any, classes: tuple[Hashable, ...], by_name: bool) -> Any:
    """The columns of a frame in the order of the classes, with `by_name`; any other table as it is."""
    if not (is_frame(table) and by_name):
        return table
    if missing := [name for name in classes if name not in tuple(table.columns)]:
        raise ValueError(f"Y must have the columns {list(classes)} of fit; {missing} are missing.")
    if extra := [name for name in table.columns if name not in classes]:
        raise ValueError(f"Y has the columns {extra}, which were not there in fit. Select {list(classes)}.")
    return table[list(classes)]


def class_positions(labels: Iterable[tuple[int, Hashable]], classes: tuple[Hashable, ...]) -> list[int]:
    """The position of each label among the classes, of pairs (row, label)."""
    position = {label: j for j, label in enumerate(classes)}
    result = []
    for i, label in labels:
        if label not in position:
            known = ", ".join(map(repr, classes[:10])) + (", ..." if len(classes) > 10 else "")
            raise ValueError(
                f"Row {i} has the label {label!r}, which was not seen in fit; labels are {known}. "
                "Drop it, or pass all labels to fit as `classes`."
            )
        result.append(position[label])
    return result


def to_frame(array: np.ndarray, columns: Sequence[Hashable], like: str) -> Any:
    """Convert an array to a frame with named columns.

    Parameters
    ----------
    array : ndarray of shape (n, k)
        The values.
    columns : sequence
        The names of the columns.
    like : {"pandas", "polars", "default"}
        The type of the frame; "default" for the array as it is.

    Returns
    -------
    {DataFrame, ndarray}
        The frame.
    """
    if like == "pandas":
        import pandas

        return pandas.DataFrame(array, columns=pandas.Index(list(columns)))
    if like == "polars":
        import polars

        return polars.DataFrame(array, schema=[str(name) for name in columns])
    if like != "default":
        raise ValueError(f"like must be 'pandas', 'polars' or 'default'; got {like!r}.")
    return array


def _check_label(value: Any) -> None:
    if not is_missing(value) and not isinstance(value, str | int | float | np.number | np.bool_):
        raise ValueError(f"Labels must be integers, strings or booleans; got {value!r} of type {type(value).__name__}.")
    if isinstance(value, float | np.floating) and not is_missing(value) and not float(value).is_integer():
        raise ValueError(
            f"Unknown label type: continuous. Expected whole numbers or strings; got {value}. "
            "Bin the values into classes, or use a regressor."
        )


def _distinct(classes: Iterable[Any]) -> tuple[Hashable, ...]:
    result = tuple(value.item() if isinstance(value, np.generic) else value for value in classes)
    if len(set(result)) < len(result):
        twice = next(value for value in result if result.count(value) > 1)
        raise ValueError(f"Classes must be different; got {twice!r} more than once. Rename or drop one.")
    return result
