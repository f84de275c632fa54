"""Energy-based models over label sets and rankings, learned together with their normalizer.

Nouns live in modules (`partita.structures.Hypercube`), verbs are flat (`partita.fit`). Modules load on first use.
"""

import importlib

__version__ = "0.1.0"

_MODULES = (
    "argmax",
    "atomic",
    "batches",
    "budget",
    "cli",
    "couplings",
    "datasets",
    "decisions",
    "divergences",
    "estimators",
    "exact",
    "inference",
    "kernels",
    "logspace",
    "members",
    "metrics",
    "model",
    "networks",
    "objectives",
    "partial",
    "persistence",
    "plots",
    "progress",
    "samplers",
    "search",
    "solver",
    "structures",
    "sweep",
)
_NAMES = {
    "EBM": "model",
    "Energy": "model",
    "LabelRanker": "estimators",
    "MultilabelClassifier": "estimators",
    "Solver": "solver",
    "fit": "solver",
    "load": "persistence",
    "save": "persistence",
}

__all__ = [*_MODULES, *_NAMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
