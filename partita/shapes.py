"""Few shapes, so that few programs are compiled: numbers of rows are rounded up to buckets, and padded."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from .types import PyTree

__all__ = ["bucket", "on_device", "pad_rows", "pad_weights"]

# Fewer rows than this share one shape.
LEAST_BUCKET = 64


def bucket(n: int, least: int = LEAST_BUCKET) -> int:
    """The number of rows that n rows are padded to: at most a quarter more, from `least` on.

    Parameters
    ----------
    n
        A number of rows.
    least
        The smallest bucket, a power of two.

    Returns
    -------
    int
        4, 5, 6 or 7 times a power of two, or `least`.

    Examples
    --------
    >>> [bucket(n) for n in (3, 64, 65, 100, 257, 1000)]
    [64, 64, 80, 112, 320, 1024]
    """
    if n <= least:
        return least
    step = 1 << max(0, (n - 1).bit_length() - 3)
    return -(-n // step) * step


def pad_rows(tree: PyTree, size: int) -> PyTree:
    """Arrays whose rows are repeated up to a size; the repeated rows are for weights of 0.

    Parameters
    ----------
    tree
        Arrays with the rows as leading axis.
    size
        The number of rows to pad to.

    Returns
    -------
    PyTree
        The padded arrays, on the host.
    """

    def pad(leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        leaf = np.asarray(leaf)
        return leaf[np.minimum(np.arange(size), len(leaf) - 1)]

    return jax.tree.map(pad, tree)


def pad_weights(weight: Any, n: int, size: int, factor: float) -> np.ndarray:
    """Weights of n rows times a factor, and 0 for the padded rows.

    Parameters
    ----------
    weight
        One per row; None: all are 1.
    n
        The number of rows.
    size
        The number of rows with the padded ones.
    factor
        Such that a mean over all rows is the mean over those that count.

    Returns
    -------
    ndarray
        One per row, the padded ones included.
    """
    weights = np.zeros(size)
    weights[:n] = factor * (1.0 if weight is None else np.asarray(weight, float))
    return weights


def on_device(array: Any, dtype: Any = None) -> jax.Array:
    """`jnp.asarray` without a compilation for every new shape.

    Parameters
    ----------
    array
        Anything numpy takes.
    dtype
        As for numpy; JAX's precision decides between 32 and 64 bits.

    Returns
    -------
    Array
        On the default device.
    """
    return jax.device_put(np.asarray(array, dtype))
