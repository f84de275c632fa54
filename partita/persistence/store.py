"""save and load of objects, save_leaves and load_leaves of checkpoints."""

import contextlib
import hashlib
import io
import json
import os
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import joblib
import sklearn

from ..atomic import write
from ..types import PyTree
from .classes import ARRAYS, is_known
from .files import ConsentError, FileError, pack, unpack
from .values import Decoder, Encoder

__all__ = ["load", "load_leaves", "save", "save_leaves"]

Location = str | os.PathLike[str]


@contextlib.contextmanager
def _not_endless() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise ValueError("The object is nested too deeply to be saved, or contains itself.") from error


@_not_endless()
def save(obj: Any, path: Location, *, classes: Sequence[type] = ()) -> None:
    """Write an object of partita's, or of your own Equinox modules, as data; `load` gives it back bit for bit.

    Fitted estimators of scikit-learn inside it go to `<path>.sklearn`, by joblib; estimators of your own that are in
    `classes` are written as data too. What cannot be written is refused, and an earlier file then stays as it was.
    """
    _check_classes(classes)
    encoder = Encoder(classes)
    contents, side = {}, None
    described = encoder(obj, "")
    if encoder.estimators:
        pickled = _dumped(encoder.estimators)
        contents[_side(path)] = pickled
        side = {"sha256": hashlib.sha256(pickled).hexdigest(), "sklearn": sklearn.__version__}
    contents[os.fspath(path)] = _packed({"object": described, "side": side}, encoder)
    write(contents)


def load(path: Location, *, classes: Sequence[type] = (), trusted: bool = False) -> Any:
    """The object that `save` wrote. Nothing in the file is executed, and what was changed since is refused.

    Pass your own classes as `classes=(MyNetwork,)`. Estimators of scikit-learn are unpickled, which executes whatever
    their file holds: only with `trusted=True`, which is for files of people you trust.
    """
    _check_classes(classes)
    raw = Path(path).read_bytes()
    with _refusing(path):
        description, tensors = unpack(raw)
        if "object" not in description:
            raise FileError("is a checkpoint: read it with persistence.load_leaves.")
        side = description["side"]
        estimators = [] if side is None else _unpickled(path, side, trusted)
        return _decoded(description["object"], Decoder(tensors, classes, estimators))


@_not_endless()
def save_leaves(path: Location, tree: PyTree, info: Any) -> None:
    """Write the arrays of a tree, `training.Solution.state` say, and any value that can be saved beside them."""
    encoder = Encoder()
    leaves = [[at, encoder(leaf, f"leaves[{i}]{at}")] for i, (at, leaf) in enumerate(_arrays(tree))]
    described = {"leaves": leaves, "info": encoder(info, "info")}
    if encoder.estimators:
        raise ValueError("A checkpoint holds no estimators of scikit-learn: it is read without unpickling anything.")
    write({os.fspath(path): _packed(described, encoder)})


def load_leaves(path: Location, like: PyTree) -> tuple[PyTree, Any]:
    """(tree, info): the arrays that `save_leaves` wrote in the places that they have in `like`, bit for bit.

    What is not an array is taken from `like`, which must have arrays of the same shapes and types in the same places.
    """
    raw = Path(path).read_bytes()
    with _refusing(path):
        description, tensors = unpack(raw)
        if "leaves" not in description:
            raise FileError("is not a checkpoint: read it with partita.load.")
        leaves, info = _decoded([description["leaves"], description["info"]], Decoder(tensors, (), []))
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


def _packed(description: dict[str, Any], encoder: Encoder) -> bytes:
    """The bytes of a file that is known to be read again: what loading would refuse is refused now."""
    raw = pack(description, encoder.tensors)
    again = json.loads(json.dumps([item for key, item in description.items() if key != "side"]))
    try:
        _decoded(again, Decoder(encoder.tensors, encoder.classes, encoder.estimators))
    except Exception as error:
        message = f"it {error}" if isinstance(error, FileError) else f"{error}"
        raise ValueError(f"The object cannot be saved, because load would refuse it: {message}") from error
    return raw


def _decoded(data: Any, decoder: Decoder) -> Any:
    result = decoder(data)
    if decoder.tensors:
        raise FileError(f"has arrays that its description does not name: {sorted(decoder.tensors)[:3]}.")
    return result


def _side(path: Location) -> str:
    return f"{os.fspath(path)}.sklearn"


def _dumped(estimators: list[Any]) -> bytes:
    buffer = io.BytesIO()
    try:
        joblib.dump(estimators, buffer)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        names = ", ".join(type(estimator).__name__ for estimator in estimators)
        raise ValueError(f"joblib cannot write the estimators of scikit-learn ({names}): {error}") from error
    return buffer.getvalue()


def _unpickled(path: Location, side: dict[str, str], trusted: bool) -> list[Any]:
    """The estimators of the side file: with consent, and if its bytes are those that were written."""
    name = _side(path)
    if not trusted:
        raise ConsentError(
            f"has estimators of scikit-learn, which are a pickle in {name}. Unpickling executes whatever code is in "
            "that file: if you trust where it comes from, consent by load(path, trusted=True)."
        )
    try:
        pickled = Path(name).read_bytes()
    except FileNotFoundError as error:
        raise FileError(f"needs {name} beside it, with its estimators of scikit-learn; it is not there.") from error
    if hashlib.sha256(pickled).hexdigest() != side["sha256"]:
        raise FileError(f"needs the {name} that was written with it, but the checksum of that file differs.")
    try:
        return joblib.load(io.BytesIO(pickled))
    except Exception as error:
        raise FileError(
            f"has estimators of scikit-learn {side['sklearn']} in {name}, which scikit-learn {sklearn.__version__} "
            f"cannot read: {error}"
        ) from error


def _check_classes(given: Sequence[type]) -> None:
    wrong = [cls for cls in given if not is_known(cls)] if isinstance(given, list | tuple) else [given]
    if wrong:
        raise ValueError(
            f"classes must be a tuple of Equinox modules, named tuples, enums or estimators, as classes=(MyNetwork,); "
            f"got {wrong[0]!r}."
        )


@contextlib.contextmanager
def _refusing(path: Location) -> Iterator[None]:
    """Whatever is wrong with a file comes out as a FileError that names it."""
    try:
        yield
    except FileError as error:
        raise type(error)(f"{os.fspath(path)} {error}") from error
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise FileError(f"{os.fspath(path)} is not what partita writes, and cannot be read: {message}") from error
