"""The contract of an f-divergence: f, its conjugate, and what follows from the two.

The density ratio of an output is p/q = (f+*)'(g - tau), where f+* is the conjugate of f restricted to u >= 0. Past a
bound c the conjugate continues linearly. That is the conjugate of f restricted to density ratios u <= (f+*)'(c), so
values and gradients stay finite and the loss stays a Fenchel-Young loss.
"""

import abc
import dataclasses
import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..types import Array, Float, Scalar

__all__ = ["DOUBLE_MARGIN", "MARGIN", "AbstractDivergence"]

# How close the default bound is to the end of a bounded domain, in float32 and in float64.
MARGIN = 1e-4
DOUBLE_MARGIN = 1e-12
# The tangent must stay finite in float32 for arguments up to 1e6.
MAX_RATIO = 1e30


class AbstractDivergence(eqx.Module):
    """A strictly convex f with f(1) = 0, defined by f and its conjugate.

    `bound` is the argument of the conjugate from which on it continues linearly.
    """

    bound: eqx.AbstractVar[float]

    def __check_init__(self):
        # As the arrays are: a bound may be at the end of its domain in float32 that is not in float64.
        c = float(np.asarray(self.bound, jax.dtypes.canonicalize_dtype(float)))
        name, low, high = type(self).__name__, 0.0 - self.start, self.supremum
        if not low < c < high:
            raise ValueError(f"{name} needs a bound c with f'(1) = {low:.3g} < c < {high:.3g}; got c = {self.bound}.")
        if not self.largest_ratio < MAX_RATIO:
            raise ValueError(
                f"{name} at the bound c = {c} has density {self.largest_ratio:.3g}, too large for float32; lower it."
            )

    @abc.abstractmethod
    def f(self, u: Scalar) -> Scalar:
        """f(u).

        Parameters
        ----------
        u
            A density ratio, u >= 0.
        """

    @abc.abstractmethod
    def conjugate(self, v: Scalar) -> Scalar:
        """f+*(v) = sup_{u >= 0} u v - f(u).

        Parameters
        ----------
        v
            A number up to `bound`; `continued` takes larger ones too.
        """

    @property
    def supremum(self) -> float:
        """The end of the domain of the conjugate."""
        return math.inf

    @property
    def start(self) -> float:
        """The initial tau: -f'(1), with which every density ratio is 1 at g = 0."""
        with jax.ensure_compile_time_eval():
            return 0.0 - float(jax.grad(self.f)(1.0))

    @property
    def largest_ratio(self) -> float:
        """(f+*)'(bound). The library's own divergences have it and `start` in closed form: to make one runs no JAX."""
        with jax.ensure_compile_time_eval():
            return float(jax.grad(self.conjugate)(jnp.asarray(self.bound, float)))

    def sharpened(self) -> "AbstractDivergence":
        """The same divergence with the default bound of float64, closer to the end of a bounded domain.

        Returns
        -------
        AbstractDivergence
            The divergence itself where its bound is not the default, or its domain is unbounded.
        """
        is_default = self.bound >= self.supremum * (1 - MARGIN) - MARGIN
        return dataclasses.replace(self, bound=self.supremum * (1 - DOUBLE_MARGIN)) if is_default else self

    def span(self, log_size: float) -> float:
        """D_f(p, q) of a uniform q and a p that puts all mass on one output.

        Parameters
        ----------
        log_size
            log |Y|.

        Returns
        -------
        float
            The divergence; `log_size` where it is infinite.
        """
        with jax.ensure_compile_time_eval():
            # Above e^40 the divergence is constant or too large to matter, and the square of u might overflow.
            u, at_zero = jnp.exp(jnp.minimum(log_size, 40.0)), float(self.f(jnp.zeros(())))
            return float(self.f(u) / u + (1 - 1 / u) * at_zero) if math.isfinite(at_zero) else log_size

    def continued(self, v: Scalar) -> Scalar:
        """f+*(v) up to `bound`, its tangent beyond.

        Parameters
        ----------
        v
            Any number.

        Returns
        -------
        Scalar
            A value that is finite, with a finite gradient.
        """
        return _continued(self, v)

    def density(self, v: Scalar) -> Scalar:
        """The density ratio p/q = (f+*)'(v).

        Parameters
        ----------
        v
            g - tau.

        Returns
        -------
        Scalar
            A ratio >= 0; from `bound` on it is constant, except for KL.
        """
        return jax.grad(self.continued)(v)

    def log_density(self, v: Scalar) -> Scalar:
        """log p/q, the log of `density`.

        Parameters
        ----------
        v
            g - tau.

        Returns
        -------
        Scalar
            The log-ratio; -inf where p = 0.
        """
        return jnp.log(self.density(v))

    def weighted_conjugate(self, v: Scalar, log_w: Float[Array, ""]) -> Scalar:
        """w f+*(v) for a weight w = exp(log_w), continued linearly past `bound`.

        Parameters
        ----------
        v
            g - tau.
        log_w
            Log of the weight, such as log q/r of a draw from a proposal r.

        Returns
        -------
        Scalar
            The weighted value.
        """
        return jnp.exp(log_w) * self.continued(v)

    def excess(self, v: Scalar, log_q: Float[Array, ""]) -> Scalar:
        """A penalty on an observed y with v past `bound`, where its probability is at its largest but below 1.

        Without it the loss would be unbounded below: past `bound` the density does not grow with g(x, y), while
        tau - g(x, y) falls. For KL it penalizes a probability q(y) exp(v) above e^bound, which a loss of draws that
        never contain y would allow.

        Parameters
        ----------
        v
            g(x, y) - tau(x) of the observed y.
        log_q
            log q(y|x).

        Returns
        -------
        Scalar
            The penalty, 0 up to the bound.
        """
        reaches_one = self.density(jnp.asarray(self.bound)) * jnp.exp(log_q) >= 1
        return jnp.where(reaches_one, 0, 2 * jnp.maximum(v - self.bound, 0))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _continued(divergence: AbstractDivergence, v: Scalar) -> Scalar:
    c = divergence.bound
    slope = jax.grad(divergence.conjugate)(jnp.asarray(c, v.dtype))
    value = divergence.conjugate(jnp.minimum(v, c))
    return jnp.where(v < c, value, value + slope * (v - c))


@_continued.defjvp
def _continued_jvp(divergence, primals, tangents):
    # (f+*)'(min(v, c)) is the slope of both pieces. JAX's own derivative of the clips passes over all scores several
    # times more: a step with 1000 shared draws took 1.1 (n = 401, k = 174) to 1.7 times as long (n = 1500, k = 14).
    (v,), (dv,) = primals, tangents
    return _continued(divergence, v), jax.grad(divergence.conjugate)(jnp.minimum(v, divergence.bound)) * dv
