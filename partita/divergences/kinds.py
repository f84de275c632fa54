"""The divergences of the paper, and the losses that they give."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from .base import MARGIN, AbstractDivergence

__all__ = ["KL", "ChiSquare", "JensenShannon", "ReverseKL", "SquaredHellinger", "Tsallis"]

# Conjugates with an unbounded domain continue linearly from a density ratio of e^20 on.
LOG_RATIO = 20.0


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
        return 0.0

    @property
    def largest_ratio(self):
        return math.exp(self.bound) if self.bound < 700 else math.inf

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

    @property
    def start(self):
        return -1.0

    @property
    def largest_ratio(self):
        return self.bound

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

    @property
    def start(self):
        return 0.0

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

    @property
    def largest_ratio(self):
        log_ratio = math.log1p((self.alpha - 1) * self.bound) / (self.alpha - 1)
        return math.exp(log_ratio) if log_ratio < 700 else math.inf

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
    def start(self):
        return 0.0

    @property
    def supremum(self):
        return math.log(2)

    @property
    def largest_ratio(self):
        return math.exp(self.bound) / (2 - math.exp(self.bound))

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
    def start(self):
        return 0.0

    @property
    def supremum(self):
        return 1.0

    @property
    def largest_ratio(self):
        return 1 / (1 - self.bound) ** 2

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
    def start(self):
        return 0.0

    @property
    def supremum(self):
        return 1.0

    @property
    def largest_ratio(self):
        return 1 / (1 - self.bound)

    def f(self, u):
        return u - 1 - jnp.log(u)

    def conjugate(self, v):
        return -jnp.log1p(-v)
