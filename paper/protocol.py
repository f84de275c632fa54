"""One cell of the paper's tables: choose on dev rows, train again on all training rows, predict the test rows."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import optax
from sklearn.model_selection import KFold, train_test_split
from sklearn.preprocessing import StandardScaler

from partita import argmax, datasets, inference, metrics, training
from partita.argmax import SquaredNorm
from partita.couplings import LinearQuadratic
from partita.estimators import names
from partita.kernels import Metropolis
from partita.model import EBM
from partita.networks import MLP
from partita.objectives import MCMC, AbstractObjective, ExactMLE, GeneralizedFenchelYoung, Generator, MinMax, MinMin
from partita.search import LocalSearch
from partita.structures import Hypercube, Permutations, Uniform
from partita.training import Progress, Rows

from .settings import OVERLAPPING, Effort, Setting, is_costly, is_ranking, setting_and_effort

__all__ = ["dev_split", "log_partitions", "partitions", "score", "split", "standardize"]

# tau(x_i) = v_i gets a gradient from one row only, where weights get them from all: its steps are longer.
TABLE_FACTOR = 10.0
# Four folds choose where a quarter of the training rows is fewer than 50.
FOLDED = ("birds", "iris", "glass", "wine")
FOLDS = 4
# So few trainings cost less than another compilation.
FEW = 4
OMEGA = SquaredNorm(1.0)


class Choice(NamedTuple):
    """The hyper-parameters with the best score on dev rows, and that score."""

    rate: float
    penalty: float
    steps: int
    variant: str
    dev: float


class Problem(NamedTuple):
    """What objectives are constructed from."""

    model: EBM
    features: int
    rows: int
    effort: Effort


class Variant(NamedTuple):
    """An objective with one choice of the settings that the paper leaves open; `make` constructs it for a point."""

    name: str
    make: Callable[[Problem, training.Point], AbstractObjective]


class TrainedModels(NamedTuple):
    """A model for each seed, and the rows that they are tested on."""

    models: list[EBM]
    choice: Choice
    x_test: np.ndarray
    trainer: "_Trainer"


def score(config: Mapping[str, Any], *, variants: Sequence[Variant] = (), folded: bool | None = None) -> dict[str, Any]:
    """Test scores x 100 of every seed (micro-F1 of sets, Kendall's tau of rankings), and what dev rows chose.

    Label sets have their own test rows, and a seed is one of weights and draws. Rankings are split anew by each seed.
    `variants` and `folded` replace the protocol's variants of the objective and its choice of folds or one dev part.
    """
    setting, effort = setting_and_effort(config)
    if is_ranking(setting):
        splits = [(split(setting.dataset, seed), (seed,)) for seed in effort.seeds]
    else:
        splits = [(split(setting.dataset), effort.seeds)]
    test, choices = [], []
    for rows, seeds in splits:
        result = _choose_and_train(setting, effort, rows, seeds, variants, folded)
        test += [result.trainer.score(model, result.x_test, rows.y_test) for model in result.models]
        choices.append(result.choice._asdict())
    return {"test": test, "chosen": choices}


def partitions(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learned and exact log-partitions of up to 100 random test rows, by the first seed's model."""
    setting, effort = setting_and_effort(config)
    result = _choose_and_train(setting, effort, split(setting.dataset, effort.seeds[0]), effort.seeds[:1])
    return log_partitions(result.models[0], result.x_test)


def log_partitions(model: EBM, x: np.ndarray) -> dict[str, Any]:
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
    """Indices of n training rows: those to train on, and the quarter on which choices are scored."""
    return train_test_split(np.arange(n), test_size=0.25, random_state=0)


def standardize(split: datasets.Split) -> datasets.Split:
    """Dense arrays, with features of mean 0 and variance 1 on the training rows."""
    scaler = StandardScaler().fit(split.x)
    x, x_test = (np.asarray(scaler.transform(rows), np.float32) for rows in (split.x, split.x_test))
    return datasets.Split(x, np.asarray(split.y), x_test, np.asarray(split.y_test))


def _choose_and_train(
    setting: Setting,
    effort: Effort,
    split: datasets.Split,
    seeds: Sequence[int],
    variants: Sequence[Variant] = (),
    folded: bool | None = None,
) -> TrainedModels:
    """Choose on dev rows by the first seed, train again on all training rows by every seed."""
    x, y, x_test, _ = standardize(split)
    variants = variants or _variants(setting, effort)
    folded = setting.dataset in FOLDED and not effort.quick if folded is None else folded
    trainer = _Trainer(setting, effort, x, y, variants, folded)
    choice = trainer.choose(seeds[0])
    points = [training.Point(choice.rate, choice.penalty, seed) for seed in seeds]
    if len(effort.grid) <= FEW:
        # As many as the grid has: the program that is compiled already.
        points += [points[-1]] * (len(effort.grid) - len(points))
    variant = next(variant for variant in variants if variant.name == choice.variant)
    models = trainer.train(variant, points, choice.steps, np.ones((len(points), len(x))))
    return TrainedModels([training.take(models, i) for i in range(len(seeds))], choice, x_test, trainer)


class _Trainer:
    """Rows of one split, and everything that is the same for all trainings on them.

    Dev rows are left out by weights of zero, so that both trainings run on arrays of one shape.
    """

    def __init__(
        self,
        setting: Setting,
        effort: Effort,
        x: np.ndarray,
        y: np.ndarray,
        variants: Sequence[Variant],
        folded: bool,
    ):
        self.setting, self.effort, self.x, self.y = setting, effort, x, y
        self.variants, self.folded = variants, folded
        self.make = _recipe(setting, effort, x, y.shape[1])
        shapes = eqx.filter_eval_shape(self.make, jax.random.key(0))
        self.problem = Problem(shapes, x.shape[1], len(x), effort)
        self.tau_factor = TABLE_FACTOR if setting.tau == "constant" else 1.0

    def choose(self, seed: int) -> Choice:
        """The point of the grid, the variant and the number of steps with the best score on dev rows."""
        grid = [training.Point(rate, penalty, seed) for rate, penalty in self.effort.grid]
        folds = _folds(len(self.x), several=self.folded)
        points = grid * len(folds)
        weights = np.zeros((len(points), len(self.x)))
        for i in range(len(points)):
            train, _ = folds[i // len(grid)]
            weights[i, train] = len(self.x) / len(train)
        choices: list[Choice] = []
        for variant in self.variants:
            steps, scores = [], []

            def check(progress: Progress, steps: list = steps, scores: list = scores) -> None:
                point_scores = np.zeros((len(folds), len(grid)))
                for i in range(len(points)):
                    dev = folds[i // len(grid)][1]
                    model = training.take(progress.model, i)
                    point_scores[divmod(i, len(grid))] = self.score(model, self.x[dev], self.y[dev])
                steps.append(progress.step)
                scores.append(point_scores.mean(axis=0))

            self.train(variant, points, self.effort.steps, weights, check)
            smooth = _smooth(np.array(scores))
            when, which = np.unravel_index(int(np.argmax(smooth)), smooth.shape)
            point, value = grid[which], float(smooth[when, which])
            choices.append(Choice(point.rate, point.penalty, steps[when], variant.name, value))
        return max(choices, key=lambda choice: choice.dev)

    def train(
        self, variant: Variant, points: Sequence[training.Point], steps: int, weights: np.ndarray, *callbacks: Any
    ) -> EBM:
        """A model for each point, stacked."""
        size = len(self.x) if self.effort.batch_size is None else min(self.effort.batch_size, len(self.x))
        return training.fit_grid(
            self.make,
            lambda point: variant.make(self.problem, point),
            Rows(self.x, self.y, batch_size=size),
            points,
            steps=steps,
            every=math.ceil(self.effort.steps / self.effort.checks),
            weights=weights,
            optimizer=_optimizer(self.setting.objective, self.effort.clip),
            tau_factor=self.tau_factor,
            callbacks=callbacks,
        ).state.good

    def score(self, model: EBM, x: np.ndarray, y: np.ndarray) -> float:
        """Micro-F1 or Kendall's tau of the predicted y, x 100."""
        if self.setting.objective == "fenchel-young":
            answer = inference.relaxed_mode(model, x, OMEGA)
        elif isinstance(self.make.coupling, LinearQuadratic):
            answer = inference.mode(model, x, method=LocalSearch(restarts=1), key=jax.random.key(0))
        else:
            answer = inference.mode(model, x)
        metric = metrics.kendall if is_ranking(self.setting) else metrics.micro_f1
        return 100 * metric(y, np.asarray(answer))


def _fenchel_young(problem: Problem, _: training.Point) -> AbstractObjective:
    return GeneralizedFenchelYoung(OMEGA, argmax.coarse_oracle(problem.model.g.coupling, OMEGA))


def _chains(proposal: str, start: str, burn_in: int, persistent: bool = False) -> Callable:
    def make(problem: Problem, _: training.Point) -> AbstractObjective:
        rows = problem.rows if persistent else None
        return MCMC(Metropolis(proposal), chains=1, steps=10, burn_in=burn_in, start=start, persistent=rows)

    return make


def _players(factor: float) -> Callable:
    def make(problem: Problem, point: training.Point) -> AbstractObjective:
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


def _variants(setting: Setting, effort: Effort) -> tuple[Variant, ...]:
    """The variants of an objective from which dev rows choose."""
    variants = VARIANTS[setting.objective]
    if effort.quick:
        # A first look has no time to choose one.
        return variants[-1:]
    return variants[::3] if is_costly(setting) and len(variants) > 2 else variants


@functools.cache
def _optimizer(objective: str, clip: float) -> Callable[[Any], optax.GradientTransformation]:
    """The same object for the same settings: another one would be compiled again."""
    adam = optax.optimistic_adam_v2 if objective == "min-max" else optax.adam
    return lambda rate: optax.flatten(optax.chain(optax.clip_by_global_norm(clip), adam(rate)))


def _folds(n: int, *, several: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and dev rows: of four folds, or one dev part."""
    if several:
        return list(KFold(FOLDS, shuffle=True, random_state=0).split(np.arange(n)))
    train, dev = dev_split(n)
    return [(train, dev)]


def _smooth(scores: np.ndarray) -> np.ndarray:
    """The mean of each check and its neighbors: a high score of a single check is chance."""
    padded = np.pad(scores, ((1, 1), (0, 0)), constant_values=np.nan)
    return np.nanmean([padded[:-2], padded[1:-1], padded[2:]], axis=0)


def _recipe(setting: Setting, effort: Effort, x: np.ndarray, k: int) -> names.Recipe:
    space = Permutations(k) if is_ranking(setting) else Hypercube(k)
    coupling = names.coupling(setting.coupling, space, jax.random.key(0))
    loss, tau = names.LOSSES[setting.loss], setting.tau or "linear"
    parts = (coupling, setting.model, tau, Uniform(space), loss)
    return names.Recipe(*parts, x.shape[1:], len(x), effort.width, effort.depth, has_surrogate=False)
