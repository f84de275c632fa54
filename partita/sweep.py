"""Many trainings: a grid of rates, penalties and seeds as one program, and results that are never computed twice."""

import itertools
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import joblib
import optax

from . import members
from ._types import Key
from .batches import AbstractRows
from .model import EBM
from .objectives import AbstractObjective
from .solver import BOTH, AbstractTraining, Progress, Solver

__all__ = ["Grid", "Point", "Store", "distinct", "run", "train"]


class Point(NamedTuple):
    """One training of a grid."""

    rate: float
    penalty: float
    seed: int


class Grid(NamedTuple):
    """All combinations of learning rates, penalties and seeds."""

    rates: Sequence[float]
    penalties: Sequence[float]
    seeds: Sequence[int]

    def points(self) -> list[Point]:
        """Those of one seed side by side, so that they make their draws together."""
        found = itertools.product(self.seeds, self.rates, self.penalties)
        return [Point(rate, penalty, seed) for seed, rate, penalty in found]


def train(
    make: Callable[[Key], EBM],
    objective: AbstractObjective | Callable[[Point], AbstractObjective],
    data: AbstractRows,
    points: Sequence[Point],
    *,
    steps: int,
    every: int = 100,
    weights: Any = None,
    optimizer: Callable[[Any], optax.GradientTransformation] | None = None,
    schedule: Callable[[Any], Any] | None = None,
    tau_factor: float = 1.0,
    train: AbstractTraining = BOTH,
    callbacks: Sequence[Callable[[Progress], bool | None]] = (),
) -> members.Members:
    """A model for each point, trained together: one compilation, and every matrix product is of all of them.

    `make` gives a model for a key, `objective` is one for all points or makes that of each. A point's seed decides its
    weights and draws, not the order of the rows, which all points share; so a point is trained to the same end in any
    company. `weights` has a row for each point. tau learns at `tau_factor` times the rate of g. `optimizer` and `train`
    are those of `Solver`, the same for all points.
    """
    if not points:
        raise ValueError("A grid needs at least one point.")
    solvers = [
        Solver(
            objective if isinstance(objective, AbstractObjective) else objective(point),
            learning_rate=point.rate,
            tau_learning_rate=tau_factor * point.rate,
            penalty=point.penalty,
            optimizer=optimizer,
            schedule=schedule,
            train=train,
        )
        for point in points
    ]
    keys = {point.seed: jax.random.key(point.seed) for point in points}
    made = {seed: make(key) for seed, key in keys.items()}
    solver, models = members.stacked(solvers), members.stacked([made[point.seed] for point in points])
    trained = members.fit(
        solver,
        models,
        data,
        weights=weights,
        steps=steps,
        key=jax.random.key(0),
        every=every,
        callbacks=callbacks,
        resume=members.start(solver, models, key=jnp.stack([keys[point.seed] for point in points])),
    )
    if trained.interrupted:
        # Half a training is no result of its configuration.
        raise KeyboardInterrupt
    return trained


class Store:
    """Results in a file of JSON lines, each beside the configuration that it belongs to.

    Lines are only ever added, and each is on the disk before `add` returns. A line that was cut off by a kill is told
    of, and its result computed again.
    """

    def __init__(self, path: Any):
        self.path = Path(path)
        self._found: dict[str, dict[str, Any]] = {}
        raw = self.path.read_bytes() if self.path.exists() else b""
        self._broken = bool(raw) and not raw.endswith(b"\n")
        lost = 0
        for line in filter(None, raw.split(b"\n")):
            try:
                entry = json.loads(line)
                self._found[_name(entry["config"])] = entry
            except (ValueError, KeyError, TypeError):
                lost += 1
        if lost:
            warnings.warn(f"{self.path} has {lost} damaged lines; what they held is computed again.", stacklevel=2)

    def __contains__(self, config: Mapping[str, Any]) -> bool:
        return _name(config) in self._found

    def __getitem__(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return self._found[_name(config)]["result"]

    def get(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result of a configuration, None where there is none yet."""
        return self._found.get(_name(config), {}).get("result")

    def __len__(self) -> int:
        return len(self._found)

    def entries(self) -> list[dict[str, Any]]:
        """Everything there is, each with its `config`, its `result` and what was noted beside it."""
        return list(self._found.values())

    def add(self, config: Mapping[str, Any], result: Mapping[str, Any], **notes: Any) -> None:
        """Append a result."""
        entry = {"config": dict(config), "result": dict(result), **notes}
        line = json.dumps(entry, allow_nan=True).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            # One write: lines of several processes do not mix.
            file.write(b"\n" + line if self._broken else line)
            file.flush()
            os.fsync(file.fileno())
        self._broken = False
        self._found[_name(config)] = json.loads(line)


def run(
    configs: Iterable[Mapping[str, Any]],
    compute: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    store: Store,
    *,
    jobs: int | None = None,
    told: Callable[[Mapping[str, Any]], None] = lambda _: None,
    notes: Callable[[], Mapping[str, Any]] = dict,
) -> list[dict[str, Any]]:
    """The result of every configuration: from the store, else computed and stored as soon as it is there.

    What is missing goes through joblib: `jobs` processes, or whatever `joblib.parallel_config` says (a Dask cluster).
    `told` hears of each configuration whose result is there; `notes`, asked for as each is stored, stand beside it.
    """
    configs = distinct(configs)
    missing = []
    for config in configs:
        if config in store:
            told(config)
        else:
            missing.append(config)
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    found: Any = parallel(joblib.delayed(_both)(compute, config) for config in missing)
    with warnings.catch_warnings():
        # joblib replaces processes that have grown, which loses nothing; of a process that dies it raises.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs")
        for config, result in found:
            store.add(config, result, **notes())
            told(config)
    return [store[config] for config in configs]


def distinct(configs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each configuration once, in the order of their first places."""
    return list({_name(config): config for config in configs}.values())


def _both(compute: Callable, config: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return config, compute(config)


def _name(config: Mapping[str, Any]) -> str:
    """The same for equal configurations, whatever the order of their keys."""
    return json.dumps(config, sort_keys=True)
