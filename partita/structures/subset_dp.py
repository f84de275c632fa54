"""The subset program: the sum over rankings of exp(sum_j scores[j, y_j]), a permanent, over sets of labels.

    a(S) = log sum_{j in S} exp(a(S - j) + scores[j, |S| - 1] + log q(j | S - j))

a(S) is the log-sum over all ways to give the first |S| ranks to the labels S: one layer per rank, k 2^(k-1) terms in
all. log q(j | S) is the log-weight of label j for the next rank under a sequential reference.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import budget
from ..numerics import logsumexp
from ..types import Array, Bool, Float, Int

__all__ = ["Choice", "best_rankings", "layers", "order_probabilities", "program_work", "subset_layers", "trace_back"]

# A function of the labels placed in each of several sets, and their number, to log-weights for the next rank.
Choice = Callable[[Bool[Array, "sets k"], Any], Float[Array, "sets k"]]


@functools.lru_cache(maxsize=8)
def subset_layers(k: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The layers of the subset program.

    Parameters
    ----------
    k
        The number of labels.

    Returns
    -------
    list
        For each rank p: the bit masks of the sets of p labels; and for each set S of p + 1 labels the positions of the
        sets S - j among them, and the labels j.
    """
    masks = np.arange(2**k)
    size = np.bitwise_count(masks)
    layers = [masks[size == p] for p in range(k + 1)]
    tables = []
    for before, after in itertools.pairwise(layers):
        label = np.nonzero(after[:, None] >> np.arange(k) & 1)[1].reshape(len(after), -1)
        position = np.searchsorted(before, after[:, None] ^ (1 << label))
        tables.append((before, position.astype(np.int32), label.astype(np.int32)))
    return tables


@functools.lru_cache(maxsize=8)
def _places(k: int) -> np.ndarray:
    """The position of each bit mask in the concatenated layers."""
    order = np.argsort(np.bitwise_count(np.arange(2**k)), kind="stable")
    return np.argsort(order).astype(np.int32)


def placed_labels(masks: np.ndarray, k: int) -> Bool[Array, "sets k"]:
    """Which labels are in each set, from its bit mask."""
    return jnp.asarray(masks[:, None] >> np.arange(k) & 1, bool)


def layers(
    scores: Float[Array, "k k"], choice: Choice, reduce: Callable, added: list[Array] | None = None
) -> list[Float[Array, " sets"]]:
    """a(S) for the sets of 0, 1, ..., k labels, in each layer in increasing order of the bit mask of S.

    `reduce` is logsumexp for sums, jnp.max for the mode; `added` are further terms, one array per rank.
    """
    k = scores.shape[0]
    sums = [jnp.zeros(1, scores.dtype)]
    for p, (masks, before, label) in enumerate(subset_layers(k)):
        terms = sums[-1][before] + scores[:, p][label] + choice(placed_labels(masks, k), p)[before, label]
        sums.append(reduce(terms if added is None else terms + added[p], axis=-1))
    return sums


def trace_back(
    scores: Float[Array, "k k"], choice: Choice | None, sums: Float[Array, " sets"], noise: Float[Array, "k k"]
) -> Int[Array, " k"]:
    """The ranking that gives each rank, from the last on, to the label with the largest noisy term.

    Gumbel noise makes it a draw. `sums` are the concatenated layers. Without `choice` the reference is uniform.
    """
    k = scores.shape[0]
    labels = jnp.arange(k)
    place = jnp.asarray(_places(k))

    def last(mask, p):
        before = mask ^ (1 << labels)
        term = sums[place[before]] + scores[:, p] + noise[:, p]
        if choice is not None:
            term = term + jnp.diagonal(choice(before[:, None] >> labels & 1 == 1, p))
        label = jnp.argmax(jnp.where(mask >> labels & 1 == 1, term, -jnp.inf))
        return mask ^ (1 << label), label

    _, order = jax.lax.scan(last, jnp.asarray(2**k - 1), jnp.arange(k), reverse=True)
    return jnp.argsort(order)


def best_rankings(
    scores: Float[Array, "k k"], choice: Choice, num: int
) -> tuple[Int[Array, "num k"], Float[Array, " num"]]:
    """The `num` best rankings and their scores: each set keeps the `num` best ways to reach it."""
    k = scores.shape[0]
    values, steps = jnp.full((1, num), -jnp.inf, scores.dtype).at[0, 0].set(0), []
    for p, (masks, before, label) in enumerate(subset_layers(k)):
        term = scores[:, p][label] + choice(placed_labels(masks, k), p)[before, label]
        ways = (values[before] + term[:, :, None]).reshape(len(before), -1)
        values, chosen = jax.lax.top_k(ways, num)
        steps.append((before, label, chosen))
    position, way, y = jnp.zeros(num, int), jnp.arange(num), jnp.zeros((num, k), int)
    for p, (before, label, chosen) in reversed(list(enumerate(steps))):
        step, way = jnp.divmod(chosen[position, way], num)
        y = y.at[jnp.arange(num), jnp.asarray(label)[position, step]].set(p)
        position = jnp.asarray(before)[position, step]
    return y, values[0]


def order_probabilities(scores: Float[Array, "k k"], choice: Choice) -> Float[Array, "k k"]:
    """Entry (a, b): the probability that label a is ranked before label b."""
    k = scores.shape[0]
    tables = subset_layers(k)
    zeros = [jnp.zeros(label.shape, scores.dtype) for _, _, label in tables]
    # The probability that label j completes the set S is the derivative in a term added to that step.
    steps = jax.grad(lambda added: layers(scores, choice, logsumexp, added)[-1][0])(zeros)
    total = jnp.zeros((k, k), scores.dtype)
    for (_, _, label), step in zip(tables, steps, strict=True):
        by_label = jnp.zeros((len(label), k), scores.dtype).at[np.arange(len(label))[:, None], label].set(step)
        placed = jnp.zeros_like(by_label).at[np.arange(len(label))[:, None], label].set(1)
        total = total + by_label.T @ (1 - placed)
    return total


def program_work(k: int) -> budget.Work:
    """The work of the subset program of k labels."""
    terms = k * 2 ** (k - 1)
    return budget.Work(budget.Kind.PROGRAM, terms, terms)
