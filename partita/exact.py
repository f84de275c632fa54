"""Exact log-partitions, marginals, samples and modes of one row: the traceable twin of `inference`.

Each function takes a model and a row from `EBM.row`, and can be traced by JAX; the function of the same name in
`inference` takes a matrix of x. The method is a closed form, a dynamic program or enumeration, as the coupling offers;
`budget.TooLargeError` is raised where none is affordable.
"""

from collections.abc import Callable
from typing import NamedTuple

from . import budget
from .model import EBM
from .structures import Best, Enumeration
from .types import Array, Bool, Float, Int, Key, Row, Scalar

__all__ = [
    "Softmax",
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
    "top_k",
]


class Softmax(NamedTuple):
    """The f-softmax of one row and the log-partition, which are equal for KL.

    Parameters
    ----------
    value
        max_p <g, p> - D_f(p, q).
    log_partition
        The tau with which p sums to one.
    """

    value: Scalar
    log_partition: Scalar


def log_partition(model: EBM, row: Row) -> Scalar:
    """Compute the tau that makes p(.|x) sum to one: log E_q[exp g] for KL, the multiplier for other f.

    Parameters
    ----------
    model, row
        The model and one x.

    Returns
    -------
    scalar
        The log-partition relative to q, a probability.
    """
    return budget.method(model, row.q).log_partition(row.theta, row.q)


def softmax(model: EBM, row: Row) -> Softmax:
    """Compute max_p <g, p> - D_f(p, q) together with the log-partition, at the cost of one of them.

    Parameters
    ----------
    model, row
        The model and one x.

    Returns
    -------
    Softmax
        Both values.
    """
    return Softmax(*budget.method(model, row.q).solve(row.theta, row.q))


def capped(model: EBM, row: Row, tau: Scalar) -> Bool[Array, ""]:
    """Tell whether some density reaches the bound of the divergence, so that p is not that of f itself.

    Parameters
    ----------
    model, row
        The model and one x.
    tau
        The log-partition.

    Returns
    -------
    scalar
        Always False for KL.
    """
    return budget.method(model, row.q).capped(row.theta, row.q, tau)


def mass(model: EBM, row: Row, tau: Scalar) -> Scalar:
    """Compute the total mass sum_y q(y|x) (f+*)'(g(x, y) - tau).

    Parameters
    ----------
    model, row
        The model and one x.
    tau
        A normalizer.

    Returns
    -------
    scalar
        The mass, 1 where tau is the log-partition.
    """
    return budget.method(model, row.q).mass(row.theta, row.q, tau)


def marginals(model: EBM, row: Row) -> Float[Array, " *stat"]:
    """Compute E_p[indicators(y)].

    Parameters
    ----------
    model, row
        The model and one x.

    Returns
    -------
    array of shape (k,) or (k, k)
        P(y_j = 1 | x) for label sets; P(label j has rank p | x) at [j, p] for rankings.
    """
    return budget.method(model, row.q).marginals(row.theta, row.q)


def mean(model: EBM, row: Row, statistic: Callable[[Array], Array]) -> Float[Array, " *stat"]:
    """Compute E_p[statistic(y)] by enumeration.

    Parameters
    ----------
    model, row
        The model and one x.
    statistic
        A function from (num, *y) outputs to (num, *stat) numbers.

    Returns
    -------
    array of shape stat
        The expectation.
    """
    budget.check_enumerate(model.space)
    return Enumeration(model.g.coupling, model.f).mean(row.theta, row.q, statistic)


def before(model: EBM, row: Row) -> Float[Array, "k k"]:
    """Compute the probability that one label is ranked before another.

    Parameters
    ----------
    model, row
        A model of rankings and one x.

    Returns
    -------
    array of shape (k, k)
        P(label a is ranked before label b | x) at [a, b].
    """
    result = budget.method(model, row.q).before(row.theta, row.q)
    if result is None:
        raise ValueError(f"Which label comes before which is asked of rankings, not of {model.space}.")
    return result


def log_prob(model: EBM, row: Row, y: Int[Array, " *y"]) -> Scalar:
    """Compute log p(y|x), normalized exactly.

    Parameters
    ----------
    model, row
        The model and one x.
    y
        An output.

    Returns
    -------
    scalar
        The log-probability in nats.
    """
    return model.log_prob(row, y, log_partition(model, row))


def sample(model: EBM, row: Row, num: int, *, key: Key) -> Int[Array, " num *y"]:
    """Draw independent outputs from p(.|x).

    Parameters
    ----------
    model, row
        The model and one x.
    num
        The number of draws.
    key
        A PRNG key.

    Returns
    -------
    array of shape (num, *y)
        The draws.
    """
    return budget.method(model, row.q).sample(row.theta, row.q, num, key=key)


def mode(model: EBM, row: Row) -> Int[Array, " *y"]:
    """Find a most probable y; for linear scores under a uniform q by the polytope's argmax, at any size of Y.

    Parameters
    ----------
    model, row
        The model and one x.

    Returns
    -------
    array of the shape of y
        The output.
    """
    coupling = model.g.coupling
    y = coupling.polytope.mode(row.theta, row.q) if coupling.is_linear else None
    return budget.method(model, row.q).mode(row.theta, row.q) if y is None else y


def top_k(model: EBM, row: Row, num: int) -> Best:
    """Find the most probable outputs.

    Parameters
    ----------
    model, row
        The model and one x.
    num
        How many.

    Returns
    -------
    Best
        The outputs in falling order of p, and scores that fall with p.
    """
    best = budget.method(model, row.q).top_k(row.theta, row.q, num)
    if best is None:
        budget.check_enumerate(model.space)
        best = Enumeration(model.g.coupling, model.f).top_k(row.theta, row.q, num)
    return best
