"""Interactions: families of symmetric matrices U(s) for quadratic scores 1/2 <y, U(s) y> of label sets."""

import abc
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..types import Array, Float, Key, Scalar

__all__ = ["AbstractInteraction", "Factored", "Full", "NegativeSemidefinite", "Sparse", "Symmetric"]

# With more parameters of U than this, a matrix of shape (outputs, parameters) would not fit in memory.
MAX_PRODUCTS = 2**15


def _sort_pairs(edges: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    return tuple((i, j) for i, j in (sorted(map(int, edge)) for edge in edges))


class AbstractInteraction(eqx.Module):
    """A family of symmetric k x k matrices U(s) with `size` parameters s, and its quadratic form."""

    @property
    @abc.abstractmethod
    def k(self) -> int:
        """The number of labels: U is k x k."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of parameters s."""

    @abc.abstractmethod
    def matrix(self, s: Float[Array, " size"]) -> Float[Array, "k k"]:
        """The matrix U(s).

        Parameters
        ----------
        s
            The parameters.
        """

    @property
    def is_linear(self) -> bool:
        """Whether U is linear in s and has no other parameters, so that the mean of several U(s) is U(mean s)."""
        return True

    @property
    def is_concave(self) -> bool:
        """Whether every U(s) is negative semi-definite."""
        return False

    def form(self, s: Float[Array, " size"], y: Float[Array, " k"]) -> Scalar:
        """The quadratic form 1/2 <y, U(s) y>.

        Parameters
        ----------
        s
            The parameters.
        y
            A label set, or a point of the cube.

        Returns
        -------
        Scalar
            The value.
        """
        return 0.5 * y @ self.matrix(s) @ y

    def forms(self, s: Float[Array, " size"], ys: Float[Array, "num k"]) -> Float[Array, " num"]:
        """`form` of several y, written so that under vmap over s what depends on y alone is computed once.

        Parameters
        ----------
        s
            The parameters.
        ys
            The label sets, one per row.

        Returns
        -------
        Array
            The value for each y.
        """
        return jax.vmap(lambda y: self.form(s, y))(ys)

    def operator(self, s: Float[Array, " size"]) -> Callable[[Float[Array, " k"]], Float[Array, " k"]]:
        """The linear map m -> U(s) m.

        Parameters
        ----------
        s
            The parameters.

        Returns
        -------
        callable
            A function of a vector m.
        """
        matrix = self.matrix(s)
        return lambda m: matrix @ m


class Symmetric(AbstractInteraction):
    """All symmetric U with zero diagonal, with k (k - 1) / 2 parameters, one per pair of labels.

    For 0/1 labels a diagonal would be part of the linear scores u.

    Parameters
    ----------
    labels
        The number of labels k.

    Examples
    --------
    >>> Symmetric(3).matrix(jnp.array([1.0, 2.0, 3.0])).tolist()
    [[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]]
    """

    labels: int = eqx.field(static=True)

    @property
    def k(self):
        return self.labels

    @property
    def size(self):
        return self.labels * (self.labels - 1) // 2

    def matrix(self, s):
        upper = jnp.zeros((self.labels, self.labels), s.dtype).at[jnp.triu_indices(self.labels, 1)].set(s)
        return upper + upper.T

    def forms(self, s, ys):
        if self.size > MAX_PRODUCTS:
            return super().forms(s, ys)
        # A product of s with the pairs, which all rows share: for 2^16 outputs 30 times as fast as one form per output.
        i, j = np.triu_indices(self.labels, 1)
        return s @ (ys[:, i] * ys[:, j]).T


class Full(AbstractInteraction):
    """U(s) = scale (S + S') / 2 for any k x k matrix S: the paper's U, with k^2 parameters, twice those of `Symmetric`.

    S is s reshaped, without the gather and scatter of `Symmetric`, which at 174 labels take most of a training step.

    Parameters
    ----------
    labels
        The number of labels k.
    scale
        The factor. With 1 / k one step of an optimizer changes the sum over the k^2 pairs about as much as the sum over
        the k labels.
    """

    labels: int = eqx.field(static=True)
    scale: float = eqx.field(static=True, default=1.0)

    @property
    def k(self):
        return self.labels

    @property
    def size(self):
        return self.labels**2

    def matrix(self, s):
        square = s.reshape(self.labels, self.labels)
        return self.scale / 2 * (square + square.T)

    def form(self, s, y):
        return self.scale / 2 * y @ s.reshape(self.labels, self.labels) @ y

    def forms(self, s, ys):
        if self.size > MAX_PRODUCTS:
            return super().forms(s, ys)
        return self.scale / 2 * s @ (ys[:, :, None] * ys[:, None, :]).reshape(len(ys), -1).T


class Sparse(AbstractInteraction):
    """U with one parameter per pair of labels in `edges`, such as those of a known graph, and zero elsewhere.

    Parameters
    ----------
    labels
        The number of labels k.
    edges
        Different pairs (i, j) of different labels among 0, ..., k - 1.
    """

    labels: int = eqx.field(static=True)
    edges: tuple[tuple[int, int], ...] = eqx.field(static=True, converter=_sort_pairs)

    def __check_init__(self):
        bad = [pair for pair in self.edges if not 0 <= pair[0] < pair[1] < self.labels]
        if bad or len(set(self.edges)) < len(self.edges) or not self.edges:
            raise ValueError(
                f"Sparse needs different pairs of different labels among 0..{self.labels - 1}; got {len(self.edges)} "
                f"pairs, {len(set(self.edges))} different, of which these are not valid: {bad[:3]}."
            )

    @property
    def k(self):
        return self.labels

    @property
    def size(self):
        return len(self.edges)

    def matrix(self, s):
        i, j = np.array(self.edges).T
        upper = jnp.zeros((self.labels, self.labels), s.dtype).at[i, j].set(s)
        return upper + upper.T

    def form(self, s, y):
        return self.forms(s, y[None])[0]

    def forms(self, s, ys):
        i, j = np.array(self.edges).T
        return s @ (ys[:, i] * ys[:, j]).T


class Factored(AbstractInteraction):
    """U(s) = A diag(s) A' of low rank, with a k x rank matrix A that is trained and that all x share.

    174 labels have 15,051 pairs, but only 174 rank entries of A.

    Parameters
    ----------
    k
        The number of labels.
    rank
        The number of parameters s; None for k.
    concave
        Whether -softplus(s) takes the place of s, so that U is negative semi-definite.
    key
        For the initial A.
    """

    factor: Float[Array, "k rank"]
    concave: bool = eqx.field(static=True)

    def __init__(self, k: int, rank: int | None = None, *, concave: bool = False, key: Key):
        rank = _check_rank(self, k, rank)
        # Concave forms cannot start at zero; with this scale they start below 0.01.
        scale = 0.1 * rank**-0.5 if concave else 1.0
        self.factor = scale * k**-0.5 * jax.random.normal(key, (k, rank))
        self.concave = concave

    @property
    def is_linear(self):
        return False

    @property
    def is_concave(self):
        return self.concave

    @property
    def k(self):
        return self.factor.shape[-2]

    @property
    def size(self):
        return self.factor.shape[-1]

    def matrix(self, s):
        return (self.factor * self._spectrum(s)) @ self.factor.T

    def form(self, s, y):
        return self.forms(s, y[None])[0]

    def forms(self, s, ys):
        return 0.5 * self._spectrum(s) @ ((ys @ self.factor) ** 2).T

    def operator(self, s):
        # 30 times less work than with the matrix at 983 labels and rank 16.
        spectrum = self._spectrum(s)
        return lambda m: self.factor @ (spectrum * (m @ self.factor))

    def _spectrum(self, s):
        return -jax.nn.softplus(s) if self.concave else s


class NegativeSemidefinite(AbstractInteraction):
    """U(s) = -A A' with A = offset + s: all negative semi-definite U up to a rank, with k x rank parameters s.

    `offset` is trained and shared by all x. Without it A would start at 0, where the gradient in A is 0.

    Parameters
    ----------
    k
        The number of labels.
    rank
        The number of columns of A; None for k.
    key
        For the initial offset.
    """

    offset: Float[Array, "k rank"]

    def __init__(self, k: int, rank: int | None = None, *, key: Key):
        rank = _check_rank(self, k, rank)
        # The entries of U start with a standard deviation of 0.01.
        self.offset = 0.1 * rank**-0.25 * jax.random.normal(key, (k, rank))

    @property
    def is_linear(self):
        return False

    @property
    def is_concave(self):
        return True

    @property
    def k(self):
        return self.offset.shape[-2]

    @property
    def size(self):
        return self.offset.shape[-2] * self.offset.shape[-1]

    def matrix(self, s):
        factor = self._factor(s)
        return -factor @ factor.T

    def form(self, s, y):
        return -0.5 * jnp.sum((y @ self._factor(s)) ** 2)

    def forms(self, s, ys):
        return -0.5 * jnp.sum((ys @ self._factor(s)) ** 2, axis=1)

    def operator(self, s):
        factor = self._factor(s)
        return lambda m: -factor @ (m @ factor)

    def _factor(self, s):
        return self.offset + s.reshape(self.offset.shape)


def _check_rank(interaction: AbstractInteraction, k: int, rank: int | None) -> int:
    """The rank of a factor with k rows, k by default."""
    rank = k if rank is None else rank
    if not 0 < rank <= k:
        raise ValueError(f"{type(interaction).__name__} needs 0 < rank <= k; got rank = {rank}, k = {k}.")
    return rank
