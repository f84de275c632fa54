"""f-divergences: f, the conjugate of its restriction to u >= 0, and what follows from the two.

D_f(p, q) = sum_y q f(p/q). An output's density is p/q = (f+*)'(g - tau). Past a bound c the conjugate continues
linearly: that is the conjugate of f restricted to density ratios u <= (f+*)'(c), so values and gradients stay finite
and the loss stays a Fenchel-Young loss.
"""

import abc
import dataclasses
import math
from functools import partial
from typing import Any

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

# Unbounded conjugates continue linearly from density ratio e^20; on bounded domains float32 can come within 1e-4.
LOG_RATIO = 20.0
MARGIN = 1e-4
DOUBLE_MARGIN = 1e-12
# The tangent must stay finite in float32 for arguments up to 1e6.
MAX_RATIO = 1e30


class AbstractDivergence(eqx.Module):
    """A strictly convex f with f(1) = 0, through f and its conjugate."""

    bound: eqx.AbstractVar[float]

    @abc.abstractmethod
    def f(self, u: Scalar) -> Scalar:
        """f(u), u >= 0."""

    @abc.abstractmethod
    def conjugate(self, v: Scalar) -> Scalar:
        """f+*(v) = sup_{u >= 0} u v - f(u), for v up to `bound`."""

    @property
    def start(self) -> float:
        """Where tau starts: -f'(1), so that at g = 0 every density is 1."""
        with jax.ensure_compile_time_eval():
            return 0.0 - float(jax.grad(self.f)(1.0))

    def sharpened(self) -> "AbstractDivergence":
        """The same divergence for double precision, its bound nearer to the end of its domain: unless the bound was
        chosen, it is only as near as float32 can come."""
        return self

    def span(self, log_size: float) -> float:
        """D_f(p, q) for a uniform q and a p that is sure of one output; log |Y| where it is infinite."""
        with jax.ensure_compile_time_eval():
            # From e^40 on it is constant, or too large to matter; its square does not overflow.
            u, at_zero = jnp.exp(jnp.minimum(log_size, 40.0)), float(self.f(jnp.zeros(())))
            return float(self.f(u) / u + (1 - 1 / u) * at_zero) if math.isfinite(at_zero) else log_size

    def continued(self, v: Scalar) -> Scalar:
        """f+* up to `bound`, its tangent beyond."""
        return _continued(self, v)

    def density(self, v: Scalar) -> Scalar:
        """p/q = (f+*)'(v)."""
        return jax.grad(self.continued)(v)

    def log_density(self, v: Scalar) -> Scalar:
        """log p/q."""
        return jnp.log(self.density(v))

    def weighted_conjugate(self, v: Scalar, log_w: Float[Array, ""]) -> Scalar:
        """w f+*(v) for w = exp(log_w), continued linearly."""
        return jnp.exp(log_w) * self.continued(v)

    def excess(self, v: Scalar, log_q: Float[Array, ""]) -> Scalar:
        """What an observed y pays for v past `bound` where q(y) is so small that even there its probability is below 1.

        Else nothing would hold g(x, y) back: the density grows no more, and tau - g(x, y) would fall for ever.
        """
        held = self.density(jnp.asarray(self.bound)) * jnp.exp(log_q) >= 1
        return jnp.where(held, 0, 2 * jnp.maximum(v - self.bound, 0))


class KL(AbstractDivergence):
    """f(u) = u log u - u + 1: the logistic loss. `bound` is on v + log w, the log-ratio of p to the proposal.

    >>> float(KL().weighted_conjugate(jnp.array(300.0), jnp.array(-300.0)))
    1.0
    """

    bound: float = eqx.field(static=True, default=LOG_RATIO)

    def __check_init__(self):
        _check_bound(self)

    @property
    def start(self):
        # f'(1) = 0. To derive it takes 5 ms, every time that a model is made.
        return 0.0

    def span(self, log_size):
        # Also where |Y| overflows.
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
        """exp(v + log w) - w, never the product of a tiny w and a huge exp(v)."""
        return self.continued(v + log_w) + 1 - jnp.exp(log_w)

    def excess(self, v, log_q):
        """What an observed y pays for a probability above e^bound, which draws that never meet it would allow."""
        return self.continued(jnp.maximum(v + log_q - self.bound, 0))


class ChiSquare(AbstractDivergence):
    """f(u) = (u^2 - 1) / 2: the sparsemax loss. f+*(v) = ([v]_+^2 + 1) / 2 and p/q = [v]_+."""

    bound: float = eqx.field(static=True, default=math.exp(LOG_RATIO))

    def __check_init__(self):
        _check_bound(self)

    def f(self, u):
        return (u**2 - 1) / 2

    def conjugate(self, v):
        return (jnp.maximum(v, 0) ** 2 + 1) / 2


class Tsallis(AbstractDivergence):
    """f(u) = (u^a - 1 - a (u - 1)) / (a (a - 1)): entmax. a -> 1 is KL; a = 2 is ChiSquare with tau moved by one.

    f+*(v) = ([1 + (a - 1) v]_+^{a / (a - 1)} - 1) / a. For a < 1 the domain ends at v = 1 / (1 - a).
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
            # s = 1 + (a - 1) v at ratio e^20, but no nearer to the end of a bounded domain than float32 allows.
            log_s = max((alpha - 1) * LOG_RATIO, math.log(MARGIN))
            self.bound = math.expm1(min(log_s, 80.0)) / (alpha - 1)

    def __check_init__(self):
        _check_bound(self, math.inf if self.alpha > 1 else 1 / (1 - self.alpha))

    def sharpened(self):
        return self if self.alpha > 1 else _sharpened(self, 1 / (1 - self.alpha))

    def f(self, u):
        a = self.alpha
        # u (u^(a-1) - 1) / (a - 1) is -> u log u as a -> 1, without cancellation.
        positive = jnp.where(u > 0, u, 1)
        power = jnp.where(u > 0, positive * jnp.expm1((a - 1) * jnp.log(positive)) / (a - 1), 0)
        return (power - (u - 1)) / a

    def conjugate(self, v):
        a = self.alpha
        s = (a - 1) * v
        # The power (1 + s)^(a / (a - 1)) is taken of a positive number only, so that its gradient exists elsewhere.
        inside = jnp.where(s > -1, s, 0)
        return jnp.where(s > -1, jnp.exp(a / (a - 1) * jnp.log1p(inside)) - 1, -1) / a


class JensenShannon(AbstractDivergence):
    """f(u) = u log u - (u + 1) log((u + 1) / 2), f+*(v) = -log(2 - e^v), v < log 2."""

    bound: float = eqx.field(static=True, default=math.log(2) - MARGIN)

    def __check_init__(self):
        _check_bound(self, math.log(2))

    def sharpened(self):
        return _sharpened(self, math.log(2))

    def f(self, u):
        return jax.scipy.special.xlogy(u, u) - (u + 1) * jnp.log((u + 1) / 2)

    def conjugate(self, v):
        return -jnp.log(2 - jnp.exp(v))


class SquaredHellinger(AbstractDivergence):
    """f(u) = (sqrt(u) - 1)^2, f+*(v) = v / (1 - v), v < 1."""

    bound: float = eqx.field(static=True, default=1 - MARGIN)

    def __check_init__(self):
        _check_bound(self, 1.0)

    def sharpened(self):
        return _sharpened(self, 1.0)

    def f(self, u):
        return (jnp.sqrt(u) - 1) ** 2

    def conjugate(self, v):
        return v / (1 - v)


class ReverseKL(AbstractDivergence):
    """f(u) = u - 1 - log u, f+*(v) = -log(1 - v), v < 1."""

    bound: float = eqx.field(static=True, default=1 - MARGIN)

    def __check_init__(self):
        _check_bound(self, 1.0)

    def sharpened(self):
        return _sharpened(self, 1.0)

    def f(self, u):
        return u - 1 - jnp.log(u)

    def conjugate(self, v):
        return -jnp.log1p(-v)


def _sharpened(divergence: Any, supremum: float) -> Any:
    """With the bound for double precision, in place of the one for float32."""
    chosen = divergence.bound < supremum * (1 - MARGIN) - MARGIN
    return divergence if chosen else dataclasses.replace(divergence, bound=supremum * (1 - DOUBLE_MARGIN))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _continued(divergence: AbstractDivergence, v: Scalar) -> Scalar:
    c = divergence.bound
    slope = jax.grad(divergence.conjugate)(jnp.asarray(c, v.dtype))
    value = divergence.conjugate(jnp.minimum(v, c))
    return jnp.where(v < c, value, value + slope * (v - c))


@_continued.defjvp
def _continued_jvp(divergence, primals, tangents):
    # (f+*)'(min(v, c)) is the slope of both pieces. JAX's own derivative of clips goes over all scores several times
    # more: a step with 1000 shared draws took 1.1 (n = 401, k = 174) to 1.7 times as long (n = 1500, k = 14).
    (v,), (dv,) = primals, tangents
    return _continued(divergence, v), jax.grad(divergence.conjugate)(jnp.minimum(v, divergence.bound)) * dv


def _check_bound(divergence: AbstractDivergence, supremum: float = math.inf) -> None:
    name, c, low = type(divergence).__name__, divergence.bound, 0.0 - divergence.start
    if not low < c < supremum:
        raise ValueError(f"{name} needs a bound c with f'(1) = {low:.3g} < c < {supremum:.3g}; got c = {c}.")
    with jax.ensure_compile_time_eval():
        slope = float(jax.grad(divergence.conjugate)(jnp.asarray(c, float)))
    if not slope < MAX_RATIO:
        raise ValueError(
            f"{name} at the bound c = {c} has density {slope:.3g}, too large for float32; lower the bound."
        )
