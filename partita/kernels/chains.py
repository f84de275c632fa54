"""Chains of a kernel, and what their draws are worth."""

import math

import jax
import jax.numpy as jnp

from ..types import Array, Float, Int, Key
from .base import AbstractKernel, AbstractTarget, Info


def run(
    kernel: AbstractKernel,
    target: AbstractTarget,
    y: Int[Array, " chains *y"],
    num: int,
    *,
    burn_in: int = 0,
    thin: int = 1,
    key: Key,
) -> tuple[Int[Array, " chains num *y"], Info]:
    """Run chains of a kernel on one row.

    Parameters
    ----------
    kernel
        What moves the chains.
    target
        What it leaves invariant.
    y
        The start of each chain.
    num
        The number of draws of each chain.
    burn_in
        The least number of steps before the first draw; it is rounded up to a multiple of `thin`.
    thin
        The number of steps from draw to draw.
    key
        A PRNG key.

    Returns
    -------
    y : array of shape (chains, num, *y)
        The draws.
    info : Info
        The mean acceptance over the steps from draw to draw, of shape (chains, num).

    Examples
    --------
    >>> from partita.couplings import Bilinear
    >>> from partita.kernels import Gibbs, run, target
    >>> from partita.model import EBM, Bound, Energy
    >>> from partita.structures import Cube
    >>> model = EBM(Energy(lambda x: x, Bilinear(Cube(3))), Bound())
    >>> p = target(model, model.row(jnp.array([2.0, 0.0, -2.0])))
    >>> y, info = run(Gibbs(), p, jnp.zeros((4, 3), int), 100, key=jax.random.key(0))
    >>> y.shape, info.acceptance.shape
    ((4, 100, 3), (4, 100))
    """
    check_length(num, burn_in, thin)
    kernel.check(target.space)
    if y.shape[1:] != target.space.shape or not y.shape[0]:
        expected = ("chains", *target.space.shape)
        raise ValueError(f"run needs one start for each of at least 1 chain, shape {expected}; got {y.shape}.")

    def move(state, keys):
        return jax.vmap(lambda state, key: kernel.step(target, state, key=key))(state, keys)

    def draw(state, key):
        # All keys of a draw in one call: drawn step by step, local moves of 14 labels took twice as long.
        state, info = jax.lax.scan(move, state, jax.random.split(key, (thin, y.shape[0])))
        return state, (state.y, jax.tree.map(lambda a: a.mean(axis=0), info))

    start = jax.vmap(lambda y: kernel.init(target, y))(y)
    discarded = -(-burn_in // thin)
    draws = jax.lax.scan(draw, start, jax.random.split(key, discarded + num))[1]
    return jax.tree.map(lambda a: jnp.moveaxis(a[discarded:], 0, 1), draws)


def check_length(num: int, burn_in: int = 0, thin: int = 1) -> None:
    """Raise a ValueError unless the numbers of draws and of steps are possible."""
    if num < 1 or burn_in < 0 or thin < 1:
        raise ValueError(
            "A chain needs num >= 1 draws, a burn_in of 0 steps or more, and thin >= 1 steps per draw; got "
            f"num = {num}, burn_in = {burn_in}, thin = {thin}."
        )


def effective_sample_size(values: Float[Array, " chains num *stat"]) -> Float[Array, " *stat"]:
    """Estimate how many independent draws the mean of the values is worth.

    Autocorrelations over all chains, each split in two, are summed up to where a pair of them is negative, and made
    monotone (Geyer's initial monotone sequence), as in Stan.

    Parameters
    ----------
    values
        Statistics of the draws of each chain.

    Returns
    -------
    array of shape stat
        The effective sample size of each statistic; nan where it never changes.
    """
    halves = _split(values)
    chains, num = halves.shape[:2]
    centered = halves - halves.mean(axis=1, keepdims=True)
    spectrum = jnp.fft.rfft(centered, 2 * num, axis=1)
    covariance = jnp.fft.irfft(jnp.abs(spectrum) ** 2, axis=1)[:, :num].mean(axis=0) / num
    within = covariance[0] * num / (num - 1)
    correlation = 1 - (within - covariance) / _variance(halves)
    pairs = correlation[: num - num % 2].reshape(num // 2, 2, *correlation.shape[1:]).sum(axis=1)
    falling = jax.lax.cummin(pairs, axis=0)
    time = 2 * jnp.sum(jnp.maximum(falling, 0), axis=0) - 1
    # Antithetic chains may be worth more than their length; Stan's limit for that.
    total = chains * num
    return jnp.where(within > 0, total / jnp.maximum(time, 1 / math.log10(total)), jnp.nan)


def r_hat(values: Float[Array, " chains num *stat"]) -> Float[Array, " *stat"]:
    """Compare the spread of all chains with that of each: the rank-normalized split R-hat.

    Parameters
    ----------
    values
        Statistics of the draws of each chain.

    Returns
    -------
    array of shape stat
        1 where the chains agree; Stan asks for at most 1.01.
    """
    halves = _split(values)
    flat = halves.reshape(halves.shape[0] * halves.shape[1], -1)

    def scores(column):
        ordered = jnp.sort(column)
        rank = (jnp.searchsorted(ordered, column, "left") + jnp.searchsorted(ordered, column, "right") + 1) / 2
        return jax.scipy.special.ndtri((rank - 3 / 8) / (column.size + 1 / 4))

    ranked = jax.vmap(scores, in_axes=1, out_axes=1)(flat).reshape(halves.shape)
    return jnp.sqrt(_variance(ranked) / ranked.var(axis=1, ddof=1).mean(axis=0))


def _split(values: Array) -> Array:
    """Each chain as two, so that one that drifts disagrees with itself."""
    if values.ndim < 2 or values.shape[1] < 4:
        raise ValueError(f"values must have shape (chains, num, ...), num >= 4 draws per chain; got {values.shape}.")
    half = values.shape[1] // 2
    return jnp.concatenate([values[:, :half], values[:, -half:]]).astype(float)


def _variance(values: Array) -> Array:
    """An upper estimate of the target's variance, from those within the chains and between them."""
    num = values.shape[1]
    return values.var(axis=1, ddof=1).mean(axis=0) * (num - 1) / num + values.mean(axis=1).var(axis=0, ddof=1)
