"""Sets of labels, {0, 1}^k: the space, its hull, independent labels, exact sums and mean field."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..budget import Kind, Work
from ..divergences import KL
from ..types import Array, Float
from .couplings import AbstractSurrogate, SurrogateRow
from .generic import Components
from .measures import AbstractMeasure, Conditioned
from .methods import AbstractMethod, Best
from .polytopes import AbstractPolytope
from .spaces import AbstractSpace, whole_number

__all__ = [
    "AbstractLabels",
    "Cube",
    "Hypercube",
    "Independent",
    "MeanField",
    "ProductBernoulli",
    "Unary",
    "best_of_two",
    "cube",
]


class AbstractLabels(AbstractSpace):
    """Spaces whose outputs are 0/1 vectors of k labels."""

    k: eqx.AbstractVar[int]

    @property
    def shape(self):
        return (self.k,)

    @property
    def largest(self):
        return 1

    @property
    def flips(self) -> bool:
        """Whether the i-th local move flips label i and no other."""
        return False

    def _check_labels(self, advice: str) -> None:
        if self.k < 2:
            raise ValueError(f"{type(self).__name__} needs k >= 2 labels; got k = {self.k}. {advice}")


class Hypercube(AbstractLabels):
    """Sets of labels, {0, 1}^k.

    Parameters
    ----------
    k
        The number of labels, at least 2.

    Examples
    --------
    >>> space = Hypercube(3)
    >>> space.size, space.element(5).tolist()
    (8, [1, 0, 1])
    """

    k: int = eqx.field(static=True, converter=whole_number)

    def __check_init__(self):
        self._check_labels("For a single yes/no label use Simplex(2).")

    @property
    def size(self):
        return 2**self.k

    def sample(self, num, *, key):
        # 32 labels per random word: one word per label was 5 to 30 times slower.
        words = jax.random.bits(key, (num, -(-self.k // 32)), jnp.uint32)
        bits = words[..., None] >> jnp.arange(32, dtype=jnp.uint32) & 1
        return bits.reshape(num, -1)[:, : self.k].astype(int)

    def contains(self, y):
        return jnp.all((y == 0) | (y == 1))

    def element(self, i):
        return i >> jnp.arange(self.k) & 1

    def describe(self):
        return f"Label sets are 0/1 rows of {self.k} labels. For rankings use structures.Permutations."

    @property
    def max_degree(self):
        return self.k

    @property
    def flips(self):
        return True

    def move(self, y, i):
        return y ^ (jnp.arange(self.k) == i)

    def label_log_probs(self):
        return ProductBernoulli(jnp.zeros(self.k)).label_log_probs()

    def condition_uniform(self, y, mask):
        return ProductBernoulli(jnp.zeros(self.k)).condition(y, mask)

    def generator_shape(self):
        return self.shape

    def generator(self, parameters):
        return ProductBernoulli(parameters)


class Cube(AbstractPolytope):
    """The cube [0, 1]^k, the hull of the label sets.

    Parameters
    ----------
    k
        The number of labels.

    Examples
    --------
    >>> Cube(3).argmax(jnp.array([0.5, -1.0, 2.0])).tolist()
    [1, 0, 1]
    """

    k: int = eqx.field(static=True)

    @property
    def space(self):
        return Hypercube(self.k)

    def encode(self, y):
        return y.astype(float)

    def argmax(self, theta):
        return (theta >= 0).astype(int)

    def project(self, theta):
        return jnp.clip(theta, 0, 1)

    def negative_entropy(self, mu):
        return super().negative_entropy(mu) + super().negative_entropy(1 - mu)

    def entropy_argmax(self, eta):
        return jax.nn.sigmoid(eta)

    def box(self):
        return 0.0, 1.0

    def exact(self, q, f, interaction=None):
        independent = interaction is None and isinstance(f, KL) and q.label_log_probs() is not None
        return Unary(self) if independent else None

    def surrogate(self, q, f, interaction=None):
        if not isinstance(f, KL) or q.label_log_probs() is None:
            return None
        return Independent() if interaction is None else MeanField()


def cube(k: int) -> Cube:
    """The hull of all sets of k labels, the default polytope of couplings of label sets."""
    return Cube(k)


class ProductBernoulli(AbstractMeasure):
    """Independent labels, P(y_j = 1) = sigmoid(logits_j).

    Parameters
    ----------
    logits
        An array of shape (k,), or (n, k) for one measure per row; inf or -inf fix a label to 1 or 0.
    """

    logits: Float[Array, " *rows k"]

    @property
    def space(self):
        return Hypercube(self.logits.shape[-1])

    def sample(self, num, *, key):
        *rows, k = self.logits.shape
        noise = jax.random.uniform(key, (*rows, num, k), self.logits.dtype)
        return (noise < jax.nn.sigmoid(self.logits)[..., None, :]).astype(int)

    def log_prob(self, y):
        off, on = self.label_log_probs()
        return jnp.sum(jnp.where(y == 1, on, off), axis=-1)

    def log_probs(self, ys):
        # Two matrix products in place of one sum per y. Excluded labels are counted apart, since 0 times inf is NaN.
        off, on = self.label_log_probs()
        ys = ys.astype(self.logits.dtype)
        excluded = jnp.isneginf(on).astype(ys.dtype) @ ys.T + jnp.isneginf(off).astype(ys.dtype) @ (1 - ys).T
        off, on = (jnp.where(jnp.isneginf(part), 0, part) for part in (off, on))
        return jnp.where(excluded > 0, -jnp.inf, (on - off) @ ys.T + off.sum())

    def check(self):
        if np.isnan(self.logits).any():
            raise ValueError(
                "The logits of a reference are NaN in places; they must be numbers, or infinite to exclude outputs."
            )

    def mode(self):
        return (self.logits >= 0).astype(int)

    def condition(self, y, mask):
        off, on = self.label_log_probs()
        fixed = jnp.where(y == 1, jnp.inf, -jnp.inf)
        log_q = jnp.where(mask > 0, 0, jnp.where(y == 1, on, off))
        return Conditioned(ProductBernoulli(jnp.where(mask > 0, on - off, fixed)), log_q.sum())

    def label_log_probs(self):
        return jax.nn.log_sigmoid(-self.logits), jax.nn.log_sigmoid(self.logits)

    def kl(self, q):
        labels = q.label_log_probs()
        if labels is None:
            return None
        off, on = labels
        logits, p = on - off, jax.nn.sigmoid(self.logits)
        terms = p * (self.logits - logits) + jax.nn.softplus(logits) - jax.nn.softplus(self.logits)
        return jnp.sum(terms)


def _labels(q: Any) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """`label_log_probs` of a measure that has them."""
    return q.label_log_probs()


class Unary(AbstractMethod):
    """Exact sums for label sets scored by <theta, y>, whose labels are independent: LSE is a sum of softplus.

    Parameters
    ----------
    polytope
        The cube.
    """

    polytope: Cube

    @property
    def space(self):
        return self.polytope.space

    @property
    def work(self):
        return Work(Kind.CLOSED_FORM, 1, self.polytope.k)

    def softmax(self, theta, q, tilt):
        off, on = _labels(q)
        return jnp.sum(jnp.logaddexp(off, theta + tilt + on))

    def sample(self, theta, q, num, *, key):
        return ProductBernoulli(self._logits(theta, q)).sample(num, key=key)

    def mode(self, theta, q):
        return self.polytope.argmax(self._logits(theta, q))

    def top_k(self, theta, q, num):
        # The cost of an output is the sum of |logit| over the labels in which it differs from the mode. Label by label,
        # the outputs of least cost are kept.
        cost = jnp.abs(self._logits(theta, q))
        best = jnp.full((1, num), -jnp.inf, theta.dtype).at[0, 0].set(0)

        def add(carry, label):
            values, flips = carry
            flipped = flips | (jnp.arange(cost.size) == label)
            return best_of_two(jnp.stack([values, values - cost[label]]), jnp.stack([flips, flipped]), num), None

        start = best, jnp.zeros((1, num, cost.size), bool)
        (values, flips), _ = jax.lax.scan(add, start, jnp.arange(cost.size))
        return Best(self.mode(theta, q) ^ flips[0], values[0])

    def _logits(self, theta, q):
        off, on = _labels(q)
        return theta + (on - off)


def best_of_two(values: Float[Array, "2 rows num"], outputs: Array, num: int) -> tuple[Array, Array]:
    """The `num` largest values of two lists, row by row, and their outputs."""
    merged = jnp.concatenate([values[0], values[1]], axis=-1)
    values, chosen = jax.lax.top_k(merged, num)
    both = jnp.concatenate([outputs[0], outputs[1]], axis=1)
    return values, jnp.take_along_axis(both, chosen[:, :, None], axis=1)


class Independent(AbstractSurrogate):
    """The surrogate of label sets scored by <theta, y>: p itself, which has independent labels."""

    def __call__(self, coupling, theta, q):
        off, on = q.label_log_probs()
        logits = jax.lax.stop_gradient(theta + (on - off))
        tau = jnp.sum(jnp.logaddexp(off, theta + on))
        return SurrogateRow(ProductBernoulli(logits), tau, jax.nn.sigmoid(logits))


class MeanField(AbstractSurrogate):
    """Mean field for label sets with interactions: r has independent labels, by damped updates m = sigmoid(u + U m).

    The summary is m and, for each label i, the second-order term 1/4 sum_j U_ij^2 v_i v_j with v = m (1 - m), by which
    LSE_g exceeds the bound if interactions are weak.

    Strong interactions have many fixed points, one near each mode of p. The updates for r start at m = 0; `proposal`
    mixes the fixed points from m = 0 and from draws from q.

    Parameters
    ----------
    sweeps
        The number of updates.
    damping
        The weight of the previous field in each update.
    starts
        The number of starting points of `proposal`.
    """

    sweeps: int = eqx.field(static=True, default=30)
    damping: float = eqx.field(static=True, default=0.5)
    starts: int = eqx.field(static=True, default=16)

    def __call__(self, coupling, theta, q):
        return self._from(jnp.zeros(coupling.space.shape, theta.dtype), coupling, theta, q)

    @property
    def has_label_probs(self):
        return True

    def label_probs(self, row):
        r: Any = row.r
        return jax.nn.sigmoid(r.logits)

    def proposal(self, coupling, theta, q, *, key):
        first = jnp.zeros((1, *coupling.space.shape), theta.dtype)
        starts = jnp.concatenate([first, q.sample(self.starts - 1, key=key).astype(theta.dtype)])
        points = jax.vmap(lambda m: self._from(m, coupling, theta, q))(starts)
        # Half of the draws in proportion to exp(bound), half evenly; and half of all from halved fields, because
        # independent labels are narrower than the modes of p.
        log_share = jnp.logaddexp(jax.nn.log_softmax(points.tau), -math.log(self.starts)) - math.log(4)
        r = jax.tree.map(lambda field: jnp.concatenate([field, field / 2]), points.r)
        return Components(r, jnp.concatenate([log_share, log_share]))

    def _from(self, m, coupling, theta, q):
        """The fixed point of the updates from labels of mean m."""
        u, s = coupling.parameters(theta)
        matrix, multiply = coupling.interaction.matrix(s), coupling.interaction.operator(s)
        # For 0/1 labels the diagonal is part of the linear term.
        diagonal = jnp.diagonal(matrix)
        off, on = q.label_log_probs()
        scores = u + diagonal / 2
        linear = scores + (on - off)

        def pairs(m):
            return multiply(m) - diagonal * m

        def sweep(_, field):
            return self.damping * field + (1 - self.damping) * (linear + pairs(jax.nn.sigmoid(field)))

        field = jax.lax.stop_gradient(jax.lax.fori_loop(0, self.sweeps, sweep, linear + pairs(m)))
        m = jax.nn.sigmoid(field)
        entropy = jnp.sum(jax.scipy.special.entr(m) + jax.scipy.special.entr(jax.nn.sigmoid(-field)))
        # The excluded value of a fixed label has probability 0 and log q = -inf: the product counts as 0.
        mean_log_q = jnp.sum(jnp.where(m > 0, m * on, 0) + jnp.where(m < 1, (1 - m) * off, 0))
        tau = scores @ m + 0.5 * m @ pairs(m) + entropy + mean_log_q
        spread = m * (1 - m)
        second = jax.lax.stop_gradient(spread * (matrix**2 @ spread - diagonal**2 * spread) / 4)
        return SurrogateRow(ProductBernoulli(field), tau, jnp.concatenate([m, second]))
