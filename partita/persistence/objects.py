"""Objects as a JSON description and tensors, and back, bit for bit; and which classes a file may name.

Numbers, strings, None and lists are JSON's own. Everything else is a JSON object whose first key says what it is.
"""

import dataclasses
import enum
import functools
import importlib
import importlib.util
import inspect
import math
import numbers
import re
import struct
import sys
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray
from sklearn.base import BaseEstimator

__all__ = [
    "ARRAYS",
    "PACKAGE",
    "ConsentError",
    "Decoder",
    "Encoder",
    "FileError",
    "class_name",
    "find_class",
    "has_named_fields",
]

PACKAGE = __name__.partition(".")[0]
ARRAYS = (jax.Array, np.ndarray, np.generic)
# Which values a field that is declared as a number may hold: numpy's scalars too, and integers for floats.
NUMBERS = {bool: bool | np.bool, int: numbers.Integral, float: numbers.Real, complex: numbers.Complex}
# The types that safetensors knows by name; arrays of other types are written as their bytes.
NATIVE = {"|b1", "|i1", "|u1", *(f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)), "<f2", "<f4", "<f8"}
LONGEST_INTEGER = 8192
MOST_TEXT = 2**28


class FileError(ValueError):
    """A file that partita did not write, or that cannot be read here."""


class ConsentError(FileError):
    """A file with a pickle, which is read only with `trusted=True`."""


class Encoder:
    """Describes objects; collects their tensors, estimators of scikit-learn and classes.

    `where` is a place in the object, such as `.g.h.layer.weight`: the name of a tensor, and the place in an error.
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
        name = class_name(cls)
        own = find_class(name, self.own) is cls
        if isinstance(value, BaseEstimator) and not own:
            self.estimators.append(value)
            return {"sklearn": len(self.estimators) - 1}
        if not has_named_fields(cls) or (name.startswith(f"{PACKAGE}.") and not own):
            _refuse(value, where)
        self.classes.add(cls)
        if isinstance(value, enum.Enum):
            return {"enum": name, "member": value.name}
        parts = fields_of(value)
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
                return rebuild(self._class(name), {part: self(item) for part, item in parts.items()})
            case {"enum": str(name), "member": str(member)}:
                return _member(self._class(name), member)
            case {"sklearn": int(index)} if 0 <= index < len(self.estimators):
                return self.estimators[index]
        return self._array(data)

    def _class(self, name: str) -> Any:
        cls = find_class(name, self.known)
        if cls is None:
            yours = f"If it is yours, pass the class: load(path, classes=({name.rpartition('.')[2]},))."
            newer = "It may come from a newer one."
            message = newer if name.startswith(f"{PACKAGE}.") else yours
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
        # A copy: the array that was read is read-only and keeps the whole file in memory.
        stored = np.array(stored, order="C")
        if code in NATIVE:
            return stored
        if stored.shape[-1:] != (dtype.itemsize,):
            raise FileError(f"has an array {name!r} that is not of type {code}.")
        return stored.reshape(-1).view(dtype).reshape(stored.shape[:-1])


def _member(cls: Any, member: str) -> Any:
    if not issubclass(cls, enum.Enum) or member not in cls.__members__:
        raise FileError(f"names {member} of {class_name(cls)}, which is not a member of it.")
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
    # Weakly typed, as jnp.full(n, 0.0) is: a strong type would compile programs again.
    start = jnp.broadcast_to(jnp.asarray(np.zeros((), array.dtype).item()), result.shape)
    return start.at[...].set(result) if start.dtype == result.dtype else result


def _from_items(items: list[Any], code: str, shape: list[Any]) -> np.ndarray:
    """An array of text, or of objects such as Python's own strings."""
    dtype = np.dtype(code) if re.fullmatch(r"[<>]U[0-9]{1,9}|\|O", code) else None
    only_text = code == "|O" or all(type(item) is str for item in items)
    if dtype is None or not only_text or dtype.itemsize * len(items) > MOST_TEXT:
        raise FileError(f"has an array of text that no partita writes, of type {code}.")
    array = np.empty(len(items), object)
    # One by one: numpy would turn a list of tuples into a 2-d array.
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
    of = f" of type {value.dtype}" if isinstance(value, ARRAYS) else ""
    raise ValueError(
        f"{where or 'The object'} is a {type(value).__name__}{of}, which cannot be saved as data: files hold numbers, "
        "strings, containers, arrays, Equinox modules and partita's own classes, never code. Hold it in an Equinox "
        "module of yours, and pass its class as `classes=` to load; or use pickle or joblib."
    )


def has_named_fields(cls: Any) -> bool:
    """Whether a class is one of those that files hold field by field: modules, named tuples, enums, estimators."""
    return isinstance(cls, type) and (issubclass(cls, eqx.Module | enum.Enum | BaseEstimator) or _is_named_tuple(cls))


def class_name(cls: type) -> str:
    """The name in a file: `partita.objectives.MinMin`, whichever file of the folder; the full name of other classes."""
    path = cls.__module__.split(".")
    return ".".join([*(path[:2] if path[0] == PACKAGE else path), cls.__qualname__])


def find_class(name: str, classes: Iterable[type]) -> type | None:
    """The class of partita, or of the caller's `classes`, that a file names; None where there is none."""
    package, _, rest = name.partition(".")
    if package == PACKAGE:
        module, _, qualname = rest.partition(".")
        return _classes_in(module).get(qualname) if module in sys.modules[PACKAGE].__all__ else None
    same = [cls for cls in classes if class_name(cls) == name]
    # A class of a script has another module name when the script is imported.
    moved = [cls for cls in classes if "__main__" in (package, cls.__module__) and cls.__name__ == name.split(".")[-1]]
    matches = same or moved
    return matches[0] if len(matches) == 1 else None


@functools.cache
def _classes_in(module: str) -> dict[str, type]:
    """The classes that a module of partita, or a file of its folder, defines."""
    full = f"{PACKAGE}.{module}"
    if importlib.util.find_spec(full) is None:
        return {}
    importlib.import_module(full)
    parts = [part for name, part in sys.modules.items() if name == full or name.startswith(f"{full}.")]
    classes = [(part.__name__, cls) for part in parts for cls in vars(part).values() if has_named_fields(cls)]
    return {cls.__qualname__: cls for name, cls in classes if cls.__module__ == name}


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of an object by name."""
    if isinstance(value, eqx.Module):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(zip(type(value)._fields, value, strict=True)) if _is_named_tuple(type(value)) else dict(vars(value))


def rebuild(cls: Any, values: dict[str, Any]) -> Any:
    """Make an object of these fields. Of its class `__check_init__` is called, neither `__init__` nor `__new__`."""
    if issubclass(cls, enum.Enum):
        raise FileError(f"holds fields of the enum {class_name(cls)}, which has members only.")
    if issubclass(cls, BaseEstimator) and cls.__module__.split(".")[0] == PACKAGE:
        # Files older than a parameter: its default keeps the behavior of that time.
        parameters = inspect.signature(cls).parameters.items()
        values = {name: parameter.default for name, parameter in parameters} | values
    _check(cls, values)
    if issubclass(cls, tuple):
        return tuple.__new__(cls, [values[name] for name in cls._fields])  # pyright: ignore[reportAttributeAccessIssue]
    result = object.__new__(cls)
    # Modules are frozen, so that setattr would raise.
    vars(result).update(values)
    for base in cls.__mro__ if issubclass(cls, eqx.Module) else ():
        if "__check_init__" in vars(base):
            vars(base)["__check_init__"](result)
    return result


def _check(cls: Any, values: dict[str, Any]) -> None:
    """Raise for fields that are missing, unknown, or, in partita's own classes, not of the declared type."""
    hints = _hints(cls)
    missing, unknown = hints.keys() - values.keys(), values.keys() - hints.keys()
    # The fitted attributes of an estimator are declared nowhere.
    if missing or (unknown and not issubclass(cls, BaseEstimator)):
        raise FileError(
            f"holds a {class_name(cls)} without {sorted(missing)} and with {sorted(unknown)}: not the fields that this "
            "version of the class has."
        )
    own = cls.__module__.split(".")[0] == PACKAGE
    wrong = [name for name, hint in hints.items() if own and not _fits(values[name], hint)]
    if wrong:
        kind = type(values[wrong[0]]).__name__
        raise FileError(f"holds a {class_name(cls)} whose {wrong[0]} is a {kind}, not {hints[wrong[0]]}.")


def _hints(cls: Any) -> dict[str, Any]:
    """Names and declared types of the fields; of an estimator the parameters."""
    if issubclass(cls, eqx.Module):
        return {field.name: field.type for field in dataclasses.fields(cls)}
    if _is_named_tuple(cls):
        return {name: cls.__annotations__.get(name, Any) for name in cls._fields}
    return dict.fromkeys(list(inspect.signature(cls).parameters), Any)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the declared type. Shapes are not checked: a model may be a stack of models."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, arg) for arg in args)
    if origin is tuple and args[-1] is not Ellipsis:
        return isinstance(value, tuple) and len(value) == len(args) and all(map(_fits, value, args))
    if origin in (tuple, list):
        return isinstance(value, origin) and all(_fits(item, args[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(k, args[0]) and _fits(v, args[1]) for k, v in value.items())
    if origin is Callable:
        return callable(value)
    if hint is Any or not isinstance(hint, type):
        return True
    if hint in NUMBERS:
        return isinstance(value, NUMBERS[hint]) and (hint is bool or not isinstance(value, bool))
    if issubclass(hint, AbstractArray | np.ndarray | jax.Array):
        return isinstance(value, ARRAYS)
    return isinstance(value, hint)


def _is_named_tuple(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")
