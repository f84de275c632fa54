"""p(.|x) as outputs with their probabilities, from which decisions are made."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .. import budget, exact, inference, samplers
from ..inference.answers import weighted_draws
from ..inference.rows import over_rows, sum_over_rows
from ..model import EBM
from ..structures import AbstractRankings, AbstractSpace
from ..types import Array, Key, PyTree, Row

KINDS = {True: "rankings", False: "label sets"}
ADVICE = {
    True: "For label sets there are Mode, Hamming, F1 and MicroF1.",
    False: "For rankings there are Mode, Borda and Kemeny.",
}


class Joint(eqx.Module):
    """p(.|x) of n rows as outputs with probabilities.

    Parameters
    ----------
    space
        The output space Y.
    y
        The outputs, of shape (n, m, *y), or (m, *y) if all rows share them.
    weight
        Their weights, of shape (n, m), which are scaled to sum to one in each row.
    exact
        Whether these are all outputs with their exact probabilities; otherwise they are draws, in which an output may
        occur more than once.

    Examples
    --------
    >>> from partita.structures import Hypercube
    >>> p = Joint(Hypercube(2), [[0, 0], [1, 0], [1, 1]], [[0.4, 0.35, 0.25]], exact=True)
    >>> p.marginals().round(4).tolist()
    [[0.6, 0.25]]
    """

    space: AbstractSpace
    y: Int[np.ndarray, " ..."]
    weight: Float[np.ndarray, "n m"]
    exact: bool = eqx.field(static=True)

    def __init__(self, space: AbstractSpace, y: Any, weight: Any, *, exact: bool = False):
        y, weight = np.asarray(y), np.asarray(weight, float)
        _check_joint(space, y, weight)
        self.space, self.y, self.exact = space, y, exact
        self.weight = weight / weight.sum(axis=1, keepdims=True)

    @property
    def effective(self) -> Float[np.ndarray, " n"]:
        """The effective number of draws of each row, infinite if `exact`; below 20 decisions are unreliable."""
        return np.full(len(self.weight), np.inf) if self.exact else 1 / np.sum(self.weight**2, axis=1)

    def rows(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Iterate over the rows.

        Yields
        ------
        y : array of shape (m, *y)
            The outputs of a row.
        weight : array of shape (m,)
            Their probabilities.
        """
        for i, weight in enumerate(self.weight):
            yield (self.y if self._shared else self.y[i]), weight

    def mean(self, statistic: Callable[[np.ndarray], np.ndarray]) -> Float[np.ndarray, " n ..."]:
        """Compute E_p[statistic(y)] for each row.

        Parameters
        ----------
        statistic
            A function from (m, *y) outputs to (m, *stat) numbers.

        Returns
        -------
        array of shape (n, *stat)
            The expectations.
        """
        if self._shared:
            return np.tensordot(self.weight, statistic(self.y), 1)
        return np.stack([np.tensordot(weight, statistic(y), 1) for y, weight in self.rows()])

    def marginals(self) -> Float[np.ndarray, " n ..."]:
        """Compute the marginals of each row.

        Returns
        -------
        array of shape (n, k) or (n, k, k)
            P(y_j = 1 | x) for label sets; P(label j has rank p | x) at [j, p] for rankings.
        """
        return self.mean(lambda y: np.asarray(jax.vmap(self.space.indicators)(jnp.asarray(y))))

    @property
    def _shared(self) -> bool:
        return self.y.ndim == 1 + len(self.space.shape)


class TopOutputs(NamedTuple):
    """The most probable outputs of each of n rows, in falling order of p.

    Parameters
    ----------
    y
        The outputs, of shape (n, num, *y).
    probability
        Their probabilities, of shape (n, num).
    """

    y: Int[np.ndarray, " n num *y"]
    probability: Float[np.ndarray, "n num"]


def joint(model: EBM, x: Any, *, key: Key | None = None, num: int = 1000, reference: PyTree = None) -> Joint:
    """Compute p(.|x) for each x: exact up to 16,384 outputs, by draws for more.

    Draws are from p if an exact method is affordable; otherwise from the model's surrogate, or q if it has none, with
    weights in proportion to p over that measure.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    key
        A PRNG key, for draws.
    num
        The number of draws for each row.
    reference
        Measures q(.|x) of the rows; None: the model's own q.

    Returns
    -------
    Joint
        The distributions.
    """
    if budget.can_list(model.space):
        y = model.space.elements()
        weight = sum_over_rows(eqx.Partial(_probabilities, y), model, x, reference=reference)
        return Joint(model.space, y, weight, exact=True)
    if key is None:
        raise ValueError(
            f"{model.space} has more than {budget.LISTED_OUTPUTS:,} outputs: give a key to draw, jax.random.key(0)."
        )
    if not budget.reaches(model):
        keys = jax.random.split(key, np.shape(x)[0])
        draw = eqx.Partial(weighted_draws, samplers.ImportanceSampling(num))
        return Joint(model.space, *over_rows(draw, model, x, keys, reference=reference))
    y = inference.sample(model, x, num, key=key, reference=reference)
    return Joint(model.space, y, np.ones(y.shape[:2]))


def preferences(p: Joint) -> Float[np.ndarray, "n k k"]:
    """Compute the probability that one label is ranked before another.

    Parameters
    ----------
    p
        Distributions over rankings.

    Returns
    -------
    array of shape (n, k, k)
        P(label a is ranked before label b | x) at [a, b]; the diagonal is 0.
    """
    space: Any = check_joint(p, "preferences", True).space
    return p.mean(lambda y: np.asarray(space.order(jnp.asarray(y))))


def top_k(p: Joint, num: int) -> TopOutputs:
    """Find the most probable outputs of each row; `inference.top_k` does so without a joint.

    Parameters
    ----------
    p
        Distributions with `exact=True`: counts of draws are poor estimates of single probabilities.
    num
        How many outputs for each row.

    Returns
    -------
    TopOutputs
        The outputs and their probabilities.
    """
    result = largest_weights(check_joint(p, "top_k"), num)
    if not p.exact:
        raise ValueError(
            "top_k needs a joint of all outputs; counts of draws say little about single ones. Ask the model: "
            "inference.top_k(model, x, num)."
        )
    return result


def largest_weights(p: Joint, num: int) -> TopOutputs:
    """The `num` distinct outputs with the largest total weights; if there are fewer, the last one again with 0."""
    if not 1 <= num <= p.weight.shape[1]:
        raise ValueError(f"num must be between 1 and the number of outputs, {p.weight.shape[1]}; got {num}.")
    y, probability = [], []
    for outputs, weight in p.rows():
        if not p.exact:
            outputs, which = np.unique(outputs, axis=0, return_inverse=True)
            weight = np.bincount(which.ravel(), weight)
        best = np.argpartition(-weight, min(num, len(weight)) - 1)[:num]
        best, missing = best[np.argsort(-weight[best])], (0, num - len(best))
        y.append(outputs[np.pad(best, missing, "edge")])
        probability.append(np.pad(weight[best], missing))
    return TopOutputs(np.stack(y), np.stack(probability))


def check_joint(p: Any, rule: str, rankings: bool | None = None) -> Joint:
    """p, if it is a joint over rankings, or over label sets, as the rule needs; None: over any outputs."""
    if not isinstance(p, Joint):
        raise TypeError(
            f"{rule} needs a Joint: marginals do not contain which labels occur together. Make one with "
            f"decisions.joint(model, x); got {type(p).__name__}."
        )
    if rankings is not None and rankings != _ranks(p.space):
        raise ValueError(f"{rule} is for {KINDS[rankings]}, but the outputs are of {p.space}. {ADVICE[rankings]}")
    return p


def _probabilities(y: Array, model: EBM, row: Row) -> Array:
    return jnp.exp(jax.vmap(lambda y: exact.log_prob(model, row, y))(y))


def _ranks(space: AbstractSpace) -> bool:
    return isinstance(space, AbstractRankings)


def _check_joint(space: AbstractSpace, y: np.ndarray, weight: np.ndarray) -> None:
    shared, per_row = (*weight.shape[1:], *space.shape), (*weight.shape, *space.shape)
    if weight.ndim != 2 or not weight.size or y.shape not in (shared, per_row):
        raise ValueError(
            f"weight must have shape (n, m), and y (m, *shape) or (n, m, *shape), where a y of {space} has shape "
            f"{space.shape}; got {weight.shape} and {y.shape}."
        )
    largest = y.max() if space.largest is None else space.largest
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() > largest:
        got = f"{y.dtype} from {y.min()} to {y.max()}"
        raise ValueError(f"Outputs of {space} are integers from 0 to {largest}; got {got}. Ranks start at 0.")
    if not np.isfinite(weight).all() or (weight < 0).any() or not weight.any(axis=1).all():
        raise ValueError("weight must be finite and non-negative, and not all zero in any row.")
