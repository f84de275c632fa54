"""Log-partitions with their errors, and how far the learned one can be trusted."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from .. import exact, samplers
from .._types import Key, PyTree
from ..divergences import KL
from ..measures import Uniform
from ..model import EBM
from ..partition import Shifted
from .rows import check_index, over_rows, sum_over_rows

MIN_EFFECTIVE = 20
ESTIMATORS: dict[str, samplers.AbstractEstimator] = {
    "importance": samplers.ImportanceSampling(),
    "annealed": samplers.AnnealedImportanceSampling(),
    "sequential": samplers.SequentialMonteCarlo(),
}

Method = str | samplers.AbstractEstimator


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
    tau, error = partition(method, return_error, key, model, x, index, reference)
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
    index = check_index(model, index, np.shape(x)[:1], learned=True)
    keys = jax.random.split(key, np.shape(x)[0])
    found = over_rows(_Masses(samplers.ImportanceSampling(num)), model, x, keys, index, reference=reference)
    mass, error, share = (np.asarray(values) for values in found)
    half = scipy.stats.norm.ppf((1 + confidence) / 2) * error
    enough = num * share >= MIN_EFFECTIVE
    low, high = np.where(enough, np.maximum(mass - half, 0), 0), np.where(enough, mass + half, np.inf)
    return Normalization(mass, low, high, num * share, confidence, tolerance)


def recalibrate(model: EBM, x: Any, *, key: Key, num: int = 1000, index: Any = None, reference: PyTree = None) -> EBM:
    """The model with the constant added to tau that minimizes the objective on these x: their mean mass becomes 1."""
    index = check_index(model, index, np.shape(x)[:1], learned=True)
    keys = jax.random.split(key, np.shape(x)[0])
    draws = over_rows(_Draws(samplers.ImportanceSampling(num)), model, x, keys, index, reference=reference)
    shift = samplers.root(model, samplers.Weighted(*(a.ravel() for a in draws)))
    return eqx.tree_at(lambda model: model.tau, model, Shifted(model.tau, shift))


def partition(method: Method, with_error: bool, key: Key | None, model: EBM, x: Any, index: Any, reference: PyTree):
    """(tau, error) by one method; the error of "exact" and "learned" only if asked for."""
    estimator = _check_method(model, method, key, with_error)
    value: Any = None
    error: Any = None
    index = check_index(model, index, np.shape(x)[:1], learned=method == "learned")
    if estimator is not None and key is not None:
        keys = jax.random.split(key, np.shape(x)[0])
        value, error, _ = over_rows(_Estimate(estimator), model, x, keys, reference=reference)
    if method == "exact":
        tau, capped = sum_over_rows(_exact_tau, model, x, index, reference=reference)
        rounding = jnp.finfo(tau.dtype).eps * (jnp.abs(tau) + model.space.log_size)
        # Where the bound of the divergence keeps a density down, p is not that of f itself.
        return tau, jnp.where(capped, jnp.inf, rounding)
    if method == "learned":
        tau = over_rows(_learned_tau, model, x, index, reference=reference)
        return tau, None if value is None else jnp.hypot(tau - value, error)
    return value, error


def _exact_tau(model, x, reference, index):
    row = model.row(x, index, reference)
    tau = exact.log_partition(model, row)
    return tau, exact.capped(model, row, tau)


def _learned_tau(model, x, reference, index):
    return model.tau(model.row(x, index, reference))


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
