"""What was tried for cells below the printed values, and for the reasons of cells above: `python -m paper.trials`.

A trial changes the protocol of one cell: longer training, other rates, draws, chains or players. It chooses on dev rows
as the protocol does and looks at the test rows once. The results are kept beside those of the run and are cited by the
remarks; they replace no cell.
"""

import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from partita.kernels import Metropolis
from partita.networks import MLP
from partita.objectives import MCMC, Generator, MinMax

from . import store
from .protocol import Variant, score
from .settings import COSTLY, FULL, GRID, OVERLAPPING, STEPS, Effort, Setting, configuration

__all__ = ["OUT", "TRIALS", "Trial", "compute", "trial_configuration"]

OUT = Path(__file__).parents[1] / "docs" / "results" / "trials.jsonl"


class Trial(NamedTuple):
    """A cell and what is changed; `variants` and `folded` are those of `protocol.score`."""

    setting: Setting
    effort: Effort
    variants: Sequence[Variant] = ()
    folded: bool | None = None


def trial_configuration(name: str) -> dict[str, Any]:
    """The configuration of a trial as the store keeps it."""
    trial = TRIALS[name]
    return {"trial": name, **configuration(trial.setting, trial.effort)}


def compute(trial: Trial) -> dict[str, Any]:
    """The test scores of every seed, and what dev rows chose."""
    return score(configuration(trial.setting, trial.effort), variants=trial.variants, folded=trial.folded)


def _grid(rates: Sequence[float], penalties: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple(itertools.product(rates, penalties))


def _effort(rates: Sequence[float], penalties: Sequence[float], steps: int, **changes: Any) -> Effort:
    return FULL._replace(grid=_grid(rates, penalties), steps=steps, **changes)


def _players(factor: float, draws: int) -> Variant:
    """A generator with another rate and number of draws than the protocol's."""

    def make(problem, point):
        body = MLP(problem.features, problem.model.space.shape, width=problem.effort.width, key=jax.random.key(1))
        return MinMax(Generator(problem.model.space, body), draws, learning_rate=factor * point.rate)

    return Variant(f"generator at {factor:g} times the rate of g, {draws} draws", make)


def _local_chains(steps: int) -> Variant:
    """Single flips or transpositions from the data."""
    return Variant(
        f"local moves from the data, {steps} steps",
        lambda *_: MCMC(Metropolis("local"), chains=1, steps=steps, burn_in=0, start="data"),
    )


def _sets(dataset: str, loss: str, model: str, coupling: str, tau: str | None, objective: str = "min-min") -> Setting:
    return Setting(dataset, objective, loss, model, coupling, tau)


# By name: the cell, then what is changed.
TRIALS: dict[str, Trial] = {
    # Sparsemax on birds chose the last of 1,000 steps.
    **{
        f"birds sparsemax mlp {coupling} {tau}, 4,000 steps": Trial(
            _sets("birds", "sparsemax", "mlp", coupling, tau),
            _effort((3e-4, 1e-3, 3e-3), (0.0,), 4000, checks=20),
        )
        for coupling in ("unary", "pairwise-full")
        for tau in ("constant", "icnn")
    },
    "birds sparsemax mlp unary constant, 1,000 draws": Trial(
        _sets("birds", "sparsemax", "mlp", "unary", "constant"),
        _effort((1e-3, 3e-3), (0.0, 1e-2), 2000, draws=1000),
    ),
    **{
        f"birds sparsemax mlp {coupling} {tau}, 5,000 draws": Trial(
            _sets("birds", "sparsemax", "mlp", coupling, tau),
            _effort((3e-3, 1e-2), (0.0,), 2000, draws=5000),
        )
        for coupling in ("unary", "pairwise-full")
        for tau in ("constant", "icnn")
    },
    "birds sparsemax mlp unary constant, 20,000 draws": Trial(
        _sets("birds", "sparsemax", "mlp", "unary", "constant"), _effort((3e-3,), (0.0,), 2000, draws=20_000)
    ),
    "birds sparsemax mlp unary constant, batches of 32": Trial(
        _sets("birds", "sparsemax", "mlp", "unary", "constant"),
        _effort((1e-3, 3e-3), (0.0, 1e-2), 4000, batch_size=32),
    ),
    # ResNets with sparsemax end several points apart from seed to seed at rate 1e-2.
    **{
        f"{dataset} sparsemax resnet {coupling} {tau}, small rates, 1,000 draws": Trial(
            _sets(dataset, "sparsemax", "resnet", coupling, tau),
            _effort((1e-4, 1e-3), (0.0, 1e-1), 1200, draws=1000),
        )
        for dataset, coupling, tau in (
            ("scene", "unary", "constant"),
            ("scene", "pairwise-full", "constant"),
            ("scene", "unary", "icnn"),
            ("scene", "pairwise-full", "icnn"),
            ("yeast", "unary", "icnn"),
            ("yeast", "pairwise-full", "icnn"),
        )
    },
    "yeast logistic resnet pairwise icnn, whole grid": Trial(
        _sets("yeast", "logistic", "resnet", "pairwise-full", "icnn"),
        FULL._replace(steps=600, grid=(*GRID, (3e-3, 0.0))),
    ),
    "emotions linear unary fenchel-young, four folds": Trial(
        _sets("emotions", "logistic", "linear", "unary", None, "fenchel-young"),
        FULL._replace(steps=3000, grid=(*GRID, (1e-2, 3.0), (1e-2, 0.3))),
        folded=True,
    ),
    # Rankings of iris.
    **{
        f"iris {loss} {model} {coupling} {tau}, larger rates, 3,000 steps": Trial(
            _sets("iris", loss, model, coupling, tau), _effort((1e-2, 5e-2, 1e-1), (0.0, 1e-2), 3000)
        )
        for loss, model, coupling, tau in (
            ("sparsemax", "linear", "birkhoff", "mlp"),
            ("logistic", "linear", "birkhoff", "constant"),
            ("logistic", "mlp", "birkhoff", "constant"),
            ("logistic", "resnet", "permutahedron", "constant"),
            ("logistic", "resnet", "permutahedron", "mlp"),
        )
    },
    "iris mlp permutahedron mcmc, penalties": Trial(
        _sets("iris", "logistic", "mlp", "permutahedron", None, "mcmc"),
        _effort((1e-2, 5e-2), (0.0, 1e-2, 1e-1), 1000),
        (_local_chains(10), _local_chains(40)),
    ),
    # Min-max on rankings: larger penalties than the grid's, more draws, a faster generator. One split: they are slow.
    **{
        f"{dataset} {model} birkhoff min-max, larger penalties, 64 draws": Trial(
            _sets(dataset, "logistic", model, "birkhoff", None, "min-max"),
            _effort((1e-3, 1e-2), (1e-1, 1.0), 1000, seeds=(0,)),
            (_players(10.0, 64),),
            folded=False,
        )
        for dataset, model in (("vehicle", "linear"), ("vehicle", "mlp"), ("vowel", "mlp"))
    },
    **{
        f"{dataset} {model} birkhoff min-max, penalties up to 10, many checks": Trial(
            _sets(dataset, "logistic", model, "birkhoff", None, "min-max"),
            _effort((3e-4, 1e-3), (1.0, 3.0, 10.0), 400, checks=20),
            (_players(10.0, 64),),
        )
        for dataset, model in (("vehicle", "linear"), ("vehicle", "mlp"), ("vowel", "mlp"))
    },
    # cal500 with the paper's rows.
    "cal500 resnet unary mcmc, local moves only": Trial(
        _sets(OVERLAPPING, "logistic", "resnet", "unary", None, "mcmc"),
        _effort((1e-3, 1e-2), (0.0, 1e-1), 1000),
        (_local_chains(10),),
    ),
    "cal500 mlp unary min-max, 1,000 steps for all": Trial(
        _sets(OVERLAPPING, "logistic", "mlp", "unary", None, "min-max"),
        _effort((1e-3, 1e-2), (0.0, 1e-1), 1000, checks=1),
    ),
    **{
        f"cal500 {model} pairwise mcmc, 400 steps of local moves": Trial(
            _sets(OVERLAPPING, "logistic", model, "pairwise-full", None, "mcmc"),
            FULL._replace(**(COSTLY | {"grid": _grid((1e-3, 1e-2), (1e-1,))}), steps=400),
            (_local_chains(40),),
        )
        for model in ("linear", "mlp", "resnet")
    },
    "cal500 resnet pairwise min-max, 200 steps for all": Trial(
        _sets(OVERLAPPING, "logistic", "resnet", "pairwise-full", None, "min-max"),
        FULL._replace(**(COSTLY | {"grid": _grid((1e-3,), (1e-1, 1.0)), "checks": 1}), steps=200),
    ),
    **{
        f"cal500 {model} pairwise {objective}, rate 1e-2, no penalty, last of 400 steps": Trial(
            _sets(OVERLAPPING, "logistic", model, "pairwise-full", None, objective),
            FULL._replace(**(COSTLY | {"grid": _grid((1e-2,), (0.0,)), "checks": 1}), steps=400),
            (variant,),
        )
        for model, objective, variant in (
            ("mlp", "mcmc", _local_chains(10)),
            ("resnet", "mcmc", _local_chains(10)),
            ("resnet", "min-max", _players(10.0, 16)),
        )
    },
    # Why label sets are above: the last step in place of a chosen one, one dev part in place of four folds, no clip.
    **{
        f"{dataset} mlp unary {objective}, last step": Trial(
            _sets(dataset, "logistic", "mlp", "unary", tau, objective),
            FULL._replace(steps=STEPS.get(dataset, FULL.steps), checks=1),
            folded=False,
        )
        for objective, tau in (("exact", None), ("fenchel-young", None), ("min-min", "mlp"))
        for dataset in ("yeast", "scene", "birds", "emotions")
    },
    "birds logistic resnet unary constant, one dev part": Trial(
        _sets("birds", "logistic", "resnet", "unary", "constant"), FULL, folded=False
    ),
    "birds sparsemax linear unary constant, one dev part": Trial(
        _sets("birds", "sparsemax", "linear", "unary", "constant"), FULL, folded=False
    ),
    "birds logistic resnet unary constant, no clipping": Trial(
        _sets("birds", "logistic", "resnet", "unary", "constant"), FULL._replace(clip=1e6)
    ),
    **{
        f"{dataset} {objective} {model} unary, no clip": Trial(
            _sets(dataset, "logistic", model, "unary", tau, objective),
            FULL._replace(steps=STEPS.get(dataset, FULL.steps), clip=1e6),
        )
        for objective, tau in (("min-min", "constant"), ("exact", None))
        for model in ("resnet", "mlp")
        for dataset in ("birds", "emotions", "scene", "yeast")
        if (objective, model, dataset) != ("min-min", "resnet", "birds")
    },
    # Why rankings are above: without clipping, and with the one rate that the paper names.
    **{
        f"{dataset} logistic {model} permutahedron mlp, no clip": Trial(
            _sets(dataset, "logistic", model, "permutahedron", "mlp"), FULL._replace(clip=1e6)
        )
        for model in ("linear", "mlp")
        for dataset in ("iris", "authorship", "vowel", "wine", "glass", "vehicle")
    },
    **{
        f"{dataset} logistic {model} permutahedron mlp, rate 1e-4, 5,000 steps": Trial(
            _sets(dataset, "logistic", model, "permutahedron", "mlp"), _effort((1e-4,), (0.0,), 5000, checks=1)
        )
        for model in ("linear", "mlp")
        for dataset in ("iris", "authorship", "vowel", "wine", "glass", "vehicle")
    },
}


def main(names: Sequence[str]) -> None:
    """Run the trials whose names begin with one of `names`, or all, and store what is missing."""
    results = store.Store(OUT)
    for name, trial in TRIALS.items():
        config = trial_configuration(name)
        if config in results or (names and not name.startswith(tuple(names))):
            continue
        start = time.perf_counter()
        result = compute(trial)
        seconds = round(time.perf_counter() - start, 2)
        results.add(config, {**result, "seconds": seconds})
        test, dev = (
            [round(value, 1) for value in values] for values in (result["test"], [c["dev"] for c in result["chosen"]])
        )
        print(f"{name}: dev {dev}, test {test}, {seconds:.0f} s", result["chosen"][0], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
