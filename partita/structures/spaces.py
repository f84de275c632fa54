"""The contract of a structure: spaces Y, and the uniform measure on them.

A space with `shape`, `size`, `sample`, `contains` and `element` can be trained on, sampled and predicted. Everything
else is an optional capability: a method that returns None where it is missing, for which `generic` has a replacement.
No module outside this package depends on the class of a structure.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import budget
from ..types import Array, Bool, Float, Int, Key
from .measures import AbstractMeasure, Conditioned

__all__ = ["AbstractSpace", "Uniform", "whole_number"]


def whole_number(n: Any) -> int:
    """n as a Python int, with which sizes such as 2^k are exact for any k."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(f"A number of labels must be an integer; got {n!r} of type {type(n).__name__}.")
    return int(n)


class AbstractSpace(eqx.Module):
    """A finite set Y of integer arrays of one shape.

    If the size of outputs differs from row to row, they are padded to one shape, and the reference q of each row
    excludes what is not an output of that row (log q = -inf).
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of an output."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of outputs |Y|, exactly."""

    @abc.abstractmethod
    def sample(self, num: int, *, key: Key) -> Int[Array, " num *shape"]:
        """Independent uniform draws, all in one call.

        Parameters
        ----------
        num
            The number of draws.
        key
            For the draws.
        """

    @abc.abstractmethod
    def contains(self, y: Array) -> Bool[Array, ""]:
        """Whether an array is an output.

        Parameters
        ----------
        y
            An array of the right shape.
        """

    @abc.abstractmethod
    def element(self, i: Int[Array, ""]) -> Int[Array, " *shape"]:
        """The i-th output.

        Parameters
        ----------
        i
            A number among 0, ..., |Y| - 1.
        """

    def describe(self) -> str:
        """A description of valid rows of y, for error messages.

        Returns
        -------
        str
            A sentence.
        """
        return f"Rows are elements of {self}."

    def indicators(self, y: Int[Array, " *shape"]) -> Float[Array, " *stat"]:
        """The 0/1 statistics of y whose means are the marginals; by default y itself.

        Parameters
        ----------
        y
            An output.

        Returns
        -------
        Array
            The statistics, as floats.
        """
        return y.astype(float)

    @property
    def largest(self) -> int | None:
        """The largest entry of all outputs; None if it is not known."""
        return None

    # Local moves are symmetric: if y' is one move away from y, y is one move away from y'.

    @property
    def max_degree(self) -> int:
        """The largest number of local moves from any y; 0 if the space has none."""
        return 0

    def degree(self, y: Int[Array, " *shape"]) -> Int[Array, ""]:
        """The number of outputs one local move away from y.

        Parameters
        ----------
        y
            An output.

        Returns
        -------
        Array
            A number up to `max_degree`.
        """
        return jnp.asarray(self.max_degree)

    def move(self, y: Int[Array, " *shape"], i: Int[Array, ""]) -> Int[Array, " *shape"]:
        """The i-th output one local move away from y.

        Parameters
        ----------
        y
            An output.
        i
            The number of the move, from 0 on.

        Returns
        -------
        Array
            Another output for i < degree(y), y itself for larger i.
        """
        return y

    def moves(self, y: Int[Array, " *shape"]) -> Int[Array, " moves *shape"]:
        """All outputs one local move away from y.

        Parameters
        ----------
        y
            An output.

        Returns
        -------
        Array
            `max_degree` outputs; those from degree(y) on are y itself.
        """
        return jax.vmap(self.move, in_axes=(None, 0))(y, jnp.arange(self.max_degree))

    def is_move(self, y: Int[Array, " *shape"]) -> Bool[Array, " moves"]:
        """Which entries of `moves` are not padding.

        Parameters
        ----------
        y
            An output.

        Returns
        -------
        Array
            True for the first degree(y) entries.
        """
        return jnp.arange(self.max_degree) < self.degree(y)

    # Outputs known in part: an output y and a mask, which is 0 where y is observed.

    def check_mask(self, mask: np.ndarray) -> np.ndarray:
        """Check masks, and bring them to normal form.

        Parameters
        ----------
        mask
            One mask per row: 0 where y is observed, 1 where it is missing.

        Returns
        -------
        ndarray
            The masks in normal form.

        Raises
        ------
        ValueError
            If a mask has other numbers.
        """
        if mask.min() < 0 or mask.max() > 1:
            raise ValueError(
                f"A mask is 0 where y is observed and 1 where a label is missing; got numbers from {mask.min()} to "
                f"{mask.max()}."
            )
        return mask

    def agrees(
        self, y: Int[Array, " *shape"], mask: Int[Array, " *shape"], outputs: Int[Array, " num *shape"]
    ) -> Bool[Array, " num"]:
        """Which outputs agree with what is observed.

        Parameters
        ----------
        y, mask
            An output, and a mask that is 0 where y is observed.
        outputs
            The outputs to compare.

        Returns
        -------
        Array
            A bool per output.
        """
        return ((mask > 0) | (outputs == y)).reshape(len(outputs), -1).all(axis=1)

    def complete(self, known: np.ndarray) -> np.ndarray:
        """Fill in unknown entries, so that `agrees` can read the rows.

        Parameters
        ----------
        known
            Rows of y with -1 for unknown entries.

        Returns
        -------
        ndarray
            The rows with arbitrary valid entries in place of -1.
        """
        return np.maximum(known, 0)

    def contradicts(self, known: np.ndarray) -> np.ndarray:
        """Which rows of known entries agree with no output.

        Parameters
        ----------
        known
            Rows of y with -1 for unknown entries.

        Returns
        -------
        ndarray
            A bool per row.
        """
        return np.zeros(len(known), bool)

    # Optional capabilities.

    def condition_uniform(self, y: Int[Array, " *shape"], mask: Int[Array, " *shape"]) -> Conditioned | None:
        """`AbstractMeasure.condition` of the uniform measure.

        Parameters
        ----------
        y, mask
            An output, and a mask that is 0 where y is observed.
        """
        return None

    def label_log_probs(self) -> tuple[Float[Array, " k"], Float[Array, " k"]] | None:
        """`AbstractMeasure.label_log_probs` of the uniform measure."""
        return None

    def rank_scores(self) -> Float[Array, "k k"] | None:
        """`AbstractMeasure.rank_scores` of the uniform measure."""
        return None

    def generator_shape(self) -> tuple[int, ...] | None:
        """The shape of the parameters of `generator`; None if the space has no such family."""
        return None

    def generator(self, parameters: Float[Array, " *parameters"]) -> AbstractMeasure:
        """A measure of the family that min-max generators p(y|x) use.

        Parameters
        ----------
        parameters
            An array of shape `generator_shape()`.
        """
        raise NotImplementedError

    def proposal_shape(self) -> tuple[int, ...] | None:
        """The shape of the parameters of `proposal`.

        Returns
        -------
        tuple or None
            The shape, by default `generator_shape()`; None if the space has no such family.
        """
        return self.generator_shape()

    def proposal(self, parameters: Float[Array, " *parameters"]) -> AbstractMeasure:
        """A measure of the family that amortized proposals r use.

        Parameters
        ----------
        parameters
            An array of shape `proposal_shape()`.

        Returns
        -------
        AbstractMeasure
            A measure with a `mode`, by default that of `generator`.
        """
        return self.generator(parameters)

    # Derived.

    @property
    def log_size(self) -> float:
        """log |Y|."""
        return math.log(self.size)

    def elements(self) -> Int[Array, " size *shape"]:
        """All outputs of Y.

        Returns
        -------
        Array
            The outputs, in the order of `element`.

        Raises
        ------
        TooLargeError
            If they take more than 1 GiB.
        """
        budget.check_list(self)
        return jax.vmap(self.element)(jnp.arange(self.size))


class Uniform(AbstractMeasure):
    """The uniform measure q(y) = 1 / |Y|.

    Parameters
    ----------
    outputs
        The space Y.
    """

    outputs: AbstractSpace

    @property
    def space(self):
        return self.outputs

    def sample(self, num, *, key):
        return self.outputs.sample(num, key=key)

    def log_prob(self, y):
        return jnp.asarray(-self.outputs.log_size, float)

    @property
    def is_uniform(self):
        return True

    def condition(self, y, mask):
        return self.outputs.condition_uniform(y, mask)

    def label_log_probs(self):
        return self.outputs.label_log_probs()

    def rank_scores(self):
        return self.outputs.rank_scores()
