"""The convex case: g linear in w, one free tau per training row, SGD with decreasing steps, and its rates.

The objective is the paper's finite sum, with a penalty on all parameters or none:

    F(w, v) = 1/n sum_i [v_i + E_q f+*(g_w(x_i, y') - v_i) - g_w(x_i, y_i)] + mu/2 (|w|^2 + 1/n sum_i v_i^2)

It is jointly convex, and mu-strongly convex in the norm |w|^2 + |v|^2 / n. SGD is done in that norm, so that a v_i,
whose row is one of n, learns as fast as w: its steps are n times those of w. A step draws rows with replacement and y'
from q for each of them (Algorithm 1).

The loop is not `training.fit`, which keeps no average of the iterates, takes each row once an epoch, and penalizes no
tau.
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

from partita import datasets
from partita.couplings import Bilinear
from partita.divergences import AbstractDivergence
from partita.estimators.names import LOSSES
from partita.model import EBM, Energy, Table
from partita.networks import Linear
from partita.objectives import MinMin
from partita.structures import Cube
from partita.types import Array, Batch, Float, Key, Scalar

from .document import Claim, Figure, Panel, Series
from .protocol import standardize
from .settings import PROTOCOL, Effort, Lookup

__all__ = ["Path", "Problem", "build", "claim", "compute", "configurations", "descend", "minimum", "problem", "slope"]

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

    `scale` is 1 for w and n for v: the squared norm of z is sum z^2 / scale. `model` is the model with parameters z.
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
            tau, scores = model.log_partition(row), model.g.coupling.scores(row.theta, outputs)
            expected = jax.vmap(model.f.continued)(scores - tau) @ jnp.exp(row.q.log_probs(outputs))
            return tau + expected - model.g.coupling(row.theta, y)

        return jax.vmap(of_row)(rows.x, rows.y, rows.index).mean() + self.penalty / 2 * jnp.sum(z**2 / self.scale)

    def gradient(self, z: Vector, size: int, draws: int, *, key: Key) -> Vector:
        """An unbiased estimate of the gradient of F by `size` rows, with `draws` from q for each."""
        rows_key, draws_key = jax.random.split(key)
        indices = jax.random.randint(rows_key, (size,), 0, len(self.rows.y))
        batch = jax.tree.map(lambda a: a[indices], self.rows)
        objective = MinMin(draws, "per-row", proposal=None)
        slope = jax.grad(lambda z: objective.loss(self.model(z), None, batch, key=draws_key)[0])(z)
        return slope + self.penalty * z / self.scale


def problem(x: np.ndarray, y: np.ndarray, f: AbstractDivergence, *, penalty: float, size: int) -> Problem:
    """F of label sets with a unary g, from g = 0 and tau = -f'(1), in the precision that is enabled.

    `smoothness` is that of batches of `size` rows: L (1 - 1/size) + L_max / size, L that of F and L_max a bound on the
    largest of one row's, in the norm of `scale`. Both are taken at the start, where f+*'' is 1 for KL and chi-square
    and E_q[y y^T] has the largest eigenvalue (k + 1) / 4: under KL there is no bound for all z.
    """
    (n, k), width = y.shape, x.shape[1]
    g = Energy(Linear(width, k, key=jax.random.key(0)), Bilinear(Cube(k)))
    start = EBM(g, Table(n), f=f, surrogate=False)
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


def minimum(problem: Problem) -> scipy.optimize.OptimizeResult:
    """The minimizer of F by L-BFGS; `fun` is F*, `x` is z."""
    root = np.sqrt(problem.scale)
    value_and_gradient = jax.jit(jax.value_and_grad(lambda z: problem.value(root * z)))
    result = scipy.optimize.minimize(
        lambda z: tuple(np.asarray(part, float) for part in value_and_gradient(z)),
        problem.start / root,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 10_000, "maxfun": 20_000, "maxcor": 30, "ftol": 0.0, "gtol": 1e-9},
    )
    result.x = root * result.x
    return result


class Path(NamedTuple):
    """F at several numbers of steps, of the last iterate and of the average of all; one row per run."""

    last: np.ndarray
    average: np.ndarray


def descend(
    problem: Problem, horizons: np.ndarray, *, power: float, keys: Array, checks: np.ndarray, size: int, draws: int
) -> Path:
    """F along SGD with step sizes (1 + t / horizon)^-power / (2 smoothness), one run for each horizon and key.

    Averages have weights that grow as t^(2 power - 1): equal ones for power 1/2, t for power 1.
    """
    growth = 2 * power - 1

    def step(t, state, horizon, key):
        z, average = state
        rate = (1 + t / horizon) ** -power / (2 * problem.smoothness)
        z = z - rate * problem.scale * problem.gradient(z, size, draws, key=jax.random.fold_in(key, t))
        return z, average + (growth + 1) / (t + growth + 1) * (z - average)

    @jax.jit
    def advance(state, start, end):
        def run(state, horizon, key):
            return jax.lax.fori_loop(start, end, functools.partial(step, horizon=horizon, key=key), state)

        return jax.vmap(run)(state, horizons, keys)

    first = np.tile(problem.start, (len(horizons), 1))
    state, states = (first, first), []
    for start, end in zip([0, *checks[:-1]], checks, strict=True):
        state = advance(state, start, end)
        states.append(state)
    values = jax.jit(lambda zs: jax.lax.map(problem.value, zs))
    last, average = (np.stack([values(state[i]) for state in states], axis=1) for i in (0, 1))
    return Path(last, average)


def configurations(effort: Effort) -> list[dict[str, Any]]:
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


def compute(config: Mapping[str, Any]) -> dict[str, Any]:
    """F - F* of the last and of the average iterate by the number of steps, means over the seeds.

    Step sizes by the theory: 2 / (mu t + 4 smoothness) with a penalty mu; without one c / sqrt(t + horizon), the first
    being 1 / (2 smoothness) again, with the horizon that has the lowest F of the average iterate after all steps, with
    another seed. `noise` is the root mean square distance of stochastic gradients from their mean, at the start
    and at the minimum: under KL there is no bound for all z.
    """
    x, y, _, _ = standardize(datasets.split(datasets.load(config["dataset"])))
    rule, steps, size, draws = (RULES[config["rule"]], config["steps"], config["batch_size"], config["draws"])
    count = min(config["features"], *x.shape)
    # SGD needs float64 too: 10^5 steps into a run a step moves the average by less than float32 resolves.
    with jax.enable_x64(True):
        x = PCA(count, whiten=True, svd_solver="full").fit_transform(np.asarray(x, float))
        convex = problem(x, y, LOSSES[config["loss"]], penalty=config["penalty"], size=size)
        best = minimum(convex)
        checks = np.unique(np.geomspace(1, steps, round(CHECKS_PER_DECADE * np.log10(steps)) + 1).round().astype(int))
        run = functools.partial(descend, convex, power=rule.power, size=size, draws=draws)
        if convex.penalty:
            horizon = 4 * convex.smoothness / convex.penalty
        else:
            horizons = steps * np.array(HORIZONS)
            keys = jax.random.split(jax.random.key(len(config["seeds"])), len(horizons))
            horizon = float(horizons[np.argmin(run(horizons, keys=keys, checks=np.array([steps])).average[:, -1])])
        keys = jnp.stack([jax.random.key(seed) for seed in config["seeds"]])
        path = run(np.full(len(keys), horizon), keys=keys, checks=checks)
        return {
            "step": checks.tolist(),
            "last": (path.last - best.fun).mean(axis=0).tolist(),
            "average": (path.average - best.fun).mean(axis=0).tolist(),
            "minimum": float(best.fun),
            "gradient": float(np.abs(best.jac).max()),
            "smoothness": convex.smoothness,
            "horizon": horizon,
            "noise": _noise(convex, np.stack([convex.start, best.x]), size, draws),
        }


def slope(result: Mapping[str, Any], iterate: str) -> float:
    """The slope of log(F - F*) by log(t), by least squares over the last decade of steps."""
    steps, values = np.asarray(result["step"], float), np.asarray(result[iterate])
    late = (steps >= steps[-1] / 10) & (values > 0)
    return float(np.polyfit(np.log(steps[late]), np.log(values[late]), 1)[0])


def build(lookup: Lookup, effort: Effort) -> Figure:
    """The figure of the stored results."""
    panels = [_panel(config, result) for config in configurations(effort) if (result := lookup(config))]
    return Figure("figure5", *_CAPTION, tuple(panels))


def claim(lookup: Lookup, effort: Effort) -> Claim:
    """The rates of the section on joint convexity, of the average iterate: the theory is about it."""
    text = (
        "In the convex case (linear g, one tau per row) SGD converges at the rate 1/√t, and with a strongly convex "
        "penalty at the rate 1/t: over the last decade of steps log(F − F*) of the average iterate falls with slope "
        + " and ".join(f"{rule.enough:g}" for rule in RULES.values())
        + " or steeper."
    )
    results = [(config, lookup(config)) for config in configurations(effort)]
    if any(result is None for _, result in results):
        return Claim(text, None, "Not all runs were made.")
    verdicts, slopes = [], []
    for config, result in results:
        if result:
            rule, average, last = RULES[config["rule"]], slope(result, "average"), slope(result, "last")
            verdicts.append(average <= rule.enough)
            # The slope of a run that is still far from the minimum says little about its rate.
            left = result["average"][-1] / result["average"][0]
            name = f"{config['dataset']} {config['loss']}, {rule.name}"
            slopes.append(f"{name}: {average:.2f} ({last:.2f}), {left:.2g} left")
    words = "Slope of the average (of the last) iterate, and the share of the first F − F* that is left"
    return Claim(text, all(verdicts), f"{sum(verdicts)} of {len(verdicts)} runs. {words}: {'; '.join(slopes)}.")


def _panel(config: Mapping[str, Any], result: Mapping[str, Any]) -> Panel:
    rule, steps = RULES[config["rule"]], tuple(map(float, result["step"]))
    names = {"last": "last iterate", "average": "average iterate"}
    series = [
        Series(f"{name}: slope {slope(result, iterate):.2f}", steps, tuple(result[iterate]))
        for iterate, name in names.items()
    ]
    # Over the decade of the slopes, through the end of the average's curve.
    ends = (steps[-1] / 10, steps[-1])
    line = tuple(result["average"][-1] * (steps[-1] / t) ** rule.power for t in ends)
    series.append(Series(f"{rule.name}: slope {-rule.power:g}", ends, line))
    penalty = f"penalty {config['penalty']:g}" if config["penalty"] else "no penalty"
    title = f"{config['dataset']}, {config['loss']}, {penalty}"
    return Panel(title, "step t", "F − F* (train)", tuple(series), log_x=True, log_y=True)


def _noise(problem: Problem, points: np.ndarray, size: int, draws: int) -> list[float]:
    """The noise of the gradient at each point, by 1000 gradients, in the norm dual to that of `scale`."""

    def of_point(z):
        keys = jax.random.split(jax.random.key(0), 1000)
        gradients = jax.lax.map(lambda key: problem.gradient(z, size, draws, key=key), keys)
        return jnp.sqrt(jnp.sum(gradients.var(axis=0) * problem.scale))

    return np.asarray(jax.jit(lambda zs: jax.lax.map(of_point, zs))(points)).tolist()


_CAPTION = (
    "The convex case: rates of SGD",
    f"Not in the paper, which states the rates. Linear unary energy of {FEATURES} whitened principal components, one "
    f"tau per training row, Algorithm 1 with {SIZE} rows and {DRAWS} draws for each a step; F − F* is exact. Steps "
    "c/√t without penalty, c/t with a penalty on all parameters. Slopes are those of the last decade of steps.",
)
