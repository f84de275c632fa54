"""Argmax of Phi(theta, mu) - Omega(mu) over the hull C: the regularizers Omega, and the oracles that solve it.

The argmax mu carries no gradient: by the envelope theorem the gradient of the maximum, in theta and in the coupling's
parameters, is that of Phi at constant mu.
"""

from .oracles import (
    AbstractOracle,
    ClosedForm,
    CoordinateAscent,
    ProximalGradient,
    Solution,
    coarse_oracle,
    nearest_output,
    oracle,
)
from .regularizers import AbstractRegularizer, Entropy, Nothing, SquaredNorm

__all__ = [
    "AbstractOracle",
    "AbstractRegularizer",
    "ClosedForm",
    "CoordinateAscent",
    "Entropy",
    "Nothing",
    "ProximalGradient",
    "Solution",
    "SquaredNorm",
    "coarse_oracle",
    "nearest_output",
    "oracle",
]
