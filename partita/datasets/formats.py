"""Data files from their bytes to tables of numbers: ARFF (dense and sparse), LIBSVM, CSV and parquet, also packed.

Errors name the file and the line of what cannot be read.
"""

import bz2
import csv
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

__all__ = [
    "PACKED",
    "DataError",
    "Fields",
    "Frame",
    "Matrix",
    "Sparse",
    "quote",
    "read_arff",
    "read_csv",
    "read_libsvm",
    "read_parquet",
    "unpack",
]

PACKED = {".gz": gzip.open, ".bz2": bz2.open}
# Bytes of an unpacked file: a few kilobytes can unpack to more than any memory holds.
LARGEST = 2**32
# Characters of a field in an error.
LONGEST = 40
# How labels may be written besides 0 and 1; an empty field is a missing label.
WORDS = {"true": "1", "false": "0", "": "nan", "?": "nan"}
# An array or scipy's csr: type checkers cannot index or stack their union.
Matrix = Any
ATTRIBUTE = re.compile(r"""@attribute\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s'"]\S*)\s*(.*)""", re.IGNORECASE)
TYPE = re.compile(r"numeric|real|integer|string|date\b.*|\{.*\}", re.IGNORECASE)
# A LIBSVM file with larger indices is more likely wrong than large; with so many, their number must be passed.
MOST_LABELS = 1_000_000
MOST_FEATURES = 2**31 - 1


class DataError(ValueError):
    """A data file that cannot be read. The message names the file, the line and the reason."""


class Fields(NamedTuple):
    """A table as text: the names of the columns, the rows, and the place of each row in the file, such as "line 3"."""

    name: str
    columns: tuple[str, ...]
    rows: list[list[str]]
    places: list[str]

    def error(self, row: int, message: str) -> DataError:
        """An error in a row."""
        return DataError(f"{self.name}, {self.places[row]}: {message}")

    def numbers(self, columns: Sequence[int], *, coded: bool = False) -> np.ndarray:
        """Some columns as finite numbers, in this order; with `coded`, 26:Osaka stands for 26."""
        rows = [[row[j].partition(":")[0] if coded else row[j] for j in columns] for row in self.rows]
        return _dense(self, rows, columns)

    def label_values(self, columns: Sequence[int]) -> np.ndarray:
        """Some columns of labels as numbers, NaN where a label is not known."""
        rows = [[WORDS.get(row[j].strip().lower(), row[j]) for j in columns] for row in self.rows]
        return _dense(self, rows, columns, missing=True)

    def texts(self, column: int) -> list[str]:
        """A column as text."""
        return [row[column].strip() for row in self.rows]


class Frame(NamedTuple):
    """A table of typed columns, read by polars; places are rows, counted from 1."""

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
            numbers = (column if plain else column.clear(frame.height)).cast(polars.Float64, strict=False)
            values[:, place] = numbers.to_numpy()
            empty = column.is_null().to_numpy() | numbers.is_nan().fill_null(False).to_numpy()
            wrong = ~np.isfinite(values[:, place]) & ~(missing & empty)
            if wrong.any():
                i = int(np.argmax(wrong))
                entry = self.frame.to_series(j)[i]
                got = quote("" if entry is None else str(entry))
                raise self.error(i, f"expected a number in the column {quote(self.columns[j])}, got {got}.")
        return values


class Sparse(NamedTuple):
    """A table whose file lists the nonzero values only, as csr."""

    fields: Fields
    values: Matrix


def unpack(content: bytes, name: str) -> bytes:
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
        raise DataError(f"{name} unpacks to more than {LARGEST} bytes; unpack it first if it is so large.")
    return result


def read_csv(content: bytes, name: str) -> Fields:
    """Comma-separated text whose first line names the columns."""
    rows = _rows(io.StringIO(_decode(content, name), newline=""), name, '"')
    if not rows:
        raise DataError(f"{name} is empty.")
    line, columns = rows[0][0], tuple(column.strip() for column in rows[0][1])
    if len(columns) == 1 and (other := re.search("[;\t|]", columns[0])):
        raise DataError(f"{name}, line {line}: expected columns separated by commas, got {quote(other[0])}.")
    if _are_numbers(columns) and columns != tuple(map(str, range(len(columns)))):
        raise DataError(f"{name}, line {line}: expected the names of the columns, got numbers; add a line of names.")
    return _table(name, columns, rows[1:])


def read_parquet(content: bytes, name: str) -> Frame:
    """A parquet file of plain columns."""
    try:
        import polars
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name}: parquet is read by polars. Install it: pip install polars.") from error
    if content[:4] != b"PAR1" or content[-4:] != b"PAR1":
        raise DataError(f"{name} is no whole parquet file: damaged, cut off, or of another kind.")
    message = f"{name} cannot be read as a parquet file of plain columns"
    try:
        frame = polars.read_parquet(io.BytesIO(content), use_pyarrow=False)
    # On damaged files polars raises errors of many kinds, or panics, which is no Exception.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise DataError(f"{message}: {_first_sentence(str(error))}.") from error
    if nested := [column for column, dtype in frame.schema.items() if dtype.is_nested()]:
        raise DataError(f"{message}: {quote(nested[0])} holds lists.")
    if not frame.height:
        raise DataError(f"{name} has columns, but no rows.")
    return Frame(name, frame.with_columns(polars.col(polars.Categorical, polars.Enum).cast(polars.String)))


def read_arff(content: bytes, name: str) -> Fields | Sparse:
    """Weka's attribute-relation format, whose rows are comma-separated or all sparse: {index value, ...}."""
    lines = [(number, line.strip()) for number, line in enumerate(_lines(_decode(content, name)), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("%")]
    columns, start = _header(lines, name)
    rows = lines[start:]
    if not rows or not rows[0][1].startswith("{"):
        fields = _rows((line for _, line in rows), name, "'")
        return _table(name, columns, [(rows[i - 1][0], row) for i, row in fields])
    fields = Fields(name, columns, [[row[1:-1].strip()] for _, row in rows], [f"line {number}" for number, _ in rows])
    for i, (_, row) in enumerate(rows):
        if row[0] != "{" or row[-1] != "}":
            raise fields.error(i, f"expected a sparse row {{index value, ...}} as those above, got {quote(row)}.")
    return Sparse(fields, _sparse(fields, _comma_separated, "index number", range(len(columns))))


def read_libsvm(
    content: bytes, name: str, *, features: int | None = None, labels: int | None = None
) -> tuple[Matrix, Matrix]:
    """x and y of lines "label,label index:number index:number"; labels count from 0, indices from 1.

    A line without labels begins with a blank or its first index. Without `features` and `labels` the largest index is
    their number; with labels=0 labels are not read.
    """
    rows, places = [], []
    for number, line in enumerate(_lines(_decode(content, name)), 1):
        if line := line.partition("#")[0].rstrip():
            head = "" if line[0].isspace() else line.split(None, 1)[0]
            head = "" if ":" in head else head
            rows.append([head, line[len(head) :]])
            places.append(f"line {number}")
    if not rows:
        raise DataError(f"{name} has no rows.")
    fields = Fields(name, ("labels", "features"), rows, places)
    x = _sparse(fields, lambda row: row[1].split(), "index:number", range(1, 1 + (features or MOST_FEATURES)))
    heads = _comma_separated if labels != 0 else lambda _: []
    y = _sparse(fields, heads, "label", range(MOST_LABELS if labels is None else labels))
    return _narrow(x, features, f"{name} names no feature"), _narrow(y, labels, f"{name} names no label")


def _comma_separated(row: list[str]) -> list[str]:
    return row[0].split(",") if row[0] else []


def _narrow(table: Matrix, width: int | None, message: str) -> Matrix:
    """A table without the columns after the last that is used, unless the width is known."""
    if width is None:
        if not table.nnz:
            raise DataError(f"{message}; expected lines such as '0,2 1:0.5 3:1'.")
        table.resize(table.shape[0], int(table.indices.max()) + 1)
    return table


def _header(lines: list[tuple[int, str]], name: str) -> tuple[tuple[str, ...], int]:
    """The names of the attributes, and how many lines the header has."""
    columns = []
    for i, (number, line) in enumerate(lines):
        word = line.split(None, 1)[0].lower()
        if word == "@data":
            if not columns:
                raise DataError(f"{name}, line {number}: expected @attribute lines before @data, got none.")
            return tuple(columns), i + 1
        if word == "@attribute":
            columns.append(_attribute(f"{name}, line {number}", line))
        elif word != "@relation":
            raise DataError(f"{name}, line {number}: expected @relation, @attribute or @data, got {quote(line)}.")
    raise DataError(f"{name} has no @data line.")


def _attribute(where: str, line: str) -> str:
    """The name in a line such as @attribute 'Common Nighthawk' {0,1}."""
    result = ATTRIBUTE.fullmatch(line)
    if result is None:
        raise DataError(f"{where}: expected @attribute name type, got {quote(line)}.")
    name, kind = result.groups()
    if not TYPE.fullmatch(kind):
        raise DataError(f"{where}: expected the type numeric, real, integer, string or {{...}}, got {quote(kind)}.")
    return re.sub(r"\\(.)", r"\1", name[1:-1]) if name[0] in "'\"" else name


def _rows(lines: Iterable[str], name: str, mark: str) -> list[tuple[int, list[str]]]:
    """The fields of each line that is not blank, and the line's number, counted from 1."""
    reader = csv.reader(lines, quotechar=mark, skipinitialspace=True)
    try:
        return [(reader.line_num, row) for row in reader if row not in ([], [""])]
    except csv.Error as error:
        raise DataError(f"{name}, line {reader.line_num}: {_first_sentence(str(error))}.") from error


def _table(name: str, columns: tuple[str, ...], rows: list[tuple[int, list[str]]]) -> Fields:
    fields = Fields(name, columns, [row for _, row in rows], [f"line {number}" for number, _ in rows])
    if not rows:
        raise DataError(f"{name} has columns, but no rows.")
    for i, row in enumerate(fields.rows):
        if len(row) != len(columns):
            raise fields.error(i, f"expected {len(columns)} fields, got {len(row)}.")
    return fields


def _lines(text: str) -> list[str]:
    # str.splitlines also ends lines at characters that editors do not count.
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _first_sentence(message: str) -> str:
    """The first sentence of the error of another library."""
    return message.strip().split("\n")[0].split(". ")[0].rstrip(".") or "unknown error"


def _decode(content: bytes, name: str) -> str:
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


def quote(field: str) -> str:
    """A field as errors show it, shortened if it is long."""
    return repr(field if len(field) <= LONGEST else field[: LONGEST - 3] + "...")


def _are_numbers(row: Sequence[str], missing: bool = False) -> bool:
    """Whether all fields are finite numbers; with `missing`, "nan" too."""
    return _parse_numbers([",".join(row)], ",", (1, len(row)), missing) is not None


def _dense(fields: Fields, rows: list[list[str]], columns: Sequence[int], *, missing: bool = False) -> np.ndarray:
    """The text of some columns as finite numbers; with `missing`, "nan" too."""
    # One pass in C; only where it fails are rows parsed one by one.
    values = _parse_numbers(map(",".join, rows), ",", (len(rows), len(columns)), missing)
    if values is None:
        i = next(i for i, row in enumerate(rows) if not _are_numbers(row, missing))
        j = next(j for j, field in enumerate(rows[i]) if not _are_numbers([field], missing))
        column = quote(fields.columns[columns[j]])
        raise fields.error(i, f"expected a number in the column {column}, got {quote(rows[i][j])}.")
    return values


def _sparse(fields: Fields, cells: Callable[[list[str]], list[str]], form: str, columns: range) -> Matrix:
    """Rows of cells as csr, of the form "index:number", "index number" or "label" (a label counts 1).

    The columns are numbered as the range says; values that are not listed are 0.
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
    numbers = _parse_numbers((cell for row in fields.rows for cell in cells(row)), between, (size, width))
    if numbers is None:
        pairs = ((i, cell) for i, row in enumerate(fields.rows) for cell in cells(row))
        i, cell = next((i, cell) for i, cell in pairs if _parse_numbers([cell], between, (1, width)) is None)
        raise fields.error(i, f"expected {form}, got {quote(cell)}.")
    return numbers[:, 0], numbers[:, 1] if width == 2 else np.ones(size)


def _parse_numbers(
    lines: Iterable[str], between: str | None, shape: tuple[int, int], missing: bool = False
) -> np.ndarray | None:
    """Numbers of this shape, or None if the lines hold anything else."""
    if 0 in shape:
        return np.zeros(shape)
    try:
        with warnings.catch_warnings():
            # Blank lines are skipped, with a warning if there are no others; the shape shows it.
            warnings.simplefilter("ignore", UserWarning)
            values = np.loadtxt(lines, delimiter=between, comments=None, ndmin=2)
    except ValueError:
        return None
    valid = values.shape == shape and (np.isfinite(values) | (missing & np.isnan(values))).all()
    return values if valid else None


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1
