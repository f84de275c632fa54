"""From the bytes of a file to text, and from text to numbers; what cannot be read is named with its file and line."""

import bz2
import gzip
import io
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

__all__ = ["PACKED", "DataError", "Fields", "Frame", "Matrix", "decoded", "is_numbers", "shown", "sparse", "unpacked"]

PACKED = {".gz": gzip.open, ".bz2": bz2.open}
# A few kilobytes can unpack to more than any memory holds.
LARGEST = 2**32
LONGEST = 40

# How a label is written beside 0 and 1; an empty field is a label that is not known.
WORDS = {"true": "1", "false": "0", "": "nan", "?": "nan"}

# An array or scipy's csr: one cannot index or stack their union for a type checker.
Matrix = Any


class DataError(ValueError):
    """A file of data that cannot be read: which, in which line, and why."""


class Fields(NamedTuple):
    """A table as text: the columns' names, the rows, and where each row stands in the file, "line 3" say."""

    name: str
    columns: tuple[str, ...]
    rows: list[list[str]]
    places: list[str]

    def error(self, row: int, message: str) -> DataError:
        """An error in a row."""
        return DataError(f"{self.name}, {self.places[row]}: {message}")

    def numbers(self, columns: Sequence[int], *, coded: bool = False) -> np.ndarray:
        """Some columns as finite numbers, in this order; with `coded`, 26:Osaka stands for 26."""
        return dense(
            self, [[row[j].partition(":")[0] if coded else row[j] for j in columns] for row in self.rows], columns
        )

    def label_values(self, columns: Sequence[int]) -> np.ndarray:
        """Some columns of labels as numbers, NaN where a label is not known."""
        rows = [[WORDS.get(row[j].strip().lower(), row[j]) for j in columns] for row in self.rows]
        return dense(self, rows, columns, missing=True)

    def texts(self, column: int) -> list[str]:
        """A column as text."""
        return [row[column].strip() for row in self.rows]


class Frame(NamedTuple):
    """A table of typed columns, which polars has read; places are rows, counted from 1."""

    name: str
    frame: Any

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.frame.columns)

    def error(self, row: int, message: str) -> DataError:
        """An error in a row."""
        return DataError(f"{self.name}, row {row + 1}: {message}")

    def numbers(self, columns: Sequence[int], *, coded: bool = False) -> np.ndarray:
        """Some columns as finite numbers, in this order."""
        return self._numbers(columns, self.frame, missing=False)

    def label_values(self, columns: Sequence[int]) -> np.ndarray:
        """Some columns of labels as numbers, NaN where a label is not known."""
        import polars

        text = polars.col(polars.String).str.strip_chars().str.to_lowercase().replace(WORDS)
        return self._numbers(columns, self.frame.with_columns(text), missing=True)

    def texts(self, column: int) -> list[str]:
        """A column as text."""
        return ["" if value is None else str(value).strip() for value in self.frame.to_series(column)]

    def _numbers(self, columns: Sequence[int], frame: Any, missing: bool) -> np.ndarray:
        import polars

        values = np.empty((frame.height, len(columns)))
        for place, j in enumerate(columns):
            column = frame.to_series(j)
            plain = column.dtype.is_numeric() or column.dtype in (polars.Boolean, polars.String, polars.Null)
            numbers = (
                column.cast(polars.Float64, strict=False) if plain else column.clear(frame.height).cast(polars.Float64)
            )
            values[:, place] = numbers.to_numpy()
            absent = column.is_null().to_numpy() | numbers.is_nan().fill_null(False).to_numpy()
            wrong = ~np.isfinite(values[:, place]) & ~(missing & absent)
            if wrong.any():
                i = int(np.argmax(wrong))
                entry = self.frame.to_series(j)[i]
                got = shown("" if entry is None else str(entry))
                raise self.error(i, f"expected a number in the column {shown(self.columns[j])}, got {got}.")
        return values


def unpacked(content: bytes, name: str) -> bytes:
    """The content of a file, unpacked if its name ends in .gz or .bz2."""
    suffix = next((suffix for suffix in PACKED if name.lower().endswith(suffix)), None)
    if suffix is None:
        return content
    try:
        result = PACKED[suffix](io.BytesIO(content)).read(LARGEST + 1) if content else None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{name} is no whole {suffix} file: damaged, cut off, or of another kind.") from error
    if not result:
        raise DataError(f"{name} is empty.")
    if len(result) > LARGEST:
        raise DataError(f"{name} holds more than {LARGEST} bytes; unpack it first if they are meant.")
    return result


def decoded(content: bytes, name: str) -> str:
    """UTF-8 text, with or without a byte order mark."""
    if (at := content.find(b"\0")) >= 0:
        message = "expected text, got binary data or UTF-16; save it as text in UTF-8."
        raise DataError(f"{name}, line {_line(content, at)}: {message}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"expected text in UTF-8, got the byte 0x{error.object[error.start]:02x}; save it as UTF-8."
        raise DataError(f"{name}, line {_line(error.object, error.start)}: {message}") from error
    if not text.strip():
        raise DataError(f"{name} is empty.")
    return text


def shown(field: str) -> str:
    """A field as an error shows it, however long it is."""
    return repr(field if len(field) <= LONGEST else field[: LONGEST - 3] + "...")


def is_numbers(row: Sequence[str]) -> bool:
    """Whether all fields are finite numbers."""
    return _parsed([",".join(row)], ",", (1, len(row))) is not None


def dense(fields: Fields, rows: list[list[str]], columns: Sequence[int], *, missing: bool = False) -> np.ndarray:
    """The text of some columns as finite numbers; with `missing`, "nan" too."""
    # One pass in C; only where it fails are rows looked at one by one.
    values = _parsed(map(",".join, rows), ",", (len(rows), len(columns)), missing)
    if values is None:
        i = next(i for i, row in enumerate(rows) if _parsed([",".join(row)], ",", (1, len(row)), missing) is None)
        j = next(j for j, field in enumerate(rows[i]) if _parsed([field], ",", (1, 1), missing) is None)
        column = shown(fields.columns[columns[j]])
        raise fields.error(i, f"expected a number in the column {column}, got {shown(rows[i][j])}.")
    return values


def sparse(fields: Fields, cells: Callable[[list[str]], list[str]], form: str, columns: range) -> Matrix:
    """Rows of cells as csr, of the form "index:number", "index number" or "label" (a label counts 1).

    The columns are numbered as the range says; what is not named is 0.
    """
    ends = np.cumsum([0] + [len(cells(row)) for row in fields.rows])
    rows = np.repeat(np.arange(len(fields.rows)), np.diff(ends))
    index, values = _cells(fields, cells, form, len(rows))
    wrong = (index < columns.start) | (index >= columns.stop) | (index != np.floor(index))
    if wrong.any():
        at = int(np.argmax(wrong))
        noun = "a label" if form == "label" else "an index"
        message = f"expected {noun} from {columns.start} to {columns.stop - 1}, got {index[at]:.15g}."
        raise fields.error(int(rows[at]), message)
    order = np.lexsort((index, rows))
    index, values = index[order].astype(np.int64), values[order]
    twice = (np.diff(rows) == 0) & (np.diff(index) == 0)
    if twice.any():
        at = int(np.argmax(twice))
        raise fields.error(int(rows[at]), f"{index[at]} is named twice.")
    result = scipy.sparse.csr_matrix((values, index - columns.start, ends), (len(fields.rows), len(columns)))
    result.eliminate_zeros()
    return result


def _cells(
    fields: Fields, cells: Callable[[list[str]], list[str]], form: str, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Index and value of all cells, row after row."""
    between, width = {"index:number": (":", 2), "index number": (None, 2), "label": (",", 1)}[form]
    result = _parsed((cell for row in fields.rows for cell in cells(row)), between, (size, width))
    if result is None:
        each = ((i, cell) for i, row in enumerate(fields.rows) for cell in cells(row))
        i, cell = next((i, cell) for i, cell in each if _parsed([cell], between, (1, width)) is None)
        raise fields.error(i, f"expected {form}, got {shown(cell)}.")
    return result[:, 0], result[:, 1] if width == 2 else np.ones(size)


def _parsed(
    lines: Iterable[str], between: str | None, shape: tuple[int, int], missing: bool = False
) -> np.ndarray | None:
    """Numbers of this shape, or None if the lines hold anything else."""
    if 0 in shape:
        return np.zeros(shape)
    try:
        with warnings.catch_warnings():
            # Blank lines are skipped, with a warning if there is nothing else; the shape tells.
            warnings.simplefilter("ignore", UserWarning)
            values = np.loadtxt(lines, delimiter=between, comments=None, ndmin=2)
    except ValueError:
        return None
    fine = values.shape == shape and (np.isfinite(values) | (missing & np.isnan(values))).all()
    return values if fine else None


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1
