"""EBM = (Y, q, g, tau, f): p(y|x) = q(y|x) (f+*)'(g(x, y) - tau(x))."""

import equinox as eqx
import jax

from ._types import Array, Float, Int, PyTree, Row, Scalar
from .divergences import KL, AbstractDivergence
from .energy import Energy
from .measures import AbstractMeasure, Uniform
from .partition import AbstractTau
from .spaces import AbstractSpace

__all__ = ["EBM"]


class EBM(eqx.Module):
    """An energy g and its normalizer tau, relative to a reference q, under a divergence f.

    q is a probability; without one it is uniform. Where q depends on x its parameters come with the data
    (`Batch.reference`). g and tau are trained, q and f are fixed.
    """

    g: Energy
    tau: AbstractTau
    q: AbstractMeasure
    f: AbstractDivergence

    def __init__(
        self, g: Energy, tau: AbstractTau, *, q: AbstractMeasure | None = None, f: AbstractDivergence | None = None
    ):
        self.g = g
        self.tau = tau
        self.q = Uniform(g.space) if q is None else q
        self.f = KL() if f is None else f

    def __check_init__(self):
        if self.q.space != self.g.space:
            raise ValueError(f"q is a measure on {self.q.space}, but g scores {self.g.space}: they must be the same.")
        if self.tau.start != self.f.start:
            name, f = type(self.tau).__name__, type(self.f).__name__
            raise ValueError(
                f"tau starts at {self.tau.start:g}, but {f} needs {self.f.start:g}, where every density is 1: give "
                f"{name} the divergence too, as {name}(..., f)."
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
        """One x with its logits and its q: what tau and the couplings read."""
        return Row(x, self.g.h(x), index, self.q if reference is None else reference)

    def log_prob(self, row: Row, y: Int[Array, " *y"], tau: Scalar | None = None) -> Scalar:
        """log p(y|x) with the learned tau, or with another one."""
        tau = self.tau(row) if tau is None else tau
        return row.q.log_prob(y) + self.f.log_density(self.g.coupling(row.theta, y) - tau)

    def trained(self) -> PyTree:
        """A tree of True at the arrays that are learned: those of g and tau."""
        nothing = jax.tree.map(lambda _: False, self)
        learned = jax.tree.map(eqx.is_inexact_array, (self.g, self.tau))
        return eqx.tree_at(lambda model: (model.g, model.tau), nothing, learned)
