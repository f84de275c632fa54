"""Expectations under p and draws from it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import exact, kernels, samplers
from ..divergences import KL
from ..model import EBM
from ..structures import AbstractRankings, AbstractSpace
from ..types import Array, Float, Int, Key, PyTree, Row
from .rows import check_index, over_rows, row_keys, sum_over_rows

MIN_PARTICLES = 64
# The least number of draws of each chain, to compare it with the others.
MIN_DRAWS = 50
# How to draw: by name, by a kernel, or by annealing.
Drawing = str | kernels.AbstractKernel | samplers.AbstractAnnealing


class Chains(NamedTuple):
    """Draws of several chains for each of n rows, and whether the chains agree.

    Parameters
    ----------
    y
        The draws, of shape (n, num, *y).
    r_hat
        Of shape (n,), the largest R-hat over all marginals: near 1 where the chains agree. If it is far above 1, some
        modes of p are visited too often, or not at all.
    """

    y: Int[Array, " n num *y"]
    r_hat: Float[Array, " n"]


def marginals(
    model: EBM,
    x: Any,
    *,
    method: Drawing = "exact",
    num: int = 1000,
    key: Key | None = None,
    burn_in: int = 100,
    thin: int = 1,
    index: Any = None,
    reference: PyTree = None,
) -> Float[Array, " n *stat"]:
    """Compute the marginals of p(.|x) for each x.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    method
        "exact"; or the mean over draws, by any method of `sample` or by "importance": weighted draws of the surrogate.
    num
        The number of draws.
    key
        A PRNG key, for methods that draw.
    burn_in, thin, index, reference
        As for `sample`.

    Returns
    -------
    array of shape (n, k) or (n, k, k)
        P(y_j = 1 | x) for label sets; P(label j has rank p | x) at [j, p] for rankings.

    Examples
    --------
    >>> from partita.couplings import Bilinear
    >>> from partita.model import Bound, Energy
    >>> from partita.structures import Cube
    >>> model = EBM(Energy(eqx.nn.Identity(), Bilinear(Cube(2))), Bound())
    >>> np.asarray(marginals(model, np.array([[2.0, -1.0]])), float).round(4).tolist()
    [[0.8808, 0.2689]]
    """
    draw = _drawing(model, method, num, burn_in, thin)
    fn = exact.marginals if draw is None else eqx.Partial(_mean, draw, _indicators)
    return _expectation(fn, model, x, method, key, index, reference)


def mean(
    model: EBM, x: Any, statistic: Callable[[Array], Array], *, reference: PyTree = None
) -> Float[Array, " n *stat"]:
    """Compute E_p[statistic(y)] for each x, exactly, by enumeration.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    statistic
        A function at the level of a module from (num, *y) outputs to (num, *stat) numbers.
    reference
        Measures q(.|x) of the rows; None: the model's own q.

    Returns
    -------
    array of shape (n, *stat)
        The expectations.
    """
    return sum_over_rows(eqx.Partial(exact.mean, statistic=statistic), model, x, reference=reference)


def before(
    model: EBM,
    x: Any,
    *,
    method: Drawing = "exact",
    num: int = 1000,
    key: Key | None = None,
    burn_in: int = 100,
    thin: int = 1,
    index: Any = None,
    reference: PyTree = None,
) -> Float[Array, "n k k"]:
    """Compute the probability that one label is ranked before another for each x.

    Parameters
    ----------
    model
        A model of rankings.
    x, method, num, key, burn_in, thin, index, reference
        As for `marginals`.

    Returns
    -------
    array of shape (n, k, k)
        P(label a is ranked before label b | x) at [a, b].
    """
    if not isinstance(model.space, AbstractRankings):
        raise ValueError(f"Which label comes before which is asked of rankings, not of {model.space}.")
    draw = _drawing(model, method, num, burn_in, thin)
    fn = exact.before if draw is None else eqx.Partial(_mean, draw, _order)
    return _expectation(fn, model, x, method, key, index, reference)


def sample(
    model: EBM,
    x: Any,
    num: int,
    *,
    key: Key,
    method: Drawing = "exact",
    burn_in: int = 100,
    thin: int = 1,
    index: Any = None,
    reference: PyTree = None,
) -> Int[Array, " n num *y"]:
    """Draw from p(.|x) for each x.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    num
        The number of draws for each row.
    key
        A PRNG key.
    method
        "exact", independent draws. Where no exact method is affordable: a kernel of `kernels`, one chain per row that
        starts at a draw from the surrogate's r (or q); "sequential", or an annealing estimator of `samplers`, draws
        from its particles.
    burn_in
        The number of steps of a chain before the first draw.
    thin
        The number of steps of a chain from draw to draw.
    index
        Positions in the training set, which a `model.Table` needs: for f other than KL chains use the learned tau.
    reference
        Measures q(.|x) of the rows; None: the model's own q.

    Returns
    -------
    array of shape (n, num, *y)
        The draws.
    """
    if method == "importance":
        raise ValueError("Importance sampling gives weighted draws: use it for marginals, or decisions.joint.")
    draw = _drawing(model, method, num, burn_in, thin)
    keys = row_keys(key, x, method)
    if draw is None:
        return sum_over_rows(eqx.Partial(_sample_exactly, num), model, x, keys, reference=reference)
    index = _chain_index(model, x, method, index)
    return over_rows(eqx.Partial(_outputs, draw), model, x, keys, index=index, reference=reference)


def sample_chains(
    model: EBM,
    x: Any,
    num: int,
    *,
    key: Key,
    kernel: kernels.AbstractKernel | None = None,
    chains: int = 4,
    burn_in: int = 100,
    index: Any = None,
    reference: PyTree = None,
) -> Chains:
    """Draw from several chains for each x, half of which start at draws from the surrogate's r, half from q.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    num
        The number of draws for each row, from all chains together.
    key
        A PRNG key.
    kernel
        What moves the chains; `kernels.Gibbs()` by default.
    chains
        The number of chains for each row, at least 2.
    burn_in, index, reference
        As for `sample`.

    Returns
    -------
    Chains
        The draws, and whether the chains agree.
    """
    kernel = kernels.Gibbs() if kernel is None else kernel
    if chains < 2:
        raise ValueError(f"To compare chains takes at least 2; got {chains}.")
    kernels.check_length(num, burn_in)
    kernel.check(model.space)
    index = _chain_index(model, x, kernel, index)
    fn = eqx.Partial(_run_chains, kernel, num, chains, burn_in)
    return over_rows(fn, model, x, row_keys(key, x, kernel), index=index, reference=reference)


def weighted_draws(
    sampling: samplers.ImportanceSampling, model: EBM, row: Row, key: Key
) -> tuple[Int[Array, " num *y"], Float[Array, " num"]]:
    """Draw for one row with the masses q/r (f+*)'(g - tau) as weights, at the tau where their mean is 1.

    Parameters
    ----------
    sampling
        The number of draws, and the share of them from q.
    model, row
        The model and one x, from `EBM.row`.
    key
        A PRNG key.

    Returns
    -------
    y : array of shape (num, *y)
        The draws.
    weight : array of shape (num,)
        Their weights.
    """
    y, g, log_weight = sampling.draw(model, row, key=key)
    return y, samplers.masses(model, g, log_weight, samplers.tau_of_unit_mass(model, g, log_weight))


def _sample_exactly(num: int, model: EBM, row: Row, key: Key) -> Array:
    return exact.sample(model, row, num, key=key)


def _run_chain(
    kernel: kernels.AbstractKernel, num: int, burn_in: int, thin: int, model: EBM, row: Row, key: Key
) -> tuple[Array, Array]:
    """Draws of one chain that starts at a draw from the surrogate's r, with equal weights."""
    p = kernels.target(model, row)
    start_key, run_key = jax.random.split(key)
    start = p.r.sample(1, key=start_key)
    y, _ = kernels.run(kernel, p, start, num, burn_in=burn_in, thin=thin, key=run_key)
    return y[0], jnp.ones(num)


def _run_chains(
    kernel: kernels.AbstractKernel, num: int, chains: int, burn_in: int, model: EBM, row: Row, key: Key
) -> Chains:
    """Draws of several chains, and their R-hat."""
    p = kernels.target(model, row)
    r_key, q_key, run_key = jax.random.split(key, 3)
    half, draws = chains // 2, max(MIN_DRAWS, -(-num // chains))
    starts = jnp.concatenate([p.r.sample(half, key=r_key), row.q.sample(chains - half, key=q_key)])
    y, _ = kernels.run(kernel, p, starts, draws, burn_in=burn_in, key=run_key)
    indicators = jax.vmap(jax.vmap(model.space.indicators))(y)
    # Labels that no chain ever moves have no R-hat.
    r_hat = jnp.nan_to_num(kernels.r_hat(indicators), nan=1.0, posinf=jnp.inf).max()
    # In the order of the steps over all chains, `num` of the draws, evenly spread.
    by_step = jnp.swapaxes(y, 0, 1).reshape(-1, *model.space.shape)
    return Chains(by_step[np.linspace(0, len(by_step) - 1, num).astype(int)], r_hat)


def _resample(annealing: samplers.AbstractAnnealing, num: int, model: EBM, row: Row, key: Key) -> tuple[Array, Array]:
    draw_key, sample_key = jax.random.split(key)
    particles = annealing.draw(model, row, key=draw_key)
    return particles.sample(num, key=sample_key), jnp.ones(num)


def _outputs(draw: Callable, model: EBM, row: Row, key: Key) -> Array:
    return draw(model, row, key)[0]


def _mean(draw: Callable, statistic: Callable, model: EBM, row: Row, key: Key) -> Array:
    """The mean of a statistic over weighted draws."""
    y, weight = draw(model, row, key)
    return jnp.tensordot(weight / weight.sum(), statistic(model.space, y).astype(weight.dtype), 1)


def _indicators(space: AbstractSpace, y: Array) -> Array:
    return jax.vmap(space.indicators)(y)


def _order(space: AbstractRankings, y: Array) -> Array:
    return space.order(y)


def _expectation(
    fn: Callable, model: EBM, x: Any, method: Drawing, key: Key | None, index: Any, reference: PyTree
) -> Any:
    """Call fn for every row, with a key unless it is exact."""
    index = _chain_index(model, x, method, index)
    if method == "exact":
        values = sum_over_rows(fn, model, x, index=index, reference=reference)
        # Rounding may leave a probability just outside its range. By numpy: jax would compile this for every n.
        return jax.device_put(np.clip(np.asarray(values), 0, 1))
    return over_rows(fn, model, x, row_keys(key, x, method), index=index, reference=reference)


def _chain_index(model: EBM, x: Any, method: Drawing, index: Any) -> Any:
    """Check the index, which chains need under f other than KL, because they use the learned tau."""
    learned = isinstance(method, kernels.AbstractKernel) and not isinstance(model.f, KL)
    return check_index(model, index, x, learned=learned)


def _drawing(model: EBM, method: Drawing, num: int, burn_in: int, thin: int) -> Callable | None:
    """A function (model, row, key) -> (outputs, weights); None for "exact"."""
    if num < 1:
        raise ValueError(f"num must be at least 1 draw per row; got {num}.")
    if isinstance(method, kernels.AbstractKernel):
        kernels.check_length(num, burn_in, thin)
        method.check(model.space)
        return eqx.Partial(_run_chain, method, num, burn_in, thin)
    if method == "importance":
        return eqx.Partial(weighted_draws, samplers.ImportanceSampling(num))
    if method == "sequential":
        method = samplers.SequentialMonteCarlo(max(num, MIN_PARTICLES))
    if isinstance(method, samplers.AbstractAnnealing):
        method.check(model)
        return eqx.Partial(_resample, method, num)
    if method != "exact":
        raise ValueError(
            "method must be 'exact', 'importance', 'sequential', a kernel of partita.kernels or an annealing estimator "
            f"of partita.samplers; got {method!r}."
        )
    return None
