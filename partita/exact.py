"""Exact log-partitions, marginals, samples and modes of one row: the traceable twin of `inference`.

Each function asks the coupling for its method, a closed form, a dynamic program or else enumeration, and `budget`
whether that is affordable; what is not is refused with `budget.TooLargeError`.
"""

from collections.abc import Callable

from . import budget
from .model import EBM
from .structures import Best, Enumeration
from .types import Array, Bool, Float, Int, Key, Row, Scalar

__all__ = [
    "before",
    "capped",
    "log_partition",
    "log_prob",
    "marginals",
    "mass",
    "mean",
    "mode",
    "sample",
    "softmax",
    "solve",
    "top_k",
]


def log_partition(model: EBM, row: Row) -> Scalar:
    """The tau that makes p(.|x) sum to one: log E_q[exp g] for KL, the multiplier for other f."""
    return budget.method(model, row.q).log_partition(row.theta, row.q)


def capped(model: EBM, row: Row, tau: Scalar) -> Bool[Array, ""]:
    """Whether some density is at the bound of the divergence, and p not that of f itself; for KL none ever is."""
    return budget.method(model, row.q).capped(row.theta, row.q, tau)


def mass(model: EBM, row: Row, tau: Scalar) -> Scalar:
    """The total mass sum_y q (f+*)'(g - tau): 1 where tau is the log-partition."""
    return budget.method(model, row.q).mass(row.theta, row.q, tau)


def softmax(model: EBM, row: Row) -> Scalar:
    """max_p <g, p> - D_f(p, q); for KL the same as `log_partition`."""
    return solve(model, row)[0]


def solve(model: EBM, row: Row) -> tuple[Scalar, Scalar]:
    """(softmax, log_partition), at the cost of one of them."""
    return budget.method(model, row.q).solve(row.theta, row.q)


def marginals(model: EBM, row: Row) -> Float[Array, " *stat"]:
    """E_p[indicators(y)]: label probabilities for sets, the matrix P[label j has rank p] for rankings."""
    return budget.method(model, row.q).marginals(row.theta, row.q)


def mean(model: EBM, row: Row, statistic: Callable[[Array], Array]) -> Float[Array, " *stat"]:
    """E_p[statistic(y)] over all outputs; statistic maps (num, *y) outputs to (num, *stat) numbers."""
    budget.check_enumerate(model.space)
    return Enumeration(model.g.coupling, model.f).mean(row.theta, row.q, statistic)


def before(model: EBM, row: Row) -> Float[Array, "k k"]:
    """Of rankings: entry (a, b) is P(label a is ranked before label b)."""
    result = budget.method(model, row.q).before(row.theta, row.q)
    if result is None:
        raise ValueError(f"Which label comes before which is asked of rankings, not of {model.space}.")
    return result


def log_prob(model: EBM, row: Row, y: Int[Array, " *y"]) -> Scalar:
    """log p(y|x), normalized exactly."""
    return model.log_prob(row, y, log_partition(model, row))


def sample(model: EBM, row: Row, num: int, *, key: Key) -> Int[Array, " num *y"]:
    """Exact draws from p(.|x)."""
    return budget.method(model, row.q).sample(row.theta, row.q, num, key=key)


def mode(model: EBM, row: Row) -> Int[Array, " *y"]:
    """A most probable y. Of linear scores under a uniform q the polytope's argmax is one, at any size."""
    coupling = model.g.coupling
    y = coupling.polytope.mode(row.theta, row.q) if coupling.is_linear else None
    return budget.method(model, row.q).mode(row.theta, row.q) if y is None else y


def top_k(model: EBM, row: Row, num: int) -> Best:
    """The `num` most probable outputs, in falling order of p."""
    exact_method = budget.method(model, row.q)
    best = exact_method.top_k(row.theta, row.q, num)
    if best is None:
        budget.check_enumerate(model.space)
        best = Enumeration(model.g.coupling, model.f).top_k(row.theta, row.q, num)
    return best
