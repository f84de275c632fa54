"""The most probable outputs of each x, one or several."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import argmax, budget, exact
from .._types import Array, Float, Int, Key, PyTree
from ..argmax import AbstractRegularizer
from ..model import EBM
from ..search import LocalSearch, PoolSearch
from ..structures import AbstractAssignments, AbstractPolytope, Uniform
from .partitions import Method, partition
from .rows import over_rows, sum_over_rows


class TopK(NamedTuple):
    """The most probable outputs of each row, in falling order of p.

    Attributes
    ----------
    y
        The outputs, (n, num, *y).
    log_prob
        log p of each, (n, num): -inf where there are no more outputs with p > 0, and y is then any.
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
    return_method: bool = False,
    reference: PyTree = None,
) -> Any:
    """A most probable y for each x, and with `return_method` how it was found: "exact" or "local search".

    method: "exact"; "search", or a `search.LocalSearch` with numbers of your choice, for a y that no single local
    move makes more likely, which need not be a most probable one; "auto", exact where a method serves, and where none
    does by search, given the `key` that it needs.
    """
    search = _check_search(method, LocalSearch())
    if _is_exact(model, method, key, at_any_size=_has_mode(model)):
        y, how = _exact_modes(model, x, reference), "exact"
    else:
        y, how = over_rows(_Search(search), model, x, _keys(key, method, x), reference=reference), "local search"
    return (y, how) if return_method else y


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
    """The `num` most probable outputs for each x, and the logarithms of their probabilities.

    method: "exact"; "search", or a `search.PoolSearch` with numbers of your choice; "auto", exact where a method
    serves (all that `log_partition` has, and for linear scores of rankings assignments, at any size), and elsewhere by
    search, given the `key` that it needs. normalizer: a method of `log_partition`; "auto", exact where one serves, else
    "learned".
    """
    num = _check_num(model, num)
    search = _check_search(method, PoolSearch())
    if _is_exact(model, method, key, at_any_size=_assignments(model) is not None):
        best, how = _exact_top(model, x, num, reference), "exact"
    else:
        keys = _keys(key, method, x)
        best, how = over_rows(_Pool(search, num), model, x, keys, reference=reference, small=True), "search"
    if normalizer == "auto":
        normalizer = "exact" if budget.reaches(model) else "learned"
    log_prob = _log_probs(model, x, best.y, normalizer, key, index, reference)
    log_prob = np.where(np.isneginf(best.score), -np.inf, log_prob)
    return TopK(best.y, jax.device_put(log_prob), how, normalizer)


def relaxed_mode(model: EBM, x: Any, regularizer: AbstractRegularizer) -> Int[Array, " n *y"]:
    """The y nearest to argmax over C of g(x, mu) - Omega(mu), for each x.

    The prediction of models trained with `objectives.GeneralizedFenchelYoung`: give the same regularizer, and the
    oracle of the loss answers. On emotions it has 78 % of the labels right with SquaredNorm, where `mode` has 62 %.
    """
    polytope = model.g.coupling.polytope
    mu = over_rows(_Relaxed(regularizer), model, x)
    assignments = polytope.assignments(Uniform(polytope.space)) if _on_host(polytope) else None
    return mu if assignments is None else jnp.asarray(assignments.argmax(np.asarray(mu)))


def _has_mode(model: EBM) -> bool:
    """Whether the most probable output is found at any size of Y: that of linear scores, where q only excludes."""
    return model.g.coupling.is_linear and model.q.only_excludes


def _is_exact(model: EBM, method: Any, key: Key | None, *, at_any_size: bool) -> bool:
    """Whether to answer exactly: where a search is not asked for, and is not needed or cannot be done."""
    if method not in ("auto", "exact"):
        return False
    return at_any_size or method == "exact" or key is None or budget.reaches(model)


def _exact_modes(model: EBM, x: Any, reference: PyTree) -> Int[Array, " n *y"]:
    if _has_mode(model):
        assignments = _assignments(model) if _on_host(model.g.coupling.polytope) else None
        if assignments is None:
            return over_rows(_mode, model, x, reference=reference)
        return jnp.asarray(assignments.argmax(_assignment_scores(assignments, model, x, reference)))
    return sum_over_rows(_mode, model, x, reference=reference)


def _exact_top(model: EBM, x: Any, num: int, reference: PyTree) -> exact.Best:
    assignments = _assignments(model)
    if assignments is None:
        return sum_over_rows(_Top(num), model, x, reference=reference, width=num)
    y, score = assignments.top_k(_assignment_scores(assignments, model, x, reference), num)
    return exact.Best(jnp.asarray(y), jnp.asarray(score, float))


def _assignments(model: EBM) -> AbstractAssignments | None:
    coupling = model.g.coupling
    return coupling.polytope.assignments(model.q) if coupling.is_linear else None


def _assignment_scores(assignments: AbstractAssignments, model: EBM, x: Any, reference: PyTree) -> np.ndarray:
    return np.asarray(over_rows(_Scores(assignments), model, x, reference=reference))


class _Scores(eqx.Module):
    assignments: AbstractAssignments

    def __call__(self, model, x, reference):
        return self.assignments.scores(model.g.h(x), model.q if reference is None else reference)


def _mode(model, x, reference):
    return exact.mode(model, model.row(x, reference=reference))


class _Top(eqx.Module):
    num: int = eqx.field(static=True)

    def __call__(self, model, x, reference):
        return exact.top_k(model, model.row(x, reference=reference), self.num)


class _Search(eqx.Module):
    search: LocalSearch

    def __call__(self, model, x, reference, key):
        return self.search(model, model.row(x, reference=reference), key=key)


class _Pool(eqx.Module):
    search: PoolSearch
    num: int = eqx.field(static=True)

    def __call__(self, model, x, reference, key):
        return self.search(model, model.row(x, reference=reference), self.num, key=key)


class _Relaxed(eqx.Module):
    """The relaxed argmax, rounded unless that is left to the host."""

    regularizer: AbstractRegularizer

    def __call__(self, model, x, reference):
        coupling = model.g.coupling
        mu = argmax.oracle(coupling, self.regularizer)(coupling, model.g.h(x)).mu
        return mu if _on_host(coupling.polytope) else argmax.rounded(coupling.polytope, mu)


def _on_host(polytope: AbstractPolytope) -> bool:
    return polytope.argmax_is_on_host and jax.default_backend() == "cpu"


def _log_probs(
    model: EBM, x: Any, y: Array, method: Method, key: Key | None, index: Any, reference: PyTree
) -> Float[Array, "n num"]:
    """log p of several outputs for each x."""
    if method == "exact":
        return sum_over_rows(_exact_log_probs, model, x, y, reference=reference)
    tau, _ = partition(method, False, key, model, x, index, reference)
    return over_rows(_log_probs_at, model, x, y, tau, reference=reference)


def _exact_log_probs(model, x, reference, y):
    row = model.row(x, reference=reference)
    tau = exact.log_partition(model, row)
    return jnp.minimum(jax.vmap(lambda y: model.log_prob(row, y, tau))(y), 0)


def _log_probs_at(model, x, reference, y, tau):
    row = model.row(x, reference=reference)
    return jax.vmap(lambda y: model.log_prob(row, y, tau))(y)


def _keys(key: Key | None, method: Any, x: Any) -> Array:
    """One for each row."""
    if key is None:
        raise ValueError(f"method={method!r} draws where to start: give a key, as in key=jax.random.key(0).")
    return jax.random.split(key, np.shape(x)[0])


def _check_search(method: Any, search: Any) -> Any:
    """The search to use where one is needed."""
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
