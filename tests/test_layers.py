"""A total order of the modules of partita, and one of paper: each imports only from those above it.

partita imports nothing of paper, and importing partita loads nothing heavy.
"""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import paper
import partita

PACKAGE, PAPER = (Path(package.__file__).parent for package in (partita, paper))

# Of the one list of modules, which is in this order; the command line's entry is no module to import.
STUB = ast.parse((PACKAGE / "__init__.pyi").read_text())
ORDER = [node.names[0].name for node in STUB.body if isinstance(node, ast.ImportFrom) and node.module is None]
ORDER += ["__main__"]
PAPER_ORDER = [
    "store",
    "printed_values",
    "document",
    "report",
    "comparisons",
    "remarks",
    "settings",
    "protocol",
    "trials",
    "methods",
    "convergence",
    "alternating",
    "tables",
    "figures",
    "claims",
    "run",
    "__main__",
]
# Only the outermost modules may know the screen, files, pandas or scikit-learn.
MATHEMATICS_AND_COMPUTATION = ORDER[: ORDER.index("decisions") + 1]
PEOPLE_ONLY = {"rich", "sklearn", "pandas", "matplotlib", "pathlib", "typer", "pooch"}


def imports(name, package=PACKAGE):
    """(modules of the package, other top-level packages) that a module imports, anywhere in it."""
    own, others = set(), set()
    # A folder is a module too: what its files import from each other is its own affair.
    paths = sorted((package / name).rglob("*.py")) or [package / f"{name}.py"]
    for path in paths:
        outward = len(path.relative_to(package).parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == outward:
                own |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                others.add(node.module.split(".")[0])
            elif isinstance(node, ast.Import):
                others |= {alias.name.split(".")[0] for alias in node.names}
    return own, others


@pytest.mark.parametrize(("package", "order"), [(PACKAGE, ORDER), (PAPER, PAPER_ORDER)], ids=["partita", "paper"])
def test_the_order_names_every_module(package, order):
    files, folders = package.glob("*.py"), (path.parent for path in package.glob("*/__init__.py"))
    assert {path.stem for path in (*files, *folders)} == {*order, "__init__"}


@pytest.mark.parametrize("name", ORDER)
def test_a_module_imports_only_from_above(name):
    own, others = imports(name)
    assert own <= set(ORDER[: ORDER.index(name)])
    assert "partita" not in others, "modules name each other relatively, so that the order can be read"
    assert "paper" not in others, "the wheel has no paper"


@pytest.mark.parametrize("name", PAPER_ORDER)
def test_a_module_of_the_paper_imports_only_from_above(name):
    own, others = imports(name, PAPER)
    assert own <= set(PAPER_ORDER[: PAPER_ORDER.index(name)])
    assert "paper" not in others, "modules name each other relatively, so that the order can be read"


@pytest.mark.parametrize("name", MATHEMATICS_AND_COMPUTATION)
def test_the_core_knows_no_screen_and_no_files(name):
    assert not imports(name)[1] & PEOPLE_ONLY


def test_every_public_name_resolves():
    for name in partita.__all__:
        assert getattr(partita, name) is not None
    assert set(partita.__all__) <= set(dir(partita))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = partita.nonsense


def test_the_version_is_in_one_file():
    root = PACKAGE.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert root / project["tool"]["hatch"]["version"]["path"] == Path(partita.__file__)
    assert not re.search("^version:", (root / "CITATION.cff").read_text(), flags=re.MULTILINE)


def test_importing_partita_is_light():
    code = (
        "import sys, partita, partita.inference; print(sorted({'sklearn', 'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
