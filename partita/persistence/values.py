"""Objects as a JSON description and tensors, and back, bit for bit.

Numbers, strings, None and lists are JSON's own. Everything else is a JSON object whose first key says what it is.
"""

import enum
import math
import re
import struct
from collections.abc import Iterable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator

from . import classes
from .files import FileError

__all__ = ["Decoder", "Encoder"]

# Those that safetensors knows by name; the others are written as their bytes.
NATIVE = {"|b1", "|i1", "|u1", *(f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)), "<f2", "<f4", "<f8"}
LONGEST_INTEGER = 8192
MOST_TEXT = 2**28


class Encoder:
    """Describes objects; collects the tensors, the estimators of scikit-learn and the classes that it meets.

    `where` is a place in the object, such as `.g.h.layer.weight`: the name of a tensor, and what a refusal tells.
    """

    def __init__(self, own: Iterable[type] = ()):
        self.own = tuple(own)
        self.tensors: dict[str, np.ndarray] = {}
        self.estimators: list[BaseEstimator] = []
        self.classes: set[type] = set()

    def __call__(self, value: Any, where: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str) or (kind is int and value.bit_length() < LONGEST_INTEGER):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": struct.pack("<d", value).hex()}
        if kind in (list, tuple):
            items = [self(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return items if kind is list else {"tuple": items}
        if kind is dict:
            return {"dict": [[_key(key, where), self(item, f"{where}[{key!r}]")] for key, item in value.items()]}
        if isinstance(value, jax.Array) or kind in (np.ndarray, np.memmap) or isinstance(value, np.generic):
            return self._array(value, where)
        return self._object(value, where)

    def _object(self, value: Any, where: str) -> dict[str, Any]:
        cls = type(value)
        name, own = classes.name_of(cls), classes.find(classes.name_of(cls), self.own) is cls
        if isinstance(value, BaseEstimator) and not own:
            self.estimators.append(value)
            return {"sklearn": len(self.estimators) - 1}
        if not classes.is_known(cls) or (name.startswith(f"{classes.PACKAGE}.") and not own):
            _refuse(value, where)
        self.classes.add(cls)
        if isinstance(value, enum.Enum):
            return {"enum": name, "member": value.name}
        parts = classes.fields(value)
        return {"class": name, "fields": {part: self(item, f"{where}.{part}") for part, item in parts.items()}}

    def _array(self, value: Any, where: str) -> dict[str, Any]:
        if isinstance(value, jax.Array):
            if not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                return {"jax": self._tensor(np.asarray(value), where), "weak": bool(value.weak_type)}
            impl = jax.random.key_impl(value)
            if not isinstance(impl, str):
                _refuse(value, where)
            return {"key": self._tensor(np.asarray(jax.random.key_data(value)), where), "impl": impl}
        array, scalar = np.asarray(value), isinstance(value, np.generic)
        if array.dtype.kind not in "UO":
            return {"numpy": self._tensor(array, where), "scalar": scalar}
        if array.nbytes > MOST_TEXT:
            _refuse(value, where)
        items = self(array.ravel().tolist(), where)
        return {"items": items, "dtype": array.dtype.str, "shape": list(array.shape), "scalar": scalar}

    def _tensor(self, array: np.ndarray, where: str) -> list[str]:
        dtype = array.dtype
        if not _is_number(dtype):
            _refuse(array, where)
        code = dtype.str if dtype.kind in "biufc" else dtype.name
        whole = np.asarray(array, order="C")
        as_bytes = whole.reshape(-1).view(np.uint8).reshape(*array.shape, dtype.itemsize)
        self.tensors[where] = whole if code in NATIVE else as_bytes
        return [where, code]


class Decoder:
    """Rebuilds what an `Encoder` described, each tensor once."""

    def __init__(self, tensors: dict[str, np.ndarray], known: Iterable[type], estimators: list[Any]):
        self.tensors, self.known, self.estimators = dict(tensors), tuple(known), estimators

    def __call__(self, data: Any) -> Any:
        match data:
            case None | bool() | int() | float() | str():
                return data
            case list():
                return [self(item) for item in data]
            case {"float": str(code)}:
                return struct.unpack("<d", bytes.fromhex(code))[0]
            case {"tuple": list(items)}:
                return tuple(self(item) for item in items)
            case {"dict": list(items)}:
                return {_key(key, "a dict in the file"): self(item) for key, item in items}
            case {"class": str(name), "fields": dict(parts)}:
                return classes.rebuild(self._class(name), {part: self(item) for part, item in parts.items()})
            case {"enum": str(name), "member": str(member)}:
                return _member(self._class(name), member)
            case {"sklearn": int(index)} if 0 <= index < len(self.estimators):
                return self.estimators[index]
        return self._array(data)

    def _class(self, name: str) -> Any:
        cls = classes.find(name, self.known)
        if cls is None:
            yours = f"If it is yours, pass the class: load(path, classes=({name.rpartition('.')[2]},))."
            newer = "It may come from a newer one."
            message = newer if name.startswith(f"{classes.PACKAGE}.") else yours
            raise FileError(f"holds a {name}, which is not a class of this partita. {message}")
        return cls

    def _array(self, data: Any) -> Any:
        match data:
            case {"numpy": [str(name), str(code)], "scalar": bool(scalar)}:
                array = self._tensor(name, code)
                return array[()] if scalar else array
            case {"jax": [str(name), str(code)], "weak": bool(weak)}:
                return _to_jax(self._tensor(name, code), weak)
            case {"key": [str(name), str(code)], "impl": str(impl)}:
                return jax.random.wrap_key_data(_to_jax(self._tensor(name, code), False), impl=impl)
            case {"items": list(items), "dtype": str(code), "shape": list(shape), "scalar": bool(scalar)}:
                array = _from_items(self(items), code, shape)
                return array[()] if scalar else array
        raise FileError(f"has a description that no partita writes, at {str(data)[:80]}.")

    def _tensor(self, name: str, code: str) -> np.ndarray:
        stored, dtype = self.tensors.pop(name, None), np.dtype(code)
        if stored is None or not _is_number(dtype) or stored.dtype != (dtype if code in NATIVE else np.uint8):
            raise FileError(f"lacks the array {name!r} of type {code}, or names it twice.")
        # A copy, because what was read cannot be written to and keeps the whole file in memory.
        stored = np.array(stored, order="C")
        if code in NATIVE:
            return stored
        if stored.shape[-1:] != (dtype.itemsize,):
            raise FileError(f"has an array {name!r} that is not of type {code}.")
        return stored.reshape(-1).view(dtype).reshape(stored.shape[:-1])


def _member(cls: Any, member: str) -> Any:
    if not issubclass(cls, enum.Enum) or member not in cls.__members__:
        raise FileError(f"names {member} of {classes.name_of(cls)}, which is not a member of it.")
    return cls.__members__[member]


def _to_jax(array: np.ndarray, weak: bool) -> jax.Array:
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        raise FileError(
            f"holds JAX arrays of type {array.dtype}, which JAX would cut to 32 bits here: call "
            'jax.config.update("jax_enable_x64", True) first.'
        )
    result = jnp.asarray(array)
    if not weak:
        return result
    # Weakly typed, as jnp.full(n, 0.0) is: else a compiled program would be compiled again.
    start = jnp.broadcast_to(jnp.asarray(np.zeros((), array.dtype).item()), result.shape)
    return start.at[...].set(result) if start.dtype == result.dtype else result


def _from_items(items: list[Any], code: str, shape: list[Any]) -> np.ndarray:
    """An array of text, or of objects such as Python's own strings."""
    dtype = np.dtype(code) if re.fullmatch(r"[<>]U[0-9]{1,9}|\|O", code) else None
    only_text = code == "|O" or all(type(item) is str for item in items)
    if dtype is None or not only_text or dtype.itemsize * len(items) > MOST_TEXT:
        raise FileError(f"has an array of text that no partita writes, of type {code}.")
    array = np.empty(len(items), object)
    # One by one: numpy would make a list of tuples a table.
    for i, item in enumerate(items):
        array[i] = item
    return array.reshape(shape).astype(dtype)


def _is_number(dtype: np.dtype) -> bool:
    return jnp.issubdtype(dtype, np.number) or dtype == np.bool_


def _key(key: Any, where: str) -> Any:
    if key is None or type(key) in (str, int):
        return key
    raise ValueError(f"{where} has a key of type {type(key).__name__}; keys may be strings, integers or None.")


def _refuse(value: Any, where: str) -> NoReturn:
    of = f" of type {value.dtype}" if isinstance(value, classes.ARRAYS) else ""
    raise ValueError(
        f"{where or 'The object'} is a {type(value).__name__}{of}, which cannot be saved as data: files hold numbers, "
        "strings, containers, arrays, Equinox modules and partita's own classes, never code. Hold it in an Equinox "
        "module of yours, and pass its class as `classes=` to load; or use pickle or joblib."
    )
