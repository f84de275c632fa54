"""Marginals, order, samples and log-probabilities."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import exact, kernels, partial, samplers
from .._types import Array, Float, Int, Key, PyTree
from ..batches import check_free, check_outputs
from ..divergences import KL
from ..model import EBM
from ..structures import AbstractRankings
from .given import agreeing
from .partitions import Method, partition
from .rows import check_index, over_rows, sum_over_rows

MIN_PARTICLES = 64
# Draws that each chain keeps at least, to compare it with the others.
MIN_KEPT = 50
# How to draw: by name, by a kernel, or by annealing.
Drawing = str | kernels.AbstractKernel | samplers.AbstractAnnealing


def marginals(
    model: EBM,
    x: Any,
    *,
    method: Drawing = "exact",
    num: int = 1000,
    key: Key | None = None,
    burn_in: int = 100,
    thin: int = 1,
    index: Any = None,
    reference: PyTree = None,
) -> Float[Array, " n *stat"]:
    """P(y_j = 1 | x) for label sets, shape (n, k); P(label j has rank p | x) for rankings, shape (n, k, k).

    method: "exact"; or means over `num` draws, by what `sample` takes, or weighted ones of the surrogate, "importance".
    """
    draw = _drawing(model, method, num, burn_in, thin)
    fn = exact.marginals if draw is None else _Mean(draw, _indicators)
    return _expected(fn, model, x, method, key, index, reference)


def mean(
    model: EBM, x: Any, statistic: Callable[[Array], Array], *, reference: PyTree = None
) -> Float[Array, " n *stat"]:
    """E_p[statistic(y)] for each x, exactly, by enumeration. `statistic`, a function at the level of a module, maps
    (num, *y) outputs to (num, *stat) numbers."""
    return sum_over_rows(_Expected(statistic), model, x, reference=reference)


def before(
    model: EBM,
    x: Any,
    *,
    method: Drawing = "exact",
    num: int = 1000,
    key: Key | None = None,
    burn_in: int = 100,
    thin: int = 1,
    index: Any = None,
    reference: PyTree = None,
) -> Float[Array, "n k k"]:
    """P(label a is ranked before label b | x) at [a, b], for rankings; methods as for `marginals`."""
    if not isinstance(model.space, AbstractRankings):
        raise ValueError(f"Which label comes before which is asked of rankings, not of {model.space}.")
    draw = _drawing(model, method, num, burn_in, thin)
    fn = exact.before if draw is None else _Mean(draw, _order)
    return _expected(fn, model, x, method, key, index, reference)


def sample(
    model: EBM,
    x: Any,
    num: int,
    *,
    key: Key,
    method: Drawing = "exact",
    burn_in: int = 100,
    thin: int = 1,
    index: Any = None,
    reference: PyTree = None,
) -> Int[Array, " n num *y"]:
    """`num` draws from p(.|x) for each x: independent ones if "exact".

    Where nothing exact reaches: a kernel of `kernels` runs one chain per row from the surrogate's r (or q), leaves out
    `burn_in` steps and keeps every `thin`-th; "sequential", or an annealing estimator of `samplers`, draws from its
    particles. For f other than KL chains need the learned tau: a `model.Table` must be told the rows' `index`.
    """
    if method == "importance":
        raise ValueError("Importance sampling gives weighted draws: use it for marginals, or decisions.joint.")
    draw = _drawing(model, method, num, burn_in, thin) or _Exact(num)
    keys = jax.random.split(key, np.shape(x)[0])
    if method == "exact":
        return sum_over_rows(_Outputs(draw), model, x, keys, None, reference=reference)
    index = _chain_index(model, x, method, index)
    return over_rows(_Outputs(draw), model, x, keys, index, reference=reference)


class Chains(NamedTuple):
    """Draws of several chains for each row, (n, num, *y), and whether the chains agree: `r_hat`, (n,), is the largest
    over all marginals, near 1 where they do. Far above 1, some modes of p are visited too often, or not at all."""

    y: Int[Array, " n num *y"]
    r_hat: Float[Array, " n"]


def sample_chains(
    model: EBM,
    x: Any,
    num: int,
    *,
    key: Key,
    kernel: kernels.AbstractKernel | None = None,
    chains: int = 4,
    burn_in: int = 100,
    index: Any = None,
    reference: PyTree = None,
) -> Chains:
    """`num` draws for each x from several chains of a kernel, `kernels.Gibbs()` unless given, that start far apart:
    half of them at draws from the surrogate's r, half at draws from q."""
    kernel = kernels.Gibbs() if kernel is None else kernel
    if chains < 2:
        raise ValueError(f"To compare chains takes at least 2; got {chains}.")
    kernels.check_length(num, burn_in)
    kernel.check(model.space)
    keys = jax.random.split(key, np.shape(x)[0])
    index = _chain_index(model, x, kernel, index)
    return over_rows(_Chains(kernel, num, chains, burn_in), model, x, keys, index, reference=reference)


def log_prob(
    model: EBM,
    x: Any,
    y: Any,
    *,
    method: Method = "exact",
    key: Key | None = None,
    index: Any = None,
    reference: PyTree = None,
    free: Any = None,
) -> Float[Array, " n"]:
    """log p(y|x), normalized by `log_partition` with that method.

    With `free`, missing labels or ties as in `Batch`, log of the sum of p over all outputs that agree. That sum is
    exact where it is cheap; elsewhere it comes from the log-partition, by the same method, with what is observed held.
    """
    n = np.shape(x)[0]
    y, free = jnp.asarray(check_outputs(model.space, y, n)), check_free(model.space, free, n)
    if free is not None and not partial.is_summed_exactly(model):
        return agreeing(model, x, y, free, method=method, key=key, reference=reference)
    if method == "exact":
        return sum_over_rows(_exact_log_prob, model, x, y, free, reference=reference)
    tau, _ = partition(method, False, key, model, x, index, reference)
    return over_rows(_log_prob, model, x, y, free, tau, reference=reference)


def _exact_log_prob(model, x, reference, y, free):
    tau = exact.log_partition(model, model.row(x, reference=reference))
    # Rounding may leave the log of a probability just above 0.
    return jnp.minimum(_log_prob(model, x, reference, y, free, tau), 0)


def _log_prob(model, x, reference, y, free, tau):
    g, log_q = partial.energy(model, model.row(x, reference=reference), y, free)
    return log_q + model.f.log_density(g - tau)


class _Exact(eqx.Module):
    num: int = eqx.field(static=True)

    def __call__(self, model, row, key):
        return exact.sample(model, row, self.num, key=key), jnp.ones(self.num)


class _Chain(eqx.Module):
    """One chain, from the surrogate's r."""

    kernel: kernels.AbstractKernel
    num: int = eqx.field(static=True)
    burn_in: int = eqx.field(static=True)
    thin: int = eqx.field(static=True)

    def __call__(self, model, row, key):
        p = kernels.target(model, row)
        start_key, run_key = jax.random.split(key)
        start = p.r.sample(1, key=start_key)
        drawn, _ = kernels.run(self.kernel, p, start, self.num, burn_in=self.burn_in, thin=self.thin, key=run_key)
        return drawn[0], jnp.ones(self.num)


class _Chains(eqx.Module):
    """Several chains, and how far they agree."""

    kernel: kernels.AbstractKernel
    num: int = eqx.field(static=True)
    chains: int = eqx.field(static=True)
    burn_in: int = eqx.field(static=True)

    def __call__(self, model, x, reference, key, index):
        row = model.row(x, index, reference)
        p = kernels.target(model, row)
        r_key, q_key, run_key = jax.random.split(key, 3)
        half, kept = self.chains // 2, max(MIN_KEPT, -(-self.num // self.chains))
        starts = jnp.concatenate([p.r.sample(half, key=r_key), row.q.sample(self.chains - half, key=q_key)])
        drawn, _ = kernels.run(self.kernel, p, starts, kept, burn_in=self.burn_in, key=run_key)
        indicators = jax.vmap(jax.vmap(model.space.indicators))(drawn)
        # Of a label that no chain ever moves there is nothing to compare.
        r_hat = jnp.nan_to_num(kernels.r_hat(indicators), nan=1.0, posinf=jnp.inf).max()
        # Step by step over all chains, as many of these draws as are asked for, evenly spread.
        by_step = jnp.swapaxes(drawn, 0, 1).reshape(-1, *model.space.shape)
        return Chains(by_step[np.linspace(0, len(by_step) - 1, self.num).astype(int)], r_hat)


class _Resample(eqx.Module):
    annealing: samplers.AbstractAnnealing
    num: int = eqx.field(static=True)

    def __call__(self, model, row, key):
        draw_key, sample_key = jax.random.split(key)
        particles = self.annealing.draw(model, row, key=draw_key)
        return particles.sample(self.num, key=sample_key), jnp.ones(self.num)


class WeightedDraws(eqx.Module):
    """Draws and the masses q/r (f+*)'(g - tau), at the tau where their mean is 1."""

    sampling: samplers.ImportanceSampling

    def __call__(self, model, row, key):
        y, weighted = self.sampling.outputs(model, row, key=key)
        return y, samplers.masses(model, weighted, samplers.root(model, weighted))


class _Outputs(eqx.Module):
    draw: Callable

    def __call__(self, model, x, reference, key, index):
        return self.draw(model, model.row(x, index, reference), key)[0]


class _Mean(eqx.Module):
    """The mean of a statistic over weighted draws."""

    draw: Callable
    statistic: Callable = eqx.field(static=True)

    def __call__(self, model, row, key):
        y, weight = self.draw(model, row, key)
        return jnp.tensordot(weight / weight.sum(), self.statistic(model.space, y).astype(weight.dtype), 1)


def _indicators(space, y):
    return jax.vmap(space.indicators)(y)


def _order(space, y):
    return space.order(y)


class _Expected(eqx.Module):
    statistic: Callable = eqx.field(static=True)

    def __call__(self, model, x, reference):
        return exact.mean(model, model.row(x, reference=reference), self.statistic)


class _OfRow(eqx.Module):
    fn: Callable

    def __call__(self, model, x, reference, index, *key):
        return self.fn(model, model.row(x, index, reference), *key)


def _expected(fn: Callable, model: EBM, x: Any, method: Drawing, key: Key | None, index: Any, reference: PyTree) -> Any:
    """fn of every row; it takes a key where it draws."""
    index = _chain_index(model, x, method, index)
    if method == "exact":
        found = sum_over_rows(_OfRow(fn), model, x, index, reference=reference)
        # Rounding may leave a probability just outside its range. By numpy: jax would compile this for every n.
        return jax.device_put(np.clip(np.asarray(found), 0, 1))
    if key is None:
        raise ValueError(f"method={method!r} draws: give a key, as in key=jax.random.key(0).")
    keys = jax.random.split(key, np.shape(x)[0])
    return over_rows(_OfRow(fn), model, x, index, keys, reference=reference)


def _chain_index(model: EBM, x: Any, method: Drawing, index: Any) -> Any:
    """Chains under f other than KL need the learned tau."""
    learned = isinstance(method, kernels.AbstractKernel) and not isinstance(model.f, KL)
    return check_index(model, index, np.shape(x)[:1], learned=learned)


def _drawing(model: EBM, method: Drawing, num: int, burn_in: int, thin: int) -> Callable | None:
    """What draws (model, row, key) -> (outputs, weights); nothing for "exact"."""
    if num < 1:
        raise ValueError(f"num must be at least 1 draw per row; got {num}.")
    if isinstance(method, kernels.AbstractKernel):
        kernels.check_length(num, burn_in, thin)
        method.check(model.space)
        return _Chain(method, num, burn_in, thin)
    if method == "importance":
        return WeightedDraws(samplers.ImportanceSampling(num))
    if method == "sequential":
        method = samplers.SequentialMonteCarlo(max(num, MIN_PARTICLES))
    if isinstance(method, samplers.AbstractAnnealing):
        method.check(model)
        return _Resample(method, num)
    if method != "exact":
        raise ValueError(
            "method must be 'exact', 'importance', 'sequential', a kernel of partita.kernels or an annealing estimator "
            f"of partita.samplers; got {method!r}."
        )
    return None
