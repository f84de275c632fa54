"""Exact normalizers, marginals, samples and modes, by closed form, dynamic program or enumeration.

Everything here follows from one quantity, the f-softmax of the scores tilted by a linear term,

    softmax(tilt) = max_p <g + tilt, p> - D_f(p, q),        tilt(y) = <tilt, indicators(y)>.

For KL its value at 0 is the log-partition log E_q[exp g]; for every f its gradient at 0 is the marginals. Which method
serves is chosen by type in `method`; what none can serve is refused with `TooLargeError`.
"""

import abc
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._types import Array, Float, Int, Key, Row, Scalar
from .couplings import AbstractCoupling, Bilinear
from .divergences import KL, AbstractDivergence
from .measures import (
    AbstractMeasure,
    AbstractSequentialMeasure,
    Completions,
    ConditionalBernoulli,
    ProductBernoulli,
    Uniform,
    by_label,
)
from .model import EBM
from .polytopes import Birkhoff, Cube, Hypersimplex, Permutahedron
from .spaces import AbstractSpace, Permutations, TooLargeError

__all__ = [
    "AbstractMethod",
    "ElementarySymmetric",
    "Enumeration",
    "SubsetDP",
    "Unary",
    "before",
    "log_partition",
    "log_prob",
    "marginals",
    "mass",
    "method",
    "mode",
    "sample",
    "softmax",
    "subsets",
]

MAX_STATES = 2**20
MAX_RANKED = 16
CHUNK = 4096
BISECTIONS = 60


class AbstractMethod(eqx.Module):
    """Exact answers for one row: logits theta and a reference q."""

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """Y."""

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

    def log_partition(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Scalar:
        """The tau with which p sums to one."""
        return self.softmax(theta, q, self.no_tilt(theta))

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

    def softmax(self, theta, q, tilt):
        off, on = by_label(q)
        return jnp.sum(jnp.logaddexp(off, theta + tilt + on))

    def sample(self, theta, q, num, *, key):
        return ProductBernoulli(self._logits(theta, q)).sample(num, key=key)

    def mode(self, theta, q):
        return self.polytope.argmax(self._logits(theta, q))

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

    def softmax(self, theta, q, tilt):
        constant = q.log_sums()[-1, -1] if isinstance(q, ConditionalBernoulli) else q.space.log_size
        return self._measure(theta + tilt, q).log_sums()[-1, -1] - constant

    def sample(self, theta, q, num, *, key):
        return self._measure(theta, q).sample(num, key=key)

    def mode(self, theta, q):
        return self.polytope.argmax(self._measure(theta, q).logits)

    def _measure(self, theta, q):
        logits = theta + q.logits if isinstance(q, ConditionalBernoulli) else theta
        return ConditionalBernoulli(logits, self.polytope.m)


class SubsetDP(AbstractMethod):
    """Rankings scored by sum_j theta[j, y_j]: a permanent, by a sum over the sets S of labels placed so far.

    a(S) = log sum_{j in S} exp(a(S - j) + theta[j, |S| - 1] + log q(j | S - j)): one layer per rank, k 2^(k-1) terms.
    The permutahedron is the case theta[j, p] = theta_j w(p).
    """

    polytope: Permutahedron | Birkhoff

    @property
    def space(self):
        return self.polytope.space

    def softmax(self, theta, q, tilt):
        return self._layers(self.polytope.matrix(theta) + tilt, q, jax.nn.logsumexp)[-1][0]

    def sample(self, theta, q, num, *, key):
        scores = self.polytope.matrix(theta)
        sums = jnp.concatenate(self._layers(scores, q, jax.nn.logsumexp))
        noise = jax.random.gumbel(key, (num, *scores.shape), theta.dtype)
        return jax.vmap(lambda z: self._unwind(scores, q, sums, z))(noise)

    def mode(self, theta, q):
        scores = self.polytope.matrix(theta)
        sums = jnp.concatenate(self._layers(scores, q, jnp.max))
        return self._unwind(scores, q, sums, jnp.zeros_like(scores))

    def before(self, theta, q):
        scores = self.polytope.matrix(theta)
        k = scores.shape[0]
        tables = subsets(k)
        still = [jnp.zeros(label.shape, scores.dtype) for _, _, label in tables]
        # The probability that label j completes the set S is the derivative in a term added to that step.
        steps = jax.grad(lambda added: self._layers(scores, q, jax.nn.logsumexp, added)[-1][0])(still)
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

    def softmax(self, theta, q, tilt):
        if isinstance(self.f, KL):
            return jax.nn.logsumexp(self._map(lambda log_q, g: jax.nn.logsumexp(log_q + g), theta, q, tilt))
        tau = jax.lax.stop_gradient(self._multiplier(theta, q, tilt))
        conjugate = jax.vmap(self.f.weighted_conjugate)
        return tau + self._map(lambda log_q, g: jnp.sum(conjugate(g - tau, log_q)), theta, q, tilt).sum()

    def log_partition(self, theta, q):
        if isinstance(self.f, KL):
            return super().log_partition(theta, q)
        tilt = self.no_tilt(theta)
        tau = jax.lax.stop_gradient(self._multiplier(theta, q, tilt))
        # A Newton step polishes the root, by no more than bisection left open (where float32 puts the root on the cap
        # of the density, the slope is 0); its gradient is that of the implicit function.
        mass, slope = jax.value_and_grad(lambda t: self._mass(theta, q, tilt, t))(tau)
        # Not the least float: its inverse times the curvature at the bound, 1e8, would be infinite.
        slope = jax.lax.stop_gradient(jnp.minimum(slope, -1e-20))
        width = 2 * jnp.finfo(tau.dtype).eps * jnp.maximum(1, jnp.abs(tau))
        polish = jax.lax.stop_gradient(jnp.clip((mass - 1) / slope, -width, width))
        return tau - polish - (mass - jax.lax.stop_gradient(mass)) / slope

    def mass(self, theta, q, tau):
        if isinstance(self.f, KL):
            return super().mass(theta, q, tau)
        return self._mass(theta, q, self.no_tilt(theta), tau)

    def sample(self, theta, q, num, *, key):
        chunk_key, element_key = jax.random.split(key)
        log_p = self._log_p(theta, q)
        tilt = self.no_tilt(theta)
        chunks = self._map(lambda log_q, g: jax.nn.logsumexp(log_p(log_q, g)), theta, q, tilt)
        chosen = jax.random.categorical(chunk_key, chunks, shape=(num,))
        u = jax.random.uniform(element_key, (num,), theta.dtype)

        def within(drawn, c):
            # Every chunk once, whatever the number of draws: those that chose it invert its distribution function.
            i, log_q, g = self._chunk(c, theta, q, tilt)
            total = jnp.cumsum(jax.nn.softmax(log_p(log_q, g)))
            place = jnp.searchsorted(total, u * total[-1], side="right")
            return jnp.where(chosen == c, i[jnp.minimum(place, i.size - 1)], drawn), None

        drawn, _ = jax.lax.scan(within, jnp.zeros(num, int), jnp.arange(self._num_chunks))
        return jax.vmap(self.space.element)(drawn)

    def mode(self, theta, q):
        # Densities increase with g, so under a uniform q the mode is the largest g, without ties at 0 or at the bound.
        log_p = (lambda log_q, g: log_q + g) if isinstance(q, Uniform) else self._log_p(theta, q)

        def best(c):
            i, log_q, g = self._chunk(c, theta, q, self.no_tilt(theta))
            value = log_p(log_q, g)
            return value.max(), i[jnp.argmax(value)]

        values, indices = jax.lax.map(best, jnp.arange(self._num_chunks))
        return self.space.element(indices[jnp.argmax(values)])

    def before(self, theta, q):
        log_p = self._log_p(theta, q)
        tilt = self.no_tilt(theta)
        total = jax.nn.logsumexp(self._map(lambda log_q, g: jax.nn.logsumexp(log_p(log_q, g)), theta, q, tilt))

        def add(found, c):
            i, log_q, g = self._chunk(c, theta, q, tilt)
            y = jax.vmap(self.space.element)(jnp.minimum(i, self.space.size - 1))
            p = jnp.exp(log_p(log_q, g) - total)
            return found + jnp.einsum("i,iab->ab", p, (y[:, :, None] < y[:, None, :]).astype(p.dtype)), None

        k = self.space.shape[0]
        return jax.lax.scan(add, jnp.zeros((k, k), theta.dtype), jnp.arange(self._num_chunks))[0]

    @property
    def _num_chunks(self):
        return -(-self.space.size // CHUNK)

    def _chunk(self, c, theta, q, tilt):
        """Indices, log q and tilted scores of the c-th chunk; past the end of Y log q is -inf."""
        space = self.space
        i = c * CHUNK + jnp.arange(min(CHUNK, space.size))
        y = jax.vmap(space.element)(jnp.minimum(i, space.size - 1))
        log_q = jnp.where(i < space.size, jax.vmap(q.log_prob)(y), -jnp.inf)
        g = jax.vmap(lambda y: self.coupling(theta, y) + jnp.vdot(tilt, space.indicators(y).astype(tilt.dtype)))(y)
        return i, log_q, g

    def _map(self, fn, theta, q, tilt):
        """fn(log q, g) of every chunk; rematerialized, so that a gradient keeps no chunk in memory."""

        @jax.checkpoint
        def one(c):
            _, log_q, g = self._chunk(c, theta, q, tilt)
            return fn(log_q, g)

        return jax.lax.map(one, jnp.arange(self._num_chunks))

    def _mass(self, theta, q, tilt, tau):
        density = jax.vmap(self.f.density)
        return self._map(lambda log_q, g: jnp.sum(jnp.exp(log_q) * density(g - tau)), theta, q, tilt).sum()

    def _multiplier(self, theta, q, tilt):
        """The root of mass(tau) = 1, by bisection: mass >= 1 at min g - f'(1), mass <= 1 at max g - f'(1)."""
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
        return (low + high) / 2

    def _log_p(self, theta, q):
        """(log q, g) -> log p up to a constant."""
        if isinstance(self.f, KL):
            return lambda log_q, g: log_q + g
        tau = self.log_partition(theta, q)
        return lambda log_q, g: log_q + jax.vmap(self.f.log_density)(g - tau)


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
                if serving is SubsetDP and coupling.space.shape[0] > MAX_RANKED:
                    raise _too_large(model, f"the subset program reaches k = {MAX_RANKED} ranked labels")
                return serving(coupling.polytope)
    if coupling.space.size > MAX_STATES:
        raise _too_large(model, f"enumeration reaches {MAX_STATES:,} outputs")
    return Enumeration(coupling, f)


def log_partition(model: EBM, row: Row) -> Scalar:
    """The tau that makes p(.|x) sum to one: log E_q[exp g] for KL, the multiplier for other f."""
    return method(model, row.q).log_partition(row.theta, row.q)


def mass(model: EBM, row: Row, tau: Scalar) -> Scalar:
    """The total mass sum_y q (f+*)'(g - tau): 1 where tau is the log-partition."""
    return method(model, row.q).mass(row.theta, row.q, tau)


def softmax(model: EBM, row: Row) -> Scalar:
    """max_p <g, p> - D_f(p, q); for KL the same as `log_partition`."""
    serving = method(model, row.q)
    return serving.softmax(row.theta, row.q, serving.no_tilt(row.theta))


def marginals(model: EBM, row: Row) -> Float[Array, " *stat"]:
    """E_p[indicators(y)]: label probabilities for sets, the matrix P[label j has rank p] for rankings."""
    return method(model, row.q).marginals(row.theta, row.q)


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
        if isinstance(polytope, Permutahedron | Birkhoff) and isinstance(row.q, Completions):
            return Birkhoff(polytope.k).argmax(polytope.matrix(row.theta) + row.q.scores)
    return method(model, row.q).mode(row.theta, row.q)


def _too_large(model: EBM, limit: str) -> TooLargeError:
    coupling, f = type(model.g.coupling).__name__, type(model.f).__name__
    size = model.space.size
    count = f"{size:,}" if size < 10**9 else f"about 10^{math.log10(size):.0f}"
    return TooLargeError(
        f"{model.space} has {count} outputs; for a {coupling} coupling under {f}, {limit}. "
        "Train with objectives.MinMin, and ask for log-partitions and log-probabilities by method='learned', for modes "
        "by method='search', for samples and marginals by a kernel, method=kernels.Gibbs()."
    )
