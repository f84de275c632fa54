"""Log-partitions with their errors: exact, learned or estimated."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import exact, samplers
from .._types import Key, PyTree
from ..divergences import KL
from ..model import EBM
from .rows import check_index, over_rows, sum_over_rows

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
    tau + log |Y|, for KL and uniform q. A `model.Table` knows training rows only: give their `index`.
    """
    if counting and not (isinstance(model.f, KL) and model.q.is_uniform):
        raise ValueError("counting=True needs f = KL and a uniform q; other models have no counting-measure value.")
    tau, error = partition(method, return_error, key, model, x, index, reference)
    tau = tau + model.space.log_size if counting else tau
    return (tau, error) if return_error else tau


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
    return model.log_partition(model.row(x, index, reference))


class _Estimate(eqx.Module):
    estimator: samplers.AbstractEstimator

    def __call__(self, model, x, reference, key):
        return self.estimator(model, model.row(x, reference=reference), key=key)


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
