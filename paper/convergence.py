"""The convex case: g linear in w, one free tau per training row, SGD with decreasing steps, and its rates.

The objective is the paper's finite sum, with a penalty on all parameters or none:

    F(w, v) = 1/n sum_i [v_i + E_q f+*(g_w(x_i, y') - v_i) - g_w(x_i, y_i)] + mu/2 (|w|^2 + 1/n sum_i v_i^2)

It is jointly convex, and mu-strongly convex in the norm |w|^2 + |v|^2 / n. SGD is done in that norm, so that a v_i,
whose row is one of n, learns as fast as w: its steps are n times those of w. A step draws rows with replacement and y'
from q for each of them (Algorithm 1).

The loop is not `solver.fit`: that keeps no average of the iterates, takes each row once an epoch, and penalizes no tau.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jax.flatten_util import ravel_pytree
from sklearn.decomposition import PCA

from .. import datasets
from .._types import Array, Batch, Float, Key, Scalar
from ..couplings import Bilinear
from ..divergences import AbstractDivergence
from ..energy import Energy
from ..estimators.names import LOSSES
from ..model import EBM
from ..networks import Linear
from ..objectives import MinMin
from ..partition import Table
from ..polytopes import Cube
from .document import Claim, Figure, Panel, Series
from .protocol import PROTOCOL, Effort, Look, standardized

__all__ = ["Path", "Problem", "build", "claim", "compute", "descend", "minimum", "problem", "slope", "wanted"]

# Whitened principal components: few enough for a minimizer to exist without penalty. With all features a label of
# emotions is linearly separable, and F has an infimum only.
FEATURES = 16
SETS, LOSS_NAMES = ("emotions", "scene"), ("logistic", "sparsemax")
SIZE, DRAWS, STEPS, QUICK_STEPS = 32, 8, 100_000, 3_000
# The middle one of the penalties that the tables choose from.
PENALTY = 0.1
# Steps c/sqrt(t): c by the horizons T / 10^4, T / 10^3 and T / 10^2 of T steps, the one that ends lowest.
HORIZONS = (1e-4, 1e-3, 1e-2)
CHECKS_PER_DECADE = 10


class Rule(NamedTuple):
    """Step sizes that fall as t^-power, their name, and the slope at which the rate t^-power counts as reached."""

    power: float
    penalty: float
    name: str
    enough: float


RULES = {"1/sqrt(t)": Rule(0.5, 0.0, "c/√t", -0.4), "1/t": Rule(1.0, PENALTY, "c/t", -0.8)}

Vector = Float[Array, " size"]


class Problem(NamedTuple):
    """F, as a function of all parameters in one vector z: those of w, then the v_i.

    `scale` is 1 for w and n for v: the squared norm of z is sum z^2 / scale. `model` makes a model of z.
    """

    rows: Batch
    start: np.ndarray
    scale: np.ndarray
    model: Callable[[Vector], EBM]
    penalty: float
    smoothness: float

    def value(self, z: Vector) -> Scalar:
        """F(z), by the sum over all y'."""
        model, rows = self.model(z), self.rows
        outputs = model.space.elements()

        def of_row(x, y, index):
            row = model.row(x, index)
            tau, scores = model.tau(row), model.g.coupling.scores(row.theta, outputs)
            expected = jax.vmap(model.f.continued)(scores - tau) @ jnp.exp(row.q.log_probs(outputs))
            return tau + expected - model.g.coupling(row.theta, y)

        return jax.vmap(of_row)(rows.x, rows.y, rows.index).mean() + self.penalty / 2 * jnp.sum(z**2 / self.scale)

    def gradient(self, z: Vector, size: int, draws: int, *, key: Key) -> Vector:
        """An unbiased estimate of the gradient of F by `size` rows, with `draws` from q for each."""
        rows_key, draws_key = jax.random.split(key)
        chosen = jax.random.randint(rows_key, (size,), 0, len(self.rows.y))
        batch = jax.tree.map(lambda a: a[chosen], self.rows)
        objective = MinMin(draws, "per-row", proposal=None)
        slope = jax.grad(lambda z: objective.loss(self.model(z), None, batch, key=draws_key)[0])(z)
        return slope + self.penalty * z / self.scale


def problem(x: np.ndarray, y: np.ndarray, f: AbstractDivergence, *, penalty: float, size: int) -> Problem:
    """F of label sets with a unary g, from g = 0 and tau = -f'(1); in the precision that is switched on.

    `smoothness` is that of batches of `size` rows: L (1 - 1/size) + L_max / size, L that of F and L_max a bound on the
    largest of one row's, in the norm of `scale`. Both are taken at the start, where f+*'' is 1 for KL and chi-square
    and E_q[y y^T] has the largest eigenvalue (k + 1) / 4: under KL there is no bound for all z.
    """
    (n, k), width = y.shape, x.shape[1]
    g = Energy(Linear(width, k, key=jax.random.key(0)), Bilinear(Cube(k)))
    start = EBM(g, Table(n, f), f=f, surrogate=False)
    rows = Batch(jnp.asarray(x, float), jnp.asarray(y), jnp.arange(n))
    learned, fixed = eqx.partition(start, start.trained())
    flat, unravel = ravel_pytree((learned.g, learned.tau))
    scale = np.where(np.arange(flat.size) < flat.size - n, 1.0, n)

    def model(z: Vector) -> EBM:
        return eqx.combine(eqx.tree_at(lambda m: (m.g, m.tau), learned, unravel(z)), fixed)

    extended = np.column_stack([x, np.ones(n)])
    whole = (k + 1) / 4 * np.linalg.norm(extended, 2) ** 2 / n + 1
    largest = (k + 1) / 4 * np.max(np.sum(extended**2, axis=1)) + n
    smoothness = float(whole * (1 - 1 / size) + largest / size + penalty)
    return Problem(rows, np.asarray(flat), scale, model, penalty, smoothness)


def minimum(given: Problem) -> scipy.optimize.OptimizeResult:
    """The minimizer of F by L-BFGS; `fun` is F*, `x` is z."""
    root = np.sqrt(given.scale)
    both = jax.jit(jax.value_and_grad(lambda z: given.value(root * z)))
    found = scipy.optimize.minimize(
        lambda z: tuple(np.asarray(part, float) for part in both(z)),
        given.start / root,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 10_000, "maxfun": 20_000, "maxcor": 30, "ftol": 0.0, "gtol": 1e-9},
    )
    found.x = root * found.x
    return found


class Path(NamedTuple):
    """F after given numbers of steps, of the last iterate and of the average of all; one row per run."""

    last: np.ndarray
    average: np.ndarray


def descend(
    given: Problem, horizons: np.ndarray, *, power: float, keys: Array, checks: np.ndarray, size: int, draws: int
) -> Path:
    """F along SGD with step sizes (1 + t / horizon)^-power / (2 smoothness), one run for each horizon and key.

    Averages have weights that grow as t^(2 power - 1): equal ones for power 1/2, t for power 1.
    """
    growth = 2 * power - 1

    def step(t, state, horizon, key):
        z, average = state
        rate = (1 + t / horizon) ** -power / (2 * given.smoothness)
        z = z - rate * given.scale * given.gradient(z, size, draws, key=jax.random.fold_in(key, t))
        return z, average + (growth + 1) / (t + growth + 1) * (z - average)

    @jax.jit
    def advance(state, start, end):
        def one(state, horizon, key):
            return jax.lax.fori_loop(start, end, functools.partial(step, horizon=horizon, key=key), state)

        return jax.vmap(one)(state, horizons, keys)

    now = np.tile(given.start, (len(horizons), 1))
    state, told = (now, now), []
    for start, end in zip([0, *checks[:-1]], checks, strict=True):
        state = advance(state, start, end)
        told.append(state)
    values = jax.jit(lambda zs: jax.lax.map(given.value, zs))
    last, average = (np.stack([values(state[i]) for state in told], axis=1) for i in (0, 1))
    return Path(last, average)


def wanted(effort: Effort) -> list[dict[str, Any]]:
    """The configurations of the figure."""
    shared = {
        "features": FEATURES,
        "batch_size": SIZE,
        "draws": DRAWS,
        "steps": QUICK_STEPS if effort.quick else STEPS,
        "seeds": list(effort.seeds),
    }
    return [
        {
            "protocol": PROTOCOL,
            "kind": "convergence",
            "dataset": dataset,
            "loss": loss,
            "rule": name,
            "penalty": rule.penalty,
            **shared,
        }
        for dataset in SETS
        for loss in LOSS_NAMES
        for name, rule in RULES.items()
    ]


def compute(given: Mapping[str, Any]) -> dict[str, Any]:
    """F - F* of the last and of the average iterate by the number of steps, means over the seeds.

    Step sizes by the theory: 2 / (mu t + 4 smoothness) with a penalty mu; without one c / sqrt(t + horizon), the first
    being 1 / (2 smoothness) again, with the horizon that has the lowest F of the average iterate after all steps, under
    a seed of its own. `noise` is the root mean square distance of stochastic gradients from their mean, at the start
    and at the minimum: under KL there is no bound for all z.
    """
    x, y, _, _ = standardized(datasets.split(datasets.load(given["dataset"])))
    rule, steps, size, draws = (RULES[given["rule"]], given["steps"], given["batch_size"], given["draws"])
    count = min(given["features"], *x.shape)
    # SGD itself needs it too: 10^5 steps into a run an average moves by less than float32 can tell.
    with jax.enable_x64(True):
        x = PCA(count, whiten=True, svd_solver="full").fit_transform(np.asarray(x, float))
        one = problem(x, y, LOSSES[given["loss"]], penalty=given["penalty"], size=size)
        best = minimum(one)
        checks = np.unique(np.geomspace(1, steps, round(CHECKS_PER_DECADE * np.log10(steps)) + 1).round().astype(int))
        run = functools.partial(descend, one, power=rule.power, size=size, draws=draws)
        if one.penalty:
            horizon = 4 * one.smoothness / one.penalty
        else:
            horizons = steps * np.array(HORIZONS)
            keys = jax.random.split(jax.random.key(len(given["seeds"])), len(horizons))
            horizon = float(horizons[np.argmin(run(horizons, keys=keys, checks=np.array([steps])).average[:, -1])])
        keys = jnp.stack([jax.random.key(seed) for seed in given["seeds"]])
        path = run(np.full(len(keys), horizon), keys=keys, checks=checks)
        return {
            "step": checks.tolist(),
            "last": (path.last - best.fun).mean(axis=0).tolist(),
            "average": (path.average - best.fun).mean(axis=0).tolist(),
            "minimum": float(best.fun),
            "gradient": float(np.abs(best.jac).max()),
            "smoothness": one.smoothness,
            "horizon": horizon,
            "noise": _noise(one, np.stack([one.start, best.x]), size, draws),
        }


def slope(found: Mapping[str, Any], what: str) -> float:
    """Of log(F - F*) by log(t), least squares over the last decade of steps."""
    steps, values = np.asarray(found["step"], float), np.asarray(found[what])
    late = (steps >= steps[-1] / 10) & (values > 0)
    return float(np.polyfit(np.log(steps[late]), np.log(values[late]), 1)[0])


def build(look: Look, effort: Effort) -> Figure:
    """The figure with what there is."""
    panels = [_panel(given, found) for given in wanted(effort) if (found := look(given))]
    return Figure("figure5", *_CAPTION, tuple(panels))


def claim(look: Look, effort: Effort) -> Claim:
    """The rates of the section on joint convexity. That of the average iterate counts, of which the theory speaks."""
    text = (
        "In the convex case (linear g, one tau per row) SGD converges at the rate 1/√t, and with a strongly convex "
        "penalty at the rate 1/t: over the last decade of steps log(F − F*) of the average iterate falls with slope "
        + " and ".join(f"{rule.enough:g}" for rule in RULES.values())
        + " or steeper."
    )
    results = [(given, look(given)) for given in wanted(effort)]
    if any(found is None for _, found in results):
        return Claim(text, None, "Not all runs were made.")
    held, said = [], []
    for given, found in results:
        if found:
            rule, average, last = RULES[given["rule"]], slope(found, "average"), slope(found, "last")
            held.append(average <= rule.enough)
            # A run that has most of its way before it says little of its rate.
            left = found["average"][-1] / found["average"][0]
            name = f"{given['dataset']} {given['loss']}, {rule.name}"
            said.append(f"{name}: {average:.2f} ({last:.2f}), {left:.2g} left")
    words = "Slope of the average (of the last) iterate, and the share of the first F − F* that is left"
    return Claim(text, all(held), f"{sum(held)} of {len(held)} runs. {words}: {'; '.join(said)}.")


def _panel(given: Mapping[str, Any], found: Mapping[str, Any]) -> Panel:
    rule, steps = RULES[given["rule"]], tuple(map(float, found["step"]))
    names = {"last": "last iterate", "average": "average iterate"}
    series = [
        Series(f"{name}: slope {slope(found, what):.2f}", steps, tuple(found[what])) for what, name in names.items()
    ]
    # Over the decade of the slopes, through the end of the average's curve.
    ends = (steps[-1] / 10, steps[-1])
    line = tuple(found["average"][-1] * (steps[-1] / t) ** rule.power for t in ends)
    series.append(Series(f"{rule.name}: slope {-rule.power:g}", ends, line))
    penalty = f"penalty {given['penalty']:g}" if given["penalty"] else "no penalty"
    title = f"{given['dataset']}, {given['loss']}, {penalty}"
    return Panel(title, "step t", "F − F* (train)", tuple(series), log_x=True, log_y=True)


def _noise(given: Problem, points: np.ndarray, size: int, draws: int) -> list[float]:
    """At each of some points, by 1000 gradients, in the norm dual to that of `scale`."""

    def of_point(z):
        keys = jax.random.split(jax.random.key(0), 1000)
        found = jax.lax.map(lambda key: given.gradient(z, size, draws, key=key), keys)
        return jnp.sqrt(jnp.sum(found.var(axis=0) * given.scale))

    return np.asarray(jax.jit(lambda zs: jax.lax.map(of_point, zs))(points)).tolist()


_CAPTION = (
    "The convex case: rates of SGD",
    f"Not in the paper, which states the rates. Linear unary energy of {FEATURES} whitened principal components, one "
    f"tau per training row, Algorithm 1 with {SIZE} rows and {DRAWS} draws for each a step; F − F* is exact. Steps "
    "c/√t without penalty, c/t with a penalty on all parameters. Slopes are those of the last decade of steps.",
)
