"""Compiled programs kept from process to process: JAX's persistent compilation cache, in the user's cache folder.

The estimators and the command line turn it on before they compile; importing partita does not. The environment
variable `PARTITA_COMPILATION_CACHE` names another folder, or is "off". A cache that was configured with JAX's own
settings stays as it is.
"""

import contextlib
import functools
import hashlib
import os
import platform
import tempfile
import warnings
from pathlib import Path

import jax
import platformdirs
from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface

__all__ = ["disable_cache", "enable_cache"]

VARIABLE = "PARTITA_COMPILATION_CACHE"
# The least recently used programs above this many bytes are deleted. A fit with its answers takes about 2 MB.
MAX_BYTES = 2**28
SUFFIX = ".program"
DIGEST_BYTES = 32


class ProgramFiles(CacheInterface):
    """A folder of compiled programs that processes share.

    A program is written under another name and then renamed, so that nobody reads half of it, and its digest is checked
    when it is read: damaged programs are deleted and compiled again. Where the folder cannot be used, there is one
    warning, and programs are compiled as without a cache. JAX's own files have neither.

    Parameters
    ----------
    folder
        Made if it does not exist.
    max_bytes
        The least recently used programs above it are deleted.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES):
        self._path, self.max_bytes, self.is_usable = folder, max_bytes, True

    def get(self, key: str) -> bytes | None:  # pyright: ignore
        """The program of a key.

        Parameters
        ----------
        key
            Made by JAX of the program, the compiler and its options.

        Returns
        -------
        bytes or None
            None where there is none.
        """
        path = self._path / (key + SUFFIX)
        try:
            content = path.read_bytes()
            digest, program = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
            if hashlib.sha256(program).digest() != digest:
                path.unlink(missing_ok=True)
                return None
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up(error)
            return None
        return program

    def put(self, key: str, value: bytes) -> None:
        """Keep a program.

        Parameters
        ----------
        key
            Under which it is found again.
        value
            The program.
        """
        if not self.is_usable or len(value) > self.max_bytes:
            return
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._make_room(len(value))
            with tempfile.NamedTemporaryFile(dir=self._path, suffix=".tmp", delete=False) as file:
                try:
                    file.write(hashlib.sha256(value).digest() + value)
                    file.flush()
                    os.replace(file.name, self._path / (key + SUFFIX))
                except BaseException:
                    os.unlink(file.name)
                    raise
        except OSError as error:
            self._give_up(error)

    def _make_room(self, size: int) -> None:
        """Delete the least recently used programs; others may delete them at the same time."""
        entries = []
        for path in self._path.iterdir():
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = size + sum(entry[1] for entry in entries)
        for _, length, path in sorted(entries):
            if total <= self.max_bytes:
                break
            path.unlink(missing_ok=True)
            total -= length

    def _give_up(self, error: OSError) -> None:
        if self.is_usable:
            self.is_usable = False
            warnings.warn(
                f"Compiled programs cannot be kept in {self._path} ({error}): every process compiles them again. "
                f"{VARIABLE} names another folder, or is 'off'.",
                stacklevel=2,
            )


def enable_cache(folder: str | os.PathLike | None = None) -> Path | None:
    """Keep compiled programs in a folder; the estimators call it before they compile.

    Parameters
    ----------
    folder
        None: that of the environment variable, else `partita` in the user's cache folder. Machines with other
        processors have folders of their own in it, because programs are made for one kind of processor. Programs are
        trusted: nobody else should be able to write there.

    Returns
    -------
    Path or None
        The folder; None where the cache is off, or JAX's own settings name one.
    """
    setting = os.environ.get(VARIABLE, "") if folder is None else os.fspath(folder)
    if setting.lower() in ("off", "0", "false", "no"):
        return None
    current = compilation_cache._cache
    if isinstance(current, ProgramFiles) and folder is None:
        return current._path
    if jax.config.jax_compilation_cache_dir is not None and not isinstance(current, ProgramFiles):  # pyright: ignore
        return None
    path = (
        Path(setting).expanduser() if setting else platformdirs.user_cache_path("partita") / "programs"
    ) / _machine()
    # JAX decides at its first compilation whether there is a cache: a process may have compiled before.
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache._cache = ProgramFiles(path)
    return path


def disable_cache() -> None:
    """Turn the cache off for this process; a cache of JAX's own settings stays."""
    os.environ[VARIABLE] = "off"
    if isinstance(compilation_cache._cache, ProgramFiles):
        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()


@functools.cache
def _machine() -> str:
    """A name for this kind of processor: a program may use instructions that another one lacks."""
    parts = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        parts += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return f"{platform.machine() or 'machine'}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"
