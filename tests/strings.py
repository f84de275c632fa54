"""A structure of one's own, in one file outside the package: binary strings of length n_i without two neighboring ones.

The length differs from row to row: strings are padded to one shape, and each row's reference, `UpTo`, excludes ones
past the row's length. CONTRIBUTING.md walks through this file.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from partita.budget import Kind, Work
from partita.divergences import KL
from partita.structures import AbstractLabels, AbstractMeasure, AbstractMethod, AbstractPolytope


def counts(k):
    """How many strings there are of length 0, 1, ..., k."""
    numbers = [1, 2]
    while len(numbers) <= k:
        numbers.append(numbers[-1] + numbers[-2])
    return np.array(numbers[: k + 1])


class Strings(AbstractLabels):
    """Strings of k zeros and ones, no two ones side by side."""

    k: int = eqx.field(static=True)

    @property
    def size(self):
        return int(counts(self.k)[-1])

    def contains(self, y):
        return jnp.all((y == 0) | (y == 1)) & ~jnp.any(y[1:] * y[:-1])

    def sample(self, num, *, key):
        return UpTo(jnp.asarray(self.k), self.k).sample(num, key=key)

    def element(self, i):
        # Strings with a zero at the next place come first: there are as many as strings of the places behind it.
        number = jnp.asarray(counts(self.k))

        def place(carry, left):
            i, after_one = carry
            one = ~after_one & (i >= number[left])
            return (jnp.where(one, i - number[left], i), one), one.astype(int)

        return jax.lax.scan(place, (i, jnp.asarray(False)), jnp.arange(self.k - 1, -1, -1))[1]

    @property
    def max_degree(self):
        return self.k

    def degree(self, y):
        return jnp.sum(self._can_flip(y))

    def move(self, y, i):
        """The i-th place that can be flipped is flipped: any one can, a zero only between zeros."""
        can = self._can_flip(y)
        place = jnp.argmax(can & (jnp.cumsum(can) == i + 1))
        return jnp.where(i < jnp.sum(can), y.at[place].set(1 - y[place]), y)

    def _can_flip(self, y):
        padded = jnp.pad(y, 1)
        return (y == 1) | ((padded[:-2] == 0) & (padded[2:] == 0))


class UpTo(AbstractMeasure):
    """Uniform over the strings whose ones are all at the first `length` places."""

    length: jax.Array
    k: int = eqx.field(static=True)

    @property
    def space(self):
        return Strings(self.k)

    @property
    def only_excludes(self):
        return True

    def log_prob(self, y):
        inside = jnp.all((y == 0) | (jnp.arange(self.k) < self.length))
        return jnp.where(inside & self.space.contains(y), -jnp.log(jnp.asarray(counts(self.k))[self.length]), -jnp.inf)

    def sample(self, num, *, key):
        noise = jax.random.uniform(key, (*self.length.shape, num, self.k))
        number, length = jnp.asarray(counts(self.k)), self.length[..., None]

        def place(one, at):
            j, u = at
            left = jnp.maximum(length - j, 0)
            # Of the strings of `left` places those that begin with a one go on with a zero.
            share = jnp.where(left > 0, number[jnp.maximum(left - 2, 0)] / number[left], 0)
            one = ~one & (u < share)
            return one, one.astype(int)

        start = jnp.zeros(noise.shape[:-1], bool)
        return jnp.moveaxis(jax.lax.scan(place, start, (jnp.arange(self.k), jnp.moveaxis(noise, -1, 0)))[1], 0, -1)


class StringHull(AbstractPolytope):
    """The hull of the strings."""

    k: int = eqx.field(static=True)

    @property
    def space(self):
        return Strings(self.k)

    def encode(self, y):
        return y.astype(float)

    def argmax(self, theta):
        # The slope of the largest score is the string that has it.
        return jax.grad(lambda theta: forward(theta, jnp.maximum)[-1].max())(theta).round().astype(int)

    def exact(self, q, f, interaction=None):
        served = interaction is None and isinstance(f, KL) and (q.is_uniform or isinstance(q, UpTo))
        return Chain(self) if served else None


def forward(theta, add):
    """Entry (j, s): the log-sum, or the largest, over all strings of j + 1 places whose last one is s."""

    def place(sums, score):
        sums = jnp.stack([add(sums[0], sums[1]), sums[0] + score])
        return sums, sums

    return jax.lax.scan(place, jnp.array([0.0, -jnp.inf]), theta)[1]


class Chain(AbstractMethod):
    """Strings scored by <theta, y>, place by place."""

    polytope: StringHull

    @property
    def space(self):
        return self.polytope.space

    @property
    def work(self):
        return Work(Kind.PROGRAM, 4 * self.polytope.k, 4 * self.polytope.k)

    def softmax(self, theta, q, tilt):
        scores, log_number = self._scores(theta + tilt, q)
        return jnp.logaddexp(*forward(scores, jnp.logaddexp)[-1]) - log_number

    def mode(self, theta, q):
        scores, _ = self._scores(theta, q)
        return self.polytope.argmax(jnp.maximum(scores, -1e6))

    def sample(self, theta, q, num, *, key):
        sums = forward(self._scores(theta, q)[0], jnp.logaddexp)

        def place(after_one, at):
            sums, u = at
            one = ~after_one & (u < jax.nn.sigmoid(sums[1] - sums[0]))
            return one, one.astype(int)

        noise = jax.random.uniform(key, (self.polytope.k, num))
        return jax.lax.scan(place, jnp.zeros(num, bool), (sums, noise), reverse=True)[1].T

    def _scores(self, theta, q):
        """The scores, -inf where q excludes a one, and log of the number of strings that q has."""
        k = self.polytope.k
        length = q.length if isinstance(q, UpTo) else k
        return jnp.where(jnp.arange(k) < length, theta, -jnp.inf), jnp.log(jnp.asarray(counts(k))[length])
