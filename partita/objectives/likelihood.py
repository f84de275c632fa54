"""Maximum likelihood, by exact sums or by Markov chains."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp

from .. import budget, exact
from ..divergences import KL
from ..kernels import AbstractKernel, Metropolis, check_length, run, target
from ..model import EBM
from ..networks import without_gradient
from ..types import Array, Batch, Bool, Int, Key, Row
from .base import AbstractEnergyObjective, check_whole, credible_likelihood, mask_unobserved, mean, score


class ExactMLE(AbstractEnergyObjective):
    """softmax_f(x) - g(x, y) with the exact f-softmax: for KL the negative log-likelihood relative to q, in nats.

    tau is not trained. For a y with missing labels or ties it is the likelihood of the known part (`partial.energy`).
    """

    def check(self, model):
        budget.method(model)

    def credible(self, model):
        return credible_likelihood(model)

    def loss(self, model, state, batch, *, key):
        def of_row(x, y, mask, index, reference):
            row = model.row(x, index, reference)
            value, tau = exact.softmax(model, row)
            observed = score(model, row, tau, y, mask)
            # Under KL tau is max g up to log |Y|.
            return value - observed, jnp.maximum(jnp.abs(value), jnp.abs(observed))

        losses, scale = jax.vmap(of_row)(batch.x, batch.y, batch.mask, batch.index, batch.reference)
        return mean(mask_unobserved(losses, batch), batch), (state, {"scale": scale.max()})


class PersistentChains(eqx.Module):
    """The current outputs of the chains of each training row, and whether the row has been visited yet."""

    y: Int[Array, " rows chains *y"]
    visited: Bool[Array, " rows"]


class MCMC(AbstractEnergyObjective):
    """mean_y' g(x, y') - g(x, y), with y' from Markov chains that leave p invariant, for KL.

    Its gradient estimates that of the negative log-likelihood, E_p[grad g(x, y')] - grad g(x, y). Its value is not a
    likelihood, and need not decrease during training. tau is not trained. The default is the paper's baseline.

    Parameters
    ----------
    kernel
        What moves the chains; by default Metropolis-Hastings with uniform proposals.
    chains
        The number of chains per row.
    steps
        The number of states of each chain that enter the mean.
    burn_in
        The number of steps before these.
    start
        Where chains start: "data", at the observed y (contrastive divergence); or at draws from the reference, "q",
        from all of Y, "uniform", or from the model's surrogate, "surrogate".
    persistent
        The number of training rows: chains then continue from their states at the row's last visit. None: chains
        start anew in every step.
    """

    kernel: AbstractKernel = Metropolis("uniform")
    chains: int = eqx.field(static=True, default=1)
    steps: int = eqx.field(static=True, default=10)
    burn_in: int = eqx.field(static=True, default=0)
    start: str = eqx.field(static=True, default="data")
    persistent: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_length(self.steps, self.burn_in)
        if self.chains < 1:
            raise ValueError(f"MCMC needs at least 1 chain per row; got {self.chains}.")
        if self.start not in ("data", "q", "uniform", "surrogate"):
            raise ValueError(f"start must be 'data', 'q', 'uniform' or 'surrogate'; got {self.start!r}.")
        if self.persistent is not None and self.persistent < 1:
            raise ValueError(f"persistent is the number of training rows, at least 1, or None; got {self.persistent}.")

    def check(self, model):
        if not isinstance(model.f, KL):
            raise ValueError(
                f"Under {type(model.f).__name__} p depends on its exact multiplier, which MCMC does not learn: it "
                "needs f = KL. Use objectives.MinMin."
            )
        if self.start == "surrogate" and model.surrogate is None:
            raise ValueError("start='surrogate' needs a model with a surrogate, and this one has none. Use start='q'.")
        self.kernel.check(model.space)

    def credible(self, model):
        # LSE is at least g(x, y') - log |Y|: y' that score higher by twice log |Y| make the likelihood a diverged one.
        return -math.inf, 2 * credible_likelihood(model)[1]

    def init(self, model, *, key):
        if self.persistent is None:
            return None
        unused = jnp.zeros((self.persistent, self.chains, *model.space.shape), int)
        return PersistentChains(unused, jnp.zeros(self.persistent, bool))

    def loss(self, model, state, batch, *, key):
        check_whole(self, batch)
        index = self._check_index(batch)
        # No gradient passes through y'.
        fixed = without_gradient(model)
        rows = jax.vmap(fixed.row)(batch.x, batch.index, batch.reference)
        start_key, run_key = jax.random.split(key)
        keys = jax.random.split(start_key, len(batch.y))
        y = jax.vmap(lambda row, y, key: self._start(fixed, row, y, key))(rows, batch.y, keys)
        if state is not None:
            y = jax.vmap(jnp.where)(state.visited[index], state.y[index], y)

        def chains(row, y, key):
            return run(self.kernel, target(fixed, row), y, self.steps, burn_in=self.burn_in, key=key)

        draws, info = jax.vmap(chains)(rows, y, jax.random.split(run_key, len(batch.y)))
        if state is not None:
            state = PersistentChains(state.y.at[index].set(draws[:, :, -1]), state.visited.at[index].set(True))
        g_draws, g_observed = jax.vmap(functools.partial(_scores, model))(batch.x, batch.y, draws)
        scalars = {"acceptance": mean(info.acceptance.mean((1, 2)), batch), "scale": jnp.abs(g_draws).max()}
        return mean(g_draws.mean(-1) - g_observed, batch), (state, scalars)

    def _start(self, model: EBM, row: Row, y: Array, key: Key) -> Array:
        """The first outputs of the chains of one row."""
        if self.start == "data":
            return jnp.broadcast_to(y, (self.chains, *y.shape))
        measures = {"q": row.q, "uniform": model.space, "surrogate": row.surrogate and row.surrogate.r}
        return measures[self.start].sample(self.chains, key=key)

    def _check_index(self, batch: Batch) -> Array | None:
        if self.persistent is None:
            return None
        if batch.index is None:
            raise ValueError(
                "Persistent chains belong to training rows, but the batch has no index. Validate with another "
                "objective."
            )
        invalid = (batch.index < 0) | (batch.index >= self.persistent)
        message = f"Persistent chains are kept for {self.persistent} training rows, but the data have more."
        return eqx.error_if(batch.index, invalid, message)


def _scores(model: EBM, x: Array, y: Array, draws: Array) -> tuple[Array, Array]:
    """g of all draws and of the observed y."""
    theta = model.g.h(x)
    flat = draws.reshape(-1, *y.shape)
    return jax.vmap(model.g.coupling, in_axes=(None, 0))(theta, flat), model.g.coupling(theta, y)
