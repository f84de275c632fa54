"""tau: the learned log-partition (for f other than KL, the multiplier of the constraint that p sums to one).

tau starts at -f'(1), where every density is 1, and it is never penalized.
"""

import abc

import equinox as eqx
import jax.numpy as jnp

from ._types import Array, Float, PyTree, Row, Scalar
from .divergences import KL, AbstractDivergence

__all__ = ["AbstractTau", "Bound", "Network", "Residual", "Shifted", "Table", "UnseenRowError", "table_of"]


class UnseenRowError(ValueError):
    """A table of one tau per training row was asked about another x."""


class AbstractTau(eqx.Module):
    """tau(x), through a row (x, theta, index, q); `start` is its value before training, -f'(1)."""

    start: eqx.AbstractVar[float]

    @abc.abstractmethod
    def __call__(self, row: Row) -> Scalar:
        """tau of one row."""


class Table(AbstractTau):
    """The paper's "constant": tau(x_i) = v_i, one free number per training row, and no value on any other x."""

    values: Float[Array, " n"]
    start: float = eqx.field(static=True)

    def __init__(self, n: int, f: AbstractDivergence | None = None):
        if n < 1:
            raise ValueError(f"Table needs the number of training rows, at least 1; got {n}.")
        self.start = _start(f)
        self.values = jnp.full(n, self.start)

    def __call__(self, row):
        if row.index is None:
            raise UnseenRowError(
                "This tau is a partition.Table: one number per training row, with no value on other x. Pass `index` "
                "for training rows, use an exact method where one exists, or train with partition.Network."
            )
        return self.values[row.index]


class Network(AbstractTau):
    """tau = start + body(x), the paper's; with `of_logits` start + body(theta): LSE depends on x only through theta."""

    body: PyTree
    start: float = eqx.field(static=True)
    of_logits: bool = eqx.field(static=True)

    def __init__(self, body: PyTree, f: AbstractDivergence | None = None, *, of_logits: bool = False):
        self.body = body
        self.start = _start(f)
        self.of_logits = of_logits

    def __call__(self, row):
        return self.start + self.body(row.theta if self.of_logits else row.x).reshape(())


class Residual(AbstractTau):
    """tau = tau_0(theta) + body(summary), for KL: the bound of the model's surrogate plus a learned correction.

    tau_0 keeps its gradient in theta, so that a constant added to g is paid for.
    """

    body: PyTree
    start: float = eqx.field(static=True)

    def __init__(self, body: PyTree):
        self.body = body
        self.start = _start(None)

    def __call__(self, row):
        return row.surrogate.tau + self.body(row.surrogate.summary).reshape(())


class Shifted(AbstractTau):
    """Another tau plus a constant; see `inference.recalibrate`."""

    tau: AbstractTau
    shift: Scalar
    start: float = eqx.field(static=True)

    def __init__(self, tau: AbstractTau, shift: Scalar):
        self.tau, self.shift, self.start = tau, shift, tau.start

    def __call__(self, row):
        return self.tau(row) + self.shift


class Bound(AbstractTau):
    """tau_0 of the model's surrogate as it is, or 0 where there is none: nothing is learned."""

    start: float = eqx.field(static=True, default=0.0)

    def __call__(self, row):
        return jnp.zeros(()) if row.surrogate is None else row.surrogate.tau


def table_of(tau: AbstractTau) -> Table | None:
    """The table that tau reads, shifted or not, if it reads one."""
    while isinstance(tau, Shifted):
        tau = tau.tau
    return tau if isinstance(tau, Table) else None


def _start(f: AbstractDivergence | None) -> float:
    return (KL() if f is None else f).start
