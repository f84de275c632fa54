"""Who may know what, read off the syntax trees of the package."""

import ast
from pathlib import Path

import partita

PACKAGE = Path(partita.__file__).parent
TREES = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
# The contract of a structure, and what serves every space.
GENERIC = {"spaces", "polytopes", "measures", "methods", "couplings", "generic", "enumeration", "checks"}
# The estimators' table of names, and the demo, which composes a model as a user does.
MAY_NAME_A_STRUCTURE = {"estimators/names.py", "cli/demo.py"}
GRADIENTS = {"grad", "value_and_grad", "filter_grad", "filter_value_and_grad", "vjp", "filter_vjp", "linearize"}
# How much an exact computation costs: whoever compares these with a number decides what is affordable.
COSTS = {"size", "log_size", "work", "states", "terms"}
# Sizes of arrays and numbers of parameters, which decide how something is drawn or multiplied, not whether it is exact.
OTHER_SIZES = ("plots.py", "couplings/")


def names(tree):
    """All names in a module, without what is before the last dot: `value_and_grad` of `jax.value_and_grad`."""
    nodes = list(ast.walk(tree))
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return imported | attributes | {node.id for node in nodes if isinstance(node, ast.Name)}


def test_only_structures_name_a_structure():
    files = [path for path in TREES if path.startswith("structures/") and Path(path).stem not in GENERIC]
    classes = {node.name for path in files for node in TREES[path].body if isinstance(node, ast.ClassDef)}
    concrete = {name for name in classes if not name.startswith(("Abstract", "_"))}
    assert {"Hypercube", "Birkhoff", "PlackettLuce", "MeanField", "SubsetDP"} <= concrete
    outside = {path: concrete & names(tree) for path, tree in TREES.items() if not path.startswith("structures/")}
    assert {path for path, used in outside.items() if used} == MAY_NAME_A_STRUCTURE


def test_only_the_engine_takes_the_gradient_of_an_objective():
    """Whoever calls `.loss(...)` of an objective and a gradient is a training loop; objectives may call their own."""
    loops = {path for path, tree in TREES.items() if GRADIENTS & names(tree) and "loss" in names(tree)}
    assert {path for path in loops if not path.startswith("objectives/")} == {"training/engine.py"}


def test_only_budget_catches_what_is_too_large():
    handlers = {
        path
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and node.type is not None and "TooLargeError" in ast.unparse(node.type)
    }
    assert handlers <= {"budget.py"}


def is_limit(node):
    """A number above 2, or a constant: what a cost is compared with where something is too large."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and node.value > 2
    return isinstance(node, ast.BinOp) or (isinstance(node, ast.Name) and node.id.isupper())


def test_only_budget_compares_costs_with_a_limit():
    comparisons = {
        f"{path}: {ast.unparse(node)}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and not isinstance(node.ops[0], ast.Eq | ast.NotEq)
        and any(getattr(side, "attr", None) in COSTS for side in (node.left, *node.comparators))
        and any(is_limit(side) for side in (node.left, *node.comparators))
    }
    assert {line for line in comparisons if not line.startswith(("budget.py", *OTHER_SIZES))} == set()


def test_no_program_calls_lapack():
    """Two programs that call LAPACK at the same time on two cores never end (JAX 0.10); blocks of models are such."""
    lapack = {"solve", "inv", "cholesky", "cho_solve", "cho_factor", "eigh", "eig", "svd", "qr", "lstsq", "slogdet"}
    callers = {
        f"{path}: {ast.unparse(node)}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in lapack and "linalg" in ast.unparse(node.value)
    }
    assert callers == set()
