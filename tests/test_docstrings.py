"""Public classes, methods and functions have numpydoc docstrings; a method may inherit the one of its base class."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest
from numpydoc.validate import validate

import partita

STUB = ast.parse((Path(partita.__file__).parent / "__init__.pyi").read_text())
MODULES = [node.names[0].name for node in STUB.body if isinstance(node, ast.ImportFrom) and node.module is None]
# The docstrings of commands are what --help shows: sections would be noise there.
EXCLUDED = {"cli"}
# GL07, GL08 the sections in order, a docstring; SS01, SS03 a summary that ends with a period; PR01 to PR03, PR07, PR10
# the parameters: all, no others, in the order of the signature, each described; RT01, RT03 what is returned; YD01 what
# is yielded.
CODES = {"GL07", "GL08", "SS01", "SS03", "PR01", "PR02", "PR03", "PR07", "PR10", "RT01", "RT03", "YD01"}


def public_objects(module):
    """The names of the classes and functions in a module's `__all__`, and of the methods of these classes."""
    for name in module.__all__:
        value = getattr(module, name)
        is_own = getattr(value, "__module__", "").startswith("partita")
        if not is_own or not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        yield f"{module.__name__}.{name}"
        if inspect.isclass(value):
            for attribute in dir(value):
                member = inspect.getattr_static(value, attribute)
                if not attribute.startswith("_") and is_own_method(member):
                    yield f"{module.__name__}.{name}.{attribute}"


def is_own_method(member):
    """Whether partita defines this method or property, and it has a docstring of its own or inherits none."""
    function = member.fget if isinstance(member, property) else inspect.unwrap(getattr(member, "__func__", member))
    if not inspect.isroutine(function) or not getattr(function, "__module__", "").startswith("partita"):
        return False
    return bool(function.__doc__) or not inspect.getdoc(member)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in EXCLUDED])
def test_docstrings_follow_numpydoc(name):
    module = importlib.import_module(f"partita.{name}")
    assert (module.__doc__ or "").strip(), f"partita.{name} has no docstring"
    problems = {
        f"{Path(report['file'] or '').name}:{report['file_line']} {target}: {code} {message}"
        for target in public_objects(module)
        for report in [validate(target)]
        for code, message in report["errors"]
        if code in CODES
    }
    assert not problems, "\n".join(sorted(problems))
