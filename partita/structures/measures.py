"""The contract of a structure: measures on a space Y."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ..types import Array, Float, Int, Key, Scalar

__all__ = ["AbstractMeasure", "Conditioned"]


class AbstractMeasure(eqx.Module):
    """A probability on Y for one x.

    Its arrays may have a leading axis: one measure per row of a batch. `sample` draws for all rows at once; the other
    methods are written for one row, to be used under vmap.
    """

    @property
    @abc.abstractmethod
    def space(self) -> Any:
        """The space Y, an `AbstractSpace`; `spaces` imports this module."""

    @abc.abstractmethod
    def sample(self, num: int, *, key: Key) -> Int[Array, " ..."]:
        """Independent draws, all in one call.

        Parameters
        ----------
        num
            The number of draws per row; they have shape (*rows, num, *y).
        key
            For the draws.
        """

    @abc.abstractmethod
    def log_prob(self, y: Int[Array, " *shape"]) -> Scalar:
        """Log of the probability of one output; -inf if it is excluded.

        Parameters
        ----------
        y
            An output.
        """

    def log_probs(self, ys: Int[Array, " num *shape"]) -> Float[Array, " num"]:
        """`log_prob` of several outputs.

        Parameters
        ----------
        ys
            The outputs, with a leading axis.

        Returns
        -------
        Array
            The log-probability of each.
        """
        return jax.vmap(self.log_prob)(ys)

    def check(self) -> None:
        """Raise a ValueError if a parameter is invalid: NaN or infinite, unless a class allows infinite ones."""
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(self)):
            raise ValueError(f"A {type(self).__name__} has parameters that are NaN or infinite; they must be finite.")

    @property
    def is_uniform(self) -> bool:
        """Whether all outputs of Y have the same probability, for all values of the parameters."""
        return False

    @property
    def only_excludes(self) -> bool:
        """Whether all outputs that are not excluded have the same probability, for all values of the parameters."""
        return self.is_uniform

    def mode(self) -> Int[Array, " *shape"] | None:
        """An output of high probability; None if the class does not provide one."""
        return None

    def condition(self, y: Int[Array, " *shape"], mask: Int[Array, " *shape"]) -> "Conditioned | None":
        """The measure given what is observed of y; None if the class does not provide it.

        Parameters
        ----------
        y
            An output.
        mask
            0 where y is observed, as in `types.Batch`.
        """
        return None

    def label_log_probs(self) -> tuple[Float[Array, " k"], Float[Array, " k"]] | None:
        """log P(y_j = 0) and log P(y_j = 1) of all labels, if labels are independent; else None.

        Two arrays, not one of logits, so that a label with a fixed value, one of them -inf, loses no precision.
        """
        return None

    def rank_scores(self) -> Float[Array, "k k"] | None:
        """Scores (label, rank) of a measure on rankings that fills the ranks in turn; None for other measures.

        Rank p goes to a label j that is not yet placed with probability proportional to exp(scores[j, p]).
        """
        return None

    def kl(self, q: "AbstractMeasure") -> Scalar | None:
        """KL(self, q); None if there is no closed form.

        Parameters
        ----------
        q
            Another measure on the same space.
        """
        return None


class Conditioned(NamedTuple):
    """A measure given what is observed of y.

    Parameters
    ----------
    measure
        The conditional measure.
    log_mass
        Log of the probability of what is observed.
    """

    measure: AbstractMeasure
    log_mass: Scalar
