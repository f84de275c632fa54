"""One cell of the paper's tables: choose on dev rows, train again on all training rows, predict the test rows.

The protocol was fixed before the run; README.md beside this file says what it is and why.
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import optax
from sklearn.model_selection import KFold, train_test_split
from sklearn.preprocessing import StandardScaler

from .. import datasets, inference, members, metrics, oracles, sweep
from ..batches import Rows
from ..couplings import LinearQuadratic
from ..estimators import names
from ..kernels import Metropolis
from ..measures import Uniform
from ..model import EBM
from ..networks import MLP
from ..objectives import MCMC, AbstractObjective, ExactMLE, GeneralizedFenchelYoung, Generator, MinMax, MinMin
from ..oracles import LocalSearch
from ..regularizers import SquaredNorm
from ..solver import Progress
from ..spaces import AbstractSpace, Hypercube, Permutations

__all__ = [
    "FULL",
    "OVERLAPPING",
    "PROTOCOL",
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
    "split",
    "standardized",
]

# Part of every configuration, so that results of different protocols are never mixed.
PROTOCOL = 2
# cal500 with all its rows as training rows, 101 of them test rows too: what the paper's table of sizes implies.
OVERLAPPING = "cal500-overlapping"
# tau(x_i) = v_i gets a gradient from one row only, where weights get them from all: its steps are longer.
TABLE_FACTOR = 10.0
# Four folds choose where a quarter of the training rows is fewer than 50.
FOLDED = ("birds", "iris", "glass", "wine")
FOLDS = 4
# Steps on the sets with more than 1,000 training rows, where they cost most; their choices are early.
STEPS = {"yeast": 600, "scene": 600}
# Of 174 labels h(x) has 30,450 outputs: one training costs as much as fifty with unary coupling. What is left of the
# grid is where the pilot's choices with unary coupling were.
PAIRWISE = ("pairwise-full", "pairwise-concave")
COSTLY: dict[str, Any] = {
    "grid": tuple(itertools.product((1e-3, 1e-2), (1e-1, 1.0))),
    "draws": 100,
    "batch_size": 128,
    "checks": 4,
}
COSTLY_STEPS, COSTLY_QUICK_STEPS = 200, 16
# What each variant of MCMC and min-max is tuned over: with the variants, at least as many trainings as min-min has.
SAMPLED: dict[str, tuple[tuple[float, float], ...]] = {
    "mcmc": ((1e-3, 0.0), (1e-2, 0.0), (1e-2, 1e-1), (5e-2, 0.0)),
    "min-max": tuple(itertools.product((1e-3, 1e-2, 5e-2), (0.0, 1e-1))),
}
# The appendix, which compares models of tau, is tuned less widely than Tables 1 and 2.
APPENDIX = tuple(itertools.product((1e-3, 1e-2), (0.0, 1e-1)))
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
    """How long a training is, and the learning rates and penalties over which it is tuned.

    The best of `checks` along a run, judged on dev rows, says how many steps the last training makes. A batch size of
    None means all rows.
    """

    grid: tuple[tuple[float, float], ...]
    seeds: tuple[int, ...]
    steps: int
    draws: int = 200
    batch_size: int | None = None
    width: int = 128
    depth: int = 1
    checks: int = 10
    clip: float = 1.0

    @property
    def quick(self) -> bool:
        """Whether it is for a first look: one seed, and the estimators train less too."""
        return len(self.seeds) == 1


class Chosen(NamedTuple):
    """What the dev rows chose, and the score that they had with it."""

    rate: float
    penalty: float
    steps: int
    variant: str
    dev: float


# Learning rates and penalties. The paper names one rate, 1e-4, without penalty: in so few steps it ends far from where
# a penalty would count. 5e-2 with the largest penalty is left out.
GRID = ((1e-4, 0.0), *itertools.product((1e-3, 1e-2), (0.0, 1e-2, 1e-1, 1.0)), *((5e-2, p) for p in (0.0, 1e-2, 1e-1)))
FULL = Effort(GRID, (0, 1, 2), 1000)
QUICK = Effort(tuple(itertools.product((1e-3, 1e-2), (0.0, 1e-1))), (0,), 200, width=64, checks=4)


class Variant(NamedTuple):
    """A way to train by an objective whose own settings the paper leaves open: makes it for a point of the grid."""

    name: str
    make: Callable[["_Problem", sweep.Point], AbstractObjective]


class _Problem(NamedTuple):
    """What objectives are made for."""

    model: EBM
    features: int
    rows: int
    effort: Effort


def config(setting: Setting, effort: Effort, kind: str = "score") -> dict[str, Any]:
    """A configuration as the store keeps it: names and numbers only."""
    effort = _affordable(setting, effort)
    values = {name: _listed(value) for name, value in effort._asdict().items()}
    return {"protocol": PROTOCOL, "kind": kind, **setting._asdict(), **values}


def score(given: Mapping[str, Any]) -> dict[str, Any]:
    """Test scores x 100 of every seed (micro-F1 of sets, Kendall's tau of rankings), and what was chosen on dev.

    Label sets have their own test rows, and a seed is one of weights and draws. Rankings are split anew by each seed.
    """
    setting, effort = _parts(given)
    if setting.coupling in names.RANKING_COUPLINGS:
        splits = [(split(setting.dataset, seed), (seed,)) for seed in effort.seeds]
    else:
        splits = [(split(setting.dataset), effort.seeds)]
    test, chosen = [], []
    for rows, seeds in splits:
        result = fitted(setting, effort, rows, seeds)
        test += [result.trainer.measure(model, result.x_test, rows.y_test) for model in result.models]
        chosen.append(result.chosen._asdict())
    return {"test": test, "chosen": chosen}


def partitions(given: Mapping[str, Any]) -> dict[str, Any]:
    """Learned and exact log-partitions of up to 100 random test rows, of the first seed's model."""
    setting, effort = _parts(given)
    result = fitted(setting, effort, split(setting.dataset, effort.seeds[0]), effort.seeds[:1])
    return beside(result.models[0], result.x_test)


def beside(model: EBM, x: np.ndarray) -> dict[str, Any]:
    """Learned and exact log-partitions of up to 100 random rows."""
    x = x[np.random.RandomState(0).choice(len(x), min(100, len(x)), replace=False)]
    learned, exact = (inference.log_partition(model, x, method=how, counting=True) for how in ("learned", "exact"))
    return {"learned": np.asarray(learned, float).tolist(), "exact": np.asarray(exact, float).tolist()}


def split(dataset: str, seed: int = 0) -> datasets.Split:
    """Training and test rows of a set by name."""
    if dataset != OVERLAPPING:
        return datasets.split(datasets.load(dataset), seed=seed)
    x, y, x_test, y_test = datasets.split(datasets.load("cal500"))
    return datasets.Split(np.concatenate([x, x_test]), np.concatenate([y, y_test]), x_test, y_test)


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
    if len(effort.grid) <= FEW:
        # As many as the grid has: the program that is compiled already.
        points += [points[-1]] * (len(effort.grid) - len(points))
    models = trainer.train(trainer.variant(chosen.variant), points, chosen.steps, np.ones((len(points), len(x))))
    return Fitted([members.member(models, i) for i in range(len(seeds))], chosen, x_test, trainer)


class _Trainer:
    """Rows of one split, and everything that is the same for all trainings on them.

    Dev rows are left out by weights of zero, so that both trainings run on arrays of one shape.
    """

    def __init__(self, setting: Setting, effort: Effort, x: np.ndarray, y: np.ndarray):
        self.setting, self.effort, self.x, self.y = setting, effort, x, y
        self.space = _space(setting, y.shape[1])
        self.make = _recipe(setting, effort, self.space, x)
        shapes = eqx.filter_eval_shape(self.make, jax.random.key(0))
        self.problem = _Problem(shapes, x.shape[1], len(x), effort)
        self.factor = TABLE_FACTOR if setting.tau == "constant" else 1.0

    @property
    def variants(self) -> tuple[Variant, ...]:
        every = VARIANTS[self.setting.objective]
        if self.effort.quick:
            # A first look has no time to choose one.
            return every[-1:]
        return every[::3] if is_costly(self.setting) and len(every) > 2 else every

    def variant(self, name: str) -> Variant:
        return next(each for each in VARIANTS[self.setting.objective] if each.name == name)

    def choose(self, seed: int) -> Chosen:
        """The point of the grid, the variant and the number of steps with the best score on dev rows."""
        grid = [sweep.Point(rate, penalty, seed) for rate, penalty in self.effort.grid]
        folds = _folds(len(self.x), several=self.setting.dataset in FOLDED and not self.effort.quick)
        points = grid * len(folds)
        weights = np.zeros((len(points), len(self.x)))
        for i in range(len(points)):
            train, _ = folds[i // len(grid)]
            weights[i, train] = len(self.x) / len(train)
        best: list[Chosen] = []
        for variant in self.variants:
            steps, scores = [], []

            def look(now: Progress, steps: list = steps, scores: list = scores) -> None:
                of_points = np.zeros((len(folds), len(grid)))
                for i in range(len(points)):
                    dev = folds[i // len(grid)][1]
                    model = members.member(now.model, i)
                    of_points[divmod(i, len(grid))] = self.measure(model, self.x[dev], self.y[dev])
                steps.append(now.step)
                scores.append(of_points.mean(axis=0))

            self.train(variant, points, self.effort.steps, weights, look)
            found = _smoothed(np.array(scores))
            when, which = np.unravel_index(int(np.argmax(found)), found.shape)
            point, value = grid[which], float(found[when, which])
            best.append(Chosen(point.rate, point.penalty, steps[when], variant.name, value))
        return max(best, key=lambda choice: choice.dev)

    def train(
        self, variant: Variant, points: Sequence[sweep.Point], steps: int, weights: np.ndarray, *callbacks: Any
    ) -> EBM:
        size = len(self.x) if self.effort.batch_size is None else min(self.effort.batch_size, len(self.x))
        return sweep.train(
            self.make,
            lambda point: variant.make(self.problem, point),
            Rows(self.x, self.y, batch_size=size),
            points,
            steps=steps,
            every=math.ceil(self.effort.steps / self.effort.checks),
            weights=weights,
            optimizer=_optimizer(self.setting.objective, self.effort.clip),
            tau_factor=self.factor,
            callbacks=callbacks,
        ).state.good

    def measure(self, model: EBM, x: np.ndarray, y: np.ndarray) -> float:
        """Micro-F1 or Kendall's tau of the predicted y, x 100."""
        if self.setting.objective == "fenchel-young":
            answer = inference.relaxed_mode(model, x, OMEGA)
        elif isinstance(self.make.coupling, LinearQuadratic):
            answer = inference.mode(model, x, method=LocalSearch(restarts=1), key=jax.random.key(0))
        else:
            answer = inference.mode(model, x)
        rate = metrics.kendall if isinstance(self.space, Permutations) else metrics.micro_f1
        return 100 * rate(y, np.asarray(answer))


OMEGA = SquaredNorm(1.0)


def _fenchel_young(problem: _Problem, _: sweep.Point) -> AbstractObjective:
    return GeneralizedFenchelYoung(OMEGA, oracles.coarse(problem.model.g.coupling, OMEGA))


def _chains(proposal: str, start: str, burn_in: int, persistent: bool = False) -> Callable:
    def make(problem: _Problem, _: sweep.Point) -> AbstractObjective:
        kept = problem.rows if persistent else None
        return MCMC(Metropolis(proposal), chains=1, steps=10, burn_in=burn_in, start=start, persistent=kept)

    return make


def _players(factor: float) -> Callable:
    def make(problem: _Problem, point: sweep.Point) -> AbstractObjective:
        body = MLP(problem.features, problem.model.space.shape, width=problem.effort.width, key=jax.random.key(1))
        return MinMax(Generator(problem.model.space, body), learning_rate=factor * point.rate)

    return make


VARIANTS = {
    "min-min": (Variant("", lambda problem, _: MinMin(problem.effort.draws, "shared", proposal=None)),),
    "exact": (Variant("", lambda *_: ExactMLE()),),
    "fenchel-young": (Variant("", _fenchel_young),),
    "mcmc": (
        Variant("from the data", _chains("uniform", "data", 0)),
        Variant("from uniform draws", _chains("uniform", "uniform", 40)),
        Variant("persistent", _chains("uniform", "uniform", 0, persistent=True)),
        Variant("local moves from the data", _chains("local", "data", 0)),
    ),
    "min-max": (
        Variant("generator at the rate of g", _players(1.0)),
        Variant("generator at 10 times the rate of g", _players(10.0)),
    ),
}


@functools.cache
def _optimizer(objective: str, clip: float) -> Callable[[Any], optax.GradientTransformation]:
    """The same object for the same settings: another one would be compiled again."""
    adam = optax.optimistic_adam_v2 if objective == "min-max" else optax.adam
    return lambda rate: optax.chain(optax.clip_by_global_norm(clip), adam(rate))


def _folds(n: int, *, several: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and dev rows: of four folds, or one dev part."""
    if several:
        return list(KFold(FOLDS, shuffle=True, random_state=0).split(np.arange(n)))
    train, dev = dev_split(n)
    return [(train, dev)]


def _smoothed(scores: np.ndarray) -> np.ndarray:
    """The mean of each check and its neighbors: a score that only one of them has is chance."""
    padded = np.pad(scores, ((1, 1), (0, 0)), constant_values=np.nan)
    return np.nanmean([padded[:-2], padded[1:-1], padded[2:]], axis=0)


def _recipe(setting: Setting, effort: Effort, space: AbstractSpace, x: np.ndarray) -> names.Recipe:
    coupling = names.coupling(setting.coupling, space, jax.random.key(0))
    loss, tau = names.LOSSES[setting.loss], setting.tau or "linear"
    return names.Recipe(
        coupling, setting.model, tau, Uniform(space), loss, x.shape[1:], len(x), effort.width, effort.depth, near=False
    )


def _affordable(setting: Setting, effort: Effort) -> Effort:
    """What the pilot found to be worth its time on this set; efforts but `FULL` and `QUICK` are taken as they are."""
    sampled = len(VARIANTS[setting.objective]) > 1
    if effort in (FULL, QUICK) and is_costly(setting):
        steps = COSTLY_QUICK_STEPS if effort.quick else COSTLY_STEPS // 2 if sampled else COSTLY_STEPS
        return effort._replace(**COSTLY, steps=steps)
    if effort != FULL:
        return effort
    steps = STEPS.get(setting.dataset, effort.steps)
    if sampled:
        return effort._replace(grid=SAMPLED[setting.objective], steps=steps)
    return effort._replace(grid=APPENDIX if _in_appendix(setting) else effort.grid, steps=steps)


def _in_appendix(setting: Setting) -> bool:
    ranking = setting.coupling in names.RANKING_COUPLINGS
    if setting.objective != "min-min":
        return False
    return setting.tau != "mlp" or setting.model == "resnet" if ranking else setting.tau != "constant"


def is_costly(setting: Setting) -> bool:
    """Whether U(x) has 174 x 174 entries."""
    return setting.dataset in ("cal500", OVERLAPPING) and setting.coupling in PAIRWISE


def _space(setting: Setting, k: int) -> AbstractSpace:
    return Permutations(k) if setting.coupling in names.RANKING_COUPLINGS else Hypercube(k)


def _parts(given: Mapping[str, Any]) -> tuple[Setting, Effort]:
    setting = Setting(*(given[name] for name in Setting._fields))
    return setting, Effort(*(given[name] for name in Effort._fields))


def _listed(value: Any) -> Any:
    """As JSON keeps it."""
    return [_listed(each) for each in value] if isinstance(value, tuple) else value
