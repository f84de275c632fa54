"""Which classes a file may name, what their fields are, and how an object is made of them without its `__init__`."""

import dataclasses
import enum
import functools
import importlib
import importlib.util
import inspect
import numbers
import sys
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import AbstractArray
from sklearn.base import BaseEstimator

from .files import PACKAGE, FileError

__all__ = ["ARRAYS", "fields", "find", "is_known", "name_of", "rebuild"]

ARRAYS = (jax.Array, np.ndarray, np.generic)
# What may stand for a number of Python's: numpy's scalars, and integers for floats.
NUMBERS = {bool: bool | np.bool, int: numbers.Integral, float: numbers.Real, complex: numbers.Complex}


def is_known(cls: Any) -> bool:
    """Whether objects of a class are made of named fields: modules, named tuples, enums, estimators."""
    kinds = issubclass(cls, eqx.Module | enum.Enum | BaseEstimator) if isinstance(cls, type) else False
    return kinds or _is_named_tuple(cls)


def name_of(cls: type) -> str:
    """`partita.objectives.MinMin`, in whichever file of the folder the class is; the full name of any other class."""
    path = cls.__module__.split(".")
    return ".".join([*(path[:2] if path[0] == PACKAGE else path), cls.__qualname__])


def find(name: str, classes: Iterable[type]) -> type | None:
    """The class of partita's, or of the caller's, that a file names."""
    package, _, rest = name.partition(".")
    if package == PACKAGE:
        holder, _, qualname = rest.partition(".")
        return _classes_in(holder).get(qualname) if holder in sys.modules[PACKAGE].__all__ else None
    same = [cls for cls in classes if name_of(cls) == name]
    # What a script saved, its package may load, and the other way round.
    moved = [cls for cls in classes if "__main__" in (package, cls.__module__) and cls.__name__ == name.split(".")[-1]]
    result = same or moved
    return result[0] if len(result) == 1 else None


@functools.cache
def _classes_in(holder: str) -> dict[str, type]:
    module = f"{PACKAGE}.{holder}"
    if importlib.util.find_spec(module) is None:
        return {}
    importlib.import_module(module)
    parts = [part for name, part in sys.modules.items() if name == module or name.startswith(f"{module}.")]
    result = [(part.__name__, cls) for part in parts for cls in vars(part).values() if is_known(cls)]
    return {cls.__qualname__: cls for name, cls in result if cls.__module__ == name}


def fields(value: Any) -> dict[str, Any]:
    """What an object is made of, by name."""
    if isinstance(value, eqx.Module):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(zip(type(value)._fields, value, strict=True)) if _is_named_tuple(type(value)) else dict(vars(value))


def rebuild(cls: Any, values: dict[str, Any]) -> Any:
    """The object of these fields. Neither `__init__` nor `__new__` of its class is called, only `__check_init__`."""
    if issubclass(cls, enum.Enum):
        raise FileError(f"makes a {name_of(cls)} of fields, but it has members.")
    if issubclass(cls, BaseEstimator) and cls.__module__.split(".")[0] == PACKAGE:
        # A file from before a parameter was added: its default is what there was then.
        known = inspect.signature(cls).parameters.items()
        values = {name: parameter.default for name, parameter in known} | values
    _check(cls, values)
    if issubclass(cls, tuple):
        return tuple.__new__(cls, [values[name] for name in cls._fields])  # pyright: ignore[reportAttributeAccessIssue]
    result = object.__new__(cls)
    # Modules are frozen.
    vars(result).update(values)
    for base in cls.__mro__ if issubclass(cls, eqx.Module) else ():
        if "__check_init__" in vars(base):
            vars(base)["__check_init__"](result)
    return result


def _check(cls: Any, values: dict[str, Any]) -> None:
    """Refuse fields that are missing, unknown, or in partita's own classes not what is declared."""
    hints = _hints(cls)
    missing, unknown = hints.keys() - values.keys(), values.keys() - hints.keys()
    # What an estimator has learned is named nowhere.
    if missing or (unknown and not issubclass(cls, BaseEstimator)):
        raise FileError(
            f"holds a {name_of(cls)} without {sorted(missing)} and with {sorted(unknown)}: not the fields that this "
            "version of the class has."
        )
    own = cls.__module__.split(".")[0] == PACKAGE
    wrong = [name for name, hint in hints.items() if own and not _fits(values[name], hint)]
    if wrong:
        kind = type(values[wrong[0]]).__name__
        raise FileError(f"holds a {name_of(cls)} whose {wrong[0]} is a {kind}, not {hints[wrong[0]]}.")


def _hints(cls: Any) -> dict[str, Any]:
    """Names and declared types of the fields; of an estimator the parameters."""
    if issubclass(cls, eqx.Module):
        return {field.name: field.type for field in dataclasses.fields(cls)}
    if _is_named_tuple(cls):
        return {name: cls.__annotations__.get(name, Any) for name in cls._fields}
    return dict.fromkeys(list(inspect.signature(cls).parameters), Any)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the declared kind. Shapes are not looked at: a model may be a batch of models."""
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
