"""Markov kernels on Y that leave p(.|x) invariant, chains of them, and diagnostics of their draws.

A kernel is written for one chain on one row: `init` makes the state of an output, `step` moves it. `run` moves many
chains; many rows are a `vmap`.
"""

from .base import AbstractKernel, AbstractTarget, ChainState, Info, Target, Tempered, target
from .chains import check_length as check_length
from .chains import effective_sample_size, r_hat, run
from .local import Gibbs, Informed
from .metropolis import Guided, Metropolis

__all__ = [
    "AbstractKernel",
    "AbstractTarget",
    "ChainState",
    "Gibbs",
    "Guided",
    "Info",
    "Informed",
    "Metropolis",
    "Target",
    "Tempered",
    "effective_sample_size",
    "r_hat",
    "run",
    "target",
]
