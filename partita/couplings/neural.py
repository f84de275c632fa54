"""Couplings that are a network of the logits and the output."""

import equinox as eqx
import jax

from ..structures import AbstractCoupling, AbstractPolytope
from ..types import PyTree

__all__ = ["Neural"]


class Neural(AbstractCoupling):
    """Phi(theta, y) = network(theta, phi(y)): any energy.

    Parameters
    ----------
    polytope
        The hull of the outputs, which defines the encoding phi.
    logits
        The shape of theta.
    network
        A callable pytree from theta and phi(y) to one number; `networks.Paired` makes one of a network of one vector.

    Examples
    --------
    >>> from partita.networks import MLP, Paired
    >>> from partita.structures import Cube
    >>> coupling = Neural(Cube(3), (5,), Paired(MLP(5 + 3, (), key=jax.random.key(0))))
    >>> coupling.theta_shape
    (5,)
    """

    polytope: AbstractPolytope
    logits: tuple[int, ...] = eqx.field(static=True)
    network: PyTree

    @property
    def space(self):
        return self.polytope.space

    @property
    def theta_shape(self):
        return self.logits

    def __call__(self, theta, y):
        return self.relaxed(theta, self.polytope.encode(y))

    def relaxed(self, theta, mu):
        return self.network(theta, mu).reshape(())

    @property
    def cost(self):
        weights = jax.tree.leaves(eqx.filter(self.network, eqx.is_inexact_array))
        return super().cost + sum(w.size for w in weights)
