"""What a table of outputs may come as (arrays, frames, series, masked, sparse, lists), read into numpy, and back.

Frames are known by what they offer, so that neither pandas nor polars has to be installed.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

__all__ = [
    "Encoded",
    "absent",
    "absent_entries",
    "columns",
    "framed",
    "is_frame",
    "labels",
    "located",
    "numbers",
    "ordered",
    "selected",
]


class Encoded(NamedTuple):
    """Outputs y in the space, shape (n, k), and what of them is not known, the `mask`; None if all is known.

    For label sets the mask is 1 where a label is missing. For rankings the labels of a row with the same positive
    number share the ranks that y gives them, in unknown order.
    """

    y: np.ndarray
    mask: np.ndarray | None


def is_frame(table: Any) -> bool:
    return hasattr(table, "columns") and hasattr(table, "dtypes")


def absent(value: Any) -> bool:
    """None, NaN, or the NA of pandas, whose comparisons are neither true nor false."""
    if value is None or type(value).__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def absent_entries(values: np.ndarray) -> np.ndarray:
    """Where an array has no value."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(values.shape, bool)
    return np.array([absent(value) for value in values.ravel()], bool).reshape(values.shape)


def numbers(table: Any, advice: str) -> np.ndarray:
    """A table as an array of numbers, NaN where an entry is missing."""
    if isinstance(table, np.ma.MaskedArray):
        return np.ma.filled(table.astype(float), np.nan)
    try:
        values = np.asarray(table.toarray() if scipy.sparse.issparse(table) else table)
    except ValueError as error:
        raise ValueError(f"Y must have shape (n, k); got rows of different lengths. {advice}") from error
    if values.dtype.kind in "fiub":
        return values
    entries = [np.nan if absent(value) else value for value in values.ravel().tolist()]
    if wrong := [value for value in entries if not isinstance(value, int | float | np.number)]:
        raise ValueError(f"Y must hold numbers; got {values.dtype} with {wrong[0]!r}. {advice}")
    return np.array(entries, float).reshape(values.shape)


def labels(column: Any) -> tuple[np.ndarray, bool]:
    """One label per row as a 1-d array, and whether they came as a column of shape (n, 1)."""
    if isinstance(column, np.ma.MaskedArray):
        values = column.data.astype(object)
        values[np.ma.getmaskarray(column)] = None
    elif isinstance(column, list | tuple) and len({type(value) for value in column}) > 1:
        # numpy would make text of the numbers beside text, and "nan" of NaN.
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


def ordered(seen: Iterable[Any], classes: Sequence[Hashable] | None) -> tuple[Hashable, ...]:
    """The classes: all labels seen, sorted; or those given, in their order, if they hold all labels seen."""
    seen = {value.item() if isinstance(value, np.generic) else value for value in seen}
    if classes is not None:
        result = _distinct(classes)
        if missing := seen - set(result):
            raise ValueError(f"Y has {next(iter(missing))!r}, which is not among the classes given, {list(result)}.")
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
            "If there are more, give them as `classes`."
        )
    return result


def columns(table: Any, k: int, classes: Sequence[Hashable] | None) -> tuple[Hashable, ...]:
    """The classes of a table of k columns: the names given, else its own, else 0, ..., k - 1."""
    own = tuple(table.columns) if is_frame(table) else tuple(range(k))
    result = _distinct(own if classes is None else classes)
    if len(result) != k or (is_frame(table) and set(result) != set(own)):
        raise ValueError(f"classes must name the {k} columns of Y, {list(own)}; got {list(result)}.")
    return result


def selected(table: Any, classes: tuple[Hashable, ...], by_name: bool) -> Any:
    """A frame's columns in the order of the classes, if these are columns' names; anything else as it is."""
    if not (is_frame(table) and by_name):
        return table
    if missing := [name for name in classes if name not in tuple(table.columns)]:
        raise ValueError(f"Y must have the columns {list(classes)} of fit; {missing} are missing.")
    if extra := [name for name in table.columns if name not in classes]:
        raise ValueError(f"Y has the columns {extra}, which were not there in fit. Select {list(classes)}.")
    return table[list(classes)]


def located(found: Iterable[tuple[int, Hashable]], classes: tuple[Hashable, ...]) -> list[int]:
    """Which class each label is, of labels that come with their rows."""
    position = {label: j for j, label in enumerate(classes)}
    result = []
    for i, label in found:
        if label not in position:
            few = ", ".join(map(repr, classes[:10])) + (", ..." if len(classes) > 10 else "")
            raise ValueError(
                f"Row {i} has the label {label!r}, which was not seen in fit; labels are {few}. "
                "Drop it, or give all labels to fit as `classes`."
            )
        result.append(position[label])
    return result


def framed(array: np.ndarray, columns: Sequence[Hashable], like: str) -> Any:
    """A 2-d array as a frame of "pandas" or "polars" with named columns; as it is for "default"."""
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
    if not absent(value) and not isinstance(value, str | int | float | np.number | np.bool_):
        raise ValueError(f"Labels must be integers, strings or booleans; got {value!r} of type {type(value).__name__}.")
    if isinstance(value, float | np.floating) and not absent(value) and not float(value).is_integer():
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
