"""Total masses, 1 where tau is right: how accurate the learned normalizer is, and the constant that corrects it."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from .. import budget, exact
from ..divergences import KL
from ..kernels import Gibbs, target
from ..model import EBM, Shifted
from ..samplers import AnnealedImportanceSampling, tau_of_unit_mass
from ..structures import AbstractMeasure, with_share_of_q
from ..types import Array, Float, Key, PyTree, Row, Scalar
from .rows import check_index, over_rows, row_keys, sum_over_rows

MIN_EFFECTIVE = 10
METHODS = ("auto", "exact", "sampled")
# Independent chains that start at q, so that they reach modes that the draws miss.
ANNEALING = AnnealedImportanceSampling(chains=64, temperatures=64, moves=1, hot=True, kernel=Gibbs())
# Outputs with a weight above so many times the mass are summed by the chains, not by the draws.
HEAVIEST = 10.0
# Share of the draws from q.
DEFENSE = 0.1
# The error of float32 sums of scores is below so many roundings of the sum of their absolute terms.
ROUNDINGS = 2


class Normalization(NamedTuple):
    """Whether p(.|x) sums to one, for each of n rows.

    Parameters
    ----------
    mass
        Of shape (n,), as are the next three: the total mass sum_y q (f+*)'(g - tau), summed exactly or estimated.
    low, high
        An interval that contains the mass with the given confidence; for an exact mass its rounding error. Where there
        are too few effective draws the interval is open: low is 0 or a certain lower bound, and high is infinite.
    effective
        The effective number of draws, infinite for an exact mass. With fewer than 10 the interval is open.
    confidence, tolerance
        The arguments of `normalization`.
    """

    mass: np.ndarray
    low: np.ndarray
    high: np.ndarray
    effective: np.ndarray
    confidence: float
    tolerance: float

    @property
    def left_out(self) -> int:
        """The number of rows with an open interval that `error` and `verdict` leave out.

        All of these rows if they are at most a tenth, or one of at least 3; otherwise none.
        """
        num, n = int(np.isinf(self.high).sum()), len(self.high)
        return num if 10 * num <= n or (num == 1 and n >= 3) else 0

    @property
    def error(self) -> tuple[float, float]:
        """The least and the largest mean |log mass| that the intervals allow, in nats."""
        rows = np.isfinite(self.high) if self.left_out else np.full(len(self.high), True)
        with np.errstate(divide="ignore"):
            low, high = np.log(self.low[rows]), np.log(self.high[rows])
        inside = (low <= 0) & (high >= 0)
        nearest = np.where(inside, 0.0, np.minimum(np.abs(low), np.abs(high)))
        return float(nearest.mean()), float(np.maximum(np.abs(low), np.abs(high)).mean())

    @property
    def verdict(self) -> str:
        """The verdict on the mean |log mass| over the rows, which for KL is |LSE - tau|.

        "normalized" if it is below the tolerance, "not normalized" if it is above, "undecided" if the intervals allow
        both.
        """
        least, largest = self.error
        if largest <= self.tolerance:
            return "normalized"
        return "not normalized" if least > self.tolerance else "undecided"


def normalization(
    model: EBM,
    x: Any,
    *,
    method: str = "auto",
    key: Key | None = None,
    num: int = 1000,
    confidence: float = 0.99,
    tolerance: float = 0.25,
    index: Any = None,
    reference: PyTree = None,
) -> Normalization:
    """Compute the total mass sum_y q (f+*)'(g - tau) of each x, 1 if tau is right, and a verdict on all of them.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    method
        "exact", a sum over Y. "sampled", an estimate from `num` draws of a mixture that covers the modes known to the
        surrogate, and from annealed chains that start at q and find others; it needs a `key`. "auto", "exact" where
        that is affordable.
    key
        A PRNG key, for "sampled".
    num
        The number of draws for each row.
    confidence
        Probability with which the interval of a row contains its mass.
    tolerance
        The mean |log mass|, in nats, up to which p counts as normalized.
    index
        Positions in the training set, which a `model.Table` needs.
    reference
        Measures q(.|x) of the rows; None: the model's own q.

    Returns
    -------
    Normalization
        The masses with their intervals, and the verdict.

    Raises
    ------
    budget.TooLargeError
        If method="exact" and no exact method is affordable.

    Examples
    --------
    For independent labels the surrogate's bound is the log-partition:

    >>> from partita.couplings import Bilinear
    >>> from partita.model import Bound, Energy
    >>> from partita.structures import Cube
    >>> model = EBM(Energy(eqx.nn.Identity(), Bilinear(Cube(2))), Bound())
    >>> normalization(model, np.array([[2.0, -1.0]])).verdict
    'normalized'
    """
    if not 0 < confidence < 1 or not tolerance > 0:
        raise ValueError(f"confidence must be between 0 and 1 and tolerance positive; got {confidence}, {tolerance}.")
    _check_num(num)
    index = check_index(model, index, x, learned=True)
    if _sums(model, method, reference):
        intervals = sum_over_rows(_exact_interval, model, x, index=index, reference=reference, sharpen=False)
    else:
        fn = eqx.Partial(_sampled_interval, num, jnp.asarray(scipy.stats.norm.ppf((1 + confidence) / 2)))
        intervals = over_rows(fn, model, x, row_keys(key, x, method), index=index, reference=reference)
    with np.errstate(over="ignore"):
        mass, low, high = (np.exp(np.asarray(values, np.float64)) for values in intervals[:3])
    return Normalization(mass, low, high, np.asarray(intervals[3]), confidence, tolerance)


def recalibrate(model: EBM, x: Any, *, key: Key, num: int = 1000, index: Any = None, reference: PyTree = None) -> EBM:
    """Add the constant to tau with which the mean mass of these x is 1, the minimum of the objective in it.

    Parameters
    ----------
    model
        The model.
    x
        Features, one row each.
    key
        A PRNG key.
    num
        The number of draws for each row.
    index, reference
        As for `normalization`.

    Returns
    -------
    EBM
        The model with a `model.Shifted` tau.
    """
    _check_num(num)
    index = check_index(model, index, x, learned=True)
    draws = over_rows(
        eqx.Partial(_draw, num), model, x, jax.random.split(key, np.shape(x)[0]), index=index, reference=reference
    )
    shift = tau_of_unit_mass(model, *(a.ravel() for a in draws))
    return eqx.tree_at(lambda model: model.tau, model, Shifted(model.tau, shift))


class _Interval(NamedTuple):
    """Logarithms of the mass and of its bounds, and the effective number of draws."""

    mass: Scalar
    low: Scalar
    high: Scalar
    effective: Scalar


def _exact_interval(model: EBM, row: Row) -> _Interval:
    tau = model.log_partition(row)
    mass, slope = jax.value_and_grad(lambda tau: exact.mass(model, row, tau))(tau)
    # Under KL the mass is its own slope; for other f errors of g - tau are amplified by the slope.
    relative = jnp.maximum(-slope / mass, 1) * _rounding(model, row, tau)
    return _Interval(jnp.log(mass), jnp.log(mass) - relative, jnp.log(mass) + relative, jnp.asarray(jnp.inf))


def _rounding(model: EBM, row: Row, tau: Scalar) -> Scalar:
    """A bound of the rounding error of g - tau: scores are sums of terms no larger than the parameters."""
    parameters = eqx.filter((model.g.coupling, row.theta), eqx.is_inexact_array)
    size = sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(parameters))
    # Probabilities are computed in float32, also where masses are summed in double precision.
    return ROUNDINGS * jnp.finfo(jnp.float32).eps * (jnp.abs(tau) + model.space.log_size + size)


def _draw(num: int, model: EBM, row: Row, key: Key) -> tuple[Array, Array]:
    """g - tau and log q/r of `num` draws from r, a mixture of all modes known to the surrogate and of q."""
    r_key, draw_key = jax.random.split(key)
    r = _proposal(model, row, r_key)
    y = r.sample(num, key=draw_key)
    g = jax.vmap(model.g.coupling, in_axes=(None, 0))(row.theta, y)
    return g - model.log_partition(row), jax.vmap(lambda y: row.q.log_prob(y) - r.log_prob(y))(y)


def _proposal(model: EBM, row: Row, key: Key) -> AbstractMeasure:
    if model.surrogate is None:
        return row.q
    return with_share_of_q(model.surrogate.proposal(model.g.coupling, row.theta, row.q, key=key), row.q, DEFENSE)


def _sampled_interval(num: int, z: Scalar, model: EBM, row: Row, key: Key) -> _Interval:
    """The interval of one row by draws and chains; z is the normal quantile of the confidence."""
    tau = model.log_partition(row)
    r_key, draw_key, anneal_key = jax.random.split(key, 3)
    r, p = _proposal(model, row, r_key), target(model, row, tau)
    log_weight = jax.vmap(lambda y: p.log_prob(y) - r.log_prob(y))
    draws = log_weight(r.sample(num, key=draw_key))
    chains = ANNEALING.draw(model, row, key=anneal_key, tau=tau)
    mass, low, high, effective = _interval(draws, chains.log_weight, log_weight(chains.y), z)
    rounding = _rounding(model, row, tau)
    # The bound of the log-partition is certain, also where there are too few effective draws.
    bound = row.surrogate.tau - tau if row.surrogate is not None and isinstance(model.f, KL) else -jnp.inf
    low, high = jnp.maximum(low, bound) - rounding, high + rounding
    return _Interval(jnp.clip(mass, low, high), low, high, effective)


def _interval(
    draws: Float[Array, " draws"], chains: Float[Array, " chains"], at_chains: Float[Array, " chains"], z: Scalar
) -> _Interval:
    """log mass from the log-weights p/r of draws from r, of annealed chains, and p/r where the chains end.

    Outputs that r covers, p/r <= 10 mass, are summed by draws from r: weights are bounded, and so is the error. All
    others are summed by the chains. Both ends allow for outputs that happen not to be drawn: as in Wilson's interval
    the lower one adds the effect of a draw of the largest weight, the upper one also that of a chain.
    """
    top = jnp.maximum(_log_mean(draws), _log_mean(chains))
    top = jnp.where(jnp.isfinite(top), top, 0)
    limit = top + math.log(HEAVIEST)
    covered = jnp.where(draws <= limit, jnp.exp(draws - top), 0)
    weight = jnp.exp(chains - top)
    others = jnp.where(at_chains > limit, weight, 0)
    mass = covered.mean() + others.mean()
    error = z * jnp.sqrt(covered.var(ddof=1) / covered.size + others.var(ddof=1) / others.size)
    of_draw = z**2 / 2 * HEAVIEST / covered.size
    of_chain = z**2 / 2 * jnp.maximum(jnp.sum(weight**2) / jnp.sum(weight), others.max()) / weight.size
    low = jnp.maximum(mass - jnp.hypot(error, of_draw), 0)
    high = mass + of_draw + of_chain + jnp.hypot(error, of_draw + of_chain)
    squares = jnp.sum(covered**2) / covered.size**2 + jnp.sum(others**2) / others.size**2
    effective = jnp.nan_to_num(mass**2 / squares)
    known = (effective >= MIN_EFFECTIVE) & jnp.isfinite(high)
    low, high = jnp.where(known, low, 0), jnp.where(known, high, jnp.inf)
    return _Interval(jnp.log(mass) + top, jnp.log(low) + top, jnp.log(high) + top, effective)


def _log_mean(log_weight: Float[Array, " n"]) -> Scalar:
    return jax.nn.logsumexp(log_weight) - math.log(log_weight.size)


def _check_num(num: int) -> None:
    if num < 2:
        raise ValueError(f"Masses are estimated by num >= 2 draws; got {num}.")


def _sums(model: EBM, method: str, reference: AbstractMeasure | None) -> bool:
    """Whether the masses are to be summed exactly."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {method!r}.")
    if method == "exact":
        budget.method(model, reference)
    return method == "exact" or (method == "auto" and budget.reaches(model, reference))
