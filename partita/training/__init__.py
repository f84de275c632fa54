"""The one training engine: rows, solvers, stacks of models, runs."""

from .checks import Features
from .data import AbstractRows, AbstractSource, Preferences, Rows, Scores, Stream, batch
from .engine import init, step
from .ensembles import average, scale, size, stack, take
from .grids import Grid, Point, fit_grid
from .layouts import AbstractLayout, Blocks, OneProgram, choose_layout
from .loop import StackKeys, fit, fit_stack, stack_keys, start
from .optimizer import BOTH, ONLY_G, ONLY_TAU, AbstractTraining, Alternating, Parts, Solver, cosine
from .runs import (
    AbstractValidation,
    History,
    Progress,
    Run,
    Solution,
    TrainState,
    ValidationLoss,
    ValidationLosses,
    has_diverged,
)

__all__ = [
    "BOTH",
    "ONLY_G",
    "ONLY_TAU",
    "AbstractLayout",
    "AbstractRows",
    "AbstractSource",
    "AbstractTraining",
    "AbstractValidation",
    "Alternating",
    "Blocks",
    "Features",
    "Grid",
    "History",
    "OneProgram",
    "Parts",
    "Point",
    "Preferences",
    "Progress",
    "Rows",
    "Run",
    "Scores",
    "Solution",
    "Solver",
    "StackKeys",
    "Stream",
    "TrainState",
    "ValidationLoss",
    "ValidationLosses",
    "average",
    "batch",
    "choose_layout",
    "cosine",
    "fit",
    "fit_grid",
    "fit_stack",
    "has_diverged",
    "init",
    "scale",
    "size",
    "stack",
    "stack_keys",
    "start",
    "step",
    "take",
]
