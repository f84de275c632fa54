"""Answers of a model about given x: mode, marginals, samples, log-probabilities, log-partitions, and how far the
learned log-partition can be trusted.

Each takes a matrix of x, uses the exact method where there is one, and says so where there is none. Work is done in
chunks of fixed shapes, so that another number of rows does not recompile.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from . import exact, kernels, oracles, samplers
from ._types import Array, Float, Int, Key, PyTree
from .batches import check_features, check_model, check_outputs, check_reference
from .couplings import Bilinear
from .divergences import KL
from .measures import Uniform
from .model import EBM
from .partition import Shifted, UnseenRowError, table_of
from .polytopes import AbstractPolytope, Birkhoff
from .regularizers import AbstractRegularizer
from .spaces import TooLargeError

__all__ = [
    "Normalization",
    "log_partition",
    "log_prob",
    "marginals",
    "mode",
    "normalization",
    "recalibrate",
    "relaxed_mode",
    "sample",
]

SHAPES = (16, 256)
MIN_EFFECTIVE = 20
ESTIMATORS: dict[str, samplers.AbstractEstimator] = {
    "importance": samplers.ImportanceSampling(),
    "annealed": samplers.AnnealedImportanceSampling(),
    "sequential": samplers.SequentialMonteCarlo(),
}

Method = str | samplers.AbstractEstimator


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
    y = _over_rows(_Search(search), model, x, keys, reference=reference)
    return (y, "local search") if return_method else y


def relaxed_mode(model: EBM, x: Any, regularizer: AbstractRegularizer) -> Int[Array, " n *y"]:
    """The y nearest to argmax over C of g(x, mu) - Omega(mu), for each x.

    The prediction of models trained with `objectives.GeneralizedFenchelYoung`, with the same regularizer: the oracle of
    the loss answers here too.
    """
    polytope = model.g.coupling.polytope
    found = _over_rows(_Relaxed(regularizer), model, x)
    return jnp.asarray(polytope.argmax_on_host(np.asarray(found))) if _on_host(polytope) else found


def marginals(model: EBM, x: Any, *, reference: PyTree = None) -> Float[Array, " n *stat"]:
    """P(y_j = 1 | x) for label sets, shape (n, k); P(label j has rank p | x) for rankings, shape (n, k, k)."""
    return _over_rows(_marginals, model, x, reference=reference)


def sample(
    model: EBM,
    x: Any,
    num: int,
    *,
    key: Key,
    method: str | kernels.AbstractKernel | samplers.AbstractAnnealing = "exact",
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
    if num < 1:
        raise ValueError(f"num must be at least 1 draw per row; got {num}.")
    keys = jax.random.split(key, np.shape(x)[0])
    if isinstance(method, kernels.AbstractKernel):
        kernels.check_length(num, burn_in, thin)
        method.check(model.space)
        index = _check_index(model, index, np.shape(x)[:1], learned=not isinstance(model.f, KL))
        return _over_rows(_Chain(method, num, burn_in, thin), model, x, keys, index, reference=reference)
    if method == "sequential":
        method = samplers.SequentialMonteCarlo(max(num, 64))
    if isinstance(method, samplers.AbstractAnnealing):
        method.check(model)
        return _over_rows(_Resample(method, num), model, x, keys, reference=reference)
    if method != "exact":
        raise ValueError(
            "method must be 'exact', 'sequential', a kernel of partita.kernels or an annealing estimator of "
            f"partita.samplers; got {method!r}."
        )
    return _over_rows(_Sample(num), model, x, keys, reference=reference)


def log_prob(
    model: EBM,
    x: Any,
    y: Any,
    *,
    method: Method = "exact",
    key: Key | None = None,
    index: Any = None,
    reference: PyTree = None,
) -> Float[Array, " n"]:
    """log p(y|x), normalized by `log_partition` with that method."""
    y = check_outputs(model.space, y, np.shape(x)[0])
    tau, _ = _partition(method, False, key, model, x, index, reference)
    return _over_rows(_log_prob, model, x, jnp.asarray(y), tau, reference=reference)


def log_partition(
    model: EBM,
    x: Any,
    *,
    method: Method = "exact",
    key: Key | None = None,
    return_error: bool = False,
    counting: bool = False,
    index: Any = None,
    reference: PyTree = None,
) -> Any:
    """The tau that normalizes p(.|x), and with `return_error` an estimate of its error.

    method: "exact"; "learned", the model's tau; "importance", "annealed" or "sequential", or an estimator of `samplers`
    with numbers of draws of your choice. Errors are: of "exact", rounding; of the estimators, one standard error; of
    "learned", its distance from an estimate by importance sampling. What draws needs a `key`.

    It is relative to q, a probability. `counting=True` gives the sum over Y without q (the paper's sum of softplus),
    tau + log |Y|, for KL and uniform q. A `partition.Table` knows training rows only: give their `index`.
    """
    if counting and not (isinstance(model.f, KL) and isinstance(model.q, Uniform)):
        raise ValueError("counting=True needs f = KL and a uniform q; other models have no counting-measure value.")
    tau, error = _partition(method, return_error, key, model, x, index, reference)
    tau = tau + model.space.log_size if counting else tau
    return (tau, error) if return_error else tau


class Normalization(NamedTuple):
    """Whether p(.|x) sums to one, for each of n rows.

    `mass` estimates the total mass, which lies between `low` and `high` with the given confidence; `effective` is the
    effective number of draws (an interval from fewer than 20 is open). The `verdict` is about the mean over the rows
    of |log mass|, which for KL is |LSE - tau|: "normalized" where it is below `tolerance`, "not normalized" where it is
    above, "undecided" where the intervals do not tell.
    """

    mass: np.ndarray
    low: np.ndarray
    high: np.ndarray
    effective: np.ndarray
    confidence: float
    tolerance: float

    @property
    def error(self) -> tuple[float, float]:
        """Least and largest mean |log mass| that the intervals allow."""
        with np.errstate(divide="ignore"):
            low, high = np.log(self.low), np.log(self.high)
        inside = (low <= 0) & (high >= 0)
        nearest = np.where(inside, 0.0, np.minimum(np.abs(low), np.abs(high)))
        return float(nearest.mean()), float(np.maximum(np.abs(low), np.abs(high)).mean())

    @property
    def verdict(self) -> str:
        least, largest = self.error
        if largest <= self.tolerance:
            return "normalized"
        return "not normalized" if least > self.tolerance else "undecided"


def normalization(
    model: EBM,
    x: Any,
    *,
    key: Key,
    num: int = 1000,
    confidence: float = 0.99,
    tolerance: float = 0.25,
    index: Any = None,
    reference: PyTree = None,
) -> Normalization:
    """Estimate the total mass sum_y q (f+*)'(g - tau) of each x by `num` draws; it is 1 where tau is right."""
    if not 0 < confidence < 1 or not tolerance > 0:
        raise ValueError(f"confidence must be between 0 and 1 and tolerance positive; got {confidence}, {tolerance}.")
    index = _check_index(model, index, np.shape(x)[:1], learned=True)
    keys = jax.random.split(key, np.shape(x)[0])
    found = _over_rows(_Masses(samplers.ImportanceSampling(num)), model, x, keys, index, reference=reference)
    mass, error, share = (np.asarray(values) for values in found)
    half = scipy.stats.norm.ppf((1 + confidence) / 2) * error
    enough = num * share >= MIN_EFFECTIVE
    low, high = np.where(enough, np.maximum(mass - half, 0), 0), np.where(enough, mass + half, np.inf)
    return Normalization(mass, low, high, num * share, confidence, tolerance)


def recalibrate(model: EBM, x: Any, *, key: Key, num: int = 1000, index: Any = None, reference: PyTree = None) -> EBM:
    """The model with the constant added to tau that minimizes the objective on these x: their mean mass becomes 1."""
    index = _check_index(model, index, np.shape(x)[:1], learned=True)
    keys = jax.random.split(key, np.shape(x)[0])
    draws = _over_rows(_Draws(samplers.ImportanceSampling(num)), model, x, keys, index, reference=reference)
    shift = samplers.root(model, samplers.Weighted(*(a.ravel() for a in draws)))
    return eqx.tree_at(lambda model: model.tau, model, Shifted(model.tau, shift))


def _partition(method: Method, with_error: bool, key: Key | None, model: EBM, x: Any, index: Any, reference: PyTree):
    """(tau, error) by one method; the error of "exact" and "learned" only if asked for."""
    estimator = _check_method(model, method, key, with_error)
    value: Any = None
    error: Any = None
    index = _check_index(model, index, np.shape(x)[:1], learned=method == "learned")
    if estimator is not None and key is not None:
        keys = jax.random.split(key, np.shape(x)[0])
        value, error, _ = _over_rows(_Estimate(estimator), model, x, keys, reference=reference)
    if method == "exact":
        tau = _over_rows(_exact_tau, model, x, index, reference=reference)
        return tau, jnp.finfo(tau.dtype).eps * (jnp.abs(tau) + model.space.log_size)
    if method == "learned":
        tau = _over_rows(_learned_tau, model, x, index, reference=reference)
        return tau, None if value is None else jnp.hypot(tau - value, error)
    return value, error


def _logits(model, x, reference):
    return model.g.h(x)


def _exact_modes(model: EBM, x: Any, reference: PyTree) -> Int[Array, " n *y"]:
    coupling = model.g.coupling
    if isinstance(coupling, Bilinear) and isinstance(model.q, Uniform) and _on_host(coupling.polytope):
        theta = np.asarray(_over_rows(_logits, model, x, reference=reference))
        return jnp.asarray(coupling.polytope.argmax_on_host(theta))
    return _over_rows(_mode, model, x, reference=reference)


def _on_host(polytope: AbstractPolytope) -> TypeGuard[Birkhoff]:
    return isinstance(polytope, Birkhoff) and jax.default_backend() == "cpu"


def _mode(model, x, reference):
    return exact.mode(model, model.row(x, reference=reference))


def _marginals(model, x, reference):
    return exact.marginals(model, model.row(x, reference=reference))


def _exact_tau(model, x, reference, index):
    return exact.log_partition(model, model.row(x, index, reference))


def _learned_tau(model, x, reference, index):
    return model.tau(model.row(x, index, reference))


def _log_prob(model, x, reference, y, tau):
    return model.log_prob(model.row(x, reference=reference), y, tau)


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


class _Estimate(eqx.Module):
    estimator: samplers.AbstractEstimator

    def __call__(self, model, x, reference, key):
        return self.estimator(model, model.row(x, reference=reference), key=key)


class _Draws(eqx.Module):
    """g - tau and log q/r of draws."""

    sampling: samplers.ImportanceSampling

    def __call__(self, model, x, reference, key, index):
        row = model.row(x, index, reference)
        weighted = self.sampling.draw(model, row, key=key)
        return weighted.g - model.tau(row), weighted.log_weight


class _Masses(eqx.Module):
    """The mean mass, its standard error, and the effective share of the draws."""

    sampling: samplers.ImportanceSampling

    def __call__(self, model, x, reference, key, index):
        weighted = samplers.Weighted(*_Draws(self.sampling)(model, x, reference, key, index))
        terms = samplers.masses(model, weighted, jnp.zeros(()))
        return terms.mean(), samplers.standard_error(terms), samplers.effective(terms)


class _Sample(eqx.Module):
    num: int = eqx.field(static=True)

    def __call__(self, model, x, reference, key):
        return exact.sample(model, model.row(x, reference=reference), self.num, key=key)


class _Chain(eqx.Module):
    """One chain, from the surrogate's r."""

    kernel: kernels.AbstractKernel
    num: int = eqx.field(static=True)
    burn_in: int = eqx.field(static=True)
    thin: int = eqx.field(static=True)

    def __call__(self, model, x, reference, key, index):
        p = kernels.target(model, model.row(x, index, reference))
        start_key, run_key = jax.random.split(key)
        start = p.r.sample(1, key=start_key)
        return kernels.run(self.kernel, p, start, self.num, burn_in=self.burn_in, thin=self.thin, key=run_key)[0][0]


class _Resample(eqx.Module):
    annealing: samplers.AbstractAnnealing
    num: int = eqx.field(static=True)

    def __call__(self, model, x, reference, key):
        draw_key, sample_key = jax.random.split(key)
        particles = self.annealing.draw(model, model.row(x, reference=reference), key=draw_key)
        return particles.sample(self.num, key=sample_key)


def _over_rows(fn: Callable, model: EBM, x: Any, *args: PyTree, reference: PyTree = None) -> Any:
    """fn(model, x_i, reference_i, *args_i) for every row, in padded chunks of one of `SHAPES`."""
    x = check_features(x)
    n = x.shape[0]
    check_model(model, x.shape[1:])
    check_reference(model, reference, n)
    shape = next((s for s in SHAPES if n <= s), SHAPES[-1])
    found = []
    for start in range(0, n, shape):
        rows = np.minimum(np.arange(start, start + shape), n - 1)
        # Sparse features become dense one chunk at a time.
        dense = x[rows] if isinstance(x, np.ndarray) else x[rows].toarray()
        rest = jax.tree.map(lambda a, rows=rows: a[rows], (reference, *args))
        found.append(_vmapped(fn, model, jnp.asarray(dense), *rest))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[:n], *found)


@eqx.filter_jit
def _vmapped(fn: Callable, model: EBM, x: Array, *args: PyTree) -> PyTree:
    return jax.vmap(lambda x, *args: fn(model, x, *args))(x, *args)


def _check_index(model: EBM, index: Any, rows: tuple[int, ...], *, learned: bool) -> Int[Array, " n"] | None:
    table = table_of(model.tau)
    if index is None:
        if learned and table is not None:
            raise UnseenRowError(
                "tau is a partition.Table: it knows training rows only. Pass their `index`, use method='exact', or "
                "train with partition.Network."
            )
        return None
    index = np.asarray(index)
    if index.shape != rows or index.dtype.kind not in "iu":
        raise ValueError(f"index must hold integers, one per row of x; got {index.dtype} of shape {index.shape}.")
    if table is not None and not ((index >= 0) & (index < table.values.shape[0])).all():
        known = table.values.shape[0]
        raise ValueError(f"index must be between 0 and {known - 1}: partition.Table knows {known} rows; got {index}.")
    return jnp.asarray(index)


def _check_method(model: EBM, method: Method, key: Any, return_error: bool) -> samplers.AbstractEstimator | None:
    """What draws, if anything does; its key and its model are checked."""
    if isinstance(method, samplers.AbstractEstimator):
        estimator = method
    elif method in ("exact", "learned"):
        estimator = samplers.ImportanceSampling() if method == "learned" and return_error else None
    elif method in ESTIMATORS:
        estimator = ESTIMATORS[method]
    else:
        known = ", ".join(repr(name) for name in ("exact", "learned", *ESTIMATORS))
        raise ValueError(f"method must be one of {known}, or an estimator of partita.samplers; got {method!r}.")
    if estimator is not None:
        estimator.check(model)
        if key is None:
            raise ValueError(f"method={method!r} draws: give a key, as in key=jax.random.key(0).")
    return estimator


def _check_search(method: str | oracles.LocalSearch) -> oracles.LocalSearch:
    """The search to use where one is needed."""
    if isinstance(method, oracles.LocalSearch):
        return method
    if method not in ("auto", "exact", "search"):
        raise ValueError(f"method must be 'auto', 'exact', 'search' or an oracles.LocalSearch; got {method!r}.")
    return oracles.LocalSearch()
