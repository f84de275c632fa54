"""The contract of a structure, first part: spaces Y and measures on them. `methods` has the second part.

A structure asks for the least: a space with `shape`, `size`, `sample`, `contains` and `element` trains, samples and
predicts. Everything else is a capability, a method that returns None where it is missing; `generic` has what serves
then. Nothing outside this package asks which structure it has.
"""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import budget
from ..types import Array, Bool, Float, Int, Key, Scalar

__all__ = [
    "AbstractLabels",
    "AbstractMeasure",
    "AbstractRankings",
    "AbstractSpace",
    "Conditioned",
    "Uniform",
    "whole_number",
]


def whole_number(n: Any) -> int:
    """n as a plain int: sizes are exact at any k, which numpy's integers are not."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(f"A number of labels must be an integer; got {n!r} of type {type(n).__name__}.")
    return int(n)


class AbstractSpace(eqx.Module):
    """A finite set Y of integer arrays of one shape.

    Outputs whose size differs from row to row are padded to one shape, and each row's reference q excludes (log q =
    -inf) what is not an output of that row.
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one element y."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """|Y|, exactly."""

    @abc.abstractmethod
    def sample(self, num: int, *, key: Key) -> Int[Array, " num *shape"]:
        """`num` independent uniform draws, in one call."""

    @abc.abstractmethod
    def contains(self, y: Array) -> Bool[Array, ""]:
        """Whether one array of the right shape is an element."""

    @abc.abstractmethod
    def element(self, i: Int[Array, ""]) -> Int[Array, " *shape"]:
        """The i-th element, i = 0, ..., |Y| - 1."""

    def describe(self) -> str:
        """What rows of y must look like, as a sentence for error messages."""
        return f"Rows are elements of {self}."

    def indicators(self, y: Int[Array, " *shape"]) -> Float[Array, " *stat"]:
        """The 0/1 statistics of y whose means are the marginals: y itself, unless a space has more to say."""
        return y.astype(float)

    @property
    def largest(self) -> int | None:
        """The largest entry that an output can have; None where that is not known."""
        return None

    # Local moves. If y' is a move from y, y is a move from y'.

    @property
    def max_degree(self) -> int:
        """The largest number of local moves from any y; 0 where the space has none."""
        return 0

    def degree(self, y: Int[Array, " *shape"]) -> Int[Array, ""]:
        """How many outputs are one local move away from y."""
        return jnp.asarray(self.max_degree)

    def move(self, y: Int[Array, " *shape"], i: Int[Array, ""]) -> Int[Array, " *shape"]:
        """The i-th output one local move away from y, i = 0, ..., degree(y) - 1; y itself for larger i."""
        return y

    def moves(self, y: Int[Array, " *shape"]) -> Int[Array, " moves *shape"]:
        """All outputs one local move away from y, padded by y itself to `max_degree`."""
        return jax.vmap(self.move, in_axes=(None, 0))(y, jnp.arange(self.max_degree))

    def is_move(self, y: Int[Array, " *shape"]) -> Bool[Array, " moves"]:
        """Which entries of `moves` are moves, not padding."""
        return jnp.arange(self.max_degree) < self.degree(y)

    # Outputs known in part: (y, mask), where mask is 0 an entry of y is observed.

    def check_mask(self, mask: np.ndarray) -> np.ndarray:
        """The masks of several rows in normal form, or an error: 0 where y is observed, 1 where it is missing."""
        if mask.min() < 0 or mask.max() > 1:
            raise ValueError(
                f"A mask is 0 where y is observed, else 1 where a label is missing, up to 1; got {mask.min()} to "
                f"{mask.max()}."
            )
        return mask

    def agrees(
        self, y: Int[Array, " *shape"], mask: Int[Array, " *shape"], outputs: Int[Array, " num *shape"]
    ) -> Bool[Array, " num"]:
        """Which outputs agree with what is observed."""
        return ((mask > 0) | (outputs == y)).reshape(len(outputs), -1).all(axis=1)

    def complete(self, known: np.ndarray) -> np.ndarray:
        """Rows of known entries, -1 where nothing is known, with numbers at every place that `agrees` can read."""
        return np.maximum(known, 0)

    def contradicts(self, known: np.ndarray) -> np.ndarray:
        """Which rows of known entries, -1 where nothing is known, agree with no output."""
        return np.zeros(len(known), bool)

    # What other objects may ask for.

    def condition_uniform(self, y: Int[Array, " *shape"], mask: Int[Array, " *shape"]) -> "Conditioned | None":
        """The uniform measure given what is observed."""
        return None

    def label_log_probs(self) -> tuple[Float[Array, " k"], Float[Array, " k"]] | None:
        """`AbstractMeasure.label_log_probs` of the uniform measure."""
        return None

    def rank_scores(self) -> Float[Array, "k k"] | None:
        """`AbstractMeasure.rank_scores` of the uniform measure."""
        return None

    def generator_shape(self) -> tuple[int, ...] | None:
        """How many numbers `generator` makes a measure of."""
        return None

    def generator(self, parameters: Float[Array, " *parameters"]) -> "AbstractMeasure":
        """A measure with these parameters, of the family that min-max generators p(y|x) have."""
        raise NotImplementedError

    def proposal_shape(self) -> tuple[int, ...] | None:
        """How many numbers `proposal` makes a measure of."""
        return self.generator_shape()

    def proposal(self, parameters: Float[Array, " *parameters"]) -> "AbstractMeasure":
        """A measure with these parameters, of the family that amortized proposals r have. It must have a `mode`."""
        return self.generator(parameters)

    # Derived.

    @property
    def log_size(self) -> float:
        """log |Y|."""
        return math.log(self.size)

    def elements(self) -> Int[Array, " size *shape"]:
        """All of Y, refused where it would take more than 1 GiB."""
        budget.check_list(self)
        return jax.vmap(self.element)(jnp.arange(self.size))


class AbstractLabels(AbstractSpace):
    """Sets of labels: outputs are 0/1 vectors of length k."""

    k: eqx.AbstractVar[int]

    @property
    def shape(self):
        return (self.k,)

    @property
    def largest(self):
        return 1

    @property
    def flips(self) -> bool:
        """Whether the i-th local move flips label i, and that alone."""
        return False

    def check_labels(self, advice: str) -> None:
        """Raise where there are fewer than two labels."""
        if self.k < 2:
            raise ValueError(f"{type(self).__name__} needs k >= 2 labels; got k = {self.k}. {advice}")


class AbstractRankings(AbstractSpace):
    """Rankings of k labels as rank vectors: y[j] is the rank of label j, 0 is best."""

    k: eqx.AbstractVar[int]

    @property
    def shape(self):
        return (self.k,)

    @property
    def largest(self):
        return self.k - 1

    def order(self, y: Int[Array, " num k"]) -> Bool[Array, "num k k"]:
        """Entry (a, b) of each of several outputs: whether label a is ranked before label b."""
        return y[:, :, None] < y[:, None, :]


class AbstractMeasure(eqx.Module):
    """A probability over Y for one x; its arrays may carry a leading axis, one measure per row of a batch."""

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """Y."""

    @abc.abstractmethod
    def sample(self, num: int, *, key: Key) -> Int[Array, " ..."]:
        """`num` draws for each row, all in one call; without a leading axis, `num` draws."""

    @abc.abstractmethod
    def log_prob(self, y: Int[Array, " *shape"]) -> Scalar:
        """log of the probability of one y, for one row; -inf of an output that is excluded."""

    def log_probs(self, ys: Int[Array, " num *shape"]) -> Float[Array, " num"]:
        """log of the probability of each of several outputs, for one row."""
        return jax.vmap(self.log_prob)(ys)

    def check(self) -> None:
        """Raise where a parameter is no number that the measure can have: NaN or infinite, unless a class allows it."""
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(self)):
            raise ValueError(f"A {type(self).__name__} has parameters that are NaN or infinite; they must be numbers.")

    @property
    def is_uniform(self) -> bool:
        """Whether it gives every output of Y the same probability, whatever its parameters."""
        return False

    @property
    def only_excludes(self) -> bool:
        """Whether all outputs that are not excluded have the same probability, whatever its parameters."""
        return self.is_uniform

    def mode(self) -> Int[Array, " *shape"] | None:
        """A likely y, for one row."""
        return None

    def condition(self, y: Int[Array, " *shape"], mask: Int[Array, " *shape"]) -> "Conditioned | None":
        """The measure given what is observed, for one row."""
        return None

    def label_log_probs(self) -> tuple[Float[Array, " k"], Float[Array, " k"]] | None:
        """log P(y_j = 0) and log P(y_j = 1) of every label, for one row, where labels are independent.

        Apart, so that a label that is held, one of them -inf, costs no digits.
        """
        return None

    def rank_scores(self) -> Float[Array, "k k"] | None:
        """The score of each label at each rank, for one row, where each rank in turn goes to a label not yet placed in
        proportion to exp(score)."""
        return None

    def kl(self, q: "AbstractMeasure") -> Scalar | None:
        """KL(self, q), for one row, where it has a closed form."""
        return None


class Conditioned(NamedTuple):
    """A measure given what is observed of y, and log of the probability of that."""

    measure: AbstractMeasure
    log_mass: Scalar


class Uniform(AbstractMeasure):
    """q(y) = 1 / |Y|.

    Parameters
    ----------
    outputs : AbstractSpace
        Y.
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
