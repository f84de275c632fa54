"""Questions about y given that some of its labels are known."""

from typing import Any

import jax
import numpy as np

from .. import partial
from .._types import Array, Float, Key, PyTree
from ..model import EBM
from .partitions import Method, log_partition


def given(model: EBM, x: Any, known: Any, *, reference: PyTree = None) -> tuple[EBM, PyTree]:
    """The model of p(y | x, what is known of y), and the reference of each row that holds it: every answer takes them.

        held, reference = inference.given(model, x, known)
        inference.marginals(held, x, reference=reference)  # also mode, sample, before, log_prob, decisions.joint, ...

    `known` has one row per x, or one for all: -1 where a label is not known, else its y_j, 0 or 1 for sets and the rank
    for rankings. Labels are held by a reference that excludes other outputs, and so the surrogate holds them too. The
    normalizer of the held model is not learned: its tau is the surrogate's bound.
    """
    held, reference, log_q = partial.hold(model, *partial.check_known(model.space, known, np.shape(x)[0]), reference)
    if (impossible := np.flatnonzero(np.isneginf(log_q))).size:
        raise ValueError(
            f"What is known of {impossible.size} rows has probability 0 under the reference, the first is row "
            f"{impossible[0]}: nothing can be said given that."
        )
    return held, reference


def evidence(
    model: EBM, x: Any, known: Any, *, method: Method = "exact", key: Key | None = None, reference: PyTree = None
) -> Float[Array, " n"]:
    """log P(the known labels | x): the sum of p over all y that agree with them.

    `method` is that of `log_partition`, asked with the labels held and without; "learned" has no value with them held.
    """
    y, free = partial.check_known(model.space, known, np.shape(x)[0])
    return agreeing(model, x, y, free, method=method, key=key, reference=reference)


def agreeing(
    model: EBM, x: Any, y: Array, free: Array, *, method: Method, key: Key | None, reference: PyTree
) -> Float[Array, " n"]:
    """log of the sum of p over all outputs that agree with (y, free) as in `Batch`, by holding them."""
    if method == "learned":
        raise ValueError("The normalizer given known labels is not learned; use 'exact', 'importance' or 'annealed'.")
    held, references, log_q = partial.hold(model, y, free, reference)
    held_key, free_key = (None, None) if key is None else jax.random.split(key)
    inside = log_partition(held, x, method=method, key=held_key, reference=references)
    return log_q + inside - log_partition(model, x, method=method, key=free_key, reference=reference)
