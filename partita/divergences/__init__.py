"""f-divergences D_f(p, q) = sum_y q(y) f(p(y) / q(y)): f, its conjugate, and what follows from the two.

The density ratio of an output is p/q = (f+*)'(g - tau), where f+* is the conjugate of f restricted to u >= 0. Past a
bound c the conjugate continues linearly. That is the conjugate of f restricted to density ratios u <= (f+*)'(c), so
values and gradients stay finite and the loss stays a Fenchel-Young loss.
"""

from .base import AbstractDivergence
from .kinds import KL, ChiSquare, JensenShannon, ReverseKL, SquaredHellinger, Tsallis

__all__ = ["KL", "AbstractDivergence", "ChiSquare", "JensenShannon", "ReverseKL", "SquaredHellinger", "Tsallis"]
