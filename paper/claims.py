"""What the paper says in words, as checks on our figures."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from . import convergence, figures, tables
from .comparisons import Comparison, listed, pairs
from .document import NEAR, Claim, Table
from .protocol import Effort
from .report.words import counts

__all__ = ["RULES", "build"]

# Scores of a configuration, empty where it was not run; the result of a figure's configuration, None where not.
Scores = Callable[[Mapping[str, Any]], tuple[float, ...]]
STRONG = 0.8
LOSSES = ("logistic", "sparsemax")
# Share of the cells that are to be within 2 points of the printed figure or above it, by objective.
ENOUGH = {"min-min": 0.9, "mcmc": 0.85, "min-max": 0.85}
RULES = (
    "Claims compare cells pair by pair: the same data set, and rows that differ only in what is compared. A pair is "
    "better or worse if the means over the seeds differ by more than two standard errors, sqrt(s1²/n1 + s2²/n2) with "
    "the standard deviations s over n seeds; else it is undecided. (Rankings share their splits, so this is cautious "
    "there.) A method works better than another if more pairs are better than worse, and the mean difference over the "
    "pairs is more than two of its standard errors above 0. It works as well if the mean difference is not more than "
    f"{NEAR:g} points below 0, and comparably if it is within {NEAR:g} points of 0. A baseline that falls short of its "
    "printed figure is no evidence: its pairs are left out, and if these are more than half, the claim is undecided."
)


def build(scores: Scores, look: figures.Look, effort: Effort) -> tuple[Claim, ...]:
    """Each claim with a verdict: None where the figures that it is about are not all there, or decide nothing."""
    sets, rankings = (tables.build(name, scores, effort) for name in ("table1", "table2"))
    return (
        *(_agrees(sets, objective) for objective in ENOUGH),
        *(_beats(sets, loss, other) for loss in LOSSES for other in ("fenchel-young", "mcmc", "min-max")),
        _regularizes(look, effort),
        _approaches(look, effort),
        *(_correlates(setting, values) for setting, values in figures.correlations(look, effort).items()),
        *(_agrees(rankings, objective) for objective in ENOUGH),
        *(_beats(rankings, loss, other) for loss in LOSSES for other in ("mcmc", "min-max")),
        _birkhoff(rankings),
        _permutahedron(rankings),
        _losses(rankings),
        convergence.claim(look, effort),
    )


def _agrees(table: Table, objective: str) -> Claim:
    name = tables.OBJECTIVES[objective]
    text = (
        f"{table.title}, {name}. At least {ENOUGH[objective]:.0%} of our figures are within {NEAR:g} points of the "
        "printed ones or above them."
    )
    rows = [row for row in table.rows if row.setting.get("objective") == objective]
    tally = table.tally(rows)
    said = counts(tally)
    if not tally or tally["none"]:
        return Claim(text, None, f"{said}.")
    cells = {" ".join((column, *row.heads[1:])): row.cell(column) for row in rows for column in table.columns}
    short = {name: cell.difference or 0.0 for name, cell in cells.items() if cell.agreement == "below"}
    reached = (tally["near"] + tally["above"]) / tally.total()
    said = f"{said}; within or above: {reached:.0%}."
    return Claim(text, reached >= ENOUGH[objective], f"{said} Below: {listed(short)}." if short else said)


def _beats(table: Table, loss: str, other: str) -> Claim:
    text = f"{table.title}. Min-min ({loss}) works better than {tables.OBJECTIVES[other]}; same model and coupling."
    found = pairs(table, {"objective": "min-min", "loss": loss}, {"objective": other}, ("model", "coupling"))
    compared = Comparison.against_baseline(found)
    return Claim(text, compared.is_better(), compared.evidence())


def _birkhoff(table: Table) -> Claim:
    text = f"{table.title}. The Birkhoff polytope works better than the permutahedron with linear models (min-min)."
    linear = {"objective": "min-min", "model": "linear"}
    ours, other = ({**linear, "coupling": name} for name in ("birkhoff", "permutahedron"))
    compared = Comparison.against_baseline(pairs(table, ours, other, ("loss",)))
    return Claim(text, compared.is_better(), compared.evidence())


def _permutahedron(table: Table) -> Claim:
    text = f"{table.title}. With an MLP the permutahedron works as well as the Birkhoff polytope (min-min)."
    mlp = {"objective": "min-min", "model": "mlp"}
    ours, other = ({**mlp, "coupling": name} for name in ("permutahedron", "birkhoff"))
    compared = Comparison.of_equals(pairs(table, ours, other, ("loss",)))
    return Claim(text, compared.is_as_good(both_ways=False), compared.evidence())


def _losses(table: Table) -> Claim:
    text = f"{table.title}. The logistic and the sparsemax loss perform comparably overall (min-min; logistic first)."
    ours, other = ({"objective": "min-min", "loss": loss} for loss in LOSSES)
    compared = Comparison.of_equals(pairs(table, ours, other, ("model", "coupling")))
    return Claim(text, compared.is_as_good(both_ways=True), compared.evidence())


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


def _correlates(setting: str, values: Mapping[str, float | None]) -> Claim:
    """Judged on the rows of the paper's figure; other sets are in the evidence."""
    text = (
        "The learned log-partition of unseen rows is strongly correlated with the exact one: more than "
        f"{STRONG} on each of the paper's sets ({setting})."
    )
    judged = [values.get(name) for name in map(tables.title, tables.printed_columns(tables.TABLES["table1"]))]
    known = {name: value for name, value in values.items() if value is not None}
    correlations = [value for value in judged if value is not None]
    if len(correlations) < len(judged):
        return Claim(text, None, "Not all sets were run.")
    evidence = ", ".join(f"{name} {value:.3f}" for name, value in known.items())
    apart = "; cal500 on rows apart is not the paper's and not judged" if "cal500" in known else ""
    return Claim(text, min(correlations) > STRONG, f"{evidence}{apart}.")


def _ends(what: str, look: figures.Look, effort: Effort) -> dict[str, dict[int | None, float]]:
    """The last value of every curve, by set and draws; nothing where one is missing."""
    ends: dict[str, dict[int | None, float]] = {}
    for dataset in itertools.chain.from_iterable(figures.CURVES.values()):
        results = {draws: look(given) for draws, given in figures.curves(dataset, effort).items()}
        if all(result is not None for result in results.values()):
            ends[figures.title(dataset)] = {draws: result[what][-1] for draws, result in results.items() if result}
        elif dataset not in (figures.LARGE, figures.REDUCED):
            return {}
    return ends
