"""The contract of a structure: exact methods, which sum over Y or list its best outputs."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import budget
from ..types import Array, Bool, Float, Int, Key, Scalar
from .measures import AbstractMeasure
from .spaces import AbstractSpace

__all__ = ["AbstractAssignments", "AbstractMethod", "Best"]


class Best(NamedTuple):
    """The most probable outputs, in decreasing order of p.

    Parameters
    ----------
    y
        Different outputs.
    score
        A number that increases with p; -inf from where on there are no more outputs with p > 0, and y is arbitrary.
    """

    y: Int[Array, " num *y"]
    score: Float[Array, " num"]


class AbstractMethod(eqx.Module):
    """Exact answers for one row with logits theta and a reference q.

    Everything follows from one quantity, the f-softmax of the scores tilted by a linear term,

        softmax(tilt) = max_p <g + tilt, p> - D_f(p, q),        tilt(y) = <tilt, indicators(y)>.

    For KL its value at 0 is the log-partition log E_q[exp g]; for every f its gradient at 0 is the marginals. Outputs
    that q excludes (log q = -inf) are left out of all sums; a tilt of -inf excludes outputs as well.
    """

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """The space Y."""

    @property
    @abc.abstractmethod
    def work(self) -> budget.Work:
        """The work for one row, by which `budget` decides what is affordable."""

    @abc.abstractmethod
    def softmax(self, theta: Float[Array, " *theta"], q: AbstractMeasure, tilt: Float[Array, " *stat"]) -> Scalar:
        """The f-softmax max_p <g + tilt, p> - D_f(p, q).

        Parameters
        ----------
        theta, q
            The logits and the reference.
        tilt
            An array of the shape of `space.indicators(y)`.
        """

    @abc.abstractmethod
    def sample(
        self, theta: Float[Array, " *theta"], q: AbstractMeasure, num: int, *, key: Key
    ) -> Int[Array, " num *shape"]:
        """Independent draws from p.

        Parameters
        ----------
        theta, q
            The logits and the reference.
        num
            The number of draws.
        key
            For the draws.
        """

    @abc.abstractmethod
    def mode(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Int[Array, " *shape"]:
        """A most probable output.

        Parameters
        ----------
        theta, q
            The logits and the reference.
        """

    def top_k(self, theta: Float[Array, " *theta"], q: AbstractMeasure, num: int) -> Best | None:
        """The most probable outputs; None if the method does not provide them.

        Parameters
        ----------
        theta, q
            The logits and the reference.
        num
            The number of outputs.
        """
        return None

    def before(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Float[Array, "k k"] | None:
        """The matrix of P(label a is ranked before label b), for rankings; None if the method does not provide it.

        Parameters
        ----------
        theta, q
            The logits and the reference.
        """
        return None

    def capped(self, theta: Float[Array, " *theta"], q: AbstractMeasure, tau: Scalar) -> Bool[Array, ""]:
        """Whether a density ratio is at the bound of the divergence, where p differs from that of f without a bound.

        Parameters
        ----------
        theta, q
            The logits and the reference.
        tau
            The log-partition.

        Returns
        -------
        Array
            A bool; False for KL.
        """
        return jnp.asarray(False)

    def log_partition(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Scalar:
        """The tau with which p sums to one.

        Parameters
        ----------
        theta, q
            The logits and the reference.

        Returns
        -------
        Scalar
            For KL log E_q[exp g].
        """
        return self.solve(theta, q)[1]

    def solve(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> tuple[Scalar, Scalar]:
        """The f-softmax without tilt, and the tau with which p sums to one.

        Parameters
        ----------
        theta, q
            The logits and the reference.

        Returns
        -------
        value : Scalar
            The f-softmax.
        tau : Scalar
            The log-partition; for KL the same number.
        """
        value = self.softmax(theta, q, self.no_tilt(theta))
        return value, value

    def mass(self, theta: Float[Array, " *theta"], q: AbstractMeasure, tau: Scalar) -> Scalar:
        """The sum over y of q (f+*)'(g - tau).

        Parameters
        ----------
        theta, q
            The logits and the reference.
        tau
            Any number.

        Returns
        -------
        Scalar
            The total mass, 1 at the log-partition; for KL exp(log_partition - tau).
        """
        return jnp.exp(self.log_partition(theta, q) - tau)

    def marginals(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Float[Array, " *stat"]:
        """The marginals E_p[indicators(y)], the gradient of the softmax in the tilt.

        Parameters
        ----------
        theta, q
            The logits and the reference.

        Returns
        -------
        Array
            An array of the shape of `space.indicators(y)`.
        """
        return jax.grad(self.softmax, argnums=2)(theta, q, self.no_tilt(theta))

    def no_tilt(self, theta: Float[Array, " *theta"]) -> Float[Array, " *stat"]:
        """The tilt 0.

        Parameters
        ----------
        theta
            The logits, for their dtype.

        Returns
        -------
        Array
            Zeros of the shape of `space.indicators(y)`.
        """
        y = jax.ShapeDtypeStruct(self.space.shape, jnp.arange(1).dtype)
        stat = jax.eval_shape(self.space.indicators, y)
        return jnp.zeros(stat.shape, theta.dtype)

    @property
    def has_partial(self) -> bool:
        """Whether it implements `partial`; if not, q is replaced by q given what is observed."""
        return False

    def partial(
        self, theta: Float[Array, " *theta"], q: AbstractMeasure, y: Int[Array, " *y"], mask: Int[Array, " *y"]
    ) -> tuple[Scalar, Scalar]:
        """The log-partition over the outputs that agree with what is observed of y; for KL only.

        Parameters
        ----------
        theta, q
            The logits and the reference.
        y, mask
            An output, and a mask that is 0 where y is observed.

        Returns
        -------
        tau : Scalar
            log E[exp g] under q given what is observed.
        log_mass : Scalar
            Log of the probability under q of what is observed.
        """
        raise NotImplementedError


class AbstractAssignments(eqx.Module):
    """An algorithm on the host for the best outputs under linear scores, for any size of Y.

    `scores` can be traced by JAX; the other methods take and return numpy arrays.
    """

    @abc.abstractmethod
    def scores(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Float[Array, " *scores"]:
        """The argument of the other methods, for one row.

        Parameters
        ----------
        theta, q
            The logits and the reference.
        """

    @abc.abstractmethod
    def argmax(self, scores: np.ndarray) -> np.ndarray:
        """The best output of each row.

        Parameters
        ----------
        scores
            `scores` of several rows.
        """

    @abc.abstractmethod
    def top_k(self, scores: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
        """The best outputs of each row, of shape (n, num, *y), and their scores, of shape (n, num).

        Parameters
        ----------
        scores
            `scores` of several rows.
        num
            The number of outputs per row.
        """
