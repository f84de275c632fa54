"""The energy g(x, y) = Phi(h(x), y); a large g means a likely y."""

import equinox as eqx

from ._types import Array, Float, Int, PyTree, Scalar
from .structures import AbstractCoupling, AbstractSpace

__all__ = ["Energy"]


class Energy(eqx.Module):
    """A model function h, any callable pytree from x to logits of `coupling.theta_shape`, and a coupling."""

    h: PyTree
    coupling: AbstractCoupling

    @property
    def space(self) -> AbstractSpace:
        return self.coupling.space

    def __call__(self, x: Float[Array, " *features"], y: Int[Array, " *y"]) -> Scalar:
        return self.coupling(self.h(x), y)
