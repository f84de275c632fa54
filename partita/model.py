"""EBM = (Y, q, g, tau, f): p(y|x) = q(y|x) (f+*)'(g(x, y) - tau(x))."""

from typing import Literal

import equinox as eqx
import jax

from ._types import Array, Float, Int, PyTree, Row, Scalar
from .divergences import KL, AbstractDivergence
from .energy import Energy
from .partition import AbstractTau, Residual
from .structures import AbstractMeasure, AbstractMethod, AbstractSpace, AbstractSurrogate, Uniform, exact_method

__all__ = ["EBM"]


class EBM(eqx.Module):
    """An energy g and its normalizer tau, relative to a reference q, under a divergence f.

    q is a probability; without one it is uniform. Where q depends on x its parameters come with the data
    (`Batch.reference`). g and tau are trained, q and f are fixed. The `surrogate` is a tractable approximation of p,
    from which to draw and on which tau can build; without one it is the coupling's own, if there is any, and with False
    there is none.
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
        # First: a Residual, which takes no divergence, is not to be told to take one.
        self._check_surrogate()
        if self.tau.start != self.f.start:
            name, f = type(self.tau).__name__, type(self.f).__name__
            raise ValueError(
                f"tau starts at {self.tau.start:g}, but {f} needs {self.f.start:g}, where every density is 1: give "
                f"{name} the divergence too, as {name}(..., f)."
            )

    def _check_surrogate(self):
        coupling, q, f = (type(o).__name__ for o in (self.g.coupling, self.q, self.f))
        if self.surrogate is not None and not self.surrogate.serves(self.g.coupling, self.q, self.f):
            name = type(self.surrogate).__name__
            raise ValueError(f"{name} does not serve a {coupling} coupling on {self.space} with a {q} under {f}.")
        if isinstance(self.tau, Residual) and (self.surrogate is None or not isinstance(self.f, KL)):
            raise ValueError(
                f"partition.Residual corrects a surrogate's bound of the log-partition; a {coupling} coupling on "
                f"{self.space} with a {q} under {f} has none. Use partition.Network, or for KL give the model a "
                "structures.Amortized."
            )

    @property
    def space(self) -> AbstractSpace:
        return self.g.space

    def row(
        self,
        x: Float[Array, " *features"],
        index: Int[Array, ""] | None = None,
        reference: AbstractMeasure | None = None,
    ) -> Row:
        """One x with its logits, its q and its surrogate: what tau and the couplings read."""
        theta, q = self.g.h(x), self.q if reference is None else reference
        surrogate = None if self.surrogate is None else self.surrogate(self.g.coupling, theta, q)
        return Row(x, theta, index, q, surrogate)

    def exact_method(self, q: AbstractMeasure | None = None) -> AbstractMethod:
        """What would sum over Y exactly, under the model's q or another one; `budget` says whether it is affordable."""
        return exact_method(self.g.coupling, self.q if q is None else q, self.f)

    def log_prob(self, row: Row, y: Int[Array, " *y"], tau: Scalar | None = None) -> Scalar:
        """log p(y|x) with the learned tau, or with another one."""
        tau = self.tau(row) if tau is None else tau
        return row.q.log_prob(y) + self.f.log_density(self.g.coupling(row.theta, y) - tau)

    def trained(self) -> PyTree:
        """A tree of True at the arrays that are learned: those of g, of tau and of the surrogate."""
        nothing = jax.tree.map(lambda _: False, self)
        parts = lambda model: (model.g, model.tau, model.surrogate)  # noqa: E731
        learned = jax.tree.map(eqx.is_inexact_array, parts(self))
        return eqx.tree_at(parts, nothing, learned, is_leaf=lambda leaf: leaf is None)
