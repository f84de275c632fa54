"""Configurations: what is trained, over which grid and for how long.

The protocol was fixed before the run; README.md in this folder gives it with its reasons.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from partita.estimators.names import RANKING_COUPLINGS

__all__ = [
    "FULL",
    "OVERLAPPING",
    "PROTOCOL",
    "QUICK",
    "Effort",
    "Lookup",
    "Setting",
    "configuration",
    "is_costly",
    "is_ranking",
    "setting_and_effort",
]

# Part of every configuration, so that results of different protocols are never mixed.
PROTOCOL = 2
# cal500 with all its rows as training rows, 101 of them test rows too: what the paper's table of sizes implies.
OVERLAPPING = "cal500-overlapping"
# Steps on the sets with more than 1,000 training rows, where they cost most; their choices are early.
STEPS = {"yeast": 600, "scene": 600}
# With 174 labels h(x) has 30,450 outputs: one training costs as much as fifty with unary coupling. The grid is limited
# to the region in which the pilot's choices with unary coupling were.
PAIRWISE = ("pairwise-full", "pairwise-concave")
COSTLY: dict[str, Any] = {
    "grid": tuple(itertools.product((1e-3, 1e-2), (1e-1, 1.0))),
    "draws": 100,
    "batch_size": 128,
    "checks": 4,
}
COSTLY_STEPS, COSTLY_QUICK_STEPS = 200, 16
# The grid of each variant of MCMC and min-max: over all variants, at least as many trainings as min-min has.
SAMPLED: dict[str, tuple[tuple[float, float], ...]] = {
    "mcmc": ((1e-3, 0.0), (1e-2, 0.0), (1e-2, 1e-1), (5e-2, 0.0)),
    "min-max": tuple(itertools.product((1e-3, 1e-2, 5e-2), (0.0, 1e-1))),
}
# Where the grid of MCMC is that of min-min: with the smaller one two linear models were below the printed values.
WIDE_MCMC = ("birds",)
# The appendix, which compares models of tau, is tuned less widely than Tables 1 and 2.
APPENDIX = tuple(itertools.product((1e-3, 1e-2), (0.0, 1e-1)))

# The stored result of a configuration, None where it was not run.
Lookup = Callable[[Mapping[str, Any]], dict[str, Any] | None]


class Setting(NamedTuple):
    """What is trained: a row of a table, on one set. `tau` is None where the objective has none."""

    dataset: str
    objective: str
    loss: str
    model: str
    coupling: str
    tau: str | None


class Effort(NamedTuple):
    """The length of a training, and the learning rates and penalties over which it is tuned.

    The number of steps of the last training is that of the check, among `checks` along a run, with the best score on
    dev rows. A batch size of None means all rows.
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
        """Whether it is for a first look: one seed, and shorter training of the estimators too."""
        return len(self.seeds) == 1


# Learning rates and penalties. The paper names one rate, 1e-4, without penalty: in so few steps it ends far from where
# a penalty would count. 5e-2 with the largest penalty is left out.
GRID = ((1e-4, 0.0), *itertools.product((1e-3, 1e-2), (0.0, 1e-2, 1e-1, 1.0)), *((5e-2, p) for p in (0.0, 1e-2, 1e-1)))
FULL = Effort(GRID, (0, 1, 2), 1000)
QUICK = Effort(tuple(itertools.product((1e-3, 1e-2), (0.0, 1e-1))), (0,), 200, width=64, checks=4)


def configuration(setting: Setting, effort: Effort, kind: str = "score") -> dict[str, Any]:
    """A configuration as the store keeps it: names and numbers only."""
    values = {name: _as_lists(value) for name, value in _affordable(setting, effort)._asdict().items()}
    return {"protocol": PROTOCOL, "kind": kind, **setting._asdict(), **values}


def setting_and_effort(config: Mapping[str, Any]) -> tuple[Setting, Effort]:
    """The parts of a configuration."""
    return Setting(*(config[name] for name in Setting._fields)), Effort(*(config[name] for name in Effort._fields))


def is_costly(setting: Setting) -> bool:
    """Whether U(x) has 174 x 174 entries."""
    return setting.dataset in ("cal500", OVERLAPPING) and setting.coupling in PAIRWISE


def is_ranking(setting: Setting) -> bool:
    """Whether y is a ranking, not a label set."""
    return setting.coupling in RANKING_COUPLINGS


def _affordable(setting: Setting, effort: Effort) -> Effort:
    """The effort that the pilot justified for a setting; efforts other than `FULL` and `QUICK` are not changed."""
    is_sampled = setting.objective in SAMPLED
    if effort in (FULL, QUICK) and is_costly(setting):
        steps = COSTLY_QUICK_STEPS if effort.quick else COSTLY_STEPS // 2 if is_sampled else COSTLY_STEPS
        return effort._replace(**COSTLY, steps=steps)
    if effort != FULL:
        return effort
    steps = STEPS.get(setting.dataset, effort.steps)
    if is_sampled:
        wide = setting.objective == "mcmc" and setting.dataset in WIDE_MCMC
        return effort._replace(grid=effort.grid if wide else SAMPLED[setting.objective], steps=steps)
    return effort._replace(grid=APPENDIX if _is_in_appendix(setting) else effort.grid, steps=steps)


def _is_in_appendix(setting: Setting) -> bool:
    """Whether it compares models of tau."""
    if setting.objective != "min-min":
        return False
    if is_ranking(setting):
        return setting.tau != "mlp" or setting.model == "resnet"
    return setting.tau != "constant"


def _as_lists(value: Any) -> Any:
    """Tuples as JSON keeps them."""
    return [_as_lists(part) for part in value] if isinstance(value, tuple) else value
