"""What commands leave behind: tables on the screen, and files that are written whole or not at all."""

import contextlib
import csv
import importlib
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from ..atomic import write

__all__ = ["as_json", "check", "check_kind", "show", "store", "writing"]

Columns = dict[str, list[Any]]
# How wide a table is where there is no screen.
WIDE = 160


def check(path: Path, force: bool) -> None:
    """Refuse a place where nothing can be written, or where something is, before any work is done for it."""
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {path.parent}. Make it first.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} cannot be written: it is no plain file.")
    if path.exists() and not force:
        raise ValueError(f"{path} is there already; give another name, or --force to overwrite it.")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: the folder {path.parent} does not allow it.")


def check_kind(path: Path) -> None:
    """Refuse a table that could not be written as the file's name says."""
    if path.suffix.lower() not in WRITERS:
        raise ValueError(f"The output must end in {', '.join(WRITERS)}; got {path}.")
    if path.suffix.lower() == ".parquet":
        importlib.import_module("polars")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """An error of the disk names the file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"it could not be written: {error.strerror}", str(path)) from error


def store(columns: Columns, path: Path | None) -> None:
    """A table as a file of the kind that its name says, or as CSV on the standard output."""
    if path is None:
        sys.stdout.buffer.write(as_csv(columns))
        return
    content = WRITERS[path.suffix.lower()](columns)
    with writing(path):
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
    """On one line; null for what JSON has no number for."""
    plain = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


WRITERS: dict[str, Callable[[Columns], bytes]] = {".csv": as_csv, ".jsonl": as_lines, ".parquet": as_parquet}


def show(columns: Columns) -> None:
    """A table for people."""
    table = Table(*(Column(name, overflow="fold") for name in columns))
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    # Brackets in names are no markup.
    Console(width=None if sys.stdout.isatty() else WIDE, markup=False, highlight=False).print(table)
