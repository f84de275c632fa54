"""Published files on this machine: found in the folder of data or in the cache, else downloaded into the cache."""

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
from .registry import File, entry
from .text import PACKED, DataError, unpacked

__all__ = ["DownloadError", "State", "cache", "check", "content", "fetch"]

RETRIES = 2
SECONDS = 30
INSIDE = re.compile(r"(?!.*\.\.)[\w.-]+(/[\w.-]+)*", re.ASCII)

Folder = str | os.PathLike[str] | None


class DownloadError(OSError):
    """A file that could not be downloaded: which, from where, why, and where to put it by hand."""


class State(NamedTuple):
    """What is on this machine of a file; `expected` is None where the checksum is not known yet."""

    file: File
    path: Path | None
    expected: str | None
    found: str | None

    @property
    def verdict(self) -> str:
        """absent, good, wrong, or not checked yet."""
        if self.path is None:
            return "absent"
        if self.found is not None and self.expected is None:
            return "not checked yet"
        return "good" if self.expected == self.found else "wrong"


def cache() -> Path:
    """Where downloads are kept: PARTITA_CACHE, or the user's folder of caches."""
    return Path(os.environ.get("PARTITA_CACHE") or pooch.os_cache("partita")).expanduser()


def fetch(name: str, *, folder: Folder = None) -> tuple[Path, ...]:
    """The files of a data set, checked; those that are not on this machine are downloaded into the cache."""
    return tuple(content(file, folder)[0] for file in entry(name).files)


def check(name: str, *, folder: Folder = None) -> tuple[State, ...]:
    """What is on this machine of a data set, and whether its checksums hold. Nothing is downloaded or changed."""
    return tuple(_state(file, _held(file, folder)) for file in entry(name).files)


def content(file: File, folder: Folder = None, download: bool = True) -> tuple[Path, bytes]:
    """Where a file is, and what it holds unpacked: it is as published, or it is refused.

    It is looked for in `folder` (else PARTITA_DATA), then in the cache. What is wrong in the cache is downloaded again,
    unless its checksum was only taken on first use.
    """
    held = _held(file, folder)
    if held is not None:
        try:
            return held, _accepted(file, held)
        except DataError:
            if not (download and file.sha256 and _is_ours(held)):
                raise
    elif not download:
        raise FileNotFoundError(f"{file.path} is not on this machine. {_by_hand(file, folder)}")
    path = _downloaded(file, folder)
    return path, _accepted(file, path)


def _folders(folder: Folder) -> list[Path]:
    own = folder or os.environ.get("PARTITA_DATA")
    return [*([Path(own).expanduser()] if own else []), cache()]


def _is_ours(path: Path) -> bool:
    return path.is_relative_to(cache())


def _place(folder: Path, path: str) -> Path:
    """A path inside the folder; one that could lead out of it is refused."""
    if not INSIDE.fullmatch(path):
        raise ValueError(f"A file of data must have a plain path inside its folder; got {path!r}.")
    return folder / path


def _held(file: File, folder: Folder) -> Path | None:
    places = (_place(own, file.path + packed) for own in _folders(folder) for packed in ("", *PACKED))
    return next((path for path in places if path.is_file()), None)


def _state(file: File, path: Path | None) -> State:
    result = None
    if path is not None:
        with contextlib.suppress(DataError):
            result = _digest(unpacked(path.read_bytes(), path.name))
    return State(file, path, file.sha256 or _recorded(file), result)


def _accepted(file: File, path: Path) -> bytes:
    """The content of a file whose checksum holds; where none is known, it is kept from now on."""
    result = unpacked(path.read_bytes(), str(path))
    match, record = _digest(result), _record(file)
    expected = file.sha256 or _recorded(file)
    if expected is None:
        record.parent.mkdir(parents=True, exist_ok=True)
        write({str(record): f"{match}\n".encode()})
        message = f"{path.name} has no published checksum: that of this first use, sha256 {match}, is kept in {record}"
        warnings.warn(f"{message}, and checked from now on.", stacklevel=2)
    elif expected != match:
        message = f"{path} is not the published file: expected content with sha256 {expected}, got {match}."
        if file.sha256 is None:
            message = f"{path} has changed since its first use: expected content with sha256 {expected}, got {match}."
            raise DataError(f"{message} If the change is meant, delete {record}.")
        raise DataError(f"{message} Replace it by {file.url}, or delete it.")
    return result


def _digest(made: bytes) -> str:
    return hashlib.sha256(made).hexdigest()


def _record(file: File) -> Path:
    return _place(cache(), f"{file.path}.sha256")


def _recorded(file: File) -> str | None:
    record = _record(file)
    return record.read_text().strip() if record.is_file() else None


def _published(file: File) -> str:
    """The path under which the file is kept as it is published, packed or not."""
    return file.path + next((packed for packed in PACKED if file.url.endswith(packed)), "")


def _by_hand(file: File, folder: Folder) -> str:
    place = _folders(folder)[0] / _published(file)
    return f"Get {file.url} and put it at {place}, or set PARTITA_DATA to a folder that holds {file.path}."


def _downloaded(file: File, folder: Folder) -> Path:
    """The file as published, in the cache. pooch moves it to its name once it is whole and its checksum holds."""
    name = _published(file)
    keeper = pooch.create(
        cache(), "", registry={name: file.sha256}, urls={name: file.url}, retry_if_failed=RETRIES, allow_updates=True
    )
    try:
        with _quiet(), _Bar(_place(cache(), name).name) as bar:
            getter: Any = pooch.HTTPDownloader(bar, chunk_size=2**16, timeout=SECONDS)
            path = Path(keeper.fetch(name, downloader=getter))
        unpacked(path.read_bytes(), path.name)
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            # Without a checksum only this tells that a page of a web site came instead.
            _place(cache(), name).unlink()
        message = f"{name} could not be downloaded from {file.url}: {_reason(error)}."
        raise DownloadError(f"{message} {_by_hand(file, folder)}") from error
    return path


def _reason(error: Exception) -> str:
    """In a few words, what requests, pooch or the disk say."""
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
    """The bar says it all."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(level)


class _Bar:
    """What pooch tells of a download, drawn on the standard error."""

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
        # pooch says it at the beginning of each try.
        self.bar.reset(self.task, total=size or None)

    def update(self, size: int) -> None:
        self.bar.update(self.task, advance=size)

    def reset(self) -> None:
        self.bar.reset(self.task)

    def close(self) -> None:
        """The bar stays until the file is checked."""
