"""One of k classes: the space and its hull, the probability simplex."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from .label_sets import AbstractLabels
from .polytopes import AbstractPolytope
from .spaces import whole_number

__all__ = ["ProbabilitySimplex", "Simplex"]


class Simplex(AbstractLabels):
    """One of k classes, as a one-hot vector.

    Parameters
    ----------
    k
        The number of classes, at least 2.

    Examples
    --------
    >>> Simplex(3).element(1).tolist()
    [0, 1, 0]
    """

    k: int = eqx.field(static=True, converter=whole_number)

    def __check_init__(self):
        self._check_labels("With one class there is nothing to learn.")

    @property
    def size(self):
        return self.k

    def sample(self, num, *, key):
        return jax.nn.one_hot(jax.random.randint(key, (num,), 0, self.k), self.k, dtype=int)

    def contains(self, y):
        return jnp.all((y == 0) | (y == 1)) & (y.sum() == 1)

    def element(self, i):
        return (jnp.arange(self.k) == i).astype(int)

    def describe(self):
        return f"Classes are one-hot rows: 0/1 with a single one among {self.k}, np.eye({self.k}, dtype=int)[labels]."

    def check_mask(self, mask):
        raise ValueError(f"Labels can be missing from label sets, and tied in rankings; got a mask for {self}.")

    @property
    def max_degree(self):
        return self.k - 1

    def move(self, y, i):
        return jnp.roll(y, i + 1)


class ProbabilitySimplex(AbstractPolytope):
    """The probability simplex {mu >= 0, sum mu = 1}, the hull of the one-hot vectors.

    Parameters
    ----------
    k
        The number of classes.
    """

    k: int = eqx.field(static=True)

    @property
    def space(self):
        return Simplex(self.k)

    def encode(self, y):
        return y.astype(float)

    def argmax(self, theta):
        return self.space.element(jnp.argmax(theta))

    def project(self, theta):
        return optax.projections.projection_simplex(theta)

    def entropy_argmax(self, eta):
        return jax.nn.softmax(eta)
