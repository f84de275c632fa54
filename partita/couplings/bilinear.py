"""Couplings that are linear in the logits: linear, and linear-quadratic, in the output."""

import jax
import jax.numpy as jnp

from ..structures import AbstractCoupling, AbstractLabels, AbstractPolytope
from ..structures.label_sets import cube
from ..types import Array, Float
from .interactions import AbstractInteraction

__all__ = ["Bilinear", "LinearQuadratic"]

# From this number of outputs, or of parameters of U, scores are computed by matrix products.
MANY_OUTPUTS = 512
MANY_PARAMETERS = 1024


class Bilinear(AbstractCoupling):
    """Phi(theta, y) = <theta, phi(y)>.

    On the `Cube` these are unary scores of labels; on the `Permutahedron` or `Birkhoff` they score rankings.

    Parameters
    ----------
    polytope
        The hull of the outputs, which defines the encoding phi and the shape of theta.

    Examples
    --------
    >>> from partita.structures import Cube
    >>> float(Bilinear(Cube(3))(jnp.array([1.0, 2.0, 4.0]), jnp.array([1, 0, 1])))
    5.0
    """

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
        # theta is the left factor: under vmap the scores are then in the order of the rows, without a transposition.
        return theta.ravel() @ encoded.T


class LinearQuadratic(AbstractCoupling):
    """Phi(theta, y) = <u, y> + 1/2 <y, U(s) y>: the Ising model on label sets.

    The first k entries of theta are u. The parameters s of U are the other entries of theta (the paper's choice), or
    one vector that all x share.

    Parameters
    ----------
    interaction
        The family of matrices U(s).
    shared
        Whether all x share one U.
    polytope
        The hull of the label sets; None for the cube, the hull of all label sets.

    Examples
    --------
    >>> from partita.couplings import Symmetric
    >>> LinearQuadratic(Symmetric(4), shared=False).theta_shape  # 4 labels and 6 pairs
    (10,)
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
        """The linear part u and the parameters s of the interaction.

        Parameters
        ----------
        theta
            The logits.

        Returns
        -------
        u : Array
            The score of each label.
        s : Array
            The parameters of U.
        """
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
            # One sum per output rounds identically in stacks of models of any size; for few outputs it costs little.
            return super().scores(theta, ys)
        u, s = self.parameters(theta)
        ys = ys.astype(u.dtype)
        return u @ ys.T + self.interaction.forms(s, ys)

    def around(self, theta, y):
        if not self._flips:
            return super().around(theta, y)
        # One gradient for all labels in place of one form per label, which took 70 times as long at 174 labels.
        mu, s = y.astype(theta.dtype), self.parameters(theta)[1]
        value, slope = jax.value_and_grad(self.relaxed, argnums=1)(theta, mu)
        return value + (1 - 2 * mu) * slope + jnp.diagonal(self.interaction.matrix(s)) / 2

    def change(self, theta, y, i):
        if not self._flips:
            return None
        # k terms in place of k^2.
        u, s = self.parameters(theta)
        row, mu = self.interaction.matrix(s)[i], y.astype(theta.dtype)
        return (1 - 2 * mu[i]) * (u[i] + row @ mu) + row[i] / 2
