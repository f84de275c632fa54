"""Sets of exactly m of k labels: the space, its hull, conditional Bernoulli measures and exact sums."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..budget import Kind, Work
from ..divergences import KL
from ..numerics import bisect, logaddexp
from ..types import Array, Float
from .couplings import AbstractSurrogate, SurrogateRow
from .label_sets import AbstractLabels, best_of_two
from .measures import AbstractMeasure, Conditioned
from .methods import AbstractMethod, Best
from .polytopes import AbstractPolytope
from .rank_vectors import ranks, sample_rankings
from .spaces import whole_number

__all__ = ["Conditional", "ConditionalBernoulli", "ElementarySymmetric", "Hypersimplex", "KSubsets"]


class KSubsets(AbstractLabels):
    """Sets of exactly m of k labels, as 0/1 vectors.

    Parameters
    ----------
    k
        The number of labels, at least 2.
    m
        The number of labels in each set, 0 < m < k.

    Examples
    --------
    >>> KSubsets(5, 2).size
    10
    """

    k: int = eqx.field(static=True, converter=whole_number)
    m: int = eqx.field(static=True, converter=whole_number)

    def __check_init__(self):
        self._check_labels("One label has only one subset of each size.")
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
        # Combinatorial number system: among the sets with the same labels before j, those with label j come first. Only
        # spaces of fewer than 2^31 outputs are enumerated.
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
        # One label is replaced by another. The sort puts the labels of the set first.
        order = jnp.argsort(-y, stable=True)
        removed, added = order[i // (self.k - self.m)], order[self.m + i % (self.k - self.m)]
        return y.at[removed].set(0).at[added].set(1)

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
    """The hypersimplex {0 <= mu <= 1, sum mu = m}, the hull of the sets of m labels.

    Parameters
    ----------
    k, m
        The number of labels, and the number of labels in each set.
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
        # mu = clip(theta - t, 0, 1), whose sum is decreasing and piecewise linear in t with kinks at theta, theta - 1.
        kinks = jnp.sort(jnp.concatenate([theta, theta - 1]))
        sums = jax.vmap(lambda t: jnp.clip(theta - t, 0, 1).sum())(kinks)
        t = jnp.interp(self.m, sums[::-1], kinks[::-1])
        return jnp.clip(theta - t, 0, 1)

    def negative_entropy(self, mu):
        return super().negative_entropy(mu) + super().negative_entropy(1 - mu)

    def entropy_argmax(self, eta):
        # sigmoid(eta - t) with the t at which it sums to m.
        share = self.m / eta.size
        logit = jnp.log(share / (1 - share))
        t = bisect(lambda t: jax.nn.sigmoid(eta - t).sum() > self.m, eta.min() - logit, eta.max() - logit)
        return jax.nn.sigmoid(eta - t)

    def exact(self, q, f, interaction=None):
        summable = interaction is None and isinstance(f, KL) and (q.is_uniform or isinstance(q, ConditionalBernoulli))
        return ElementarySymmetric(self) if summable else None

    def surrogate(self, q, f, interaction=None):
        return Conditional() if interaction is None and isinstance(f, KL) and q.is_uniform else None


class ConditionalBernoulli(AbstractMeasure):
    """Independent labels given that exactly m of them are 1; its normalizer is an elementary symmetric polynomial.

    Parameters
    ----------
    logits
        An array of shape (k,), or (n, k) for one measure per row; inf or -inf fix a label to 1 or 0.
    m
        The number of labels in each set.
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
            # P(y_j = 1 | `left` labels remain to be chosen among labels 0..j)
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
        fixed = jnp.where(y == 1, jnp.inf, -jnp.inf)
        measure = ConditionalBernoulli(jnp.where(mask > 0, self.logits, fixed), self.m)
        # In the new measure a fixed label has weight 1.
        observed = jnp.sum(jnp.where(mask > 0, 0, jnp.where(y == 1, on, off)))
        return Conditioned(measure, observed + measure.log_sums()[-1, -1] - self.log_sums()[-1, -1])

    def weights(self) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """The log-weights of the two values of each label.

        Returns
        -------
        off : Array
            Log-weight of y_j = 0: 0, or -inf if the label is fixed to 1.
        on : Array
            Log-weight of y_j = 1: the logit; if the label is fixed, 0 or -inf.
        """
        always, never = jnp.isposinf(self.logits), jnp.isneginf(self.logits)
        logits = jnp.where(always | never, 0, self.logits)
        return jnp.where(always, -jnp.inf, jnp.zeros_like(logits)), jnp.where(never, -jnp.inf, logits)

    def log_sums(self) -> Float[Array, "j r"]:
        """Log-sums of the weights of all sets of r of the first j labels, in k m steps.

        Returns
        -------
        Array
            Entry (j, r), of shape (k + 1, m + 1); the last entry is the log-normalizer.
        """
        return _log_sums(*self.weights(), self.m)

    def check(self):
        if np.isnan(self.logits).any():
            raise ValueError(
                "The logits of a reference are NaN in places; they must be numbers, or infinite to exclude outputs."
            )


def _log_sums(off: Float[Array, " k"], on: Float[Array, " k"], m: int) -> Float[Array, "j r"]:
    """Entry (j, r): log-sum of the weights of the sets of r of the first j labels, r <= m."""
    empty = jnp.where(jnp.arange(m + 1) == 0, 0, -jnp.inf).astype(on.dtype)

    def add(sums, label):
        off, on = label
        longer = jnp.concatenate([jnp.full(1, -jnp.inf, sums.dtype), sums[:-1] + on])
        sums = logaddexp(sums + off, longer)
        return sums, sums

    return jnp.concatenate([empty[None], jax.lax.scan(add, empty, (off, on))[1]])


class ElementarySymmetric(AbstractMethod):
    """Exact sums for sets of m labels scored by <theta, y>: an elementary symmetric polynomial, in k m steps.

    A `ConditionalBernoulli` reference adds its logits to theta.

    Parameters
    ----------
    polytope
        The hypersimplex.
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
        # For each size r the best sets of r of the first labels: without the next label, or r - 1 labels and the next.
        off, on = self._weights(theta, q)
        m, k = self.polytope.m, on.size
        values = jnp.full((m + 1, num), -jnp.inf, theta.dtype).at[0, 0].set(0)

        def add(carry, label):
            values, y = carry
            none = jnp.full((1, num), -jnp.inf, values.dtype)
            longer = jnp.concatenate([none, values[:-1] + on[label]])
            with_label = jnp.roll(y, 1, axis=0).at[:, :, label].set(1)
            return best_of_two(jnp.stack([values + off[label], longer]), jnp.stack([y, with_label]), num), None

        (values, y), _ = jax.lax.scan(add, (values, jnp.zeros((m + 1, num, k), int)), jnp.arange(k))
        return Best(y[-1], values[-1])

    def _weights(self, theta, q):
        """The log-weights of the two values of each label under p."""
        off, on = q.weights() if isinstance(q, ConditionalBernoulli) else (jnp.zeros_like(theta),) * 2
        return off, theta + on

    def _logits(self, theta, q):
        off, on = self._weights(theta, q)
        return on - off


class Conditional(AbstractSurrogate):
    """The surrogate of sets of m labels scored by <theta, y>: p itself, a `ConditionalBernoulli`."""

    def __call__(self, coupling, theta, q):
        measure = ConditionalBernoulli(theta, coupling.polytope.m)
        tau = measure.log_sums()[-1, -1] - q.space.log_size
        marginals = jax.grad(lambda m: m.log_sums()[-1, -1])(measure).logits
        return SurrogateRow(jax.lax.stop_gradient(measure), tau, jax.lax.stop_gradient(marginals))
