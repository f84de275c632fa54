"""Sets of exactly m of k labels: the space, its hull, conditional Bernoulli measures, and exact sums."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..budget import Kind, Work
from ..divergences import KL
from ..numerics import logaddexp
from ..types import Array, Float
from .base import AbstractLabels, AbstractMeasure, Conditioned, whole_number
from .label_sets import best_of_two
from .methods import AbstractMethod, AbstractPolytope, AbstractSurrogate, Best, SurrogateRow
from .rankings import ranks, sample_rankings

__all__ = ["Conditional", "ConditionalBernoulli", "ElementarySymmetric", "Hypersimplex", "KSubsets"]

BISECTIONS = 60


class KSubsets(AbstractLabels):
    """Sets of exactly m of k labels, as 0/1 vectors.

    Parameters
    ----------
    k : int
        The number of labels, at least 2.
    m : int
        How many of them are on, 0 < m < k.

    Examples
    --------
    >>> KSubsets(5, 2).size
    10
    """

    k: int = eqx.field(static=True, converter=whole_number)
    m: int = eqx.field(static=True, converter=whole_number)

    def __check_init__(self):
        self.check_labels("One label has only one subset of each size.")
        if not 0 < self.m < self.k:
            raise ValueError(f"KSubsets needs 0 < m < k; got k = {self.k}, m = {self.m}. Any set size: Hypercube(k).")

    @property
    def size(self):
        return math.comb(self.k, self.m)

    def sample(self, num, *, key):
        return (sample_rankings(self.k, num, key=key) < self.m).astype(int)

    def contains(self, y):
        return jnp.all((y == 0) | (y == 1)) & (y.sum() == self.m)

    def element(self, i):
        # Combinatorial number system: of the sets that agree so far, those with label j come first. Only spaces of
        # fewer than 2^31 elements are ever enumerated.
        counts = [[min(math.comb(a, b), 2**31 - 1) for b in range(self.m + 1)] for a in range(self.k)]
        table = jnp.asarray(np.array(counts))

        def choose(carry, j):
            i, left = carry
            with_j = jnp.where(left > 0, table[self.k - 1 - j, left - 1], 0)
            take = i < with_j
            return (jnp.where(take, i, i - with_j), left - take), take.astype(int)

        return jax.lax.scan(choose, (i, jnp.asarray(self.m)), jnp.arange(self.k))[1]

    def describe(self):
        return f"Rows are 0/1 with exactly {self.m} ones among {self.k} labels. Sets of any size: structures.Hypercube."

    @property
    def max_degree(self):
        return self.m * (self.k - self.m)

    def move(self, y, i):
        """One label leaves, another enters."""
        # A stable sort: the labels that are on, then the others.
        order = jnp.argsort(-y, stable=True)
        leaves, enters = order[i // (self.k - self.m)], order[self.m + i % (self.k - self.m)]
        return y.at[leaves].set(0).at[enters].set(1)

    def contradicts(self, known):
        on, off = (known == 1).sum(axis=1), (known == 0).sum(axis=1)
        return (on > self.m) | (self.k - off < self.m)

    def condition_uniform(self, y, mask):
        return ConditionalBernoulli(jnp.zeros(self.k), self.m).condition(y, mask)

    def generator_shape(self):
        return self.shape

    def generator(self, parameters):
        return ConditionalBernoulli(parameters, self.m)


class Hypersimplex(AbstractPolytope):
    """{0 <= mu <= 1, sum mu = m}, the hull of the sets of m labels.

    Parameters
    ----------
    k, m : int
        Those of `KSubsets`.
    """

    k: int = eqx.field(static=True)
    m: int = eqx.field(static=True)

    @property
    def space(self):
        return KSubsets(self.k, self.m)

    def encode(self, y):
        return y.astype(float)

    def argmax(self, theta):
        return (ranks(theta) < self.m).astype(int)

    def project(self, theta):
        # mu = clip(theta - t, 0, 1); its sum falls piecewise linearly in t, with kinks at theta and theta - 1.
        kinks = jnp.sort(jnp.concatenate([theta, theta - 1]))
        sums = jax.vmap(lambda t: jnp.clip(theta - t, 0, 1).sum())(kinks)
        t = jnp.interp(self.m, sums[::-1], kinks[::-1])
        return jnp.clip(theta - t, 0, 1)

    def negative_entropy(self, mu):
        return super().negative_entropy(mu) + super().negative_entropy(1 - mu)

    def entropy_argmax(self, eta):
        """sigmoid(eta - t) with the t at which it sums to m, by bisection."""
        share = self.m / eta.size
        middle = jnp.log(share / (1 - share))

        def halve(_, bracket):
            low, high = bracket
            t = (low + high) / 2
            heavy = jax.nn.sigmoid(eta - t).sum() > self.m
            return jnp.where(heavy, t, low), jnp.where(heavy, high, t)

        low, high = jax.lax.fori_loop(0, BISECTIONS, halve, (eta.min() - middle, eta.max() - middle))
        return jax.nn.sigmoid(eta - (low + high) / 2)

    def exact(self, q, f, interaction=None):
        served = interaction is None and isinstance(f, KL) and (q.is_uniform or isinstance(q, ConditionalBernoulli))
        return ElementarySymmetric(self) if served else None

    def surrogate(self, q, f, interaction=None):
        return Conditional() if interaction is None and isinstance(f, KL) and q.is_uniform else None


class ConditionalBernoulli(AbstractMeasure):
    """Independent labels given that exactly m of them are on; its normalizer is an elementary symmetric polynomial.

    A logit of inf or -inf holds a label on or off.

    Parameters
    ----------
    logits : array of shape (k,), or (n, k) for one measure per row
    m : int
        How many labels are on.
    """

    logits: Float[Array, " *rows k"]
    m: int = eqx.field(static=True)

    @property
    def space(self):
        return KSubsets(self.logits.shape[-1], self.m)

    def sample(self, num, *, key):
        *rows, k = self.logits.shape
        noise = jnp.log(jax.random.uniform(key, (*rows, num, k), self.logits.dtype))
        return jax.vmap(ConditionalBernoulli._choose)(self, noise) if rows else self._choose(noise)

    def _choose(self, noise):
        """The sets that log-uniform noise chooses, from the last label to the first."""
        num, k = noise.shape
        sums, (_, on) = self.log_sums(), self.weights()

        def decide(left, label):
            # P(y_j = 1 | `left` labels are to be chosen among labels 0..j)
            log_take = on[label] + sums[label, left - 1] - sums[label + 1, left]
            take = (left > 0) & (noise[:, label] < log_take)
            return left - take, take

        chosen = jax.lax.scan(decide, jnp.full(num, self.m), jnp.arange(k), reverse=True)[1]
        return chosen.T.astype(int)

    def log_prob(self, y):
        off, on = self.weights()
        return jnp.sum(jnp.where(y == 1, on, off)) - self.log_sums()[-1, -1]

    def mode(self):
        return (ranks(self.logits) < self.m).astype(int)

    def condition(self, y, mask):
        off, on = self.weights()
        held = jnp.where(y == 1, jnp.inf, -jnp.inf)
        measure = ConditionalBernoulli(jnp.where(mask > 0, self.logits, held), self.m)
        # A label that is held has weight 1 in the new measure, whatever it had here.
        observed = jnp.sum(jnp.where(mask > 0, 0, jnp.where(y == 1, on, off)))
        return Conditioned(measure, observed + measure.log_sums()[-1, -1] - self.log_sums()[-1, -1])

    def weights(self) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """The log-weight of each label off and on: 0 and its logit; where it is held, 0 and -inf for the other."""
        held_on, held_off = jnp.isposinf(self.logits), jnp.isneginf(self.logits)
        logits = jnp.where(held_on | held_off, 0, self.logits)
        return jnp.where(held_on, -jnp.inf, jnp.zeros_like(logits)), jnp.where(held_off, -jnp.inf, logits)

    def log_sums(self) -> Float[Array, "j r"]:
        """Entry (j, r): log of the sum of the weights of the sets of r of the first j labels, in k m steps."""
        return _log_sums(*self.weights(), self.m)

    def check(self):
        if np.isnan(self.logits).any():
            raise ValueError(
                "The logits of a reference are NaN in places; they must be numbers, or infinite to exclude outputs."
            )


def _log_sums(off: Float[Array, " k"], on: Float[Array, " k"], m: int) -> Float[Array, "j r"]:
    """Entry (j, r): log of the sum of exp(sum_i on_i or off_i) over the sets of r of the first j labels, r <= m."""
    empty = jnp.where(jnp.arange(m + 1) == 0, 0, -jnp.inf).astype(on.dtype)

    def add(sums, label):
        off, on = label
        longer = jnp.concatenate([jnp.full(1, -jnp.inf, sums.dtype), sums[:-1] + on])
        sums = logaddexp(sums + off, longer)
        return sums, sums

    return jnp.concatenate([empty[None], jax.lax.scan(add, empty, (off, on))[1]])


class ElementarySymmetric(AbstractMethod):
    """Sets of m labels scored by <theta, y>: the m-th elementary symmetric polynomial of exp(theta), in k m steps.

    A conditional Bernoulli q adds its logits to theta.
    """

    polytope: Hypersimplex

    @property
    def space(self):
        return self.polytope.space

    @property
    def work(self):
        return Work(Kind.CLOSED_FORM, 1, self.polytope.k * self.polytope.m)

    def softmax(self, theta, q, tilt):
        off, on = self._weights(theta + tilt, q)
        constant = q.log_sums()[-1, -1] if isinstance(q, ConditionalBernoulli) else q.space.log_size
        return _log_sums(off, on, self.polytope.m)[-1, -1] - constant

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
            return best_of_two(jnp.stack([values + off[label], longer]), jnp.stack([y, with_label]), num), None

        (values, y), _ = jax.lax.scan(add, (values, jnp.zeros((m + 1, num, k), int)), jnp.arange(k))
        return Best(y[-1], values[-1])

    def _weights(self, theta, q):
        """The log-weight of each label off and on."""
        off, on = q.weights() if isinstance(q, ConditionalBernoulli) else (jnp.zeros_like(theta),) * 2
        return off, theta + on

    def _logits(self, theta, q):
        off, on = self._weights(theta, q)
        return on - off


class Conditional(AbstractSurrogate):
    """Sets of m labels scored by <theta, y>: p itself, a conditional Bernoulli."""

    def __call__(self, coupling, theta, q):
        measure = ConditionalBernoulli(theta, coupling.polytope.m)
        tau = measure.log_sums()[-1, -1] - q.space.log_size
        marginals = jax.grad(lambda m: m.log_sums()[-1, -1])(measure).logits
        return SurrogateRow(jax.lax.stop_gradient(measure), tau, jax.lax.stop_gradient(marginals))
