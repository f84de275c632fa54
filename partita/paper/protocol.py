"""One cell of the paper's tables: choose on the dev rows, train again on train and dev, answer the test rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from .. import datasets, inference, members, metrics, oracles, sweep
from ..batches import Rows
from ..couplings import LinearQuadratic
from ..estimators import names
from ..measures import Uniform
from ..model import EBM
from ..objectives import AbstractObjective, GeneralizedFenchelYoung, MinMin
from ..oracles import LocalSearch
from ..regularizers import SquaredNorm
from ..solver import Progress
from ..spaces import AbstractSpace, Hypercube, Permutations

__all__ = [
    "FULL",
    "QUICK",
    "Chosen",
    "Effort",
    "Look",
    "Setting",
    "config",
    "dev_split",
    "fitted",
    "partitions",
    "score",
    "standardized",
]

# One number per row learns only when its row is drawn: the paper's constant tau needs longer steps than the weights.
TABLE_FACTOR = 10.0
# More draws serve label sets, 2^k of them; of rankings, whose energies cost more, so many are enough.
RANKED_DRAWS = 200
# So few trainings cost less than another compilation.
FEW = 4

# The stored result of a figure's configuration, None where it was not run.
Look = Callable[[Mapping[str, Any]], dict[str, Any] | None]


class Setting(NamedTuple):
    """What is trained: a row of a table, on one set. `tau` is None where the objective has none."""

    dataset: str
    objective: str
    loss: str
    model: str
    coupling: str
    tau: str | None


class Effort(NamedTuple):
    """How long and how widely it is searched.

    Of `checks` along a run, the one at which dev rows are answered best says how many steps the last training makes.
    """

    rates: tuple[float, ...]
    penalties: tuple[float, ...]
    seeds: tuple[int, ...]
    steps: int
    draws: int = 200
    batch_size: int = 128
    width: int = 128
    depth: int = 2
    checks: int = 10

    @property
    def quick(self) -> bool:
        """Whether it is for a first look: one seed, and the estimators train less too."""
        return len(self.seeds) == 1


class Chosen(NamedTuple):
    """What the dev rows chose, and how well they were answered by it."""

    rate: float
    penalty: float
    steps: int
    dev: float


FULL = Effort((1e-3, 1e-2), (1e-2, 1e-1, 1.0), (0, 1, 2), 600, draws=1000)
QUICK = Effort((1e-3, 1e-2), (1e-2, 1e-1), (0,), 200, width=64, checks=4)


def config(setting: Setting, effort: Effort, kind: str = "score") -> dict[str, Any]:
    """A configuration as the store keeps it: names and numbers only."""
    if setting.coupling in names.RANKING_COUPLINGS:
        effort = effort._replace(draws=min(effort.draws, RANKED_DRAWS))
    return {"kind": kind, **setting._asdict(), **{name: _listed(value) for name, value in effort._asdict().items()}}


def score(given: Mapping[str, Any]) -> dict[str, Any]:
    """Test scores x 100 of every seed (micro-F1 of sets, Kendall's tau of rankings), and what was chosen on dev.

    Label sets have their own test rows, and a seed is one of weights and draws. Rankings are split anew by each seed.
    """
    setting, effort = _parts(given)
    data = datasets.load(setting.dataset)
    if data.task == "multilabel":
        splits = [(datasets.split(data), effort.seeds)]
    else:
        splits = [(datasets.split(data, seed=seed), (seed,)) for seed in effort.seeds]
    test, chosen = [], []
    for split, seeds in splits:
        found = fitted(setting, effort, split, seeds)
        test += [found.trainer.measure(model, found.x_test, split.y_test) for model in found.models]
        chosen.append(found.chosen._asdict())
    return {"test": test, "chosen": chosen}


def partitions(given: Mapping[str, Any]) -> dict[str, Any]:
    """Learned and exact log-partitions of up to 100 random test rows, of the first seed's model."""
    setting, effort = _parts(given)
    split = datasets.split(datasets.load(setting.dataset), seed=effort.seeds[0])
    found = fitted(setting, effort, split, effort.seeds[:1])
    size = len(found.x_test)
    rows = np.random.RandomState(0).choice(size, min(100, size), replace=False)
    x, model = found.x_test[rows], found.models[0]
    learned, exact = (inference.log_partition(model, x, method=how, counting=True) for how in ("learned", "exact"))
    return {"learned": np.asarray(learned, float).tolist(), "exact": np.asarray(exact, float).tolist()}


def dev_split(n: int) -> Sequence[Any]:
    """Which of n training rows train, and which, a quarter, are looked at for choices."""
    return train_test_split(np.arange(n), test_size=0.25, random_state=0)


def standardized(split: datasets.Split) -> datasets.Split:
    """Dense, with features of mean 0 and variance 1 on the training rows."""
    scaler = StandardScaler().fit(split.x)
    x, x_test = (np.asarray(scaler.transform(rows), np.float32) for rows in (split.x, split.x_test))
    return datasets.Split(x, np.asarray(split.y), x_test, np.asarray(split.y_test))


class Fitted(NamedTuple):
    """A model for each seed, and the rows that they are tested on."""

    models: list[EBM]
    chosen: Chosen
    x_test: np.ndarray
    trainer: "_Trainer"


def fitted(setting: Setting, effort: Effort, split: datasets.Split, seeds: Sequence[int]) -> Fitted:
    """Chosen on dev by the first seed, trained again on all training rows by every seed."""
    x, y, x_test, _ = standardized(split)
    trainer = _Trainer(setting, effort, x, y)
    chosen = trainer.choose(seeds[0])
    points = [sweep.Point(chosen.rate, chosen.penalty, seed) for seed in seeds]
    company = len(effort.rates) * len(effort.penalties)
    if company <= FEW:
        # As many as the grid has: the program that is compiled already.
        points += [points[-1]] * (company - len(points))
    models = trainer.train(points, chosen.steps, np.ones(len(x)))
    return Fitted([members.member(models, i) for i in range(len(seeds))], chosen, x_test, trainer)


class _Trainer:
    """Rows of one split, and everything that is the same for all trainings on them.

    Dev rows are left out by weights of zero, so that both trainings run on arrays of one shape.
    """

    def __init__(self, setting: Setting, effort: Effort, x: np.ndarray, y: np.ndarray):
        self.effort, self.x, self.y = effort, x, y
        self.space = _space(setting, y.shape[1])
        self.make = _recipe(setting, effort, self.space, x)
        shapes = eqx.filter_eval_shape(self.make, jax.random.key(0))
        self.objective = _objective(setting, effort, shapes, x.shape[1])
        self.factor = TABLE_FACTOR if setting.tau == "constant" else 1.0

    def choose(self, seed: int) -> Chosen:
        """The point of the grid and the number of steps after which dev rows are answered best."""
        train, dev = dev_split(len(self.x))
        weight = np.zeros(len(self.x))
        weight[train] = len(self.x) / len(train)
        points, told = sweep.Grid(self.effort.rates, self.effort.penalties, (seed,)).points(), []

        def look(now: Progress) -> None:
            each = [members.member(now.model, i) for i in range(len(points))]
            told.append((now.step, [self.measure(model, self.x[dev], self.y[dev]) for model in each]))

        self.train(points, self.effort.steps, weight, look)
        scores = np.array([scores for _, scores in told])
        when, which = np.unravel_index(int(np.argmax(scores)), scores.shape)
        return Chosen(points[which].rate, points[which].penalty, told[when][0], float(scores[when, which]))

    def train(self, points: Sequence[sweep.Point], steps: int, weight: np.ndarray, *callbacks: Any) -> EBM:
        size = min(self.effort.batch_size, len(self.x))
        return sweep.train(
            self.make,
            self.objective,
            Rows(self.x, self.y, batch_size=size),
            points,
            steps=steps,
            every=math.ceil(self.effort.steps / self.effort.checks),
            weights=np.tile(weight, (len(points), 1)),
            tau_factor=self.factor,
            callbacks=callbacks,
        ).state.good

    def measure(self, model: EBM, x: np.ndarray, y: np.ndarray) -> float:
        """Micro-F1 or Kendall's tau of the most probable y, x 100."""
        if isinstance(self.objective, GeneralizedFenchelYoung):
            answer = inference.relaxed_mode(model, x, self.objective.regularizer)
        elif isinstance(self.make.coupling, LinearQuadratic):
            answer = inference.mode(model, x, method=LocalSearch(restarts=1), key=jax.random.key(0))
        else:
            answer = inference.mode(model, x)
        rate = metrics.kendall if isinstance(self.space, Permutations) else metrics.micro_f1
        return 100 * rate(y, np.asarray(answer))


def _recipe(setting: Setting, effort: Effort, space: AbstractSpace, x: np.ndarray) -> names.Recipe:
    coupling = names.coupling(setting.coupling, space, jax.random.key(0))
    loss, tau = names.LOSSES[setting.loss], setting.tau or "linear"
    return names.Recipe(
        coupling, setting.model, tau, Uniform(space), loss, x.shape[1:], len(x), effort.width, effort.depth, near=False
    )


def _objective(setting: Setting, effort: Effort, model: EBM, features: int) -> AbstractObjective:
    if setting.objective == "min-min":
        return MinMin(effort.draws, "shared", proposal=None)
    if setting.objective == "fenchel-young":
        omega = SquaredNorm(1.0)
        return GeneralizedFenchelYoung(omega, oracles.coarse(model.g.coupling, omega))
    return names.objective(setting.objective, "reference", model, effort.draws, features, key=jax.random.key(1))


def _space(setting: Setting, k: int) -> AbstractSpace:
    return Permutations(k) if setting.coupling in names.RANKING_COUPLINGS else Hypercube(k)


def _parts(given: Mapping[str, Any]) -> tuple[Setting, Effort]:
    setting = Setting(*(given[name] for name in Setting._fields))
    return setting, Effort(*(given[name] for name in Effort._fields))


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
