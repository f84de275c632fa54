"""Maximum likelihood by exact sums."""

import jax

from .. import exact
from .base import AbstractObjective, mean, score


class ExactMLE(AbstractObjective):
    """softmax_f(x) - g(x, y), by `exact`: for KL the negative log-likelihood relative to q. tau is not trained."""

    def check(self, model):
        exact.method(model)

    def loss(self, model, state, batch, *, key):
        def of_row(x, y, index, reference):
            row = model.row(x, index, reference)
            tau = exact.softmax(model, row)
            return tau - score(model, row, tau, y)

        losses = jax.vmap(of_row)(batch.x, batch.y, batch.index, batch.reference)
        return mean(losses, batch), (state, {})
