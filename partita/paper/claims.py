"""What the paper says in words, as checks on our figures."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import convergence, figures, printed, tables
from .document import NEAR, Claim
from .protocol import Effort, Setting, config

__all__ = ["build"]

# Scores of a configuration, empty where it was not run; the result of a figure's configuration, None where not.
Scores = Callable[[Mapping[str, Any]], tuple[float, ...]]
STRONG = 0.8
ENOUGH = 0.8


def build(scores: Scores, look: figures.Look, effort: Effort) -> tuple[Claim, ...]:
    """Each claim with a verdict: None where the figures that it is about are not all there."""
    return (
        *(_agrees(name, scores, effort) for name in ("table1", "table2")),
        *(_beats(other, scores, effort) for other in ("fenchel-young", "mcmc", "min-max")),
        _regularizes(look, effort),
        _approaches(look, effort),
        _birkhoff(scores, effort),
        _correlates(look, effort),
        convergence.claim(look, effort),
    )


def _agrees(name: str, scores: Scores, effort: Effort) -> Claim:
    table = tables.build(name, scores, effort)
    columns = [column for column in table.columns if column != "cal500"]
    apart = "" if len(columns) == len(table.columns) else " (cal500 apart)"
    text = (
        f"{table.title}, min-min: our figures are within {NEAR:g} points of the printed ones or above them in at least "
        f"{ENOUGH:.0%} of the cells{apart}."
    )
    rows = [row for row in table.rows if row.heads[0] == tables.OBJECTIVES["min-min"]]
    tally, share = table.tally(rows, columns), table.agreeing(rows, columns)
    if tally["none"] or share is None:
        return Claim(text, None, "Not all cells were run.")
    cells = {(column, *row.heads[1:]): row.cell(column) for row in rows for column in columns}
    short = [f"{' '.join(at)} {cell.difference:+.1f}" for at, cell in cells.items() if cell.agreement == "below"]
    said = f"{tally.total() - tally['below']} of {tally.total()}. Below: {'; '.join(short) or 'none'}."
    return Claim(text, share >= ENOUGH, said)


def _beats(other: str, scores: Scores, effort: Effort) -> Claim:
    text = f"Label sets: min-min (logistic) has a better F1 than {tables.OBJECTIVES[other]}, on average over Table 1."
    pairs = []
    for heads, _ in printed.rows(printed.TABLE_1):
        if heads[0] != other:
            continue
        _, loss, model, coupling, _ = heads
        for dataset in printed.SETS:
            ours = scores(config(Setting(dataset, "min-min", loss, model, coupling, "constant"), effort))
            theirs = scores(config(Setting(dataset, other, loss, model, coupling, None), effort))
            pairs.append((ours, theirs))
    return _compared(text, pairs)


def _birkhoff(scores: Scores, effort: Effort) -> Claim:
    text = "Rankings: with linear models the Birkhoff polytope is better than the permutahedron (logistic, min-min)."
    pairs = []
    for dataset in printed.RANKINGS:
        found = [
            scores(config(Setting(dataset, "min-min", "logistic", "linear", polytope, "mlp"), effort))
            for polytope in ("birkhoff", "permutahedron")
        ]
        pairs.append(tuple(found))
    return _compared(text, pairs)


def _compared(text: str, pairs: list[tuple[tuple[float, ...], tuple[float, ...]]]) -> Claim:
    """Whether the first of each pair is better on average, and in how many cells."""
    if not pairs or not all(ours and theirs for ours, theirs in pairs):
        return Claim(text, None, "Not all cells were run.")
    more = np.array([np.mean(ours) - np.mean(theirs) for ours, theirs in pairs])
    said = f"{more.mean():+.2f} points on average, better in {int((more > 0).sum())} of {len(more)} cells."
    return Claim(text, bool(more.mean() > 0), said)


def _regularizes(look: figures.Look, effort: Effort) -> Claim:
    text = "Fewer draws regularize: some B' ends with a better test F1 than exact maximum likelihood, on most sets."
    ends = _ends("f1", look, effort)
    if not ends:
        return Claim(text, None, "Not all curves were run.")
    best = {name: max(found[draws] for draws in figures.DRAWS) - found[None] for name, found in ends.items()}
    said = ", ".join(f"{name} {gain:+.2f}" for name, gain in best.items())
    return Claim(text, sum(gain > 0 for gain in best.values()) > len(best) / 2, f"Best B' less exact MLE: {said}.")


def _approaches(look: figures.Look, effort: Effort) -> Claim:
    text = "The more draws B', the nearer the exact train loss is to that of exact maximum likelihood."
    ends = _ends("loss", look, effort)
    if not ends:
        return Claim(text, None, "Not all curves were run.")
    losses = {name: [found[draws] for draws in (*figures.DRAWS, None)] for name, found in ends.items()}
    falling = all(a > b for values in losses.values() for a, b in itertools.pairwise(values))
    said = "; ".join(f"{name} {', '.join(f'{value:.2f}' for value in values)}" for name, values in losses.items())
    return Claim(text, falling, f"Last loss by B' = 10, 100, 1000, exact: {said}.")


def _correlates(look: figures.Look, effort: Effort) -> Claim:
    text = (
        f"The learned log-partition of unseen rows goes with the exact one (correlation above {STRONG} on every set)."
    )
    found = {each["dataset"]: look(each) for each in figures.wanted("figure2", effort)}
    if any(result is None for result in found.values()):
        return Claim(text, None, "Not all sets were run.")
    values = {name: figures.correlation(result) for name, result in found.items() if result}
    said = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
    return Claim(text, min(values.values()) > STRONG, f"{said}.")


def _ends(what: str, look: figures.Look, effort: Effort) -> dict[str, dict[int | None, float]]:
    """The last value of every curve, by set and draws; nothing where one is missing."""
    ends: dict[str, dict[int | None, float]] = {}
    for dataset in itertools.chain.from_iterable(figures.CURVES.values()):
        results = {draws: look(given) for draws, given in figures.curves(dataset, effort).items()}
        if all(result is not None for result in results.values()):
            ends[dataset] = {draws: result[what][-1] for draws, result in results.items() if result}
        elif dataset != figures.LARGE:
            return {}
    return ends
