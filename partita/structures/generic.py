"""Measures and surrogates for every space, and defaults for capabilities that a structure does not have."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .. import budget
from ..divergences import KL, AbstractDivergence
from ..networks import MLP
from ..numerics import logsumexp
from ..types import Array, Float, Int, Key
from .couplings import AbstractCoupling, AbstractSurrogate, SurrogateRow
from .enumeration import Enumeration
from .measures import AbstractMeasure, Conditioned
from .methods import AbstractMethod
from .spaces import AbstractSpace, Uniform

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
    """The mixture (1 - share) first + share second.

    With a proposal as `first` and q as `second` it is a proposal r with weights q/r of at most 1 / share.

    Parameters
    ----------
    first, second
        Measures on one space; `second` may be one measure for all rows.
    share
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
        first_key, second_key, choice_key = jax.random.split(key, 3)
        first = self.first.sample(num, key=first_key)
        axes = len(self.space.shape)
        rows = first.shape[: -axes - 1]
        is_shared = jax.eval_shape(lambda: self.second.sample(num, key=second_key)).ndim < first.ndim
        # Rows that share a measure still have their own draws.
        draws = num * math.prod(rows) if is_shared else num
        second = self.second.sample(draws, key=second_key).reshape(first.shape)
        use_second = jax.random.bernoulli(choice_key, self.share, (*rows, num, *[1] * axes))
        return jnp.where(use_second, second, first)

    def log_prob(self, y):
        first = math.log1p(-self.share) + self.first.log_prob(y)
        return jnp.logaddexp(first, math.log(self.share) + self.second.log_prob(y))

    def check(self):
        self.first.check()
        self.second.check()


class Components(AbstractMeasure):
    """A mixture of measures of one family, for one row.

    Parameters
    ----------
    parts
        The measures as one, each array with a leading axis for them.
    log_share
        Log of the share of each; the shares sum to one.
    """

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
    """Any measure on a small space, P(y) = softmax(logits).

    Parameters
    ----------
    outputs
        The space Y.
    logits
        An array of shape (|Y|,), in the order of `elements`, or (n, |Y|) for one measure per row.
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
    """A measure on a small space given what is observed of y.

    Parameters
    ----------
    q
        The measure.
    y, mask
        An output, and a mask that is 0 where y is observed.
    log_mass
        Log of the probability under q of what is observed.
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
        agrees = self.space.agrees(self.y, self.mask, ys)
        return jnp.where(agrees, self.q.log_probs(ys) - self.log_mass, -jnp.inf)

    def sample(self, num, *, key):
        if self.log_mass.ndim:
            keys = jax.random.split(key, self.log_mass.shape[0])
            return jax.vmap(lambda measure, key: measure.sample(num, key=key))(self, keys)
        outputs = self.space.elements()
        return outputs[jax.random.categorical(key, self.log_probs(outputs), shape=(num,))]

    def check(self):
        self.q.check()


def with_share_of_q(r: AbstractMeasure, q: AbstractMeasure, share: float) -> AbstractMeasure:
    """A proposal with a share of q, which bounds the weights q/r by 1 / share.

    Parameters
    ----------
    r, q
        The proposal and the reference.
    share
        The share of q, in [0, 1).

    Returns
    -------
    AbstractMeasure
        The mixture; r itself for a share of 0.
    """
    return Mixture(r, q, share) if share else r


def exact_method(coupling: AbstractCoupling, q: AbstractMeasure, f: AbstractDivergence) -> AbstractMethod:
    """The exact method of a coupling, or enumeration; `budget` decides whether it is affordable.

    Parameters
    ----------
    coupling, q, f
        The coupling, the reference, of which only the class matters, and the divergence.

    Returns
    -------
    AbstractMethod
        The method.
    """
    method = coupling.exact(q, f)
    return Enumeration(coupling, f) if method is None else method


def condition(q: AbstractMeasure, y: Int[Array, " *y"], mask: Int[Array, " *y"]) -> Conditioned | None:
    """A measure given what is observed of y, for one row: by its own method, or for a small space by enumeration.

    Parameters
    ----------
    q
        The measure.
    y, mask
        An output, and a mask that is 0 where y is observed.

    Returns
    -------
    Conditioned or None
        The conditional measure; None if the measure has no method of its own and the space is too large.
    """
    own = q.condition(y, mask)
    if own is not None or not budget.affords_partial(Enumeration.list_work(q.space)):
        return own
    outputs = q.space.elements()
    log_mass = logsumexp(jnp.where(q.space.agrees(y, mask, outputs), q.log_probs(outputs), -jnp.inf))
    return Conditioned(Filtered(q, y, mask, log_mass), log_mass)


def generator_shape(space: AbstractSpace) -> tuple[int, ...] | None:
    """The shape of the parameters of `generator`.

    Parameters
    ----------
    space
        The space.

    Returns
    -------
    tuple or None
        That of the space's own family, or for a small space one parameter per output; else None.
    """
    own = space.generator_shape()
    return (space.size,) if own is None and budget.can_list(space) else own


def generator(space: AbstractSpace, parameters: Float[Array, " *parameters"]) -> AbstractMeasure:
    """A measure of the family that min-max generators p(y|x) use on a space.

    Parameters
    ----------
    space
        The space.
    parameters
        An array of shape `generator_shape(space)`.

    Returns
    -------
    AbstractMeasure
        The measure.
    """
    return Categorical(space, parameters) if space.generator_shape() is None else space.generator(parameters)


def surrogate(
    coupling: AbstractCoupling, q: AbstractMeasure | None = None, f: AbstractDivergence | None = None
) -> AbstractSurrogate:
    """The surrogate of a coupling.

    Parameters
    ----------
    coupling
        The coupling of the model.
    q
        The reference, of which only the class matters; None for the uniform measure.
    f
        The divergence; None for KL.

    Returns
    -------
    AbstractSurrogate
        The surrogate.

    Raises
    ------
    ValueError
        If there is none for this coupling, reference and divergence. `Amortized` serves all.
    """
    q, f = Uniform(coupling.space) if q is None else q, KL() if f is None else f
    own = coupling.surrogate(q, f)
    if own is not None:
        return own
    names = f"a {type(coupling).__name__} coupling on {coupling.space} with a {type(q).__name__} reference"
    reason = "" if isinstance(f, KL) else " (surrogates follow exp(g), which is the density under KL only)"
    raise ValueError(
        f"No surrogate serves {names} under {type(f).__name__}{reason}. Use proposal=None, draws from q (the paper's "
        "Algorithm 1), or train one beside the model: EBM(..., surrogate=structures.Amortized(coupling, key=...))."
    )


class Amortized(AbstractSurrogate):
    """A surrogate for any coupling and divergence: the parameters of r are a network of theta, trained with the model.

    `objectives.MinMin` fits r to p by maximum likelihood on its own weighted draws. tau_0, for KL, is the log-sum over
    the mode of r and all outputs one local move away: a lower bound that changes by c when a constant c is added to g.
    The summary consists of the parameters of r and of theta.

    Parameters
    ----------
    coupling
        The coupling of the model.
    width, depth
        The number of units of each hidden layer, and the number of hidden layers.
    key
        For the initial weights.
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
        # Entries that pad the moves repeat the mode.
        log_terms = jnp.where(jnp.append(True, space.is_move(best)), log_terms, -jnp.inf)
        summary = jnp.concatenate([jax.lax.stop_gradient(parameters).ravel(), fixed.ravel()])
        return SurrogateRow(r, logsumexp(log_terms), summary)


def _proposal_shape(space: AbstractSpace) -> tuple[int, ...] | None:
    own = space.proposal_shape()
    return (space.size,) if own is None and budget.can_list(space) else own
