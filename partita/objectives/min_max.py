"""The min-max form of maximum likelihood: a generator p(y|x) in place of the log-partition."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.flatten_util import ravel_pytree

from ..structures import AbstractMeasure, AbstractSpace, generator, generator_shape
from ..types import Array, Float, PyTree, Scalar
from .base import AbstractEnergyObjective, check_kl, check_whole, credible_likelihood, mean


class Generator(eqx.Module):
    """A tractable p(y|x) whose parameters are the outputs of a network.

    Independent labels for sets, conditional Bernoulli for sets of m labels, Plackett-Luce for rankings: one number per
    label; one for each output of any other space that is small.

    Parameters
    ----------
    outputs
        The output space Y.
    body
        Any callable pytree from x to an array of shape `structures.generator_shape(outputs)`.
    """

    outputs: AbstractSpace
    body: PyTree

    def __check_init__(self):
        if generator_shape(self.outputs) is None:
            raise ValueError(
                f"A generator needs a family of measures on {self.outputs}, which has too many outputs to list: give "
                "the space `generator_shape` and `generator`."
            )

    def __call__(self, x: Float[Array, " *features"]) -> AbstractMeasure:
        return generator(self.outputs, self.body(x))


class MinMaxState(NamedTuple):
    """The generator as trained so far, and the state of its optimizer."""

    generator: Generator
    moments: PyTree


class MinMax(AbstractEnergyObjective):
    """min over g, max over p of E_{y' ~ p} g(x, y') - KL(p, q) - g(x, y): the likelihood if p can represent p_g.

    The generator takes one step for each step of g. Its gradient is that of the score function, with the mean reward of
    the row's other draws as baseline. KL(p, q) is exact for independent labels, and estimated by the same draws
    otherwise. The trained generator is in the state, a `MinMaxState`; tau is not trained.

    Parameters
    ----------
    generator
        The generator p before training.
    num_samples
        The number of draws per row, at least 2.
    learning_rate
        That of the generator. At ten times the rate of g the generator follows g; at the same rate both may oscillate.
    optimizer
        A function from a learning rate to the optimizer of the generator, and of g unless the `Solver` has another;
        optimistic Adam, as in the paper.
    """

    generator: Generator
    num_samples: int = eqx.field(static=True, default=16)
    learning_rate: Float[Array, ""] = eqx.field(default=1e-2, converter=lambda rate: jnp.asarray(rate, float))
    optimizer: Callable[[Any], optax.GradientTransformation] = eqx.field(static=True, default=optax.optimistic_adam_v2)

    def __check_init__(self):
        if not isinstance(self.num_samples, int) or self.num_samples < 2:
            raise ValueError(
                f"MinMax needs num_samples >= 2 draws per row, each the baseline of the others; got {self.num_samples}."
            )

    def init(self, model, *, key):
        weights, _ = ravel_pytree(eqx.filter(self.generator, eqx.is_inexact_array))
        return MinMaxState(self.generator, self._optimizer().init(weights))

    def check(self, model):
        if self.generator.outputs != model.space:
            raise ValueError(f"The generator is for {self.generator.outputs}, but the model is on {model.space}.")
        check_kl(self, model, "is maximum likelihood")
        known = [leaf for leaf in jax.tree.leaves(eqx.filter(model.q, eqx.is_array)) if not isinstance(leaf, Tracer)]
        if not all(np.isfinite(leaf).all() for leaf in known):
            raise ValueError(
                "MinMax needs a reference that excludes no output: the generator draws them all, and KL(p, q) would be "
                "infinite. Use objectives.MinMin."
            )

    def preferred_optimizer(self):
        return self.optimizer

    def credible(self, model):
        # E_p g - KL(p, q) is at most the log-partition, so the loss is at most that of the likelihood. Far below that
        # of the truth, the generator does not follow g.
        return credible_likelihood(model)

    def loss(self, model, state, batch, *, key):
        check_whole(self, batch)
        learned, fixed = eqx.partition(state.generator, eqx.is_inexact_array)
        weights, unravel = ravel_pytree(learned)
        rows = jax.vmap(model.row)(batch.x, batch.index, batch.reference)
        draws = jax.vmap(state.generator)(batch.x).sample(self.num_samples, key=key)
        scores = jax.vmap(jax.vmap(model.g.coupling, in_axes=(None, 0)))(rows.theta, draws)
        rewards = jax.lax.stop_gradient(scores)

        def generator_loss(weights):
            generator = eqx.combine(unravel(weights), fixed)
            of_row = lambda x, q, y, g: _generator_loss(generator(x), q, y, g)  # noqa: E731
            losses, kl = jax.vmap(of_row)(batch.x, rows.q, draws, rewards)
            return mean(losses, batch), kl

        slope, kl = jax.grad(generator_loss, has_aux=True)(weights)
        update, moments = self._optimizer().update(slope, state.moments, weights)
        updated: Any = optax.apply_updates(weights, update)
        generator = eqx.combine(unravel(updated), fixed)
        kl = jax.lax.stop_gradient(mean(kl, batch))
        observed = jax.vmap(model.g.coupling)(rows.theta, batch.y)
        loss = mean(scores.mean(axis=1) - observed, batch) - kl
        return loss, (MinMaxState(generator, moments), {"kl": kl})

    def _optimizer(self):
        return self.optimizer(self.learning_rate)


def _generator_loss(
    p: AbstractMeasure, q: AbstractMeasure, y: Array, g: Float[Array, " draws"]
) -> tuple[Scalar, Scalar]:
    """A loss of one row whose gradient is that of KL(p, q) - E_p g; and KL(p, q)."""
    log_p = jax.vmap(p.log_prob)(y)
    kl = p.kl(q)
    if kl is not None:
        reward, exact = g, kl
    else:
        log_ratio = jax.lax.stop_gradient(log_p) - jax.vmap(q.log_prob)(y)
        reward, kl, exact = g - log_ratio, log_ratio.mean(), 0.0
    # The mean of the other draws is independent of this one: what it subtracts has mean zero.
    baseline = (jnp.sum(reward) - reward) / (reward.size - 1)
    return exact - jnp.mean((reward - baseline) * log_p), kl
