"""The most probable outputs of each x, one or several."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import argmax, budget, exact
from ..argmax import AbstractRegularizer
from ..model import EBM
from ..search import LocalSearch, PoolSearch
from ..structures import AbstractAssignments, AbstractPolytope, Best, Uniform
from ..types import Array, Float, Int, Key, PyTree, Row
from .partitions import Method, log_partition
from .rows import over_rows, row_keys, sum_over_rows


class Mode(NamedTuple):
    """A most probable output of each of n rows.

    Parameters
    ----------
    y
        The outputs, of shape (n, *y).
    method
        How they were found: "exact", or "local search", by which a more probable output may be missed.
    """

    y: Int[Array, " n *y"]
    method: str


class TopK(NamedTuple):
    """The most probable outputs of each of n rows, in falling order of p.

    Parameters
    ----------
    y
        The outputs, of shape (n, num, *y).
    log_prob
        log p of each, of shape (n, num): -inf where there are no more outputs with p > 0, and y is then any.
    method
        How the outputs were found: "exact", or "search", which may miss some.
    normalizer
        How log p was normalized: a method of `log_partition`.
    """

    y: Int[Array, " n num *y"]
    log_prob: Float[Array, "n num"]
    method: str
    normalizer: Method


def mode(
    model: EBM,
    x: Any,
    *,
    method: str | LocalSearch = "auto",
    key: Key | None = None,
    reference: PyTree = None,
) -> Int[Array, " n *y"]:
    """Find a most probable y for each x.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    method
        "exact"; "search", or a `search.LocalSearch` with numbers of your choice, for a y that no single local move
        makes more likely, which need not be a most probable one; "auto", exact if a method is affordable, else a search
        if there is a `key`.
    key
        A PRNG key, for searches.
    reference
        Measures q(.|x) of the rows; None: the model's own q.

    Returns
    -------
    array of shape (n, *y)
        The outputs.

    Raises
    ------
    budget.TooLargeError
        If no exact method is affordable, and a search is not asked for or has no key.

    Examples
    --------
    >>> from partita.couplings import Bilinear
    >>> from partita.model import Bound, Energy
    >>> from partita.structures import Birkhoff
    >>> model = EBM(Energy(eqx.nn.Identity(), Bilinear(Birkhoff(3))), Bound())
    >>> x = np.array([[[0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])  # the score of each label at each rank
    >>> mode(model, x).tolist()
    [[1, 0, 2]]
    """
    return mode_with_method(model, x, method=method, key=key, reference=reference).y


def mode_with_method(
    model: EBM,
    x: Any,
    *,
    method: str | LocalSearch = "auto",
    key: Key | None = None,
    reference: PyTree = None,
) -> Mode:
    """Find a most probable y for each x as `mode` does, and say how.

    Parameters
    ----------
    model, x, method, key, reference
        As for `mode`.

    Returns
    -------
    Mode
        The outputs, and whether they are exact.
    """
    search = _check_search(method, LocalSearch())
    if _is_exact(model, method, key, at_any_size=_has_mode(model)):
        return Mode(_exact_modes(model, x, reference), "exact")
    keys = row_keys(key, x, method)
    return Mode(over_rows(eqx.Partial(_search, search), model, x, keys, reference=reference), "local search")


def top_k(
    model: EBM,
    x: Any,
    num: int,
    *,
    method: str | PoolSearch = "auto",
    normalizer: Method = "auto",
    key: Key | None = None,
    index: Any = None,
    reference: PyTree = None,
) -> TopK:
    """Find the most probable outputs for each x, with the logarithms of their probabilities.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    num
        How many outputs for each row.
    method
        "exact"; "search", or a `search.PoolSearch` with numbers of your choice; "auto", exact if a method is affordable
        (those of `log_partition`, and for linear scores of rankings assignments, at any size), else a search if there
        is a `key`.
    normalizer
        A method of `log_partition`; "auto", "exact" if that is affordable, else "learned".
    key
        A PRNG key, for searches and normalizers that draw.
    index, reference
        As for `log_partition`.

    Returns
    -------
    TopK
        The outputs, their log-probabilities, and how both were found.
    """
    num = _check_num(model, num)
    search = _check_search(method, PoolSearch())
    if _is_exact(model, method, key, at_any_size=_assignments(model) is not None):
        best, how = _exact_top(model, x, num, reference), "exact"
    else:
        keys = row_keys(key, x, method)
        best = over_rows(eqx.Partial(_search, search, num=num), model, x, keys, reference=reference, small=True)
        how = "search"
    if normalizer == "auto":
        normalizer = "exact" if budget.reaches(model) else "learned"
    if normalizer == "exact":
        log_prob = sum_over_rows(_exact_log_probs, model, x, best.y, reference=reference)
    else:
        tau = log_partition(model, x, method=normalizer, key=key, index=index, reference=reference)
        log_prob = over_rows(_log_probs, model, x, best.y, tau, reference=reference)
    log_prob = np.where(np.isneginf(best.score), -np.inf, log_prob)
    return TopK(best.y, jax.device_put(log_prob), how, normalizer)


def relaxed_mode(model: EBM, x: Any, regularizer: AbstractRegularizer) -> Int[Array, " n *y"]:
    """Find the y nearest to argmax over C of g(x, mu) - Omega(mu) for each x.

    This is the prediction of models trained with `objectives.GeneralizedFenchelYoung`. On emotions it predicts 78 % of
    the labels correctly with SquaredNorm, `mode` 62 %.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    regularizer
        Omega: that of the loss.

    Returns
    -------
    array of shape (n, *y)
        The outputs.
    """
    polytope = model.g.coupling.polytope
    assignments = polytope.assignments(Uniform(polytope.space)) if _on_host(polytope) else None
    if assignments is None:
        return over_rows(eqx.Partial(_relaxed_output, regularizer), model, x)
    mu = over_rows(eqx.Partial(_relaxed_argmax, regularizer), model, x)
    return jnp.asarray(assignments.argmax(np.asarray(mu)))


def _has_mode(model: EBM) -> bool:
    """Whether the mode is exact at any size of Y: scores are linear, and q is uniform where it is positive."""
    return model.g.coupling.is_linear and model.q.only_excludes


def _is_exact(model: EBM, method: Any, key: Key | None, *, at_any_size: bool) -> bool:
    """Whether to use an exact method: a search is not asked for, and is not needed or has no key."""
    if method not in ("auto", "exact"):
        return False
    return at_any_size or method == "exact" or key is None or budget.reaches(model)


def _exact_modes(model: EBM, x: Any, reference: PyTree) -> Int[Array, " n *y"]:
    if not _has_mode(model):
        return sum_over_rows(exact.mode, model, x, reference=reference)
    assignments = _assignments(model) if _on_host(model.g.coupling.polytope) else None
    if assignments is None:
        return over_rows(exact.mode, model, x, reference=reference)
    return jnp.asarray(assignments.argmax(_assignment_scores(assignments, model, x, reference)))


def _exact_top(model: EBM, x: Any, num: int, reference: PyTree) -> Best:
    assignments = _assignments(model)
    if assignments is None:
        return sum_over_rows(eqx.Partial(exact.top_k, num=num), model, x, reference=reference, width=num)
    y, score = assignments.top_k(_assignment_scores(assignments, model, x, reference), num)
    return Best(jnp.asarray(y), jnp.asarray(score, float))


def _assignments(model: EBM) -> AbstractAssignments | None:
    coupling = model.g.coupling
    return coupling.polytope.assignments(model.q) if coupling.is_linear else None


def _assignment_scores(assignments: AbstractAssignments, model: EBM, x: Any, reference: PyTree) -> np.ndarray:
    return np.asarray(over_rows(eqx.Partial(_scores, assignments), model, x, reference=reference))


def _scores(assignments: AbstractAssignments, model: EBM, row: Row) -> Array:
    return assignments.scores(row.theta, row.q)


def _search(search: LocalSearch | PoolSearch, model: EBM, row: Row, key: Key, **options: int) -> Any:
    return search(model, row, key=key, **options)


def _relaxed_argmax(regularizer: AbstractRegularizer, model: EBM, row: Row) -> Array:
    coupling = model.g.coupling
    return argmax.oracle(coupling, regularizer)(coupling, row.theta).mu


def _relaxed_output(regularizer: AbstractRegularizer, model: EBM, row: Row) -> Array:
    mu = _relaxed_argmax(regularizer, model, row)
    return argmax.nearest_output(model.g.coupling.polytope, mu)


def _on_host(polytope: AbstractPolytope) -> bool:
    return polytope.argmax_is_on_host and jax.default_backend() == "cpu"


def _exact_log_probs(model: EBM, row: Row, y: Array) -> Array:
    return jnp.minimum(_log_probs(model, row, y, exact.log_partition(model, row)), 0)


def _log_probs(model: EBM, row: Row, y: Array, tau: Array) -> Array:
    return jax.vmap(lambda y: model.log_prob(row, y, tau))(y)


def _check_search(method: Any, search: Any) -> Any:
    """The search to use if one is needed: the method, or the default."""
    if isinstance(method, type(search)):
        return method
    if method not in ("auto", "exact", "search"):
        name = type(search).__name__
        raise ValueError(f"method must be 'auto', 'exact', 'search' or a search.{name}; got {method!r}.")
    return search


def _check_num(model: EBM, num: Any) -> int:
    size = model.space.size
    if isinstance(num, bool) or not isinstance(num, int | np.integer) or not 1 <= num <= size:
        raise ValueError(
            f"{model.space} has {budget.count(size)} outputs: ask for a whole number of them, 1 or more; got {num!r}."
        )
    return int(num)
