"""What a decision is made from: p(.|x) as outputs with their probabilities."""

from collections.abc import Callable, Iterator
from typing import Any

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
    """p(.|x) of n rows: outputs, (n, m, *y) or (m, *y) for all rows alike, and their probabilities, (n, m).

    Weights are scaled to sum to one. `exact`: these are all outputs and their exact probabilities; otherwise they are
    draws, in which an output may come more than once.
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
        """The effective number of draws of each row, infinite where nothing was drawn; below 20 trust no answer."""
        return np.full(len(self.weight), np.inf) if self.exact else 1 / np.sum(self.weight**2, axis=1)

    def rows(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The outputs (m, *y) and probabilities (m,) of each row."""
        for i, weight in enumerate(self.weight):
            yield (self.y if self._shared else self.y[i]), weight

    def mean(self, statistic: Callable[[np.ndarray], np.ndarray]) -> Float[np.ndarray, " n ..."]:
        """E_p[statistic(y)] of each row; the statistic maps (m, *y) outputs to (m, ...) numbers."""
        if self._shared:
            return np.tensordot(self.weight, statistic(self.y), 1)
        return np.stack([np.tensordot(weight, statistic(y), 1) for y, weight in self.rows()])

    def marginals(self) -> Float[np.ndarray, " n ..."]:
        """P(y_j = 1) for label sets, (n, k); P(label j has rank p) for rankings, (n, k, k)."""
        return self.mean(lambda y: np.asarray(jax.vmap(self.space.indicators)(jnp.asarray(y))))

    @property
    def _shared(self) -> bool:
        return self.y.ndim == 1 + len(self.space.shape)


def joint(model: EBM, x: Any, *, key: Key | None = None, num: int = 1000, reference: PyTree = None) -> Joint:
    """p(.|x) of each x: all of Y with exact probabilities up to 16,384 outputs, `num` draws from there on.

    Draws are from p itself where an exact method reaches; elsewhere from the model's surrogate, or q if it has none,
    weighted by p over what they were drawn from.
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
    """P(label a before label b) at [a, b]; the diagonal is 0."""
    space: Any = as_joint(p, "preferences", True).space
    return p.mean(lambda y: np.asarray(space.order(jnp.asarray(y))))


def top_k(p: Joint, num: int) -> tuple[Int[np.ndarray, " n num *y"], Float[np.ndarray, "n num"]]:
    """The `num` most probable outputs of each row and their probabilities, in falling order.

    Of an exact joint: how often an output is drawn does not tell how probable it is. `inference.top_k` needs no joint.
    """
    found = most_weight(as_joint(p, "top_k"), num)
    if not p.exact:
        raise ValueError(
            "top_k needs a joint of all outputs; counts of draws say little about single ones. Ask the model: "
            "inference.top_k(model, x, num)."
        )
    return found


def most_weight(p: Joint, num: int) -> tuple[Int[np.ndarray, " n num *y"], Float[np.ndarray, "n num"]]:
    """The `num` outputs with the largest weights, equal ones added up; where fewer differ, the last again with 0."""
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
    return np.stack(y), np.stack(probability)


def as_joint(p: Any, rule: str, rankings: bool | None = None) -> Joint:
    """p, where it is a joint over what the rule is about."""
    if not isinstance(p, Joint):
        raise TypeError(
            f"{rule} needs a Joint: marginals do not say what comes together. Make one with decisions.joint(model, x); "
            f"got {type(p).__name__}."
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
