"""Losses that compare the observed output with an argmax over the hull: no normalizer, and no probabilities."""

import equinox as eqx
import jax

from .. import oracles
from ..measures import Uniform
from ..regularizers import AbstractRegularizer, Nothing, SquaredNorm
from .base import AbstractObjective, check_whole, mean


class AbstractFenchelYoung(AbstractObjective):
    """max over mu in C of Phi(theta, mu) - Omega(mu), less its value at phi(y): zero where phi(y) is the argmax.

    It learns g alone, so that the relaxed argmax is y (`inference.relaxed_mode` with the same regularizer); q and tau
    have no part in it. Where the argmax is only a stationary point the loss may be negative; `gap` is the mean gap.
    """

    regularizer: eqx.AbstractVar[AbstractRegularizer]

    def check(self, model):
        oracles.oracle(model.g.coupling, self.regularizer)
        if not isinstance(model.q, Uniform):
            raise ValueError(
                f"{type(self).__name__} learns g without a reference, and would ignore the model's "
                f"{type(model.q).__name__}. Use a uniform q, or a likelihood: objectives.MinMin or objectives.ExactMLE."
            )

    def loss(self, model, state, batch, *, key):
        check_whole(self, batch)
        coupling = model.g.coupling
        solve = oracles.oracle(coupling, self.regularizer)

        def of_row(x, y):
            theta = model.g.h(x)
            solved = solve(coupling, theta)
            observed = coupling(theta, y) - self.regularizer(coupling.polytope, coupling.polytope.encode(y))
            return solved.value - observed, solved.gap

        losses, gaps = jax.vmap(of_row)(batch.x, batch.y)
        return mean(losses, batch), (state, {"gap": gaps.mean()})


class GeneralizedFenchelYoung(AbstractFenchelYoung):
    """The generalized Fenchel-Young loss: with a strictly convex Omega the argmax is one point, and the loss smooth."""

    regularizer: AbstractRegularizer = SquaredNorm(1.0)


class Perceptron(AbstractFenchelYoung):
    """The generalized perceptron loss, Omega = 0."""

    regularizer: AbstractRegularizer

    def __init__(self):
        self.regularizer = Nothing()
