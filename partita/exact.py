"""Exact normalizers, marginals, samples and modes, by closed form, dynamic program or enumeration.

Everything here follows from one quantity, the f-softmax of the scores tilted by a linear term,

    softmax(tilt) = max_p <g + tilt, p> - D_f(p, q),        tilt(y) = <tilt, indicators(y)>.

For KL its value at 0 is the log-partition log E_q[exp g]; for every f its gradient at 0 is the marginals. Which method
serves is chosen by type in `method`; what none can serve is refused with `TooLargeError`.

Outputs that q excludes, with log q = -inf, take no part in any sum.
"""

import abc
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from . import budget
from ._types import Array, Bool, Float, Int, Key, Row, Scalar
from .couplings import AbstractCoupling, Bilinear
from .divergences import KL, AbstractDivergence
from .logspace import logsumexp
from .measures import (
    AbstractMeasure,
    AbstractSequentialMeasure,
    Completions,
    ConditionalBernoulli,
    ProductBernoulli,
    Uniform,
    by_label,
    log_sums,
)
from .model import EBM
from .polytopes import Birkhoff, Cube, Hypersimplex, Permutahedron
from .spaces import AbstractSpace, Permutations, TooLargeError

__all__ = [
    "AbstractMethod",
    "Best",
    "ElementarySymmetric",
    "Enumeration",
    "SubsetDP",
    "Unary",
    "before",
    "capped",
    "log_partition",
    "log_prob",
    "marginals",
    "mass",
    "mean",
    "method",
    "mode",
    "sample",
    "softmax",
    "solve",
    "subsets",
    "top_k",
]

CHUNK = 4096
BISECTIONS = 60


class Best(NamedTuple):
    """Different outputs in falling order of p, and a score that falls with it; where that is -inf, there are no more
    outputs with p > 0, and y is any."""

    y: Int[Array, " num *y"]
    score: Float[Array, " num"]


class AbstractMethod(eqx.Module):
    """Exact answers for one row: logits theta and a reference q."""

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """Y."""

    @property
    @abc.abstractmethod
    def terms(self) -> int:
        """How many terms are summed for a row: what an answer costs, see `budget`."""

    @abc.abstractmethod
    def softmax(self, theta: Float[Array, " *theta"], q: AbstractMeasure, tilt: Float[Array, " *stat"]) -> Scalar:
        """max_p <g + tilt, p> - D_f(p, q)."""

    @abc.abstractmethod
    def sample(
        self, theta: Float[Array, " *theta"], q: AbstractMeasure, num: int, *, key: Key
    ) -> Int[Array, " num *shape"]:
        """Independent draws from p."""

    @abc.abstractmethod
    def mode(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Int[Array, " *shape"]:
        """A most probable y."""

    @abc.abstractmethod
    def top_k(self, theta: Float[Array, " *theta"], q: AbstractMeasure, num: int) -> "Best":
        """The `num` most probable outputs."""

    def log_partition(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Scalar:
        """The tau with which p sums to one."""
        return self.solve(theta, q)[1]

    def solve(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> tuple[Scalar, Scalar]:
        """The f-softmax, and the tau with which p sums to one: for KL the same number."""
        value = self.softmax(theta, q, self.no_tilt(theta))
        return value, value

    def mass(self, theta: Float[Array, " *theta"], q: AbstractMeasure, tau: Scalar) -> Scalar:
        """sum_y q (f+*)'(g - tau): for KL exp(LSE - tau)."""
        return jnp.exp(self.log_partition(theta, q) - tau)

    def marginals(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Float[Array, " *stat"]:
        """E_p[indicators(y)]: the gradient of the softmax in the tilt."""
        return jax.grad(self.softmax, argnums=2)(theta, q, self.no_tilt(theta))

    def no_tilt(self, theta: Float[Array, " *theta"]) -> Float[Array, " *stat"]:
        y = jax.ShapeDtypeStruct(self.space.shape, jnp.arange(1).dtype)
        stat = jax.eval_shape(self.space.indicators, y)
        return jnp.zeros(stat.shape, theta.dtype)


class Unary(AbstractMethod):
    """Label sets scored by <theta, y>: independent labels, LSE = sum_j softplus."""

    polytope: Cube

    @property
    def space(self):
        return self.polytope.space

    @property
    def terms(self):
        return self.polytope.k

    def softmax(self, theta, q, tilt):
        off, on = by_label(q)
        return jnp.sum(jnp.logaddexp(off, theta + tilt + on))

    def sample(self, theta, q, num, *, key):
        return ProductBernoulli(self._logits(theta, q)).sample(num, key=key)

    def mode(self, theta, q):
        return self.polytope.argmax(self._logits(theta, q))

    def top_k(self, theta, q, num):
        # The mode has cost 0, and each label that differs from it its |logit|: label by label, the least sums so far.
        cost = jnp.abs(self._logits(theta, q))
        best = jnp.full((1, num), -jnp.inf, theta.dtype).at[0, 0].set(0)

        def add(carry, label):
            values, flips = carry
            flipped = flips | (jnp.arange(cost.size) == label)
            return _best(jnp.stack([values, values - cost[label]]), jnp.stack([flips, flipped]), num), None

        start = best, jnp.zeros((1, num, cost.size), bool)
        (values, flips), _ = jax.lax.scan(add, start, jnp.arange(cost.size))
        return Best(self.mode(theta, q) ^ flips[0], values[0])

    def _logits(self, theta, q):
        off, on = by_label(q)
        return theta + (on - off)


class ElementarySymmetric(AbstractMethod):
    """Sets of m labels scored by <theta, y>: the m-th elementary symmetric polynomial of exp(theta), in k m steps.

    A conditional Bernoulli q adds its logits to theta.
    """

    polytope: Hypersimplex

    @property
    def space(self):
        return self.polytope.space

    @property
    def terms(self):
        return self.polytope.k * self.polytope.m

    def softmax(self, theta, q, tilt):
        conditional = isinstance(q, ConditionalBernoulli)
        off, on = self._weights(theta + tilt, q)
        constant = q.log_sums()[-1, -1] if conditional else q.space.log_size
        return log_sums(off, on, self.polytope.m)[-1, -1] - constant

    def sample(self, theta, q, num, *, key):
        return ConditionalBernoulli(self._logits(theta, q), self.polytope.m).sample(num, key=key)

    def mode(self, theta, q):
        return self.polytope.argmax(self._logits(theta, q))

    def top_k(self, theta, q, num):
        # For each size r the best sets of r of the labels so far: without the next label, or of r - 1 with it.
        off, on = self._weights(theta, q)
        m, k = self.polytope.m, on.size
        values = jnp.full((m + 1, num), -jnp.inf, theta.dtype).at[0, 0].set(0)

        def add(carry, label):
            values, y = carry
            nothing = jnp.full((1, num), -jnp.inf, values.dtype)
            longer = jnp.concatenate([nothing, values[:-1] + on[label]])
            with_label = jnp.roll(y, 1, axis=0).at[:, :, label].set(1)
            return _best(jnp.stack([values + off[label], longer]), jnp.stack([y, with_label]), num), None

        (values, y), _ = jax.lax.scan(add, (values, jnp.zeros((m + 1, num, k), int)), jnp.arange(k))
        return Best(y[-1], values[-1])

    def _weights(self, theta, q):
        """The log-weight of each label off and on."""
        off, on = q.weights() if isinstance(q, ConditionalBernoulli) else (jnp.zeros_like(theta),) * 2
        return off, theta + on

    def _logits(self, theta, q):
        off, on = self._weights(theta, q)
        return on - off


class SubsetDP(AbstractMethod):
    """Rankings scored by sum_j theta[j, y_j]: a permanent, by a sum over the sets S of labels placed so far.

    a(S) = log sum_{j in S} exp(a(S - j) + theta[j, |S| - 1] + log q(j | S - j)): one layer per rank, k 2^(k-1) terms.
    The permutahedron is the case theta[j, p] = theta_j w(p).
    """

    polytope: Permutahedron | Birkhoff

    @property
    def space(self):
        return self.polytope.space

    @property
    def terms(self):
        return self.polytope.k * 2 ** (self.polytope.k - 1)

    def softmax(self, theta, q, tilt):
        return self._layers(self.polytope.matrix(theta) + tilt, q, logsumexp)[-1][0]

    def sample(self, theta, q, num, *, key):
        scores = self.polytope.matrix(theta)
        sums = jnp.concatenate(self._layers(scores, q, logsumexp))
        noise = jax.random.gumbel(key, (num, *scores.shape), theta.dtype)
        return jax.vmap(lambda z: self._unwind(scores, q, sums, z))(noise)

    def mode(self, theta, q):
        scores = self.polytope.matrix(theta)
        sums = jnp.concatenate(self._layers(scores, q, jnp.max))
        return self._unwind(scores, q, sums, jnp.zeros_like(scores))

    def top_k(self, theta, q, num):
        # As the mode, with the `num` best ways to each set, and for each the label that came last and the way before.
        scores = self.polytope.matrix(theta)
        k = scores.shape[0]
        values, steps = jnp.full((1, num), -jnp.inf, scores.dtype).at[0, 0].set(0), []
        for p, (masks, before, label) in enumerate(subsets(k)):
            term = scores[:, p][label] + self._log_choice(q, masks)[before, label]
            ways = (values[before] + term[:, :, None]).reshape(len(before), -1)
            values, chosen = jax.lax.top_k(ways, num)
            steps.append((before, label, chosen))
        at, way, y = jnp.zeros(num, int), jnp.arange(num), jnp.zeros((num, k), int)
        for p, (before, label, chosen) in reversed(list(enumerate(steps))):
            which = chosen[at, way]
            y = y.at[jnp.arange(num), jnp.asarray(label)[at, which // num]].set(p)
            at, way = jnp.asarray(before)[at, which // num], which % num
        return Best(y, values[0])

    def before(self, theta, q):
        scores = self.polytope.matrix(theta)
        k = scores.shape[0]
        tables = subsets(k)
        still = [jnp.zeros(label.shape, scores.dtype) for _, _, label in tables]
        # The probability that label j completes the set S is the derivative in a term added to that step.
        steps = jax.grad(lambda added: self._layers(scores, q, logsumexp, added)[-1][0])(still)
        found = jnp.zeros((k, k), scores.dtype)
        for (_, _, label), step in zip(tables, steps, strict=True):
            by_label = jnp.zeros((len(label), k), scores.dtype).at[np.arange(len(label))[:, None], label].set(step)
            placed = jnp.zeros_like(by_label).at[np.arange(len(label))[:, None], label].set(1)
            found = found + by_label.T @ (1 - placed)
        return found

    def _layers(self, scores, q, reduce, added=None):
        """a(S) for the sets of 0, 1, ..., k labels, each layer in increasing order of the bit mask of S."""
        layers = [jnp.zeros(1, scores.dtype)]
        for p, (masks, before, label) in enumerate(subsets(scores.shape[0])):
            choice = self._log_choice(q, masks)[before, label]
            terms = layers[-1][before] + scores[:, p][label] + choice
            layers.append(reduce(terms if added is None else terms + added[p], axis=-1))
        return layers

    def _log_choice(self, q, masks):
        k = q.space.k
        if isinstance(q, Uniform):
            # The same number for every set of one size: no need to ask for each.
            size = int(masks[0]).bit_count()
            return jnp.full((len(masks), k), -math.log(k - size))
        return jax.vmap(q.log_choice)(jnp.asarray(masks[:, None] >> np.arange(k) & 1, bool))

    def _unwind(self, scores, q, sums, noise):
        """From the full set back to the empty one, giving each rank to the label with the largest noisy term."""
        k = scores.shape[0]
        labels = jnp.arange(k)
        place = jnp.asarray(_places(k))

        def last(mask, p):
            before = mask ^ (1 << labels)
            term = sums[place[before]] + scores[:, p] + noise[:, p]
            if not isinstance(q, Uniform):
                placed = before[:, None] >> labels & 1 == 1
                term = term + jnp.diagonal(jax.vmap(q.log_choice)(placed))
            label = jnp.argmax(jnp.where(mask >> labels & 1 == 1, term, -jnp.inf))
            return mask ^ (1 << label), label

        _, order = jax.lax.scan(last, jnp.asarray(2**k - 1), jnp.arange(k), reverse=True)
        return jnp.argsort(order)


@functools.lru_cache(maxsize=8)
def subsets(k: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Per rank p: the masks of the sets of p labels; for each set S of p + 1, where each S - j is among them, and j."""
    masks = np.arange(2**k)
    size = np.bitwise_count(masks)
    layers = [masks[size == p] for p in range(k + 1)]
    tables = []
    for before, after in itertools.pairwise(layers):
        label = np.nonzero(after[:, None] >> np.arange(k) & 1)[1].reshape(len(after), -1)
        position = np.searchsorted(before, after[:, None] ^ (1 << label))
        tables.append((before, position.astype(np.int32), label.astype(np.int32)))
    return tables


@functools.lru_cache(maxsize=8)
def _places(k: int) -> np.ndarray:
    """Where each mask stands when the layers are put one after the other."""
    order = np.argsort(np.bitwise_count(np.arange(2**k)), kind="stable")
    return np.argsort(order).astype(np.int32)


class Enumeration(AbstractMethod):
    """Any coupling, any q, any f, by going through all of Y in chunks: memory is one chunk per row, never all of Y."""

    coupling: AbstractCoupling
    f: AbstractDivergence

    @property
    def space(self):
        return self.coupling.space

    @property
    def terms(self):
        # Without KL every halving of the bracket of tau is a pass, and in double precision.
        passes = 1 if isinstance(self.f, KL) else 2 * BISECTIONS
        return self.space.size * (1 + self.coupling.cost // 64) * passes

    def softmax(self, theta, q, tilt):
        if isinstance(self.f, KL):
            return self._log_sum(theta, q, tilt)
        return self._value(theta, q, tilt, self._multiplier(theta, q, tilt))

    def solve(self, theta, q):
        if isinstance(self.f, KL):
            value = self._log_sum(theta, q, None)
            return value, value
        root = self._multiplier(theta, q, None)
        # A Newton step polishes the root, by no more than bisection left open (where float32 puts the root on the cap
        # of the density, the slope is 0); its gradient is that of the implicit function.
        mass, slope = jax.value_and_grad(self.mass, argnums=2)(theta, q, root)
        # Not the least float: its inverse times the curvature at the bound, 1e8, would be infinite.
        slope = jax.lax.stop_gradient(jnp.minimum(slope, -1e-20))
        width = 2 * jnp.finfo(root.dtype).eps * jnp.maximum(1, jnp.abs(root))
        polish = jax.lax.stop_gradient(jnp.clip((mass - 1) / slope, -width, width))
        tau = root - polish - (mass - jax.lax.stop_gradient(mass)) / slope
        return self._value(theta, q, None, root), tau

    def largest(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Scalar:
        """The largest g of an output that q does not exclude."""
        return self._map(lambda log_q, g: jnp.max(jnp.where(jnp.isneginf(log_q), -jnp.inf, g)), theta, q, None).max()

    def marginals(self, theta, q):
        return self.mean(theta, q, lambda ys: jax.vmap(self.space.indicators)(ys))

    def before(self, theta, q):
        return self.mean(theta, q, lambda ys: ys[:, :, None] < ys[:, None, :])

    def mean(
        self, theta: Float[Array, " *theta"], q: AbstractMeasure, statistic: Callable[[Array], Array]
    ) -> Float[Array, " *stat"]:
        """E_p[statistic(y)], in one pass: statistic maps (num, *y) outputs to (num, *stat) numbers."""
        log_p = self._log_p(theta, q)

        def add(carry, c):
            top, mass, total = carry
            ys, _, log_q, g = self._chunk(c, theta, q, None)
            value = log_p(log_q, g)
            new = jnp.maximum(top, value.max())
            # Before the first output that is not excluded nothing is added up.
            p = jnp.where(jnp.isneginf(new), 0, jnp.exp(value - new))
            kept = jnp.where(jnp.isneginf(top), 0, jnp.exp(top - new))
            of_chunk = jnp.tensordot(p, statistic(ys).astype(p.dtype), 1)
            return (new, kept * mass + p.sum(), kept * total + of_chunk), None

        stat = jax.eval_shape(statistic, jax.ShapeDtypeStruct((1, *self.space.shape), jnp.arange(1).dtype))
        zero = jnp.zeros((), theta.dtype)
        start = (zero - jnp.inf, zero, jnp.zeros(stat.shape[1:], theta.dtype))
        (_, mass, total), _ = jax.lax.scan(add, start, jnp.arange(self._num_chunks))
        return total / mass

    def mass(self, theta, q, tau):
        if isinstance(self.f, KL):
            return super().mass(theta, q, tau)
        return self._mass(theta, q, None, tau)

    def sample(self, theta, q, num, *, key):
        chunk_key, element_key = jax.random.split(key)
        log_p = self._log_p(theta, q)
        chunks = self._map(lambda log_q, g: logsumexp(log_p(log_q, g)), theta, q, None)
        chosen = jax.random.categorical(chunk_key, chunks, shape=(num,))
        u = jax.random.uniform(element_key, (num,), theta.dtype)

        def within(drawn, c):
            # Every chunk once, whatever the number of draws: those that chose it invert its distribution function.
            _, i, log_q, g = self._chunk(c, theta, q, None)
            value = log_p(log_q, g)
            total = jnp.cumsum(jnp.exp(value - jnp.maximum(value.max(), jnp.finfo(value.dtype).min)))
            place = jnp.searchsorted(total, u * total[-1], side="right")
            return jnp.where(chosen == c, i[jnp.minimum(place, i.size - 1)], drawn), None

        drawn, _ = jax.lax.scan(within, jnp.zeros(num, int), jnp.arange(self._num_chunks))
        return jax.vmap(self.space.element)(drawn)

    def mode(self, theta, q):
        order = self._order(theta, q)

        def best(c):
            _, i, log_q, g = self._chunk(c, theta, q, None)
            value = order(log_q, g)
            return value.max(), i[jnp.argmax(value)]

        values, indices = jax.lax.map(best, jnp.arange(self._num_chunks))
        return self.space.element(indices[jnp.argmax(values)])

    def top_k(self, theta, q, num):
        order = self._order(theta, q)

        def add(best, c):
            _, i, log_q, g = self._chunk(c, theta, q, None)
            values = jnp.concatenate([best[0], order(log_q, g)])
            values, chosen = jax.lax.top_k(values, num)
            return (values, jnp.concatenate([best[1], i])[chosen]), None

        start = jnp.full(num, -jnp.inf, theta.dtype), jnp.zeros(num, int)
        (values, found), _ = jax.lax.scan(add, start, jnp.arange(self._num_chunks))
        return Best(jax.vmap(self.space.element)(found), values)

    @property
    def _num_chunks(self):
        return -(-self.space.size // CHUNK)

    def _chunk(self, c, theta, q, tilt):
        """Outputs, indices, log q and tilted scores of the c-th chunk; past the end of Y log q is -inf."""
        space = self.space
        i = c * CHUNK + jnp.arange(min(CHUNK, space.size))
        ys = jax.vmap(space.element)(jnp.minimum(i, space.size - 1))
        log_q = jnp.where(i < space.size, q.log_probs(ys), -jnp.inf)
        g = self.coupling.scores(theta, ys)
        if tilt is not None:
            indicators = jax.vmap(space.indicators)(ys).reshape(len(ys), -1)
            g = g + tilt.ravel() @ indicators.astype(tilt.dtype).T
        return ys, i, log_q, g

    def _map(self, fn, theta, q, tilt):
        """fn(log q, g) of every chunk; rematerialized, so that a gradient keeps no chunk in memory."""

        @jax.checkpoint
        def one(c):
            _, _, log_q, g = self._chunk(c, theta, q, tilt)
            return fn(log_q, g)

        return jax.lax.map(one, jnp.arange(self._num_chunks))

    def _log_sum(self, theta, q, tilt):
        return logsumexp(self._map(lambda log_q, g: logsumexp(log_q + g), theta, q, tilt))

    def _value(self, theta, q, tilt, tau):
        """tau + E_q f+*(g + tilt - tau), at the multiplier the f-softmax, and then of slope 0 in tau."""
        conjugate = jax.vmap(self.f.weighted_conjugate)
        return tau + self._map(lambda log_q, g: jnp.sum(conjugate(g - tau, log_q)), theta, q, tilt).sum()

    def _mass(self, theta, q, tilt, tau):
        density = jax.vmap(self.f.density)
        return self._map(lambda log_q, g: jnp.sum(jnp.exp(log_q) * density(g - tau)), theta, q, tilt).sum()

    def _multiplier(self, theta, q, tilt):
        """The root of mass(tau) = 1, without gradient, by bisection from min g - f'(1), where the mass is at least 1,
        and max g - f'(1), where it is at most 1."""
        low = self._map(lambda log_q, g: jnp.min(g), theta, q, tilt).min() + self.f.start
        high = self._map(lambda log_q, g: jnp.max(g), theta, q, tilt).max() + self.f.start

        def halve(bracket):
            low, high, i, _ = bracket
            middle = (low + high) / 2
            heavy = self._mass(theta, q, tilt, middle) > 1
            low, high = jnp.where(heavy, middle, low), jnp.where(heavy, high, middle)
            middle = (low + high) / 2
            return low, high, i + 1, (low < middle) & (middle < high) & (i < BISECTIONS)

        # The condition is carried, not computed anew: under vmap a loop evaluates it twice, and rounding may differ.
        low, high, *_ = jax.lax.while_loop(lambda bracket: bracket[-1], halve, (low, high, 0, low < high))
        return jax.lax.stop_gradient((low + high) / 2)

    def _order(self, theta, q):
        """(log q, g) -> what rises with p. Densities rise with g: under a uniform q that is g itself, without ties at
        a density of 0 or at the bound."""
        return (lambda log_q, g: log_q + g) if isinstance(q, Uniform) else self._log_p(theta, q)

    def _log_p(self, theta, q):
        """(log q, g) -> log p up to a constant."""
        if isinstance(self.f, KL):
            return lambda log_q, g: log_q + g
        tau = self.log_partition(theta, q)
        return lambda log_q, g: log_q + jax.vmap(self.f.log_density)(g - tau)


def _best(values: Float[Array, "2 rows num"], outputs: Array, num: int) -> tuple[Array, Array]:
    """In each row the `num` largest of two lists of values, and the outputs that they belong to."""
    merged = jnp.concatenate([values[0], values[1]], axis=-1)
    values, chosen = jax.lax.top_k(merged, num)
    both = jnp.concatenate([outputs[0], outputs[1]], axis=1)
    return values, jnp.take_along_axis(both, chosen[:, :, None], axis=1)


# (polytope of a bilinear coupling, reference measures) -> method, for KL. Everything else is enumerated.
_BILINEAR: tuple[tuple[Any, tuple[type, ...], Callable[[Any], AbstractMethod]], ...] = (
    (Cube, (Uniform, ProductBernoulli), Unary),
    (Hypersimplex, (Uniform, ConditionalBernoulli), ElementarySymmetric),
    ((Permutahedron, Birkhoff), (AbstractSequentialMeasure,), SubsetDP),
)


def method(model: EBM, q: AbstractMeasure | None = None) -> AbstractMethod:
    """The exact method for a model (and another q than its own), or a `TooLargeError` that names the alternatives."""
    coupling, q, f = model.g.coupling, model.q if q is None else q, model.f
    if isinstance(coupling, Bilinear) and isinstance(f, KL):
        for polytope, measures, serving in _BILINEAR:
            if isinstance(coupling.polytope, polytope) and isinstance(q, measures):
                if serving is SubsetDP and coupling.space.shape[0] > budget.MAX_RANKED:
                    raise _too_large(model, f"the subset program reaches k = {budget.MAX_RANKED} ranked labels")
                return serving(coupling.polytope)
    if coupling.space.size > budget.MAX_OUTPUTS:
        raise _too_large(model, f"enumeration reaches {budget.MAX_OUTPUTS:,} outputs")
    return Enumeration(coupling, f)


def log_partition(model: EBM, row: Row) -> Scalar:
    """The tau that makes p(.|x) sum to one: log E_q[exp g] for KL, the multiplier for other f."""
    return method(model, row.q).log_partition(row.theta, row.q)


def capped(model: EBM, row: Row, tau: Scalar) -> Bool[Array, ""]:
    """Whether some density is at the bound of the divergence, and p not that of f itself; for KL none ever is."""
    serving = method(model, row.q)
    if isinstance(model.f, KL) or not isinstance(serving, Enumeration):
        return jnp.asarray(False)
    return serving.largest(row.theta, row.q) - tau >= model.f.bound


def mass(model: EBM, row: Row, tau: Scalar) -> Scalar:
    """The total mass sum_y q (f+*)'(g - tau): 1 where tau is the log-partition."""
    return method(model, row.q).mass(row.theta, row.q, tau)


def softmax(model: EBM, row: Row) -> Scalar:
    """max_p <g, p> - D_f(p, q); for KL the same as `log_partition`."""
    return solve(model, row)[0]


def solve(model: EBM, row: Row) -> tuple[Scalar, Scalar]:
    """(softmax, log_partition), at the cost of one of them."""
    return method(model, row.q).solve(row.theta, row.q)


def marginals(model: EBM, row: Row) -> Float[Array, " *stat"]:
    """E_p[indicators(y)]: label probabilities for sets, the matrix P[label j has rank p] for rankings."""
    return method(model, row.q).marginals(row.theta, row.q)


def mean(model: EBM, row: Row, statistic: Callable[[Array], Array]) -> Float[Array, " *stat"]:
    """E_p[statistic(y)] over all outputs; statistic maps (num, *y) outputs to (num, *stat) numbers."""
    if model.space.size > budget.MAX_OUTPUTS:
        raise _too_large(model, f"enumeration reaches {budget.MAX_OUTPUTS:,} outputs")
    return Enumeration(model.g.coupling, model.f).mean(row.theta, row.q, statistic)


def before(model: EBM, row: Row) -> Float[Array, "k k"]:
    """Of rankings: entry (a, b) is P(label a is ranked before label b)."""
    serving = method(model, row.q)
    if not isinstance(serving, SubsetDP | Enumeration) or not isinstance(model.space, Permutations):
        raise ValueError(f"Which label comes before which is asked of rankings, not of {model.space}.")
    return serving.before(row.theta, row.q)


def log_prob(model: EBM, row: Row, y: Int[Array, " *y"]) -> Scalar:
    """log p(y|x), normalized exactly."""
    return model.log_prob(row, y, log_partition(model, row))


def sample(model: EBM, row: Row, num: int, *, key: Key) -> Int[Array, " num *y"]:
    """Exact draws from p(.|x)."""
    return method(model, row.q).sample(row.theta, row.q, num, key=key)


def mode(model: EBM, row: Row) -> Int[Array, " *y"]:
    """A most probable y. Under a uniform q a bilinear coupling needs only its polytope's argmax, at any size."""
    if isinstance(model.g.coupling, Bilinear):
        polytope = model.g.coupling.polytope
        if isinstance(row.q, Uniform):
            return polytope.argmax(row.theta)
        if (
            isinstance(polytope, Permutahedron | Birkhoff)
            and isinstance(row.q, Completions)
            and polytope.k > budget.MAX_RANKED
        ):
            # The algorithm takes no -inf; a ranking that is excluded must only lose to every other one.
            scores = polytope.matrix(row.theta)
            excluded = scores.min() - polytope.k * jnp.ptp(scores) - 1
            return Birkhoff(polytope.k).argmax(jnp.where(jnp.isneginf(row.q.scores), excluded, scores))
    return method(model, row.q).mode(row.theta, row.q)


def top_k(model: EBM, row: Row, num: int) -> Best:
    """The `num` most probable outputs, in falling order of p."""
    return method(model, row.q).top_k(row.theta, row.q, num)


def _too_large(model: EBM, limit: str) -> TooLargeError:
    coupling, f = type(model.g.coupling).__name__, type(model.f).__name__
    size = model.space.size
    count = f"{size:,}" if size < 10**9 else f"about 10^{math.log10(size):.0f}"
    return TooLargeError(
        f"{model.space} has {count} outputs; for a {coupling} coupling under {f}, {limit}. "
        "Train with objectives.MinMin, and ask for log-partitions and log-probabilities by method='learned', for modes "
        "by method='search', for samples and marginals by a kernel, method=kernels.Gibbs()."
    )
