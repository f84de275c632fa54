"""Other supervision: which of two outputs is better, or how good one output is.

Both learn g alone. They say nothing about how probable y is given x, so tau is not trained; where probabilities are
wanted train it afterwards, `Solver(objectives.MinMin(), train=solver.ONLY_TAU)`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from .base import AbstractEnergyObjective, check_whole, mean

# A guess costs log 2 nats: a run that ends more than one above that has diverged.
CREDIBLE_GUESSES = (0.0, 1.0)


class Preferences(AbstractEnergyObjective):
    """-log sigmoid(scale (g(x, y+) - g(x, y-))): Bradley-Terry on g, from `batches.Preferences`.

    This is the DPO loss as well. With p = q exp(g - LSE_g) the log-ratio log p / q is g - LSE_g, and the difference of
    two of them is that of g: DPO at temperature `scale` with reference q is Bradley-Terry on g, whatever q. The same
    holds for its f-divergence form, since f'(p/q) = g - tau. What q changes is p, not the loss.
    """

    scale: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        if not self.scale > 0:
            raise ValueError(f"Preferences needs a scale > 0; got {self.scale}.")

    def credible(self, model):
        return CREDIBLE_GUESSES

    def loss(self, model, state, batch, *, key):
        check_whole(self, batch)
        if batch.target is None:
            raise ValueError("Preferences needs pairs of outputs: give the data as batches.Preferences(x, y+, y-).")

        def of_row(x, better, worse):
            theta = model.g.h(x)
            return model.g.coupling(theta, better) - model.g.coupling(theta, worse)

        margin = jax.vmap(of_row)(batch.x, batch.y, batch.target)
        return mean(jax.nn.softplus(-self.scale * margin), batch), (state, {"agree": jnp.mean(margin > 0)})


class Scores(AbstractEnergyObjective):
    """A loss of g(x, y) against a score t, from `batches.Scores`: "squared", (g - t)^2 / 2, for real t; "logistic",
    -t log sigmoid(g) - (1 - t) log sigmoid(-g), for t from 0 (bad) to 1 (good)."""

    kind: str = eqx.field(static=True, default="squared")

    def __check_init__(self):
        if self.kind not in ("squared", "logistic"):
            raise ValueError(f"Scores knows the losses 'squared' and 'logistic'; got {self.kind!r}.")

    def credible(self, model):
        return CREDIBLE_GUESSES if self.kind == "logistic" else super().credible(model)

    def loss(self, model, state, batch, *, key):
        check_whole(self, batch)
        if batch.target is None:
            raise ValueError("Scores needs a score for each row: give the data as batches.Scores(x, y, t).")
        g, t = jax.vmap(model.g)(batch.x, batch.y), batch.target
        losses = (g - t) ** 2 / 2 if self.kind == "squared" else jax.nn.softplus(g) - t * g
        return mean(losses, batch), (state, {})
