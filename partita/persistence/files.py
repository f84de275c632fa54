"""The container: a description and tensors as the bytes of one safetensors file, checked as a whole."""

import hashlib
import importlib
import json
import re
from typing import Any

import numpy as np
import safetensors.numpy

__all__ = ["ConsentError", "FileError", "pack", "unpack"]

PACKAGE = __name__.partition(".")[0]
FORMAT, VERSION = "partita", 1
# What safetensors reads at most.
LONGEST_HEADER = 100_000_000
NO_DIGEST = "0" * 64


class FileError(ValueError):
    """A file that is not what partita wrote, or that cannot be read here."""


class ConsentError(FileError):
    """A file that is only read by who trusts it."""


def pack(description: Any, tensors: dict[str, np.ndarray]) -> bytes:
    """A file's bytes, the same for the same content. The checksum is of all of them, with zeros in its own place."""
    plain = safetensors.numpy.save(tensors)
    metadata = {
        "sha256": NO_DIGEST,
        "format": FORMAT,
        "version": str(VERSION),
        "partita": importlib.import_module(PACKAGE).__version__,
        "description": json.dumps(description, allow_nan=False, separators=(",", ":")),
    }
    # safetensors would write the metadata in an order that changes from run to run.
    data_start = 8 + _header_size(plain)
    header = json.dumps({"__metadata__": metadata, **json.loads(plain[8:data_start])}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > LONGEST_HEADER:
        raise ValueError(
            f"Everything but the arrays takes {len(header)} bytes, and a safetensors file allows {LONGEST_HEADER}: "
            "hold long lists of numbers as numpy arrays."
        )
    raw = bytearray(len(header).to_bytes(8, "little") + header + plain[data_start:])
    start = _digest_start(raw, NO_DIGEST)
    raw[start : start + len(NO_DIGEST)] = hashlib.sha256(raw).hexdigest().encode()
    return bytes(raw)


def unpack(raw: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    """The description and the tensors, once the bytes are known to be those that were written."""
    metadata = _metadata(raw)
    version = metadata.get("version", "")
    if not re.fullmatch("[1-9][0-9]{0,8}", version):
        raise FileError("is not a file that partita wrote: it names no format version.")
    if int(version) > VERSION:
        raise FileError(
            f"was written by a newer partita, {metadata.get('partita')}, in format {version}; this one reads formats "
            f"up to {VERSION}. Upgrade partita."
        )
    digest = metadata.get("sha256", "")
    start = _digest_start(raw, digest)
    blank = hashlib.sha256(memoryview(raw)[:start])
    blank.update(NO_DIGEST.encode())
    blank.update(memoryview(raw)[start + len(NO_DIGEST) :])
    if blank.hexdigest() != digest:
        raise FileError("was changed or cut off after it was written: its checksum differs. Use another copy.")
    return json.loads(metadata["description"], parse_constant=_no_constant), safetensors.numpy.load(raw)


def _metadata(raw: bytes) -> dict[str, str]:
    try:
        metadata = json.loads(raw[8 : 8 + _header_size(raw)])["__metadata__"]
    # Whatever these bytes are, they are not ours.
    except Exception as error:
        raise FileError("is not a file that partita wrote, or was damaged or cut off since.") from error
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise FileError("is a safetensors file, but not one that partita wrote.")
    return metadata


def _header_size(raw: bytes | bytearray) -> int:
    """Length of the JSON at the beginning, which the first 8 bytes say."""
    return int.from_bytes(raw[:8], "little")


def _digest_start(raw: bytes | bytearray, digest: str) -> int:
    """Where the checksum stands. Nothing before it looks like it: within JSON strings quotes are escaped."""
    return raw.find(f'"sha256":"{digest}"'.encode()) + len('"sha256":"')


def _no_constant(name: str) -> Any:
    raise FileError(f"holds {name} where a number was expected.")
