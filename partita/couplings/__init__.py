"""Couplings Phi(theta, y): how logits theta = h(x) score an output y."""

from ..structures import AbstractCoupling
from .bilinear import Bilinear, LinearQuadratic
from .interactions import AbstractInteraction, Factored, Full, NegativeSemidefinite, Sparse, Symmetric
from .neural import Neural

__all__ = [
    "AbstractCoupling",
    "AbstractInteraction",
    "Bilinear",
    "Factored",
    "Full",
    "LinearQuadratic",
    "NegativeSemidefinite",
    "Neural",
    "Sparse",
    "Symmetric",
]
