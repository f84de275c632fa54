"""Log-partitions, exact, learned or estimated, log-probabilities, and models that hold some labels as known."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import exact, partial, samplers
from ..divergences import KL
from ..model import EBM
from ..training.checks import check_mask, check_outputs
from ..types import Array, Bool, Float, Key, PyTree, Row, Scalar
from .rows import check_index, over_rows, row_keys, sum_over_rows

ESTIMATORS: dict[str, samplers.AbstractEstimator] = {
    "importance": samplers.ImportanceSampling(),
    "annealed": samplers.AnnealedImportanceSampling(),
    "sequential": samplers.SequentialMonteCarlo(),
}

Method = str | samplers.AbstractEstimator


class LogPartition(NamedTuple):
    """Log-partitions of n rows with their errors.

    Attributes
    ----------
    value
        The log-partitions, of shape (n,).
    error
        An estimate of the error of each, of shape (n,).
    """

    value: Any
    error: Any


def log_partition(
    model: EBM,
    x: Any,
    *,
    method: Method = "exact",
    key: Key | None = None,
    counting: bool = False,
    index: Any = None,
    reference: PyTree = None,
) -> Float[Array, " n"]:
    """Compute the tau that normalizes p(.|x) for each x, relative to the reference q, a probability.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    method
        "exact"; "learned", the model's tau; "importance", "annealed" or "sequential", or an estimator of `samplers`
        with numbers of draws of your choice.
    key
        A PRNG key, for methods that draw.
    counting
        Whether to give the sum over Y without q (the paper's sum of softplus), tau + log |Y|; for KL and uniform q.
    index
        Positions in the training set, which a `model.Table` needs for "learned".
    reference
        Measures q(.|x) of the rows; None: the model's own q.

    Returns
    -------
    array of shape (n,)
        The log-partitions.

    Raises
    ------
    budget.TooLargeError
        If method="exact" and no exact method reaches so far.
    UnseenRowError
        If method="learned", tau is a `model.Table`, and there is no `index`.
    """
    _check_counting(model, counting)
    estimator = _check_method(model, method)
    index = check_index(model, index, x, learned=method == "learned")
    if method == "learned":
        value = over_rows(EBM.log_partition, model, x, index=index, reference=reference)
    else:
        value = _compute(model, x, estimator, row_keys(key, x, method) if estimator else None, reference).value
    return value + model.space.log_size if counting else value


def log_partition_with_error(
    model: EBM,
    x: Any,
    *,
    method: Method = "exact",
    key: Key | None = None,
    counting: bool = False,
    index: Any = None,
    reference: PyTree = None,
) -> LogPartition:
    """Compute log-partitions as `log_partition` does, with their errors.

    Errors are: of "exact", rounding, and infinite where the bound of the divergence keeps a density down; of the
    estimators, one standard error; of "learned", its distance from an estimate by importance sampling.

    Parameters
    ----------
    model, x, method
        As for `log_partition`.
    key
        A PRNG key, for methods that draw and for "learned".
    counting, index, reference
        As for `log_partition`.

    Returns
    -------
    LogPartition
        The log-partitions and their errors.
    """
    _check_counting(model, counting)
    estimator = ESTIMATORS["importance"] if method == "learned" else _check_method(model, method)
    index = check_index(model, index, x, learned=method == "learned")
    value, error = _compute(model, x, estimator, row_keys(key, x, method) if estimator else None, reference)
    if method == "learned":
        learned = over_rows(EBM.log_partition, model, x, index=index, reference=reference)
        value, error = learned, jnp.hypot(learned - value, error)
    return LogPartition(value + model.space.log_size if counting else value, error)


def log_prob(
    model: EBM,
    x: Any,
    y: Any,
    *,
    method: Method = "exact",
    key: Key | None = None,
    index: Any = None,
    reference: PyTree = None,
    mask: Any = None,
) -> Float[Array, " n"]:
    """Compute log p(y|x) of one output per row.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    y
        One output per row.
    method, key, index, reference
        As for `log_partition`, by which p is normalized.
    mask
        Missing labels or ties, as in `Batch`: p is then summed over all outputs that agree. That sum is exact where it
        is cheap; elsewhere it comes from the log-partition, by the same method, with what is observed held.

    Returns
    -------
    array of shape (n,)
        The log-probabilities.
    """
    n = np.shape(x)[0]
    y, mask = jnp.asarray(check_outputs(model.space, y, n)), check_mask(model.space, mask, n)
    if mask is not None and not partial.is_summed_exactly(model):
        return log_prob_partial(model, x, y, mask, method=method, key=key, reference=reference)
    if method == "exact":
        return sum_over_rows(_exact_log_prob, model, x, y, mask, reference=reference)
    tau = log_partition(model, x, method=method, key=key, index=index, reference=reference)
    return over_rows(_log_prob, model, x, y, mask, tau, reference=reference)


def given(model: EBM, x: Any, known: Any, *, reference: PyTree = None) -> tuple[EBM, PyTree]:
    """Condition a model on what is known of y: every answer takes the model and the reference that this returns.

    Labels are held by a reference that excludes other outputs, and so the surrogate holds them too. The normalizer of
    the conditional model is not learned: its tau is the surrogate's bound.

        conditional, reference = inference.given(model, x, known)
        inference.marginals(conditional, x, reference=reference)  # also mode, sample, before, log_prob, ...

    Parameters
    ----------
    model
        The model, with f = KL.
    x
        Features, one row each.
    known
        One row per x, or one for all: -1 where a label is not known, else its y_j, 0 or 1 for sets and the rank for
        rankings.
    reference
        Measures q(.|x) of the rows; None: the model's own q.

    Returns
    -------
    model : EBM
        The model of p(y | x, what is known of y).
    reference : AbstractMeasure
        The reference of each row that holds what is known of it.

    Raises
    ------
    ValueError
        If what is known contradicts itself or has probability 0, or the reference cannot be conditioned.
    """
    y, mask = partial.check_known(model.space, known, np.shape(x)[0])
    conditional, reference, log_q = partial.hold(model, y, mask, reference)
    if (impossible := np.flatnonzero(np.isneginf(log_q))).size:
        raise ValueError(
            f"What is known of {impossible.size} rows has probability 0 under the reference, the first is row "
            f"{impossible[0]}: nothing can be said given that."
        )
    return conditional, reference


def evidence(
    model: EBM, x: Any, known: Any, *, method: Method = "exact", key: Key | None = None, reference: PyTree = None
) -> Float[Array, " n"]:
    """Compute log P(the known labels | x), the sum of p over all y that agree with them.

    Parameters
    ----------
    model, x, known
        As for `given`.
    method
        That of `log_partition`, asked with the labels held and without; not "learned", which has no value with them
        held.
    key
        A PRNG key, for methods that draw.
    reference
        Measures q(.|x) of the rows; None: the model's own q.

    Returns
    -------
    array of shape (n,)
        The log-probabilities.
    """
    y, mask = partial.check_known(model.space, known, np.shape(x)[0])
    return log_prob_partial(model, x, y, mask, method=method, key=key, reference=reference)


def log_prob_partial(
    model: EBM, x: Any, y: Array, mask: Array, *, method: Method, key: Key | None, reference: PyTree
) -> Float[Array, " n"]:
    """Compute log of the sum of p over all outputs that agree with (y, mask), by holding what is observed.

    Parameters
    ----------
    model, x
        As for `given`.
    y, mask
        Outputs known in part, as in `Batch`.
    method, key, reference
        As for `evidence`.

    Returns
    -------
    array of shape (n,)
        The log-probabilities.
    """
    if method == "learned":
        raise ValueError("The normalizer given known labels is not learned; use 'exact', 'importance' or 'annealed'.")
    conditional, references, log_q = partial.hold(model, y, mask, reference)
    inside_key, whole_key = (None, None) if key is None else jax.random.split(key)
    inside = log_partition(conditional, x, method=method, key=inside_key, reference=references)
    return log_q + inside - log_partition(model, x, method=method, key=whole_key, reference=reference)


def _check_counting(model: EBM, counting: bool) -> None:
    if counting and not (isinstance(model.f, KL) and model.q.is_uniform):
        raise ValueError("counting=True needs f = KL and a uniform q; other models have no counting-measure value.")


def _check_method(model: EBM, method: Method) -> samplers.AbstractEstimator | None:
    """The estimator of a method that draws."""
    if method in ("exact", "learned"):
        return None
    estimator = ESTIMATORS.get(method) if isinstance(method, str) else method
    if not isinstance(estimator, samplers.AbstractEstimator):
        names = ", ".join(repr(name) for name in ("exact", "learned", *ESTIMATORS))
        raise ValueError(f"method must be one of {names}, or an estimator of partita.samplers; got {method!r}.")
    estimator.check(model)
    return estimator


def _compute(
    model: EBM, x: Any, estimator: samplers.AbstractEstimator | None, keys: Array | None, reference: PyTree
) -> LogPartition:
    """By an estimator, or exactly."""
    if estimator is not None:
        estimate = over_rows(eqx.Partial(_estimate, estimator), model, x, keys, reference=reference)
        return LogPartition(estimate.value, estimate.error)
    tau, capped = sum_over_rows(_exact, model, x, reference=reference)
    rounding = jnp.finfo(tau.dtype).eps * (jnp.abs(tau) + model.space.log_size)
    # Where the bound of the divergence keeps a density down, p is not that of f itself.
    return LogPartition(tau, jnp.where(capped, jnp.inf, rounding))


def _exact_log_prob(model: EBM, row: Row, y: Array, mask: Array | None) -> Scalar:
    # Rounding may leave the log of a probability just above 0.
    return jnp.minimum(_log_prob(model, row, y, mask, exact.log_partition(model, row)), 0)


def _log_prob(model: EBM, row: Row, y: Array, mask: Array | None, tau: Scalar) -> Scalar:
    g, log_q = partial.energy(model, row, y, mask)
    return log_q + model.f.log_density(g - tau)


def _estimate(estimator: samplers.AbstractEstimator, model: EBM, row: Row, key: Key) -> samplers.Estimate:
    return estimator(model, row, key=key)


def _exact(model: EBM, row: Row) -> tuple[Scalar, Bool[Array, ""]]:
    tau = exact.log_partition(model, row)
    return tau, exact.capped(model, row, tau)
