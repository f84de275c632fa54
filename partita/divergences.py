"""f-divergences D_f(p, q) = sum_y q(y) f(p(y) / q(y)): f, its conjugate, and what follows from the two.

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

from .types import Array, Float, Scalar

__all__ = [
    "KL",
    "AbstractDivergence",
    "ChiSquare",
    "JensenShannon",
    "ReverseKL",
    "SquaredHellinger",
    "Tsallis",
]

# Conjugates with an unbounded domain continue linearly from a density ratio of e^20 on.
LOG_RATIO = 20.0
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
        name, c, low, high = type(self).__name__, self.bound, 0.0 - self.start, self.supremum
        if not low < c < high:
            raise ValueError(f"{name} needs a bound c with f'(1) = {low:.3g} < c < {high:.3g}; got c = {c}.")
        with jax.ensure_compile_time_eval():
            slope = float(jax.grad(self.conjugate)(jnp.asarray(c, float)))
        if not slope < MAX_RATIO:
            raise ValueError(f"{name} at the bound c = {c} has density {slope:.3g}, too large for float32; lower it.")

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


class KL(AbstractDivergence):
    """Kullback-Leibler divergence, f(u) = u log u - u + 1: maximum likelihood and the logistic loss.

    f+*(v) = exp(v) - 1 and p/q = exp(v).

    Parameters
    ----------
    bound
        Bound of v + log w, the log-ratio of p to the proposal, from which on losses continue linearly.

    Examples
    --------
    >>> float(KL().weighted_conjugate(jnp.array(300.0), jnp.array(-300.0)))
    1.0
    """

    bound: float = eqx.field(static=True, default=LOG_RATIO)

    @property
    def start(self):
        # f'(1) = 0. Computing it by jax.grad takes 5 ms for every new model.
        return 0.0

    def span(self, log_size):
        # Finite also where |Y| overflows a float.
        return log_size

    def f(self, u):
        return jax.scipy.special.xlogy(u, u) - u + 1

    def conjugate(self, v):
        return jnp.exp(v) - 1

    def density(self, v):
        return jnp.exp(v)

    def log_density(self, v):
        return v

    def weighted_conjugate(self, v, log_w):
        # exp(v + log w) - w: the product of a tiny w and a huge exp(v) would be inf or NaN.
        return self.continued(v + log_w) + 1 - jnp.exp(log_w)

    def excess(self, v, log_q):
        return self.continued(jnp.maximum(v + log_q - self.bound, 0))


class ChiSquare(AbstractDivergence):
    """Chi-square divergence, f(u) = (u^2 - 1) / 2: the sparsemax loss.

    f+*(v) = ([v]_+^2 + 1) / 2 and p/q = [v]_+.

    Parameters
    ----------
    bound
        The v from which on the conjugate continues linearly.
    """

    bound: float = eqx.field(static=True, default=math.exp(LOG_RATIO))

    def f(self, u):
        return (u**2 - 1) / 2

    def conjugate(self, v):
        return (jnp.maximum(v, 0) ** 2 + 1) / 2


class Tsallis(AbstractDivergence):
    """Tsallis divergence with a = alpha, f(u) = (u^a - 1 - a (u - 1)) / (a (a - 1)): the entmax loss.

    f+*(v) = ([1 + (a - 1) v]_+^{a / (a - 1)} - 1) / a. For a < 1 its domain ends at v = 1 / (1 - a). The limit a -> 1
    is KL; a = 2 is ChiSquare with tau shifted by one.

    Parameters
    ----------
    alpha
        A number > 0, not 1. For alpha > 1 densities can be 0.
    bound
        The v from which on the conjugate continues linearly; None: at a density ratio of e^20, or 1e-4 before the end
        of the domain.
    """

    alpha: float = eqx.field(static=True)
    bound: float = eqx.field(static=True)

    def __init__(self, alpha: float = 1.5, bound: float | None = None):
        if not 0 < alpha < math.inf or alpha == 1:
            raise ValueError(f"Tsallis needs a finite alpha > 0, alpha != 1; got {alpha}. For alpha = 1 use KL().")
        self.alpha = float(alpha)
        if bound is not None:
            self.bound = float(bound)
        else:
            # s = 1 + (a - 1) v at ratio e^20, but no closer to the end of a bounded domain than float32 allows.
            log_s = max((alpha - 1) * LOG_RATIO, math.log(MARGIN))
            self.bound = math.expm1(min(log_s, 80.0)) / (alpha - 1)

    @property
    def supremum(self):
        return math.inf if self.alpha > 1 else 1 / (1 - self.alpha)

    def f(self, u):
        a = self.alpha
        # u (u^(a-1) - 1) / (a - 1) tends to u log u as a -> 1, without cancellation.
        positive = jnp.where(u > 0, u, 1)
        power = jnp.where(u > 0, positive * jnp.expm1((a - 1) * jnp.log(positive)) / (a - 1), 0)
        return (power - (u - 1)) / a

    def conjugate(self, v):
        a = self.alpha
        s = (a - 1) * v
        # (1 + s)^(a / (a - 1)) is computed for 1 + s > 0 only: elsewhere its gradient would be NaN.
        safe = jnp.where(s > -1, s, 0)
        return jnp.where(s > -1, jnp.exp(a / (a - 1) * jnp.log1p(safe)) - 1, -1) / a


class JensenShannon(AbstractDivergence):
    """Jensen-Shannon divergence, f(u) = u log u - (u + 1) log((u + 1) / 2).

    f+*(v) = -log(2 - e^v) for v < log 2.

    Parameters
    ----------
    bound
        The v < log 2 from which on the conjugate continues linearly.
    """

    bound: float = eqx.field(static=True, default=math.log(2) - MARGIN)

    @property
    def supremum(self):
        return math.log(2)

    def f(self, u):
        return jax.scipy.special.xlogy(u, u) - (u + 1) * jnp.log((u + 1) / 2)

    def conjugate(self, v):
        return -jnp.log(2 - jnp.exp(v))


class SquaredHellinger(AbstractDivergence):
    """Squared Hellinger distance, f(u) = (sqrt(u) - 1)^2.

    f+*(v) = v / (1 - v) for v < 1.

    Parameters
    ----------
    bound
        The v < 1 from which on the conjugate continues linearly.
    """

    bound: float = eqx.field(static=True, default=1 - MARGIN)

    @property
    def supremum(self):
        return 1.0

    def f(self, u):
        return (jnp.sqrt(u) - 1) ** 2

    def conjugate(self, v):
        return v / (1 - v)


class ReverseKL(AbstractDivergence):
    """Reverse Kullback-Leibler divergence, f(u) = u - 1 - log u.

    f+*(v) = -log(1 - v) for v < 1.

    Parameters
    ----------
    bound
        The v < 1 from which on the conjugate continues linearly.
    """

    bound: float = eqx.field(static=True, default=1 - MARGIN)

    @property
    def supremum(self):
        return 1.0

    def f(self, u):
        return u - 1 - jnp.log(u)

    def conjugate(self, v):
        return -jnp.log1p(-v)


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
