"""The names that every module shares: array types, a batch of data, one row of it, draws, results of a fit."""

import enum

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped
from jaxtyping import Key as KeyDtype

__all__ = [
    "RESULTS",
    "Array",
    "Batch",
    "Bool",
    "Draws",
    "Float",
    "Int",
    "Key",
    "Keys",
    "PyTree",
    "Row",
    "Scalar",
    "Shaped",
]

Key = PRNGKeyArray
Keys = KeyDtype[Array, " num"]
Scalar = Float[Array, ""]


class Batch(eqx.Module):
    """Rows of data. Every field that is not None has the rows as its leading axis.

    Attributes
    ----------
    x
        Features.
    y
        Outputs.
    index
        Positions in the training set; None: these are not training rows.
    weight
        A weight per row; None: all are 1.
    reference
        A measure q(y|x) whose arrays carry one leading axis for the rows; None: the model's own q serves all rows.
    target
        What an objective compares y with: another output, or a score.
    mask
        What is not observed of y; None: every y is whole. Where it is 0, y_j is observed. For label sets 1 (True) is a
        missing label, whatever y holds there. For rankings labels of a row with the same positive number are tied: they
        share the ranks that y gives them, in unknown order. So a list of the first m labels has all others in one
        group.
    """

    x: Float[Array, " n *features"]
    y: Int[Array, " n *shape"]
    index: Int[Array, " n"] | None = None
    weight: Float[Array, " n"] | None = None
    reference: PyTree = None
    target: PyTree = None
    mask: Int[Array, " n k"] | None = None


class Row(eqx.Module):
    """One x as tau and the couplings see it; `EBM.row` makes it.

    Attributes
    ----------
    x
        Features.
    theta
        The logits h(x).
    index
        The position in the training set; None: this is not a training row.
    q
        The reference q(.|x).
    surrogate
        The `structures.SurrogateRow` of the model's surrogate, if it has one.
    """

    x: Float[Array, " *features"]
    theta: Float[Array, " *theta"]
    index: Int[Array, ""] | None
    q: PyTree
    surrogate: PyTree = None


class Draws(eqx.Module):
    """Outputs y' that are drawn for a whole batch.

    Attributes
    ----------
    y
        The outputs.
    log_weight
        log q/r of each.
    shared
        Whether one set serves all rows; else each row has its own.
    """

    y: Int[Array, " ..."]
    log_weight: Float[Array, " *rows draws"]
    shared: bool = eqx.field(static=True)


class RESULTS(enum.Enum):
    """How a fit ended."""

    completed = "all steps were done"
    stopped_early = "the validation measure stopped improving"
    stopped_by_callback = "a callback asked to stop"
    interrupted = "interrupted from the keyboard"
    exhausted = "the host iterator ran out of rows"
    diverged = "the loss or the energy ran away; lower the learning rate or raise the penalty"
    non_finite = "the loss or its gradient became non-finite; the last good parameters were kept"
