"""Mode, marginals, order, samples and log-probabilities."""

from collections.abc import Callable
from typing import Any, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import exact, kernels, observed, oracles, samplers
from .._types import Array, Float, Int, Key, PyTree
from ..batches import check_free, check_outputs
from ..couplings import Bilinear
from ..divergences import KL
from ..measures import Uniform
from ..model import EBM
from ..polytopes import AbstractPolytope, Birkhoff
from ..regularizers import AbstractRegularizer
from ..spaces import Permutations, TooLargeError
from .given import agreeing
from .partitions import Method, partition
from .rows import check_index, over_rows

MIN_PARTICLES = 64
# How to draw: by name, by a kernel, or by annealing.
Drawing = str | kernels.AbstractKernel | samplers.AbstractAnnealing


def mode(
    model: EBM,
    x: Any,
    *,
    method: str | oracles.LocalSearch = "auto",
    key: Key | None = None,
    return_method: bool = False,
    reference: PyTree = None,
) -> Any:
    """A most probable y for each x, and with `return_method` how it was found: "exact" or "local search".

    method: "exact"; "search", or an `oracles.LocalSearch` with numbers of your choice, for a y that no single local
    move makes more likely, which need not be a most probable one; "auto", exact where a method serves, and where none
    does by search, given the `key` that it needs.
    """
    search = _check_search(method)
    if method in ("auto", "exact"):
        try:
            y = _exact_modes(model, x, reference)
            return (y, "exact") if return_method else y
        except TooLargeError:
            if method == "exact" or key is None:
                raise
    elif key is None:
        raise ValueError(f"method={method!r} draws where to start: give a key, as in key=jax.random.key(0).")
    keys = jax.random.split(key, np.shape(x)[0])
    y = over_rows(_Search(search), model, x, keys, reference=reference)
    return (y, "local search") if return_method else y


def relaxed_mode(model: EBM, x: Any, regularizer: AbstractRegularizer) -> Int[Array, " n *y"]:
    """The y nearest to argmax over C of g(x, mu) - Omega(mu), for each x.

    The prediction of models trained with `objectives.GeneralizedFenchelYoung`: give the same regularizer, and the
    oracle of the loss answers. On emotions it has 78 % of the labels right with SquaredNorm, where `mode` has 62 %.
    """
    polytope = model.g.coupling.polytope
    found = over_rows(_Relaxed(regularizer), model, x)
    return jnp.asarray(polytope.argmax_on_host(np.asarray(found))) if _on_host(polytope) else found


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
    if not isinstance(model.space, Permutations):
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
    particles. For f other than KL chains need the learned tau: a `partition.Table` must be told the rows' `index`.
    """
    if method == "importance":
        raise ValueError("Importance sampling gives weighted draws: use it for marginals, or decisions.joint.")
    draw = _drawing(model, method, num, burn_in, thin) or _Exact(num)
    keys = jax.random.split(key, np.shape(x)[0])
    index = _chain_index(model, x, method, index)
    return over_rows(_Outputs(draw), model, x, keys, index, reference=reference)


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
    if free is not None and observed.completion(model) != "exact":
        return agreeing(model, x, y, free, method=method, key=key, reference=reference)
    tau, _ = partition(method, False, key, model, x, index, reference)
    return over_rows(_log_prob, model, x, y, free, tau, reference=reference)


def _logits(model, x, reference):
    return model.g.h(x)


def _exact_modes(model: EBM, x: Any, reference: PyTree) -> Int[Array, " n *y"]:
    coupling = model.g.coupling
    if isinstance(coupling, Bilinear) and isinstance(model.q, Uniform) and _on_host(coupling.polytope):
        theta = np.asarray(over_rows(_logits, model, x, reference=reference))
        return jnp.asarray(coupling.polytope.argmax_on_host(theta))
    return over_rows(_mode, model, x, reference=reference)


def _on_host(polytope: AbstractPolytope) -> TypeGuard[Birkhoff]:
    return isinstance(polytope, Birkhoff) and jax.default_backend() == "cpu"


def _mode(model, x, reference):
    return exact.mode(model, model.row(x, reference=reference))


def _log_prob(model, x, reference, y, free, tau):
    g, log_q = observed.energy(model, model.row(x, reference=reference), y, free)
    return log_q + model.f.log_density(g - tau)


class _Search(eqx.Module):
    search: oracles.LocalSearch

    def __call__(self, model, x, reference, key):
        return self.search(model, model.row(x, reference=reference), key=key)


class _Relaxed(eqx.Module):
    """The relaxed argmax, rounded unless that is left to the host."""

    regularizer: AbstractRegularizer

    def __call__(self, model, x, reference):
        coupling = model.g.coupling
        mu = oracles.oracle(coupling, self.regularizer)(coupling, model.g.h(x)).mu
        return mu if _on_host(coupling.polytope) else oracles.rounded(coupling.polytope, mu)


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
    return y[:, :, None] < y[:, None, :]


class _OfRow(eqx.Module):
    fn: Callable

    def __call__(self, model, x, reference, index, *key):
        return self.fn(model, model.row(x, index, reference), *key)


def _expected(fn: Callable, model: EBM, x: Any, method: Drawing, key: Key | None, index: Any, reference: PyTree) -> Any:
    """fn of every row; it takes a key where it draws."""
    index = _chain_index(model, x, method, index)
    if method == "exact":
        return over_rows(_OfRow(fn), model, x, index, reference=reference)
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


def _check_search(method: str | oracles.LocalSearch) -> oracles.LocalSearch:
    """The search to use where one is needed."""
    if isinstance(method, oracles.LocalSearch):
        return method
    if method not in ("auto", "exact", "search"):
        raise ValueError(f"method must be 'auto', 'exact', 'search' or an oracles.LocalSearch; got {method!r}.")
    return oracles.LocalSearch()
