"""The model: the energy g, the kinds of tau, and EBM = (Y, q, g, tau, f), p(y|x) = q(y|x) (f+*)'(g(x, y) - tau(x)).

tau is the learned log-partition; for f other than KL, the multiplier of the constraint that p sums to one. It starts at
-f'(1), where every density is 1: `EBM` adds that, so a tau itself starts at 0. It is never penalized.
"""

import abc
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from .divergences import KL, AbstractDivergence
from .structures import (
    AbstractCoupling,
    AbstractMeasure,
    AbstractMethod,
    AbstractSpace,
    AbstractSurrogate,
    Uniform,
    exact_method,
)
from .types import Array, Float, Int, PyTree, Row, Scalar

__all__ = ["EBM", "AbstractTau", "Bound", "Energy", "Network", "Residual", "Shifted", "Table", "UnseenRowError"]


class Energy(eqx.Module):
    """The energy g(x, y) = Phi(h(x), y); a large g means a likely y.

    Parameters
    ----------
    h
        The model function: any callable pytree from x to logits of shape `coupling.theta_shape`.
    coupling
        Phi, which scores an output by the logits.
    """

    h: PyTree
    coupling: AbstractCoupling

    @property
    def space(self) -> AbstractSpace:
        """The output space Y."""
        return self.coupling.space

    def __call__(self, x: Float[Array, " *features"], y: Int[Array, " *y"]) -> Scalar:
        return self.coupling(self.h(x), y)


class UnseenRowError(ValueError):
    """A `Table`, which has one tau per training row, was evaluated at another x."""


class AbstractTau(eqx.Module):
    """The learned log-partition as a function of one row, up to its start -f'(1)."""

    @abc.abstractmethod
    def __call__(self, row: Row) -> Scalar:
        """Evaluate tau(x) + f'(1) for one row."""

    @property
    def table(self) -> "Table | None":
        """The table that holds the values; None where tau is a function of x."""
        return None

    def check(self, model: "EBM") -> None:
        """Raise a ValueError if this tau cannot normalize a model.

        Parameters
        ----------
        model
            The model.
        """


class Table(AbstractTau):
    """One parameter per training row, tau(x_i) = v_i - f'(1), as in the paper; other x have no value.

    Parameters
    ----------
    n
        The number of training rows.

    Attributes
    ----------
    values
        The parameters v_i.
    """

    values: Float[Array, " n"]

    def __init__(self, n: int):
        if n < 1:
            raise ValueError(f"Table needs the number of training rows, at least 1; got {n}.")
        self.values = jnp.zeros(n)

    def __call__(self, row):
        if row.index is None:
            raise UnseenRowError(
                "This tau is a model.Table: one number per training row, with no value on other x. Pass `index` "
                "for training rows, use an exact method where one exists, or train with model.Network."
            )
        return self.values[row.index]

    @property
    def table(self):
        return self


class Network(AbstractTau):
    """A network of x, as in the paper, or of the logits theta = h(x), through which alone LSE depends on x.

    Parameters
    ----------
    body
        Any callable pytree to a single number.
    of_logits
        Whether `body` takes theta instead of x.
    """

    body: PyTree
    of_logits: bool = eqx.field(static=True)

    def __init__(self, body: PyTree, *, of_logits: bool = False):
        self.body = body
        self.of_logits = of_logits

    def __call__(self, row):
        return self.body(row.theta if self.of_logits else row.x).reshape(())


class Residual(AbstractTau):
    """For KL, the bound tau_0(theta) of the model's surrogate plus a learned correction, a network of its summary.

    The gradient of tau_0 in theta is kept, so that tau follows a constant added to g at once.

    Parameters
    ----------
    body
        Any callable pytree from the surrogate's summary to a single number.
    """

    body: PyTree

    def __call__(self, row):
        return row.surrogate.tau + self.body(row.surrogate.summary).reshape(())

    def check(self, model):
        if model.surrogate is None or not isinstance(model.f, KL):
            coupling, q, f = (type(part).__name__ for part in (model.g.coupling, model.q, model.f))
            raise ValueError(
                f"model.Residual corrects a surrogate's bound of the log-partition; a {coupling} coupling on "
                f"{model.space} with a {q} under {f} has none. Use model.Network, or for KL give the model a "
                "structures.Amortized."
            )


class Shifted(AbstractTau):
    """Another tau plus a constant; see `inference.recalibrate`.

    Parameters
    ----------
    tau
        The other tau.
    shift
        The constant.
    """

    tau: AbstractTau
    shift: Scalar

    def __call__(self, row):
        return self.tau(row) + self.shift

    @property
    def table(self):
        return self.tau.table

    def check(self, model):
        self.tau.check(model)


class Bound(AbstractTau):
    """For KL, the bound tau_0 of the model's surrogate, or 0 if it has none; it has no parameters."""

    def __call__(self, row):
        return jnp.zeros(()) if row.surrogate is None else row.surrogate.tau

    def check(self, model):
        if not isinstance(model.f, KL):
            f = type(model.f).__name__
            raise ValueError(f"model.Bound is a bound of the log-partition under KL; f is {f}. Use model.Network.")


class EBM(eqx.Module):
    """The energy-based model p(y|x) = q(y|x) (f+*)'(g(x, y) - tau(x)).

    The energy g, the normalizer tau and the surrogate are trained; the reference q and the divergence f are fixed.

    Parameters
    ----------
    g
        The energy.
    tau
        The learned log-partition, up to -f'(1).
    q
        The reference, a probability; uniform by default. Where it depends on x its parameters come with the data
        (`Batch.reference`).
    f
        The divergence; KL by default.
    surrogate
        A tractable approximation of p, from which to draw and on which tau can build. None: the coupling's own, if it
        has one. False: none.

    Raises
    ------
    ValueError
        If q is on another space than g, or the surrogate or tau does not support the other parts.

    Examples
    --------
    Two labels whose logits are the features themselves:

    >>> from partita.couplings import Bilinear
    >>> from partita.structures import Cube
    >>> model = EBM(Energy(eqx.nn.Identity(), Bilinear(Cube(2))), Bound())
    >>> row = model.row(jnp.array([2.0, -1.0]))
    >>> round(float(model.log_prob(row, jnp.array([1, 0]))), 4)
    -0.4402
    """

    g: Energy
    tau: AbstractTau
    q: AbstractMeasure
    f: AbstractDivergence
    surrogate: AbstractSurrogate | None

    def __init__(
        self,
        g: Energy,
        tau: AbstractTau,
        *,
        q: AbstractMeasure | None = None,
        f: AbstractDivergence | None = None,
        surrogate: AbstractSurrogate | Literal[False] | None = None,
    ):
        self.g = g
        self.tau = tau
        self.q = Uniform(g.space) if q is None else q
        self.f = KL() if f is None else f
        self.surrogate = g.coupling.surrogate(self.q, self.f) if surrogate is None else surrogate or None

    def __check_init__(self):
        if self.q.space != self.g.space:
            raise ValueError(f"q is a measure on {self.q.space}, but g scores {self.g.space}: they must be the same.")
        if self.surrogate is not None and not self.surrogate.serves(self.g.coupling, self.q, self.f):
            name, coupling, q, f = (type(o).__name__ for o in (self.surrogate, self.g.coupling, self.q, self.f))
            raise ValueError(f"{name} does not serve a {coupling} coupling on {self.space} with a {q} under {f}.")
        self.tau.check(self)

    @property
    def space(self) -> AbstractSpace:
        """The output space Y."""
        return self.g.space

    def row(
        self,
        x: Float[Array, " *features"],
        index: Int[Array, ""] | None = None,
        reference: AbstractMeasure | None = None,
    ) -> Row:
        """Evaluate what tau, the coupling and the surrogate need of one x.

        Parameters
        ----------
        x
            Features of one row.
        index
            Its position in the training set; only a `Table` uses it.
        reference
            Its q(.|x); None: the model's q.

        Returns
        -------
        Row
            x with its logits, its q and its surrogate.
        """
        theta, q = self.g.h(x), self.q if reference is None else reference
        surrogate = None if self.surrogate is None else self.surrogate(self.g.coupling, theta, q)
        return Row(x, theta, index, q, surrogate)

    def exact_method(self, q: AbstractMeasure | None = None) -> AbstractMethod:
        """Choose the method for exact sums over Y; `budget` decides whether it is affordable.

        Parameters
        ----------
        q
            The reference; None: the model's q.

        Returns
        -------
        AbstractMethod
            The coupling's method for q and f, or enumeration.
        """
        return exact_method(self.g.coupling, self.q if q is None else q, self.f)

    def log_partition(self, row: Row) -> Scalar:
        """Evaluate the learned log-partition; `exact.log_partition` computes the true one.

        Parameters
        ----------
        row
            One x, from `row`.

        Returns
        -------
        scalar
            tau(x), which includes the start -f'(1).
        """
        return self.f.start + self.tau(row)

    def log_prob(self, row: Row, y: Int[Array, " *y"], tau: Scalar | None = None) -> Scalar:
        """Evaluate log p(y|x).

        Parameters
        ----------
        row
            One x, from `row`.
        y
            An output.
        tau
            The log-partition; None: the learned one.

        Returns
        -------
        scalar
            log p(y|x) in nats, normalized if tau is the log-partition.
        """
        tau = self.log_partition(row) if tau is None else tau
        return row.q.log_prob(y) + self.f.log_density(self.g.coupling(row.theta, y) - tau)

    def trained(self) -> PyTree:
        """Mark the arrays that are learned: those of g, of tau and of the surrogate.

        Returns
        -------
        EBM
            The model with True at these arrays and False at all other leaves.
        """
        none_trained = jax.tree.map(lambda _: False, self)
        parts = lambda model: (model.g, model.tau, model.surrogate)  # noqa: E731
        trained_parts = jax.tree.map(eqx.is_inexact_array, parts(self))
        return eqx.tree_at(parts, none_trained, trained_parts, is_leaf=lambda leaf: leaf is None)
