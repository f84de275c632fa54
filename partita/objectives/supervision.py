"""Other supervision: which of two outputs is better, or how good one output is.

Both train g alone. The data do not determine how probable y is given x, so tau is not trained; for probabilities train
it afterwards, `Solver(objectives.MinMin(), train=training.ONLY_TAU)`, as the estimators do in `fit(X, y, worse=...)`
and `fit(X, y, scores=...)`.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from ..numerics import bisect
from ..types import Array, Batch, Float, Scalar
from .base import AbstractEnergyObjective, check_whole, mean

# A guess costs log 2 nats: a run that ends more than one nat above that has diverged.
CREDIBLE_GUESSES = (0.0, 1.0)
# If all t are equal, the best intercept is infinite.
LARGEST_LOGIT = 20.0


class Preferences(AbstractEnergyObjective):
    """-log sigmoid(scale (g(x, y+) - g(x, y-))): Bradley-Terry on g, from `training.Preferences`.

    This is the DPO loss at temperature `scale` with any reference q: with p = q exp(g - LSE_g) the log-ratio log p / q
    is g - LSE_g, and the difference of two of them is that of g. The same holds for its f-divergence form, since
    f'(p/q) = g - tau. So q changes p, but not the loss.

    Parameters
    ----------
    scale
        The factor of the difference, positive.

    References
    ----------
    Rafailov, Sharma, Mitchell, Ermon, Manning and Finn (2023). Direct preference optimization. NeurIPS.
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
            raise ValueError("Preferences needs pairs of outputs: give the data as training.Preferences(x, y+, y-).")

        def of_row(x, better, worse):
            theta = model.g.h(x)
            return model.g.coupling(theta, better) - model.g.coupling(theta, worse)

        margin = jax.vmap(of_row)(batch.x, batch.y, batch.target)
        return mean(jax.nn.softplus(-self.scale * margin), batch), (state, {"agree": jnp.mean(margin > 0)})


class Scores(AbstractEnergyObjective):
    """A loss of g(x, y) against a score t, from `training.Scores`.

    Parameters
    ----------
    kind
        "squared", (g - t / unit)^2 / 2, for real t; "logistic", -t log sigmoid(g) - (1 - t) log sigmoid(-g), for t from
        0 (bad) to 1 (good).
    intercept
        Whether the loss is that of g + b, with the constant b that is best for the batch. In most couplings g has no
        constant: it is 0 for the empty set, and its mean over all rankings is 0. p does not depend on b, which is not
        kept. A level of the scores that changes with x is not modeled.
    unit
        The unit of t for "squared".
    """

    kind: str = eqx.field(static=True, default="squared")
    intercept: bool = eqx.field(static=True, default=False)
    # An array, so that other units run the compiled program.
    unit: Scalar = eqx.field(default=1.0, converter=lambda unit: jnp.asarray(unit, float))

    def __check_init__(self):
        if self.kind not in ("squared", "logistic"):
            raise ValueError(f"Scores knows the losses 'squared' and 'logistic'; got {self.kind!r}.")
        if not 0 < self.unit < math.inf or (self.kind == "logistic" and self.unit != 1):
            raise ValueError(f"Scores needs a finite unit > 0, which is 1 for 'logistic'; got {self.unit}.")

    def credible(self, model):
        return CREDIBLE_GUESSES if self.kind == "logistic" else super().credible(model)

    def loss(self, model, state, batch, *, key):
        check_whole(self, batch)
        if batch.target is None:
            raise ValueError("Scores needs a score for each row: give the data as training.Scores(x, y, t).")
        g, t = jax.vmap(model.g)(batch.x, batch.y), batch.target / self.unit
        if self.intercept:
            # The slope in b is zero at its minimum, so that the gradient in g needs none through b.
            g = g + jax.lax.stop_gradient(self._best_intercept(g, t, batch))
        losses = (g - t) ** 2 / 2 if self.kind == "squared" else jax.nn.softplus(g) - t * g
        return mean(losses, batch), (state, {})

    def _best_intercept(self, g: Float[Array, " n"], t: Float[Array, " n"], batch: Batch) -> Scalar:
        weight = jnp.ones_like(g) if batch.weight is None else batch.weight
        total = jnp.maximum(weight.sum(), jnp.finfo(g.dtype).tiny)
        if self.kind == "squared":
            return weight @ (t - g) / total
        # The slope in b rises: its root, to 1e-5, lies between two b at which all g + b have one sign.
        reach = jnp.max(jnp.abs(g)) + LARGEST_LOGIT
        return bisect(lambda b: weight @ (jax.nn.sigmoid(g + b) - t) <= 0, -reach, reach, max_steps=24)
