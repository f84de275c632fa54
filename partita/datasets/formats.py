"""The formats of data files: ARFF (dense and sparse), LIBSVM, CSV and parquet, read from their bytes."""

import csv
import io
import re
from collections.abc import Iterable
from typing import NamedTuple

from .text import DataError, Fields, Frame, Matrix, decoded, is_numbers, shown, sparse

__all__ = ["Sparse", "read_arff", "read_csv", "read_libsvm", "read_parquet"]

ATTRIBUTE = re.compile(r"""@attribute\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s'"]\S*)\s*(.*)""", re.IGNORECASE)
TYPE = re.compile(r"numeric|real|integer|string|date\b.*|\{.*\}", re.IGNORECASE)
# A file that names more of them than this is more likely wrong than large; who has so many says how many.
MOST_LABELS = 1_000_000
MOST_FEATURES = 2**31 - 1


class Sparse(NamedTuple):
    """A table of which the file names only what is not 0, as csr."""

    fields: Fields
    values: Matrix


def read_csv(content: bytes, name: str) -> Fields:
    """Comma-separated text whose first line names the columns."""
    result = _rows(io.StringIO(decoded(content, name), newline=""), name, '"')
    if not result:
        raise DataError(f"{name} is empty.")
    line, columns = result[0][0], tuple(column.strip() for column in result[0][1])
    if len(columns) == 1 and (other := re.search("[;\t|]", columns[0])):
        raise DataError(f"{name}, line {line}: expected columns separated by commas, got {shown(other[0])}.")
    if is_numbers(columns) and columns != tuple(map(str, range(len(columns)))):
        raise DataError(f"{name}, line {line}: expected the names of the columns, got numbers; add a line of names.")
    return _rectangular(name, columns, result[1:])


def read_parquet(content: bytes, name: str) -> Frame:
    """A parquet file of plain columns."""
    try:
        import polars
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name}: parquet is read by polars. Install it: pip install polars.") from error
    if content[:4] != b"PAR1" or content[-4:] != b"PAR1":
        raise DataError(f"{name} is no whole parquet file: damaged, cut off, or of another kind.")
    try:
        frame = polars.read_parquet(io.BytesIO(content), use_pyarrow=False)
    # On damaged files polars raises errors of many kinds, or panics, which is no Exception.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise DataError(f"{name} cannot be read as a parquet file of plain columns: {_first(str(error))}.") from error
    if nested := [column for column, dtype in frame.schema.items() if dtype.is_nested()]:
        raise DataError(f"{name} cannot be read as a parquet file of plain columns: {shown(nested[0])} holds lists.")
    if not frame.height:
        raise DataError(f"{name} has columns, but no rows.")
    return Frame(name, frame.with_columns(polars.col(polars.Categorical, polars.Enum).cast(polars.String)))


def read_arff(content: bytes, name: str) -> Fields | Sparse:
    """Weka's attribute-relation format, whose rows are comma-separated or all sparse: {index value, ...}."""
    lines = [(number, line.strip()) for number, line in enumerate(_lines(decoded(content, name)), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("%")]
    columns, start = _header(lines, name)
    rows = lines[start:]
    if not rows or not rows[0][1].startswith("{"):
        result = _rows((line for _, line in rows), name, "'")
        return _rectangular(name, columns, [(rows[i - 1][0], row) for i, row in result])
    fields = Fields(name, columns, [[row[1:-1].strip()] for _, row in rows], [f"line {number}" for number, _ in rows])
    for i, (_, row) in enumerate(rows):
        if row[0] != "{" or row[-1] != "}":
            raise fields.error(i, f"expected a sparse row {{index value, ...}} as those above, got {shown(row)}.")
    return Sparse(fields, sparse(fields, _comma_separated, "index number", range(len(columns))))


def read_libsvm(
    content: bytes, name: str, *, features: int | None = None, labels: int | None = None
) -> tuple[Matrix, Matrix]:
    """x and y of lines "label,label index:number index:number"; labels count from 0, indices from 1.

    A line without labels begins with a blank or its first index. Without `features` and `labels` there are as many as
    the largest numbers say; with labels=0 they are not read.
    """
    rows, places = [], []
    for number, line in enumerate(_lines(decoded(content, name)), 1):
        if line := line.partition("#")[0].rstrip():
            head = "" if line[0].isspace() else line.split(None, 1)[0]
            head = "" if ":" in head else head
            rows.append([head, line[len(head) :]])
            places.append(f"line {number}")
    if not rows:
        raise DataError(f"{name} has no rows.")
    fields = Fields(name, ("labels", "features"), rows, places)
    x = sparse(fields, lambda row: row[1].split(), "index:number", range(1, 1 + (features or MOST_FEATURES)))
    heads = _comma_separated if labels != 0 else lambda _: []
    y = sparse(fields, heads, "label", range(MOST_LABELS if labels is None else labels))
    return _narrowed(x, features, f"{name} names no feature"), _narrowed(y, labels, f"{name} names no label")


def _comma_separated(row: list[str]) -> list[str]:
    return row[0].split(",") if row[0] else []


def _narrowed(table: Matrix, width: int | None, said: str) -> Matrix:
    if width is None:
        if not table.nnz:
            raise DataError(f"{said}; expected lines such as '0,2 1:0.5 3:1'.")
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
            raise DataError(f"{name}, line {number}: expected @relation, @attribute or @data, got {shown(line)}.")
    raise DataError(f"{name} has no @data line.")


def _attribute(where: str, line: str) -> str:
    """The name in a line such as @attribute 'Common Nighthawk' {0,1}."""
    result = ATTRIBUTE.fullmatch(line)
    if result is None:
        raise DataError(f"{where}: expected @attribute name type, got {shown(line)}.")
    name, kind = result.groups()
    if not TYPE.fullmatch(kind):
        raise DataError(f"{where}: expected the type numeric, real, integer, string or {{...}}, got {shown(kind)}.")
    return re.sub(r"\\(.)", r"\1", name[1:-1]) if name[0] in "'\"" else name


def _rows(lines: Iterable[str], name: str, quote: str) -> list[tuple[int, list[str]]]:
    """The fields of each line that is not blank, and the line's number, counted from 1."""
    reader = csv.reader(lines, quotechar=quote, skipinitialspace=True)
    try:
        return [(reader.line_num, row) for row in reader if row not in ([], [""])]
    except csv.Error as error:
        raise DataError(f"{name}, line {reader.line_num}: {_first(str(error))}.") from error


def _rectangular(name: str, columns: tuple[str, ...], rows: list[tuple[int, list[str]]]) -> Fields:
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


def _first(message: str) -> str:
    """The beginning of what another library says."""
    return message.strip().split("\n")[0].split(". ")[0].rstrip(".") or "unknown error"
