"""`partita demo`: the library in two minutes, on data that need no download.

Three problems: rankings of the classes of iris and wine, and label sets with strong dependence between the labels. Each
energy is trained by the paper's Algorithm 1 (g and tau(x) jointly, from uniform draws), by the library's engine (draws
from a surrogate of the model, tau a correction of its bound), and by exact maximum likelihood.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

from .. import exact, inference, metrics
from ..compilation import enable_cache
from ..couplings import Bilinear, LinearQuadratic, Symmetric
from ..model import EBM, Energy, Network, Residual
from ..networks import MLP, Linear
from ..objectives import AbstractObjective, ExactMLE, MinMin
from ..progress import ProgressBar
from ..structures import Permutahedron, surrogate
from ..training import Rows, Solver, ValidationLoss, batch, fit

__all__ = ["run"]

METHODS = {
    "partita Algorithm 1, tau(x)": (MinMin(100, proposal=None), False),
    "partita engine, residual tau": (MinMin(16), True),
    "partita exact MLE": (ExactMLE(), False),
}
ROWS = 2000
LABELS = 8
FEATURES = 6


class Problem(NamedTuple):
    """Data, the energy to train, the metric of predictions, and the baselines of scikit-learn."""

    name: str
    description: str
    x: np.ndarray
    y: np.ndarray
    energy: Energy
    score: tuple[str, Callable[[np.ndarray, np.ndarray], float]]
    baselines: dict[str, tuple[Any, Callable[[np.ndarray], np.ndarray]]]


class Outcome(NamedTuple):
    """The results of a method on the test rows; `tau` and `lse` are its learned and exact log-partitions."""

    name: str
    seconds: float
    score: float
    log_likelihood: float | None = None
    tau: np.ndarray = np.zeros(0)
    lse: np.ndarray = np.zeros(0)


def run(out: Path) -> None:
    """Solve all three problems, print tables, and draw a picture in the folder `out`."""
    enable_cache()
    out.mkdir(parents=True, exist_ok=True)
    console = Console(width=110)
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, problem in zip(axes, problems(), strict=True):
        console.print(f"\n[bold]{problem.name}[/bold]. {problem.description}")
        outcomes = solve(problem)
        console.print(as_table(problem, outcomes))
        draw(axis, problem, outcomes)
    figure.suptitle("The learned log-partition on unseen rows")
    figure.savefig(out / "demo.png", dpi=120)
    console.print(f"\nPicture: {out / 'demo.png'}")


def problems() -> list[Problem]:
    """Iris and wine rankings, and generated label sets."""
    ranking = "The classes are ranked by their naive Bayes scores; learn the ranking from the features."
    sets = f"{LABELS} labels drawn from an Ising model whose labels strongly attract or repel each other."
    return [
        ranking_problem("iris", ranking, *map(np.asarray, load_iris(return_X_y=True))),
        ranking_problem("wine", ranking, *map(np.asarray, load_wine(return_X_y=True))),
        label_set_problem("generated label sets", sets),
    ]


def ranking_problem(name: str, description: str, x: np.ndarray, classes: np.ndarray) -> Problem:
    """Classes ranked by their Gaussian naive Bayes posteriors; rank 0 is the largest."""
    scores = np.asarray(GaussianNB().fit(x, classes).predict_joint_log_proba(x))
    y = np.argsort(np.argsort(-scores, axis=1), axis=1)
    ranks = lambda predicted: np.argsort(np.argsort(predicted, axis=1), axis=1)  # noqa: E731
    baselines = {
        "ridge on ranks": (RidgeCV(), ranks),
        "extra trees on ranks": (ExtraTreesRegressor(200, random_state=0), ranks),
    }
    coupling = Bilinear(Permutahedron(y.shape[1]))
    energy = Energy(MLP(x.shape[1], coupling.theta_shape, width=64, key=jax.random.key(0)), coupling)
    return Problem(name, description, x, y, energy, ("Kendall tau", metrics.kendall), baselines)


def label_set_problem(name: str, description: str) -> Problem:
    """2,000 rows: u = W x, and pairs of labels with interactions of -3, 0 or 3; exact draws."""
    coupling = LinearQuadratic(Symmetric(LABELS), shared=False)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    w = rng.normal(size=(FEATURES, LABELS))
    s = rng.choice([-3.0, 0.0, 0.0, 3.0], size=coupling.interaction.size)
    u = x @ w - coupling.interaction.matrix(jnp.asarray(s)).sum(axis=1) / 2
    theta = jnp.asarray(np.hstack([u, np.tile(s, (ROWS, 1))]), jnp.float32)
    truth = EBM(Energy(lambda theta: theta, coupling), Network(lambda theta: theta.sum()))
    keys = jax.random.split(jax.random.key(0), ROWS)
    y = jax.vmap(lambda t, key: exact.sample(truth, truth.row(t), 1, key=key)[0])(theta, keys)
    as_is = np.asarray
    baselines = {
        "logistic regressions": (MultiOutputClassifier(LogisticRegression()), as_is),
        "classifier chain": (ClassifierChain(LogisticRegression(), order="random", random_state=0), as_is),
        "extra trees": (ExtraTreesClassifier(200, random_state=0), as_is),
    }
    shared = LinearQuadratic(Symmetric(LABELS), shared=True)
    energy = Energy(Linear(FEATURES, shared.theta_shape, key=jax.random.key(0)), shared)
    return Problem(name, description, x, np.asarray(y), energy, ("subset accuracy", metrics.subset_accuracy), baselines)


def solve(problem: Problem) -> list[Outcome]:
    """Min-min with two kinds of tau, exact MLE and the baselines, on one 75/25 split."""
    parts: Any = train_test_split(problem.x, problem.y, test_size=0.25, random_state=0)
    x_train, x_test, y_train, y_test = parts
    scaler: Any = StandardScaler().fit(x_train)
    train, test = (scaler.transform(x_train), y_train), (scaler.transform(x_test), y_test)
    score = problem.score[1]
    outcomes = []
    for name, (objective, residual) in METHODS.items():
        start = time.perf_counter()
        model = train_model(name, problem.energy, objective, train, residual)
        seconds = time.perf_counter() - start
        answer = score(y_test, np.asarray(inference.mode(model, test[0])))
        likelihood = float(inference.log_prob(model, *test).mean())
        if isinstance(objective, ExactMLE):
            outcomes.append(Outcome(name, seconds, answer, likelihood))
            continue
        tau, lse = (np.asarray(inference.log_partition(model, test[0], method=m)) for m in ("learned", "exact"))
        outcomes.append(Outcome(name, seconds, answer, likelihood, tau, lse))
    for name, (estimator, decode) in problem.baselines.items():
        start = time.perf_counter()
        estimator.fit(*train)
        answer = score(y_test, decode(estimator.predict(test[0])))
        likelihood = independent_likelihood(estimator, *test) if name == "logistic regressions" else None
        outcomes.append(Outcome(name, time.perf_counter() - start, answer, likelihood))
    return outcomes


def train_model(name: str, g: Energy, objective: AbstractObjective, data: tuple, residual: bool) -> EBM:
    """The energy with an MLP as tau; training stops where the loss on a fifth of the rows is lowest."""
    x_fit, x_validation, y_fit, y_validation = train_test_split(*data, test_size=0.2, random_state=0)
    tau_key, fit_key, validation_key = jax.random.split(jax.random.key(1), 3)
    size = surrogate(g.coupling).summary_size(g.coupling) if residual else data[0].shape[1]
    body = MLP(size, (), width=64, key=tau_key)
    start = EBM(g, Residual(body) if residual else Network(body))
    validation = ValidationLoss(objective, batch(start, x_validation, y_validation), validation_key)
    rows = Rows(x_fit, y_fit, batch_size=32)
    solver = Solver(objective, learning_rate=3e-3, penalty=1e-3)
    with ProgressBar(name.removeprefix("partita ")) as bar:
        options = {"steps": 3000, "validation": validation, "patience": 10, "callbacks": [bar]}
        return fit(solver, start, rows, key=fit_key, **options).model


def independent_likelihood(estimator: Any, x: np.ndarray, y: np.ndarray) -> float:
    """Mean log-probability of the whole set under independent labels."""
    p = np.stack([column[:, 1] for column in estimator.predict_proba(x)], axis=1)
    return float(np.mean(np.sum(np.log(np.where(y == 1, p, 1 - p)), axis=1)))


def as_table(problem: Problem, outcomes: list[Outcome]) -> Table:
    table = Table(caption="log p and |tau - LSE| in nats; higher is better but for |tau - LSE| and seconds")
    for column in ("method", problem.score[0], "mean log p(y|x), exact", "mean |tau - LSE|", "seconds"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for outcome in outcomes:
        likelihood = "" if outcome.log_likelihood is None else f"{outcome.log_likelihood:.3f}"
        error = "" if not outcome.tau.size else f"{np.abs(outcome.tau - outcome.lse).mean():.3f}"
        table.add_row(outcome.name, f"{outcome.score:.3f}", likelihood, error, f"{outcome.seconds:.1f}")
    return table


def draw(axis: Axes, problem: Problem, outcomes: list[Outcome]) -> None:
    """Draw the learned tau against the exact log-partition, with the diagonal."""
    shown = [outcome for outcome in outcomes if outcome.tau.size]
    both = np.concatenate([values for outcome in shown for values in (outcome.tau, outcome.lse)])
    margin = 0.05 * np.ptp(both)
    ends = (both.min() - margin, both.max() + margin)
    axis.plot(ends, ends, color="0.6", linewidth=1)
    for outcome, color in zip(shown, ("tab:orange", "tab:purple"), strict=True):
        axis.scatter(outcome.lse, outcome.tau, s=14, alpha=0.7, color=color, label=outcome.name.split(", ")[-1])
    axis.set(title=problem.name, xlabel="exact log-partition", ylabel="learned tau", xlim=ends, ylim=ends)
    axis.set_box_aspect(1)
    axis.legend(loc="upper left", frameon=False)
