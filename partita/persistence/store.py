"""Objects and checkpoints as safetensors files: their bytes, checked as a whole, and how they are written and read."""

import contextlib
import hashlib
import importlib
import io
import json
import os
import pickle
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import joblib
import numpy as np
import safetensors.numpy
import sklearn

from ..atomic import write
from ..types import PyTree
from .objects import ARRAYS, PACKAGE, ConsentError, Decoder, Encoder, FileError, has_named_fields

__all__ = ["load", "load_leaves", "pack", "save", "save_leaves", "unpack"]

FORMAT, VERSION = "partita", 1
# What safetensors reads at most.
LONGEST_HEADER = 100_000_000
NO_DIGEST = "0" * 64

Location = str | os.PathLike[str]


@contextlib.contextmanager
def _refuse_endless() -> Iterator[None]:
    """Objects that contain themselves end in a ValueError."""
    try:
        yield
    except RecursionError as error:
        raise ValueError("The object is nested too deeply to be saved, or contains itself.") from error


@_refuse_endless()
def save(obj: Any, path: Location, *, classes: Sequence[type] = ()) -> None:
    """Write an object as data, which `load` reads bit for bit.

    Fitted estimators of scikit-learn inside it go to a second file, `<path>.sklearn`, by joblib. If the object cannot
    be written, an error says which part, and an earlier file stays as it was.

    Parameters
    ----------
    obj : Any
        A model, a fitted estimator, any Equinox module, or containers of them.
    path : str or path-like
        The file.
    classes : sequence of type, default=()
        Estimators of your own that are to be written as data too.

    Examples
    --------
    >>> import tempfile
    >>> from partita import load, save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save({"steps": 3, "rate": 0.1}, f"{folder}/settings.partita")
    ...     load(f"{folder}/settings.partita")
    {'steps': 3, 'rate': 0.1}
    """
    _check_classes(classes)
    encoder = Encoder(classes)
    contents, side = {}, None
    description = encoder(obj, "")
    if encoder.estimators:
        pickles = _dump_estimators(encoder.estimators)
        contents[_side_file(path)] = pickles
        side = {"sha256": hashlib.sha256(pickles).hexdigest(), "sklearn": sklearn.__version__}
    contents[os.fspath(path)] = _pack_readable({"object": description, "side": side}, encoder)
    write(contents)


def load(path: Location, *, classes: Sequence[type] = (), trusted: bool = False) -> Any:
    """Read the object that `save` wrote. Nothing in the file is executed.

    Parameters
    ----------
    path : str or path-like
        The file.
    classes : sequence of type, default=()
        Your own classes that the file names, as in `classes=(MyNetwork,)`.
    trusted : bool, default=False
        Whether to unpickle estimators of scikit-learn, which executes whatever code is in `<path>.sklearn`: only for
        files of people you trust.

    Returns
    -------
    Any
        The object.

    Raises
    ------
    FileError
        Where the file was not written by `save`, or was changed since.
    ConsentError
        Where it has estimators of scikit-learn and `trusted` is False.
    """
    _check_classes(classes)
    raw = Path(path).read_bytes()
    with _file_errors(path):
        description, tensors = unpack(raw)
        if "object" not in description:
            raise FileError("is a checkpoint: read it with persistence.load_leaves.")
        side = description["side"]
        estimators = [] if side is None else _load_estimators(path, side, trusted)
        return _decode_all(description["object"], Decoder(tensors, classes, estimators))


@_refuse_endless()
def save_leaves(path: Location, tree: PyTree, info: Any) -> None:
    """Write the arrays of a tree, such as the state of a training run, as a checkpoint.

    Parameters
    ----------
    path : str or path-like
        The file.
    tree : PyTree
        Its arrays are written, and nothing else of it.
    info : Any
        A value beside it, of anything that `save` writes.
    """
    encoder = Encoder()
    leaves = [[at, encoder(leaf, f"leaves[{i}]{at}")] for i, (at, leaf) in enumerate(_arrays(tree))]
    description = {"leaves": leaves, "info": encoder(info, "info")}
    if encoder.estimators:
        raise ValueError("A checkpoint holds no estimators of scikit-learn: it is read without unpickling anything.")
    write({os.fspath(path): _pack_readable(description, encoder)})


def load_leaves(path: Location, like: PyTree) -> tuple[PyTree, Any]:
    """Read the arrays that `save_leaves` wrote, bit for bit.

    Parameters
    ----------
    path : str or path-like
        The file.
    like : PyTree
        A tree with arrays of the same shapes and types in the same places.

    Returns
    -------
    tree : PyTree
        `like` with the arrays of the file in place of its own.
    info : Any
        The value beside them.
    """
    raw = Path(path).read_bytes()
    with _file_errors(path):
        description, tensors = unpack(raw)
        if "leaves" not in description:
            raise FileError("is not a checkpoint: read it with partita.load.")
        leaves, info = _decode_all([description["leaves"], description["info"]], Decoder(tensors, (), []))
        _check_alike(leaves, _arrays(like))
    new = iter([leaf for _, leaf in leaves])
    return jax.tree.map(lambda leaf: next(new) if isinstance(leaf, ARRAYS) else leaf, like), info


def _arrays(tree: PyTree) -> list[tuple[str, Any]]:
    """(place, array) in the order of flattening."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(at), leaf) for at, leaf in leaves if isinstance(leaf, ARRAYS)]


def _check_alike(leaves: list[Any], expected: list[tuple[str, Any]]) -> None:
    if len(leaves) != len(expected):
        raise FileError(f"holds {len(leaves)} arrays, but `like` has {len(expected)}: they are of different trees.")
    for (at, leaf), (place, like) in zip(leaves, expected, strict=True):
        if (at, leaf.shape, leaf.dtype) != (place, like.shape, like.dtype):
            raise FileError(
                f"holds {leaf.dtype}{list(leaf.shape)} at {at}, but `like` has {like.dtype}{list(like.shape)} at "
                f"{place}: it is a checkpoint of another model, objective or optimizer."
            )


def _pack_readable(description: dict[str, Any], encoder: Encoder) -> bytes:
    """The bytes of a file; what loading would refuse is refused here."""
    raw = pack(description, encoder.tensors)
    items = json.loads(json.dumps([item for key, item in description.items() if key != "side"]))
    try:
        _decode_all(items, Decoder(encoder.tensors, encoder.classes, encoder.estimators))
    except Exception as error:
        message = f"it {error}" if isinstance(error, FileError) else f"{error}"
        raise ValueError(f"The object cannot be saved, because load would refuse it: {message}") from error
    return raw


def _decode_all(data: Any, decoder: Decoder) -> Any:
    """The value of a description, which must use every tensor."""
    result = decoder(data)
    if decoder.tensors:
        raise FileError(f"has arrays that its description does not name: {sorted(decoder.tensors)[:3]}.")
    return result


def _side_file(path: Location) -> str:
    return f"{os.fspath(path)}.sklearn"


def _dump_estimators(estimators: list[Any]) -> bytes:
    buffer = io.BytesIO()
    try:
        joblib.dump(estimators, buffer)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        names = ", ".join(type(estimator).__name__ for estimator in estimators)
        raise ValueError(f"joblib cannot write the estimators of scikit-learn ({names}): {error}") from error
    return buffer.getvalue()


def _load_estimators(path: Location, side: dict[str, str], trusted: bool) -> list[Any]:
    """The estimators of the side file: with consent, and if its checksum is that of the file that was written."""
    name = _side_file(path)
    if not trusted:
        raise ConsentError(
            f"has estimators of scikit-learn, which are a pickle in {name}. Unpickling executes whatever code is in "
            "that file: if you trust where it comes from, consent by load(path, trusted=True)."
        )
    try:
        pickles = Path(name).read_bytes()
    except FileNotFoundError as error:
        raise FileError(f"needs {name} beside it, with its estimators of scikit-learn; it is not there.") from error
    if hashlib.sha256(pickles).hexdigest() != side["sha256"]:
        raise FileError(f"needs the {name} that was written with it, but the checksum of that file differs.")
    try:
        return joblib.load(io.BytesIO(pickles))
    except Exception as error:
        raise FileError(
            f"has estimators of scikit-learn {side['sklearn']} in {name}, which scikit-learn {sklearn.__version__} "
            f"cannot read: {error}"
        ) from error


def _check_classes(classes: Sequence[type]) -> None:
    wrong = [cls for cls in classes if not has_named_fields(cls)] if isinstance(classes, list | tuple) else [classes]
    if wrong:
        raise ValueError(
            f"classes must be a tuple of Equinox modules, named tuples, enums or estimators, as classes=(MyNetwork,); "
            f"got {wrong[0]!r}."
        )


@contextlib.contextmanager
def _file_errors(path: Location) -> Iterator[None]:
    """Turn every error into a FileError that names the file."""
    try:
        yield
    except FileError as error:
        raise type(error)(f"{os.fspath(path)} {error}") from error
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise FileError(f"{os.fspath(path)} is not what partita writes, and cannot be read: {message}") from error


def pack(description: Any, tensors: dict[str, np.ndarray]) -> bytes:
    """The bytes of a file, the same for the same content. The checksum covers all of them, with zeros in its place."""
    plain = safetensors.numpy.save(tensors)
    metadata = {
        "sha256": NO_DIGEST,
        "format": FORMAT,
        "version": str(VERSION),
        "partita": importlib.import_module(PACKAGE).__version__,
        "description": json.dumps(description, allow_nan=False, separators=(",", ":")),
    }
    # By hand, because safetensors writes the metadata in an order that changes from run to run.
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
    """The description and the tensors of a file whose checksum holds."""
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
    # Foreign bytes fail in many ways.
    except Exception as error:
        raise FileError("is not a file that partita wrote, or was damaged or cut off since.") from error
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise FileError("is a safetensors file, but not one that partita wrote.")
    return metadata


def _header_size(raw: bytes | bytearray) -> int:
    """The length of the JSON at the beginning, which is in the first 8 bytes."""
    return int.from_bytes(raw[:8], "little")


def _digest_start(raw: bytes | bytearray, digest: str) -> int:
    """The position of the checksum. Nothing before it looks like it: quotes within JSON strings are escaped."""
    return raw.find(f'"sha256":"{digest}"'.encode()) + len('"sha256":"')


def _no_constant(name: str) -> Any:
    raise FileError(f"holds {name} where a number was expected.")
