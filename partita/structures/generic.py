"""What serves every space: the uniform measure, mixtures, lists of outputs, and defaults for missing capabilities."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .. import budget
from ..divergences import KL, AbstractDivergence
from ..numerics import logsumexp
from ..networks import MLP
from ..types import Array, Float, Int, Key
from .base import AbstractMeasure, AbstractSpace, Conditioned, Uniform
from .enumeration import Enumeration
from .methods import AbstractCoupling, AbstractMethod, AbstractSurrogate, SurrogateRow

__all__ = [
    "Amortized",
    "Categorical",
    "Components",
    "Filtered",
    "Mixture",
    "condition",
    "exact_method",
    "generator",
    "generator_shape",
    "surrogate",
    "with_share_of_q",
]


class Mixture(AbstractMeasure):
    """(1 - share) first + share second: with second = q and first a proposal, weights q/r stay below 1 / share.

    Parameters
    ----------
    first, second : AbstractMeasure
    share : float
        The share of `second`, between 0 and 1.
    """

    first: AbstractMeasure
    second: AbstractMeasure
    share: float = eqx.field(static=True)

    def __check_init__(self):
        if not 0 < self.share < 1:
            raise ValueError(f"Mixture needs a share of the second measure between 0 and 1; got {self.share}.")

    @property
    def space(self):
        return self.first.space

    def sample(self, num, *, key):
        first_key, second_key, coin_key = jax.random.split(key, 3)
        first = self.first.sample(num, key=first_key)
        axes = len(self.space.shape)
        rows = first.shape[: -axes - 1]
        one_for_all = jax.eval_shape(lambda: self.second.sample(num, key=second_key)).ndim < first.ndim
        # One measure for all rows: each row still gets draws of its own.
        each = num * math.prod(rows) if one_for_all else num
        second = self.second.sample(each, key=second_key).reshape(first.shape)
        coin = jax.random.bernoulli(coin_key, self.share, (*rows, num, *[1] * axes))
        return jnp.where(coin, second, first)

    def log_prob(self, y):
        first = math.log1p(-self.share) + self.first.log_prob(y)
        return jnp.logaddexp(first, math.log(self.share) + self.second.log_prob(y))

    def check(self):
        self.first.check()
        self.second.check()


class Components(AbstractMeasure):
    """Measures of one family, each with a share: the arrays of `parts` carry one leading axis for them, and the
    exponentials of `log_share` sum to one."""

    parts: AbstractMeasure
    log_share: Float[Array, " num"]

    @property
    def space(self):
        return self.parts.space

    def sample(self, num, *, key):
        choose_key, draw_key = jax.random.split(key)
        chosen = jax.random.categorical(choose_key, self.log_share, shape=(num,))
        return jax.tree.map(lambda a: a[chosen], self.parts).sample(1, key=draw_key)[:, 0]

    def log_prob(self, y):
        log_prob = jax.vmap(lambda measure: measure.log_prob(y))(self.parts)
        return jax.nn.logsumexp(self.log_share + log_prob)


class Categorical(AbstractMeasure):
    """P(y) = softmax(logits), one logit for each element of a small space, in their order.

    Parameters
    ----------
    outputs : AbstractSpace
        Y.
    logits : array of shape (|Y|,), or (n, |Y|) for one measure per row
    """

    outputs: AbstractSpace
    logits: Float[Array, " *rows size"]

    @property
    def space(self):
        return self.outputs

    def sample(self, num, *, key):
        shape = (*self.logits.shape[:-1], num)
        return self.outputs.elements()[jax.random.categorical(key, self.logits[..., None, :], shape=shape)]

    def log_prob(self, y):
        same = (self.outputs.elements() == y).reshape(self.outputs.size, -1).all(axis=1)
        return jax.nn.log_softmax(self.logits)[jnp.argmax(same)]

    def mode(self):
        return self.outputs.element(jnp.argmax(self.logits))


class Filtered(AbstractMeasure):
    """A measure given what is observed of y, by a list of all outputs of a small space.

    Parameters
    ----------
    q : AbstractMeasure
    y, mask : arrays of the shape of an output
        What is observed: y where the mask is 0.
    log_mass : scalar
        log of the probability under q of all outputs that agree.
    """

    q: AbstractMeasure
    y: Int[Array, " ..."]
    mask: Int[Array, " ..."]
    log_mass: Float[Array, " *rows"]

    @property
    def space(self):
        return self.q.space

    def log_prob(self, y):
        return self.log_probs(y[None])[0]

    def log_probs(self, ys):
        inside = self.space.agrees(self.y, self.mask, ys)
        return jnp.where(inside, self.q.log_probs(ys) - self.log_mass, -jnp.inf)

    def sample(self, num, *, key):
        if self.log_mass.ndim:
            keys = jax.random.split(key, self.log_mass.shape[0])
            return jax.vmap(lambda measure, key: measure.sample(num, key=key))(self, keys)
        outputs = self.space.elements()
        return outputs[jax.random.categorical(key, self.log_probs(outputs), shape=(num,))]

    def check(self):
        self.q.check()


def with_share_of_q(r: AbstractMeasure, q: AbstractMeasure, share: float) -> AbstractMeasure:
    """r with a share of q, which bounds the weights q/r by 1 / share; r itself where the share is 0."""
    return Mixture(r, q, share) if share else r


def exact_method(coupling: AbstractCoupling, q: AbstractMeasure, f: AbstractDivergence) -> AbstractMethod:
    """The coupling's own method, or enumeration; `budget` says whether its sums are affordable."""
    method = coupling.exact(q, f)
    return Enumeration(coupling, f) if method is None else method


def condition(q: AbstractMeasure, y: Int[Array, " *y"], mask: Int[Array, " *y"]) -> Conditioned | None:
    """q given what is observed: by its own way, or by a list of all outputs of a small space."""
    own = q.condition(y, mask)
    if own is not None or not budget.affords_partial(Enumeration.list_work(q.space)):
        return own
    outputs = q.space.elements()
    log_mass = logsumexp(jnp.where(q.space.agrees(y, mask, outputs), q.log_probs(outputs), -jnp.inf))
    return Conditioned(Filtered(q, y, mask, log_mass), log_mass)


def generator_shape(space: AbstractSpace) -> tuple[int, ...] | None:
    """How many numbers a generator's measure is made of: the space's own family, or for a small space all outputs."""
    own = space.generator_shape()
    return (space.size,) if own is None and budget.can_list(space) else own


def generator(space: AbstractSpace, parameters: Float[Array, " *parameters"]) -> AbstractMeasure:
    """The measure of a generator with these parameters."""
    return Categorical(space, parameters) if space.generator_shape() is None else space.generator(parameters)


def surrogate(
    coupling: AbstractCoupling, q: AbstractMeasure | None = None, f: AbstractDivergence | None = None
) -> AbstractSurrogate:
    """The coupling's surrogate, or an error that names what has none; without q and f, for a uniform q and KL.

    Parameters
    ----------
    coupling : AbstractCoupling
    q : AbstractMeasure, optional
        The reference.
    f : AbstractDivergence, optional

    Returns
    -------
    AbstractSurrogate

    Raises
    ------
    ValueError
        If nothing fixed serves this coupling, reference and divergence: `Amortized` serves all.
    """
    q, f = Uniform(coupling.space) if q is None else q, KL() if f is None else f
    own = coupling.surrogate(q, f)
    if own is not None:
        return own
    names = f"a {type(coupling).__name__} coupling on {coupling.space} with a {type(q).__name__} reference"
    why = "" if isinstance(f, KL) else " (surrogates follow exp(g), which is the density under KL only)"
    raise ValueError(
        f"No surrogate serves {names} under {type(f).__name__}{why}. Use proposal=None, draws from q (the paper's "
        "Algorithm 1), or train one beside the model: EBM(..., surrogate=structures.Amortized(coupling, key=...))."
    )


class Amortized(AbstractSurrogate):
    """Any coupling, any divergence: the parameters of r are a network of theta, trained beside the model.

    `objectives.MinMin` fits r to p by maximum likelihood on its own weighted draws. tau_0, for KL, is the log-sum over
    the mode of r and all outputs one local move away: a lower bound, and one that a constant added to g moves as it
    should. The summary is what r is made of, and theta.

    Parameters
    ----------
    coupling : AbstractCoupling
        Of the model that it serves.
    width, depth : int
        Hidden units of each layer, and the number of layers.
    key : key
        For the first weights.
    """

    outputs: AbstractSpace
    theta_shape: tuple[int, ...] = eqx.field(static=True)
    body: MLP

    def __init__(self, coupling: AbstractCoupling, *, width: int = 128, depth: int = 1, key: Key):
        shape = _proposal_shape(coupling.space)
        if shape is None:
            raise ValueError(
                f"Amortized needs a family of measures on {coupling.space}, which has too many outputs to list: give "
                "the space `proposal_shape` and `proposal`."
            )
        self.outputs, self.theta_shape = coupling.space, coupling.theta_shape
        self.body = MLP(math.prod(coupling.theta_shape), shape, width=width, depth=depth, key=key)

    @property
    def is_trained(self):
        return True

    def serves(self, coupling, q, f):
        return coupling.space == self.outputs and coupling.theta_shape == self.theta_shape

    def __call__(self, coupling, theta, q):
        fixed = jax.lax.stop_gradient(theta)
        parameters = self.body(fixed)
        space = self.outputs
        r: Any = Categorical(space, parameters) if space.proposal_shape() is None else space.proposal(parameters)
        best = jax.lax.stop_gradient(r.mode())
        y = jnp.concatenate([best[None], space.moves(best)])
        log_terms = jax.vmap(lambda y: q.log_prob(y) + coupling(theta, y))(y)
        # Entries that only pad the moves repeat the mode.
        log_terms = jnp.where(jnp.append(True, space.is_move(best)), log_terms, -jnp.inf)
        summary = jnp.concatenate([jax.lax.stop_gradient(parameters).ravel(), fixed.ravel()])
        return SurrogateRow(r, logsumexp(log_terms), summary)


def _proposal_shape(space: AbstractSpace) -> tuple[int, ...] | None:
    own = space.proposal_shape()
    return (space.size,) if own is None and budget.can_list(space) else own
