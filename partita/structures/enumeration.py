"""Exact answers by enumeration of all outputs, for any coupling, any reference and any divergence."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ..budget import Kind, Work
from ..divergences import KL, AbstractDivergence
from ..numerics import BISECTION_STEPS, bisect, logsumexp
from ..types import Array, Float
from .couplings import AbstractCoupling
from .measures import AbstractMeasure
from .methods import AbstractMethod, Best
from .rankings import AbstractRankings
from .spaces import AbstractSpace

__all__ = ["Enumeration"]

CHUNK = 4096


class Enumeration(AbstractMethod):
    """Exact sums over all of Y in chunks, with the memory of one chunk per row.

    Parameters
    ----------
    coupling
        Any coupling.
    f
        Any divergence.
    """

    coupling: AbstractCoupling
    f: AbstractDivergence

    @property
    def space(self):
        return self.coupling.space

    @property
    def work(self):
        # For f other than KL each step of the bisection for tau is a pass, in double precision.
        passes = 1 if isinstance(self.f, KL) else 2 * BISECTION_STEPS
        return self.list_work(self.space, passes * (1 + self.coupling.cost // 64))

    @staticmethod
    def list_work(space: AbstractSpace, passes: int = 1) -> Work:
        """The work of passes over all outputs of a space.

        Parameters
        ----------
        space
            The space.
        passes
            The number of passes.

        Returns
        -------
        Work
            The work for one row.
        """
        return Work(Kind.ENUMERATION, space.size, space.size * passes)

    def softmax(self, theta, q, tilt):
        if isinstance(self.f, KL):
            return self._log_sum(theta, q, tilt)
        return self._value(theta, q, tilt, self._multiplier(theta, q, tilt))

    def solve(self, theta, q):
        if isinstance(self.f, KL):
            value = self._log_sum(theta, q, None)
            return value, value
        root = self._multiplier(theta, q, None)
        # A Newton step refines the root, within the error of the bisection (where float32 rounds the root to the bound
        # of the density, the slope is 0). Its gradient is that of the implicit function.
        mass, slope = jax.value_and_grad(self.mass, argnums=2)(theta, q, root)
        # Not the smallest float: its inverse times the curvature at the bound, 1e8, would be infinite.
        slope = jax.lax.stop_gradient(jnp.minimum(slope, -1e-20))
        width = 2 * jnp.finfo(root.dtype).eps * jnp.maximum(1, jnp.abs(root))
        step = jax.lax.stop_gradient(jnp.clip((mass - 1) / slope, -width, width))
        tau = root - step - (mass - jax.lax.stop_gradient(mass)) / slope
        return self._value(theta, q, None, root), tau

    def capped(self, theta, q, tau):
        if isinstance(self.f, KL):
            return jnp.asarray(False)
        largest = self._map(lambda log_q, g: jnp.max(jnp.where(jnp.isneginf(log_q), -jnp.inf, g)), theta, q, None).max()
        return largest - tau >= self.f.bound

    def marginals(self, theta, q):
        return self.mean(theta, q, lambda ys: jax.vmap(self.space.indicators)(ys))

    def before(self, theta, q):
        space = self.space
        return self.mean(theta, q, space.order) if isinstance(space, AbstractRankings) else None

    @property
    def has_partial(self):
        return True

    def partial(self, theta, q, y, mask):
        outputs = self.space.elements()
        log_q, g = q.log_probs(outputs), self.coupling.scores(theta, outputs)
        log_q = jnp.where(self.space.agrees(y, mask, outputs), log_q, -jnp.inf)
        log_mass = logsumexp(log_q)
        return logsumexp(log_q + g) - log_mass, log_mass

    def mean(
        self, theta: Float[Array, " *theta"], q: AbstractMeasure, statistic: Callable[[Array], Array]
    ) -> Float[Array, " *stat"]:
        """The mean E_p[statistic(y)], in one pass.

        Parameters
        ----------
        theta, q
            The logits and the reference.
        statistic
            A function of outputs of shape (num, *y) to numbers of shape (num, *stat).

        Returns
        -------
        Array
            The mean, of shape stat.
        """
        log_p = self._log_p(theta, q)

        def add(carry, c):
            top, mass, total = carry
            ys, _, log_q, g = self._chunk(c, theta, q, None)
            value = log_p(log_q, g)
            new_top = jnp.maximum(top, value.max())
            # Sums are 0 before the first output that is not excluded.
            p = jnp.where(jnp.isneginf(new_top), 0, jnp.exp(value - new_top))
            scale = jnp.where(jnp.isneginf(top), 0, jnp.exp(top - new_top))
            chunk_total = jnp.tensordot(p, statistic(ys).astype(p.dtype), 1)
            return (new_top, scale * mass + p.sum(), scale * total + chunk_total), None

        stat = jax.eval_shape(statistic, jax.ShapeDtypeStruct((1, *self.space.shape), jnp.arange(1).dtype))
        zero = jnp.zeros((), theta.dtype)
        start = (zero - jnp.inf, zero, jnp.zeros(stat.shape[1:], theta.dtype))
        (_, mass, total), _ = jax.lax.scan(add, start, jnp.arange(self._num_chunks))
        return total / mass

    def mass(self, theta, q, tau):
        if isinstance(self.f, KL):
            return super().mass(theta, q, tau)
        return self._mass(theta, q, None, tau)

    def sample(self, theta, q, num, *, key):
        chunk_key, element_key = jax.random.split(key)
        log_p = self._log_p(theta, q)
        chunks = self._map(lambda log_q, g: logsumexp(log_p(log_q, g)), theta, q, None)
        chosen = jax.random.categorical(chunk_key, chunks, shape=(num,))
        u = jax.random.uniform(element_key, (num,), theta.dtype)

        def within(drawn, c):
            # One pass over the chunks for any number of draws, by the inverse distribution function of each chunk.
            _, i, log_q, g = self._chunk(c, theta, q, None)
            value = log_p(log_q, g)
            total = jnp.cumsum(jnp.exp(value - jnp.maximum(value.max(), jnp.finfo(value.dtype).min)))
            place = jnp.searchsorted(total, u * total[-1], side="right")
            return jnp.where(chosen == c, i[jnp.minimum(place, i.size - 1)], drawn), None

        drawn, _ = jax.lax.scan(within, jnp.zeros(num, int), jnp.arange(self._num_chunks))
        return jax.vmap(self.space.element)(drawn)

    def mode(self, theta, q):
        order = self._order(theta, q)

        def best(c):
            _, i, log_q, g = self._chunk(c, theta, q, None)
            value = order(log_q, g)
            return value.max(), i[jnp.argmax(value)]

        values, indices = jax.lax.map(best, jnp.arange(self._num_chunks))
        return self.space.element(indices[jnp.argmax(values)])

    def top_k(self, theta, q, num):
        order = self._order(theta, q)

        def add(best, c):
            _, i, log_q, g = self._chunk(c, theta, q, None)
            values = jnp.concatenate([best[0], order(log_q, g)])
            values, chosen = jax.lax.top_k(values, num)
            return (values, jnp.concatenate([best[1], i])[chosen]), None

        start = jnp.full(num, -jnp.inf, theta.dtype), jnp.zeros(num, int)
        (values, indices), _ = jax.lax.scan(add, start, jnp.arange(self._num_chunks))
        return Best(jax.vmap(self.space.element)(indices), values)

    @property
    def _num_chunks(self):
        return -(-self.space.size // CHUNK)

    def _chunk(self, c, theta, q, tilt):
        """Outputs, indices, log q and tilted scores of the c-th chunk; past the end of Y log q is -inf."""
        space = self.space
        i = c * CHUNK + jnp.arange(min(CHUNK, space.size))
        ys = jax.vmap(space.element)(jnp.minimum(i, space.size - 1))
        log_q = jnp.where(i < space.size, q.log_probs(ys), -jnp.inf)
        g = self.coupling.scores(theta, ys)
        if tilt is not None:
            indicators = jax.vmap(space.indicators)(ys).reshape(len(ys), -1)
            g = g + tilt.ravel() @ indicators.astype(tilt.dtype).T
        return ys, i, log_q, g

    def _map(self, fn, theta, q, tilt):
        """fn(log q, g) of every chunk, rematerialized, so that a gradient stores no chunk."""

        @jax.checkpoint
        def compute(c):
            _, _, log_q, g = self._chunk(c, theta, q, tilt)
            return fn(log_q, g)

        return jax.lax.map(compute, jnp.arange(self._num_chunks))

    def _log_sum(self, theta, q, tilt):
        return logsumexp(self._map(lambda log_q, g: logsumexp(log_q + g), theta, q, tilt))

    def _value(self, theta, q, tilt, tau):
        """tau + E_q f+*(g + tilt - tau); at the multiplier this is the f-softmax, and its slope in tau is 0."""
        conjugate = jax.vmap(self.f.weighted_conjugate)
        return tau + self._map(lambda log_q, g: jnp.sum(conjugate(g - tau, log_q)), theta, q, tilt).sum()

    def _mass(self, theta, q, tilt, tau):
        density = jax.vmap(self.f.density)
        return self._map(lambda log_q, g: jnp.sum(jnp.exp(log_q) * density(g - tau)), theta, q, tilt).sum()

    def _multiplier(self, theta, q, tilt):
        """The root of mass(tau) = 1, without gradient."""
        # The mass is at least 1 at min g - f'(1), and at most 1 at max g - f'(1).
        low = self._map(lambda log_q, g: jnp.min(g), theta, q, tilt).min() + self.f.start
        high = self._map(lambda log_q, g: jnp.max(g), theta, q, tilt).max() + self.f.start
        return bisect(lambda tau: self._mass(theta, q, tilt, tau) > 1, low, high)

    def _order(self, theta, q):
        """A function of log q and g that increases with p.

        Under a uniform q it is g plus a constant, without the ties of densities at 0 or at the bound.
        """
        return (lambda log_q, g: log_q + g) if q.is_uniform else self._log_p(theta, q)

    def _log_p(self, theta, q):
        """The function of log q and g that is log p up to a constant."""
        if isinstance(self.f, KL):
            return lambda log_q, g: log_q + g
        tau = self.log_partition(theta, q)
        return lambda log_q, g: log_q + jax.vmap(self.f.log_density)(g - tau)
