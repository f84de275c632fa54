"""Couplings Phi(theta, y): how logits theta = h(x) score an output y."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .structures import AbstractCoupling, AbstractLabels, AbstractPolytope, cube
from .types import Array, Float, Key, PyTree, Scalar

__all__ = [
    "AbstractCoupling",
    "AbstractInteraction",
    "Bilinear",
    "Factored",
    "Full",
    "LinearQuadratic",
    "NegativeSemidefinite",
    "Neural",
    "Sparse",
    "Symmetric",
]


# From this number of outputs, or of parameters of U, scores are matrix products.
MANY_OUTPUTS = 512
MANY_PARAMETERS = 1024
# Up to this number of parameters of U forms are one matrix product: a matrix of (outputs, parameters) fits in memory.
MAX_PRODUCTS = 2**15


def _pair(edge: Any) -> tuple[int, int]:
    i, j = sorted(map(int, edge))
    return i, j


class Bilinear(AbstractCoupling):
    """Phi(theta, y) = <theta, phi(y)>: unary label sets on the Cube, rankings on the Permutahedron or Birkhoff."""

    polytope: AbstractPolytope

    @property
    def space(self):
        return self.polytope.space

    @property
    def theta_shape(self):
        return self.polytope.shape

    def __call__(self, theta, y):
        return self.polytope.score(theta, y)

    def relaxed(self, theta, mu):
        return jnp.vdot(theta, mu)

    @property
    def is_linear(self):
        return True

    def exact(self, q, f):
        return self.polytope.exact(q, f)

    def surrogate(self, q, f):
        return self.polytope.surrogate(q, f)

    def scores(self, theta, ys):
        encoded = jax.vmap(self.polytope.encode)(ys).reshape(len(ys), -1).astype(theta.dtype)
        # theta first: of many rows the scores then come row by row, and nothing is transposed.
        return theta.ravel() @ encoded.T


class AbstractInteraction(eqx.Module):
    """A family of symmetric matrices U(s), s in R^size, with its quadratic form."""

    @property
    @abc.abstractmethod
    def k(self) -> int:
        """U is k x k."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of parameters s."""

    @abc.abstractmethod
    def matrix(self, s: Float[Array, " size"]) -> Float[Array, "k k"]:
        """U(s)."""

    @property
    def is_linear(self) -> bool:
        """Whether U is linear in s and has no other parameters: then the mean of several U(s) is U(mean s)."""
        return True

    @property
    def is_concave(self) -> bool:
        """Whether every U(s) is negative semi-definite."""
        return False

    def form(self, s: Float[Array, " size"], y: Float[Array, " k"]) -> Scalar:
        """1/2 <y, U(s) y>."""
        return 0.5 * y @ self.matrix(s) @ y

    def forms(self, s: Float[Array, " size"], ys: Float[Array, "num k"]) -> Float[Array, " num"]:
        """The form of each of several y, which many s may have in common."""
        return jax.vmap(lambda y: self.form(s, y))(ys)

    def operator(self, s: Float[Array, " size"]) -> Callable[[Float[Array, " k"]], Float[Array, " k"]]:
        """m -> U(s) m, for many m."""
        matrix = self.matrix(s)
        return lambda m: matrix @ m


class Symmetric(AbstractInteraction):
    """Any symmetric U with zero diagonal (for 0/1 labels the diagonal is part of u): k (k - 1) / 2 parameters."""

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
        # One product of s with the pairs, which all rows share: 2^16 outputs took 30 times as long by their forms.
        i, j = np.triu_indices(self.labels, 1)
        return s @ (ys[:, i] * ys[:, j]).T


class Full(AbstractInteraction):
    """U(s) = scale (S + S') / 2 for any matrix S: the paper's U, with k^2 parameters of which `Symmetric` needs half.

    S is s in another shape, so that nothing is gathered or scattered: of 174 labels that takes most of a step. With a
    scale of 1 / k one step of an optimizer changes the sum over k^2 pairs about as much as that over k labels.
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
    """A U that is zero but on given pairs of labels, `edges`, such as those of a known graph: one parameter each."""

    labels: int = eqx.field(static=True)
    edges: tuple[tuple[int, int], ...] = eqx.field(static=True, converter=lambda edges: tuple(map(_pair, edges)))

    def __check_init__(self):
        bad = [pair for pair in self.edges if not 0 <= pair[0] < pair[1] < self.labels]
        if bad or len(set(self.edges)) < len(self.edges) or not self.edges:
            raise ValueError(
                f"Sparse needs different pairs of different labels among 0..{self.labels - 1}; got {len(self.edges)} "
                f"pairs, {len(set(self.edges))} different, of which {bad[:3]} are none."
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
    """U(s) = A diag(s) A' of rank r, A learned; with `concave`, -softplus(s) in place of s: U negative semi-definite.

    k = 174 labels have 15,051 pairs, but only 174 r entries of A.
    """

    factor: Float[Array, "k rank"]
    concave: bool = eqx.field(static=True)

    def __init__(self, k: int, rank: int | None = None, *, concave: bool = False, key: Key):
        rank = _check_rank(self, k, rank)
        # Concave forms cannot start at zero; at this scale they start below 0.01.
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
        # 983 labels and rank 16: 30 times less work than with the matrix.
        spectrum = self._spectrum(s)
        return lambda m: self.factor @ (spectrum * (m @ self.factor))

    def _spectrum(self, s):
        return -jax.nn.softplus(s) if self.concave else s


class NegativeSemidefinite(AbstractInteraction):
    """U(s) = -A A' with A = offset + s: every negative semi-definite U up to the rank, each x with its own A.

    `offset` is a parameter that all x share. Without it A would start at 0, where the gradient with respect to A is 0.
    """

    offset: Float[Array, "k rank"]

    def __init__(self, k: int, rank: int | None = None, *, key: Key):
        rank = _check_rank(self, k, rank)
        # Entries of U start at a deviation of 0.01.
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
    """The rank of a factor with k rows: k unless given."""
    rank = k if rank is None else rank
    if not 0 < rank <= k:
        raise ValueError(f"{type(interaction).__name__} needs 0 < rank <= k; got rank = {rank}, k = {k}.")
    return rank


class LinearQuadratic(AbstractCoupling):
    """Phi(theta, y) = <u, y> + 1/2 <y, U y>: the Ising model on label sets.

    u is always theta's first k entries. U is theta's rest (the paper's choice), or one matrix that all x share.

    Parameters
    ----------
    interaction : AbstractInteraction
        The family of U.
    shared : bool
        Whether U is one for all x.
    polytope : AbstractPolytope, optional
        The hull of the label sets that are scored: of all of them, unless given.
    """

    polytope: AbstractPolytope
    interaction: AbstractInteraction
    shared: Float[Array, " size"] | None

    def __init__(self, interaction: AbstractInteraction, *, shared: bool, polytope: AbstractPolytope | None = None):
        self.polytope = cube(interaction.k) if polytope is None else polytope
        space = self.polytope.space
        if not isinstance(space, AbstractLabels):
            raise TypeError(f"LinearQuadratic scores label sets; got {space}. For rankings use Bilinear.")
        if space.shape != (interaction.k,):
            raise ValueError(f"The space has {space.k} labels, the interaction {interaction.k}.")
        self.interaction = interaction
        self.shared = jnp.zeros(interaction.size) if shared else None

    @property
    def space(self):
        return self.polytope.space

    @property
    def theta_shape(self):
        return (self.interaction.k + (self.interaction.size if self.shared is None else 0),)

    def parameters(self, theta: Float[Array, " theta"]) -> tuple[Float[Array, " k"], Float[Array, " size"]]:
        """(u, s): the linear part and the interaction's parameters."""
        k = self.interaction.k
        return theta[:k], theta[k:] if self.shared is None else self.shared

    def __call__(self, theta, y):
        return self.relaxed(theta, y)

    def relaxed(self, theta, mu):
        u, s = self.parameters(theta)
        mu = mu.astype(u.dtype)
        return u @ mu + self.interaction.form(s, mu)

    def exact(self, q, f):
        return self.polytope.exact(q, f, self.interaction)

    def surrogate(self, q, f):
        return self.polytope.surrogate(q, f, self.interaction)

    @property
    def has_interaction(self):
        return True

    @property
    def is_concave(self):
        return self.interaction.is_concave

    @property
    def can_average(self):
        return self.interaction.is_linear

    def squared_shared(self):
        return jnp.zeros(()) if self.shared is None else jnp.sum(self.shared**2)

    @property
    def _flips(self) -> bool:
        return isinstance(self.space, AbstractLabels) and self.space.flips

    def scores(self, theta, ys):
        if len(ys) < MANY_OUTPUTS and self.interaction.size < MANY_PARAMETERS:
            # A sum for each rounds alike in stacks of models of any size, and few outputs cost little either way.
            return super().scores(theta, ys)
        u, s = self.parameters(theta)
        ys = ys.astype(u.dtype)
        return u @ ys.T + self.interaction.forms(s, ys)

    def around(self, theta, y):
        if not self._flips:
            return super().around(theta, y)
        # One slope for all labels, not one form for each: a search over 174 labels took 70 times as long.
        mu, s = y.astype(theta.dtype), self.parameters(theta)[1]
        value, slope = jax.value_and_grad(self.relaxed, argnums=1)(theta, mu)
        return value + (1 - 2 * mu) * slope + jnp.diagonal(self.interaction.matrix(s)) / 2

    def change(self, theta, y, i):
        if not self._flips:
            return None
        # k terms, not k^2.
        u, s = self.parameters(theta)
        row, mu = self.interaction.matrix(s)[i], y.astype(theta.dtype)
        return (1 - 2 * mu[i]) * (u[i] + row @ mu) + row[i] / 2


class Neural(AbstractCoupling):
    """Phi(theta, y) = network(theta, phi(y)): any energy. `networks.Paired` makes one of a network of one array."""

    polytope: AbstractPolytope
    logits: tuple[int, ...] = eqx.field(static=True)
    network: PyTree

    @property
    def space(self):
        return self.polytope.space

    @property
    def theta_shape(self):
        return self.logits

    def __call__(self, theta, y):
        return self.relaxed(theta, self.polytope.encode(y))

    def relaxed(self, theta, mu):
        return self.network(theta, mu).reshape(())

    @property
    def cost(self):
        weights = jax.tree.leaves(eqx.filter(self.network, eqx.is_inexact_array))
        return super().cost + sum(w.size for w in weights)
