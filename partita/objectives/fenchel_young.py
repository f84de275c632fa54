"""Losses that compare the observed output with an argmax over the hull: no normalizer, and no probabilities."""

import equinox as eqx
import jax

from .. import argmax
from ..argmax import AbstractOracle, AbstractRegularizer, Nothing, SquaredNorm
from .base import AbstractEnergyObjective, check_whole, mean


class AbstractFenchelYoung(AbstractEnergyObjective):
    """max over mu in C of Phi(theta, mu) - Omega(mu), less its value at phi(y): zero where phi(y) is the argmax.

    It learns g alone, so that the relaxed argmax is y (`inference.relaxed_mode` with the same regularizer); q and tau
    have no part in it. Where the argmax is only a stationary point the loss may be negative; `gap` is the mean gap.
    """

    regularizer: eqx.AbstractVar[AbstractRegularizer]
    oracle: eqx.AbstractVar[AbstractOracle | None]

    def check(self, model):
        coupling = model.g.coupling
        if self.oracle is None:
            argmax.oracle(coupling, self.regularizer)
        elif not self.oracle.serves(coupling) or self.oracle.regularizer != self.regularizer:
            raise ValueError(
                f"The oracle, {self.oracle}, is not for a {type(coupling).__name__} coupling with {self.regularizer}. "
                "Leave it out for the one of argmax.oracle."
            )
        if not model.q.is_uniform:
            raise ValueError(
                f"{type(self).__name__} learns g without a reference, and would ignore the model's "
                f"{type(model.q).__name__}. Use a uniform q, or a likelihood: objectives.MinMin or objectives.ExactMLE."
            )

    def loss(self, model, state, batch, *, key):
        check_whole(self, batch)
        coupling = model.g.coupling
        solve = argmax.oracle(coupling, self.regularizer) if self.oracle is None else self.oracle

        def of_row(x, y):
            theta = model.g.h(x)
            solved = solve(coupling, theta)
            observed = coupling(theta, y) - self.regularizer(coupling.polytope, coupling.polytope.encode(y))
            return solved.value - observed, solved.gap

        losses, gaps = jax.vmap(of_row)(batch.x, batch.y)
        return mean(losses, batch), (state, {"gap": gaps.mean()})


class GeneralizedFenchelYoung(AbstractFenchelYoung):
    """The generalized Fenchel-Young loss: with a strictly convex Omega the argmax is one point, and the loss smooth.

    The `oracle` finds the argmax: that of `argmax.oracle` unless given, a coarser one say.
    """

    regularizer: AbstractRegularizer = SquaredNorm(1.0)
    oracle: AbstractOracle | None = None


class Perceptron(AbstractFenchelYoung):
    """The generalized perceptron loss, Omega = 0."""

    regularizer: AbstractRegularizer
    oracle: AbstractOracle | None

    def __init__(self):
        self.regularizer, self.oracle = Nothing(), None
