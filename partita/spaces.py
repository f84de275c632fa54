"""Output spaces Y: what the outputs are, how many there are, and how to draw one uniformly."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._types import Array, Bool, Float, Int, Key

__all__ = [
    "AbstractSpace",
    "Hypercube",
    "KSubsets",
    "Permutations",
    "Simplex",
    "TooLargeError",
    "in_order",
    "permutation",
    "ranks",
]

MAX_BYTES = 2**30
# Up to here comparing all pairs of labels, in vector operations, takes less time than sorting them, which has none.
FEW_LABELS = 32


def _integer(n: Any) -> int:
    """A plain int: sizes are exact at any k, which numpy's integers are not."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(f"A number of labels must be an integer; got {n!r} of type {type(n).__name__}.")
    return int(n)


class TooLargeError(ValueError):
    """An exact computation over Y was asked for, and Y is too large for it."""


class AbstractSpace(eqx.Module):
    """A finite set Y of integer arrays of one shape."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one element y."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """|Y|, exactly."""

    @abc.abstractmethod
    def sample(self, num: int, *, key: Key) -> Int[Array, " num *shape"]:
        """`num` independent uniform draws, in one call."""

    @abc.abstractmethod
    def contains(self, y: Array) -> Bool[Array, ""]:
        """Whether one array of the right shape is an element."""

    @abc.abstractmethod
    def element(self, i: Int[Array, ""]) -> Int[Array, " *shape"]:
        """The i-th element, i = 0, ..., |Y| - 1."""

    @property
    @abc.abstractmethod
    def num_moves(self) -> int:
        """How many outputs are one local move away from any y."""

    @abc.abstractmethod
    def move(self, y: Int[Array, " *shape"], i: Int[Array, ""]) -> Int[Array, " *shape"]:
        """The i-th output one local move away from y, i = 0, ..., num_moves - 1. If y' is a move from y, so is y."""

    def moves(self, y: Int[Array, " *shape"]) -> Int[Array, " moves *shape"]:
        """All outputs one local move away from y."""
        return jax.vmap(self.move, in_axes=(None, 0))(y, jnp.arange(self.num_moves))

    def indicators(self, y: Int[Array, " *shape"]) -> Float[Array, " *stat"]:
        """The 0/1 statistics of y whose means are the marginals: y itself, unless a space has more to say."""
        return y.astype(float)

    @property
    def log_size(self) -> float:
        """log |Y|."""
        return math.log(self.size)

    def elements(self) -> Int[Array, " size *shape"]:
        """All of Y, refused where it would take more than 1 GiB."""
        needed = 4 * self.size * math.prod(self.shape)
        if needed > MAX_BYTES:
            raise TooLargeError(
                f"{self} has {_count(self.size)} elements: listing them takes {_count(needed)} bytes, the limit is "
                f"{_count(MAX_BYTES)}. Draw from it with `sample`, or learn the normalizer with `objectives.MinMin`."
            )
        return jax.vmap(self.element)(jnp.arange(self.size))


class Hypercube(AbstractSpace):
    """Sets of labels, {0, 1}^k.

    >>> Hypercube(3).size
    8
    """

    k: int = eqx.field(static=True, converter=_integer)

    def __check_init__(self):
        _check_labels(self, "For a single yes/no label use Simplex(2).")

    @property
    def shape(self):
        return (self.k,)

    @property
    def size(self):
        return 2**self.k

    def sample(self, num, *, key):
        # 32 coins per random word: one word per coin was 5 to 30 times slower.
        words = jax.random.bits(key, (num, -(-self.k // 32)), jnp.uint32)
        coins = words[..., None] >> jnp.arange(32, dtype=jnp.uint32) & 1
        return coins.reshape(num, -1)[:, : self.k].astype(int)

    def contains(self, y):
        return jnp.all((y == 0) | (y == 1))

    def element(self, i):
        return i >> jnp.arange(self.k) & 1

    @property
    def num_moves(self):
        return self.k

    def move(self, y, i):
        """Label i on or off."""
        return y ^ (jnp.arange(self.k) == i)


class Permutations(AbstractSpace):
    """Rankings of k labels as rank vectors: y[j] is the rank of label j, 0 is best.

    >>> Permutations(4).size
    24
    """

    k: int = eqx.field(static=True, converter=_integer)

    def __check_init__(self):
        _check_labels(self, "One label has only one ranking.")

    @property
    def shape(self):
        return (self.k,)

    @property
    def size(self):
        return math.factorial(self.k)

    def sample(self, num, *, key):
        # The order of random words is uniform up to ties, which 32 bits make rarer than k^2 / 2^33.
        return jnp.argsort(jax.random.bits(key, (num, self.k), jnp.uint32), axis=-1)

    def contains(self, y):
        return jnp.all(jnp.sort(y) == jnp.arange(self.k))

    def element(self, i):
        # Lehmer code: digit j says how many of the ranks still free are passed over for label j.
        radix = [_int32(math.factorial(self.k - 1 - j)) for j in range(self.k)]
        return permutation(jnp.stack([i // radix[j] % (self.k - j) for j in range(self.k)]))

    @property
    def num_moves(self):
        return self.k * (self.k - 1) // 2

    def move(self, y, i):
        """Two labels change their ranks."""
        pairs = jnp.asarray(np.triu_indices(self.k, 1))[:, i]
        return y.at[pairs].set(y[pairs[::-1]])

    def indicators(self, y):
        """The permutation matrix: entry (j, p) is 1 where label j has rank p."""
        return jax.nn.one_hot(y, self.k)


class KSubsets(AbstractSpace):
    """Sets of exactly m of k labels, as 0/1 vectors.

    >>> KSubsets(5, 2).size
    10
    """

    k: int = eqx.field(static=True, converter=_integer)
    m: int = eqx.field(static=True, converter=_integer)

    def __check_init__(self):
        _check_labels(self, "One label has only one subset of each size.")
        if not 0 < self.m < self.k:
            raise ValueError(f"KSubsets needs 0 < m < k; got k = {self.k}, m = {self.m}. Any set size: Hypercube(k).")

    @property
    def shape(self):
        return (self.k,)

    @property
    def size(self):
        return math.comb(self.k, self.m)

    def sample(self, num, *, key):
        return (Permutations(self.k).sample(num, key=key) < self.m).astype(int)

    def contains(self, y):
        return jnp.all((y == 0) | (y == 1)) & (y.sum() == self.m)

    def element(self, i):
        # Combinatorial number system: of the sets that agree so far, those with label j come first.
        binomial = np.array([[_int32(math.comb(a, b)) for b in range(self.m + 1)] for a in range(self.k)])
        table = jnp.asarray(binomial)

        def choose(carry, j):
            i, left = carry
            with_j = jnp.where(left > 0, table[self.k - 1 - j, left - 1], 0)
            take = i < with_j
            return (jnp.where(take, i, i - with_j), left - take), take.astype(int)

        return jax.lax.scan(choose, (i, jnp.asarray(self.m)), jnp.arange(self.k))[1]

    @property
    def num_moves(self):
        return self.m * (self.k - self.m)

    def move(self, y, i):
        """One label leaves, another enters."""
        # A stable sort: the labels that are on, then the others.
        order = jnp.argsort(-y, stable=True)
        leaves, enters = order[i // (self.k - self.m)], order[self.m + i % (self.k - self.m)]
        return y.at[leaves].set(0).at[enters].set(1)


class Simplex(AbstractSpace):
    """One of k classes, as a one-hot vector: the vertices of the probability simplex.

    >>> Simplex(3).element(1).tolist()
    [0, 1, 0]
    """

    k: int = eqx.field(static=True, converter=_integer)

    def __check_init__(self):
        _check_labels(self, "With one class there is nothing to learn.")

    @property
    def shape(self):
        return (self.k,)

    @property
    def size(self):
        return self.k

    def sample(self, num, *, key):
        return jax.nn.one_hot(jax.random.randint(key, (num,), 0, self.k), self.k, dtype=int)

    def contains(self, y):
        return jnp.all((y == 0) | (y == 1)) & (y.sum() == 1)

    def element(self, i):
        return (jnp.arange(self.k) == i).astype(int)

    @property
    def num_moves(self):
        return self.k - 1

    def move(self, y, i):
        """Another class."""
        return jnp.roll(y, i + 1)


def permutation(digits: Int[Array, " *rows k"]) -> Int[Array, " *rows k"]:
    """The permutation with this Lehmer code: entry j is the digits[j]-th number that no earlier entry has taken."""
    y = digits
    for j in range(digits.shape[-1] - 2, -1, -1):
        y = y.at[..., j + 1 :].add(y[..., j + 1 :] >= y[..., j : j + 1])
    return y


def ranks(scores: Float[Array, " *rows k"]) -> Int[Array, " *rows k"]:
    """The rank of each, 0 for the largest; of equal ones the first is better."""
    k = scores.shape[-1]
    if k > FEW_LABELS:
        return jnp.argsort(jnp.argsort(-scores))
    mine, other, label = scores[..., :, None], scores[..., None, :], jnp.arange(k)
    better = (other > mine) | ((other == mine) & (label < label[:, None]))
    return jnp.sum(better, axis=-1)


def in_order(scores: Float[Array, " k"], y: Int[Array, " k"]) -> Float[Array, " k"]:
    """The scores of the labels in the order of their ranks."""
    if len(y) > FEW_LABELS:
        return scores[jnp.argsort(y)]
    return jnp.sum(jnp.where(y == jnp.arange(len(y))[:, None], scores, 0), axis=1)


def _check_labels(space: Any, advice: str) -> None:
    if space.k < 2:
        raise ValueError(f"{type(space).__name__} needs k >= 2 labels; got k = {space.k}. {advice}")


def _int32(n: int) -> int:
    """n, capped: only spaces of fewer than 2^31 elements are ever enumerated."""
    return min(n, 2**31 - 1)


def _count(n: int) -> str:
    return f"{n:,}" if n < 10**12 else f"about 10^{math.log10(n):.0f}"
