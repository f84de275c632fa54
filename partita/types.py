"""Types that every module shares: arrays, a batch of data, one row of it, draws, and how a fit ended."""

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
    """Rows of data; every field that is not None has the rows as its leading axis.

    Parameters
    ----------
    x
        Features.
    y
        Observed outputs.
    index
        Positions in the training set; None if these are not training rows.
    weight
        A weight per row; None if all are 1.
    reference
        A measure q(y|x) whose arrays have one leading axis for the rows; None for the model's own q.
    target
        What an objective compares y with: another output, or a score.
    mask
        0 where y_j is observed; None if all of every y is. In label sets 1 marks a missing label, whatever y is there.
        In rankings the labels of a row with the same positive number are tied: they share the ranks that y gives them,
        in unknown order. A list of the first m labels has all other labels in one group.
    """

    x: Float[Array, " n *features"]
    y: Int[Array, " n *shape"]
    index: Int[Array, " n"] | None = None
    weight: Float[Array, " n"] | None = None
    reference: PyTree = None
    target: PyTree = None
    mask: Int[Array, " n k"] | None = None


class Row(eqx.Module):
    """What tau and the couplings read of one x; `EBM.row` builds it.

    Parameters
    ----------
    x
        Features.
    theta
        The logits h(x).
    index
        The position in the training set; None if this is not a training row.
    q
        The reference q(.|x).
    surrogate
        The `structures.SurrogateRow` of the model's surrogate; None without a surrogate.
    """

    x: Float[Array, " *features"]
    theta: Float[Array, " *theta"]
    index: Int[Array, ""] | None
    q: PyTree
    surrogate: PyTree = None


class Draws(eqx.Module):
    """Draws y' from a proposal r for a batch.

    Parameters
    ----------
    y
        The outputs, of shape (draws, *y) if shared, else (rows, draws, *y).
    log_weight
        log q(y')/r(y') of each draw.
    shared
        Whether all rows share one set of draws.
    """

    y: Int[Array, " ..."]
    log_weight: Float[Array, " *rows draws"]
    shared: bool = eqx.field(static=True)


class RESULTS(enum.Enum):  # numpydoc ignore=PR01
    """How a fit ended; the value of a member is its description."""

    completed = "all steps were done"
    stopped_early = "the validation score stopped improving"
    stopped_by_callback = "a callback asked to stop"
    interrupted = "interrupted from the keyboard"
    exhausted = "the host iterator ran out of rows"
    diverged = "the loss or the energy ran away; lower the learning rate or raise the penalty"
    non_finite = "the loss or its gradient became non-finite; the last good parameters were kept"
