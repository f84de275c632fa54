"""Losses that compare the observed output with an argmax over the hull: no normalizer, and no probabilities."""

import equinox as eqx
import jax

from .. import argmax
from ..argmax import AbstractOracle, AbstractRegularizer, Nothing, SquaredNorm
from .base import AbstractEnergyObjective, check_whole, mean


class AbstractFenchelYoung(AbstractEnergyObjective):
    """max over mu in C of Phi(theta, mu) - Omega(mu), less its value at phi(y): 0 if phi(y) is the argmax.

    q and tau do not occur. Predict with `inference.relaxed_mode` and the same regularizer. Where the oracle finds only
    a stationary point the loss may be negative; the mean Frank-Wolfe gap is recorded as `gap`.
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
            solution = solve(coupling, theta)
            observed = coupling(theta, y) - self.regularizer(coupling.polytope, coupling.polytope.encode(y))
            return solution.value - observed, solution.gap

        losses, gaps = jax.vmap(of_row)(batch.x, batch.y)
        return mean(losses, batch), (state, {"gap": gaps.mean()})


class GeneralizedFenchelYoung(AbstractFenchelYoung):
    """The generalized Fenchel-Young loss max over mu in C of Phi(theta, mu) - Omega(mu), less its value at phi(y).

    With a strictly convex Omega the loss is smooth. q and tau do not occur: predict with `inference.relaxed_mode` and
    the same regularizer.

    Parameters
    ----------
    regularizer
        Omega.
    oracle
        What computes the argmax, for instance an `argmax.coarse_oracle`; None: that of `argmax.oracle`.

    References
    ----------
    Blondel, Llinares-Lopez, Dadashi, Hussenot and Geist (2022). Learning energy networks with generalized Fenchel-Young
    losses. NeurIPS.
    """

    regularizer: AbstractRegularizer = SquaredNorm(1.0)
    oracle: AbstractOracle | None = None


class Perceptron(AbstractFenchelYoung):
    """The generalized perceptron loss: `GeneralizedFenchelYoung` with Omega = 0."""

    regularizer: AbstractRegularizer
    oracle: AbstractOracle | None

    def __init__(self):
        self.regularizer, self.oracle = Nothing(), None
