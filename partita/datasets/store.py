"""Published files on this machine: those in the folder of data or in the cache, and downloads into the cache."""

import contextlib
import hashlib
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pooch
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ..atomic import write
from .formats import PACKED, DataError, unpack
from .registry import File, entry

__all__ = ["DownloadError", "State", "cache", "check", "fetch", "read_content"]

RETRIES = 2
SECONDS = 30
INSIDE = re.compile(r"(?!.*\.\.)[\w.-]+(/[\w.-]+)*", re.ASCII)

Folder = str | os.PathLike[str] | None


class DownloadError(OSError):
    """A file that could not be downloaded. The message names its address, the reason, and where to put it by hand."""


class State(NamedTuple):
    """The copy of a published file on this machine.

    Parameters
    ----------
    file : File
        The published file.
    path : Path or None
        Its copy; None where there is none.
    expected : str or None
        The checksum that it must have; None where none is known yet.
    actual : str or None
        The checksum that it has; None where it cannot be read.
    """

    file: File
    path: Path | None
    expected: str | None
    actual: str | None

    @property
    def verdict(self) -> str:
        """Either "absent", "good", "wrong" or "not checked yet"."""
        if self.path is None:
            return "absent"
        if self.actual is not None and self.expected is None:
            return "not checked yet"
        return "good" if self.expected == self.actual else "wrong"


def cache() -> Path:
    """Return the folder where downloads are kept.

    Returns
    -------
    Path
        The environment variable PARTITA_CACHE, or `partita` in the user's folder of caches.
    """
    return Path(os.environ.get("PARTITA_CACHE") or pooch.os_cache("partita")).expanduser()


def fetch(name: str, *, folder: Folder = None) -> tuple[Path, ...]:
    """Download the files of a data set that are not on this machine, and check all of them.

    Parameters
    ----------
    name : str
        One of `datasets.names()`.
    folder : str or path-like, default=None
        Where to look for its files first; by default the folder PARTITA_DATA. The cache is next.

    Returns
    -------
    tuple of Path
        The files.
    """
    return tuple(read_content(file, folder)[0] for file in entry(name).files)


def check(name: str, *, folder: Folder = None) -> tuple[State, ...]:
    """Check which files of a data set are on this machine, and their checksums. Nothing is downloaded or changed.

    Parameters
    ----------
    name : str
        One of `datasets.names()`.
    folder : str or path-like, default=None
        Where to look for its files first; by default the folder PARTITA_DATA. The cache is next.

    Returns
    -------
    tuple of State
        One for each file.
    """
    return tuple(_state(file, _find(file, folder)) for file in entry(name).files)


def read_content(file: File, folder: Folder = None, download: bool = True) -> tuple[Path, bytes]:
    """The path of a file and its unpacked content, whose checksum holds.

    Files with a wrong checksum in the cache are downloaded again, unless the checksum is that of their first use.
    """
    path = _find(file, folder)
    if path is not None:
        try:
            return path, _read_checked(file, path)
        except DataError:
            if not (download and file.sha256 and path.is_relative_to(cache())):
                raise
    elif not download:
        raise FileNotFoundError(f"{file.path} is not on this machine. {_manual_download(file, folder)}")
    path = _download(file, folder)
    return path, _read_checked(file, path)


def _folders(folder: Folder) -> list[Path]:
    own = folder or os.environ.get("PARTITA_DATA")
    return [*([Path(own).expanduser()] if own else []), cache()]


def _place(folder: Path, path: str) -> Path:
    """A path inside the folder; an error if it could lead out of it."""
    if not INSIDE.fullmatch(path):
        raise ValueError(f"A file of data must have a plain path inside its folder; got {path!r}.")
    return folder / path


def _find(file: File, folder: Folder) -> Path | None:
    places = (_place(own, file.path + packed) for own in _folders(folder) for packed in ("", *PACKED))
    return next((path for path in places if path.is_file()), None)


def _state(file: File, path: Path | None) -> State:
    actual = None
    if path is not None:
        with contextlib.suppress(DataError):
            actual = _digest(unpack(path.read_bytes(), path.name))
    return State(file, path, file.sha256 or _recorded_digest(file), actual)


def _read_checked(file: File, path: Path) -> bytes:
    """The content of a file whose checksum holds; where none is known, that of this first use is recorded."""
    content = unpack(path.read_bytes(), str(path))
    actual, record = _digest(content), _record_path(file)
    expected = file.sha256 or _recorded_digest(file)
    if expected is None:
        record.parent.mkdir(parents=True, exist_ok=True)
        write({str(record): f"{actual}\n".encode()})
        message = f"{path.name} has no published checksum: that of this first use, sha256 {actual}, is kept in {record}"
        warnings.warn(f"{message}, and checked from now on.", stacklevel=2)
    elif expected != actual:
        message = f"expected content with sha256 {expected}, got {actual}."
        if file.sha256 is None:
            message = f"{path} has changed since its first use: {message}"
            raise DataError(f"{message} If the change is intended, delete {record}.")
        raise DataError(f"{path} is not the published file: {message} Replace it by {file.url}, or delete it.")
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _record_path(file: File) -> Path:
    return _place(cache(), f"{file.path}.sha256")


def _recorded_digest(file: File) -> str | None:
    record = _record_path(file)
    return record.read_text().strip() if record.is_file() else None


def _published_path(file: File) -> str:
    """The path under which the file is kept as it is published, packed or not."""
    return file.path + next((packed for packed in PACKED if file.url.endswith(packed)), "")


def _manual_download(file: File, folder: Folder) -> str:
    place = _folders(folder)[0] / _published_path(file)
    return f"Get {file.url} and put it at {place}, or set PARTITA_DATA to a folder that holds {file.path}."


def _download(file: File, folder: Folder) -> Path:
    """The file as published, in the cache. pooch moves it to its name once it is whole and its checksum holds."""
    name = _published_path(file)
    keeper = pooch.create(
        cache(), "", registry={name: file.sha256}, urls={name: file.url}, retry_if_failed=RETRIES, allow_updates=True
    )
    try:
        with _quiet(), _Bar(_place(cache(), name).name) as bar:
            getter: Any = pooch.HTTPDownloader(bar, chunk_size=2**16, timeout=SECONDS)
            path = Path(keeper.fetch(name, downloader=getter))
        unpack(path.read_bytes(), path.name)
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            # A web page in place of the file: without a checksum only unpacking shows it.
            _place(cache(), name).unlink()
        message = f"{name} could not be downloaded from {file.url}: {_reason(error)}."
        raise DownloadError(f"{message} {_manual_download(file, folder)}") from error
    return path


def _reason(error: Exception) -> str:
    """The error of requests, pooch or the disk in a few words."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return f"the server did not answer for {SECONDS} seconds"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.ConnectionError):
        return "the server cannot be reached"
    return str(error).split(". ")[0].rstrip(".")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the log messages of pooch, which the bar replaces."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(level)


class _Bar:
    """The progress of a download by pooch, on the standard error."""

    def __init__(self, title: str):
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self.bar = Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True))
        self.task = self.bar.add_task(title, total=None)

    def __enter__(self) -> Any:
        self.bar.start()
        return self

    def __exit__(self, *_):
        self.bar.stop()

    @property
    def total(self) -> float | None:
        return self.bar.tasks[0].total

    @total.setter
    def total(self, size: int) -> None:
        # pooch sets it at the beginning of each attempt.
        self.bar.reset(self.task, total=size or None)

    def update(self, size: int) -> None:
        self.bar.update(self.task, advance=size)

    def reset(self) -> None:
        self.bar.reset(self.task)

    def close(self) -> None:
        """pooch calls it before the checksum is computed; the bar stays until then."""
