"""Log-partitions, exact, learned or estimated, log-probabilities, and models conditioned on known labels."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import exact, partial, samplers
from ..divergences import KL
from ..model import EBM
from ..partial import ConditionalModel
from ..shapes import on_device
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

    Parameters
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
    """Compute the log-partition of each x: the tau that makes p(.|x) sum to one, relative to a probability q.

    For KL it is LSE = log E_q[exp g(x, y)], for other f the multiplier of the constraint.

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
        Whether to sum over Y without q, as the paper does, which is tau + log |Y|; for KL and uniform q.
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
        If method="exact" and no exact method is affordable.
    UnseenRowError
        If method="learned", tau is a `model.Table`, and there is no `index`.

    Examples
    --------
    Two labels whose logits are the features themselves, summed over the four label sets:

    >>> from partita.couplings import Bilinear
    >>> from partita.model import Bound, Energy
    >>> from partita.structures import Cube
    >>> model = EBM(Energy(eqx.nn.Identity(), Bilinear(Cube(2))), Bound())
    >>> x = np.array([[0.0, 0.0], [2.0, -1.0]])
    >>> np.asarray(log_partition(model, x, counting=True), float).round(4).tolist()  # log 4, log((1 + e^2) (1 + e^-1))
    [1.3863, 2.4402]
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

    The error is for "exact" the rounding error, or infinite where a density reaches the bound of the divergence; for
    estimators the standard error; for "learned" the distance from an estimate by importance sampling.

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
        is cheap; elsewhere it is the log-partition of the model conditioned on what is known, by the same method.

    Returns
    -------
    array of shape (n,)
        The log-probabilities, in nats.
    """
    n = np.shape(x)[0]
    y, mask = on_device(check_outputs(model.space, y, n)), check_mask(model.space, mask, n)
    if mask is not None and not partial.is_summed_exactly(model):
        return _log_prob_partial(model, x, y, mask, method=method, key=key, reference=reference)
    if method == "exact":
        return sum_over_rows(_exact_log_prob, model, x, y, mask, reference=reference)
    tau = log_partition(model, x, method=method, key=key, index=index, reference=reference)
    return over_rows(_log_prob, model, x, y, mask, tau, reference=reference)


def given(model: EBM, x: Any, known: Any, *, reference: PyTree = None) -> ConditionalModel:
    """Condition a model on what is known of the output of each x.

    All other functions then take the model and the reference that this one returns.

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
    ConditionalModel
        The model of p(y | x, known), and the references of the rows.

    Raises
    ------
    ValueError
        If what is known contradicts itself or has probability 0, or the reference cannot be conditioned.

    Examples
    --------
    Sets of one of three labels, where the second label is known to be off:

    >>> from partita.couplings import Bilinear
    >>> from partita.model import Bound, Energy
    >>> from partita.structures import Hypersimplex
    >>> model = EBM(Energy(eqx.nn.Identity(), Bilinear(Hypersimplex(3, 1))), Bound())
    >>> x = np.zeros((1, 3))
    >>> conditional, reference = given(model, x, known=[-1, 0, -1])
    >>> round(float(log_prob(conditional, x, [[0, 0, 1]], reference=reference)[0]), 4)
    -0.6931
    """
    y, mask = partial.check_known(model.space, known, np.shape(x)[0])
    conditional, log_q = partial.condition_model(model, y, mask, reference)
    if (impossible := np.flatnonzero(np.isneginf(log_q))).size:
        raise ValueError(
            f"What is known of {impossible.size} rows has probability 0 under the reference, the first is row "
            f"{impossible[0]}: p cannot be conditioned on that."
        )
    return conditional


def evidence(
    model: EBM, x: Any, known: Any, *, method: Method = "exact", key: Key | None = None, reference: PyTree = None
) -> Float[Array, " n"]:
    """Compute log P(known labels | x), the log of the sum of p over all y that agree with them.

    Parameters
    ----------
    model, x, known
        As for `given`.
    method
        That of `log_partition`, used with and without the known labels; not "learned", which has no value with them.
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
    return _log_prob_partial(model, x, y, mask, method=method, key=key, reference=reference)


def _log_prob_partial(
    model: EBM, x: Any, y: Array, mask: Array, *, method: Method, key: Key | None, reference: PyTree
) -> Float[Array, " n"]:
    """The log of the sum of p over all outputs that agree with (y, mask), as a ratio of two partitions."""
    if method == "learned":
        raise ValueError("The normalizer given known labels is not learned; use 'exact', 'importance' or 'annealed'.")
    conditional, log_q = partial.condition_model(model, y, mask, reference)
    inside_key, total_key = (None, None) if key is None else jax.random.split(key)
    inside = log_partition(conditional.model, x, method=method, key=inside_key, reference=conditional.reference)
    return log_q + inside - log_partition(model, x, method=method, key=total_key, reference=reference)


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
    """Log-partitions by an estimator, or exactly where it is None."""
    if estimator is not None:
        estimate = over_rows(eqx.Partial(_estimate, estimator), model, x, keys, reference=reference)
        return LogPartition(estimate.value, estimate.error)
    tau, capped = sum_over_rows(_exact, model, x, reference=reference)
    rounding = jnp.finfo(tau.dtype).eps * (jnp.abs(tau) + model.space.log_size)
    # Where a density reaches the bound of the divergence, p is not that of f itself.
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
