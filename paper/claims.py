"""The claims of the paper's text, checked on our values."""

import itertools
from collections.abc import Mapping

from . import convergence, figures, tables
from .comparisons import Comparison, list_differences, pairs
from .document import NEAR, Claim, Table
from .report.words import counts
from .settings import Effort, Lookup

__all__ = ["RULES", "build"]

STRONG = 0.8
LOSSES = ("logistic", "sparsemax")
# The least share of cells within 2 points of the printed value or above it, by objective.
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


def build(scores: tables.Scores, lookup: Lookup, effort: Effort) -> tuple[Claim, ...]:
    """Each claim with a verdict: None where values that it is about are missing, or decide nothing."""
    sets, rankings = (tables.build(name, scores, effort) for name in ("table1", "table2"))
    return (
        *(_agrees(sets, objective) for objective in ENOUGH),
        *(_beats(sets, loss, other) for loss in LOSSES for other in ("fenchel-young", "mcmc", "min-max")),
        _regularizes(lookup, effort),
        _approaches(lookup, effort),
        *(_correlates(setting, values) for setting, values in figures.correlations(lookup, effort).items()),
        *(_agrees(rankings, objective) for objective in ENOUGH),
        *(_beats(rankings, loss, other) for loss in LOSSES for other in ("mcmc", "min-max")),
        _birkhoff(rankings),
        _permutahedron(rankings),
        _losses(rankings),
        convergence.claim(lookup, effort),
    )


def _agrees(table: Table, objective: str) -> Claim:
    name = tables.OBJECTIVES[objective]
    text = (
        f"{table.title}, {name}. At least {ENOUGH[objective]:.0%} of our figures are within {NEAR:g} points of the "
        "printed ones or above them."
    )
    rows = [row for row in table.rows if row.setting.get("objective") == objective]
    tally = table.tally(rows)
    evidence = counts(tally)
    if not tally or tally["none"]:
        return Claim(text, None, f"{evidence}.")
    cells = {" ".join((column, *row.heads[1:])): row.cell(column) for row in rows for column in table.columns}
    short = {name: cell.difference or 0.0 for name, cell in cells.items() if cell.agreement == "below"}
    reached = (tally["near"] + tally["above"]) / tally.total()
    evidence = f"{evidence}; within or above: {reached:.0%}."
    if short:
        evidence += f" Below: {list_differences(short)}."
    return Claim(text, reached >= ENOUGH[objective], evidence)


def _beats(table: Table, loss: str, other: str) -> Claim:
    text = f"{table.title}. Min-min ({loss}) works better than {tables.OBJECTIVES[other]}; same model and coupling."
    ours = {"objective": "min-min", "loss": loss}
    comparison = Comparison.against_baseline(pairs(table, ours, {"objective": other}, ("model", "coupling")))
    return Claim(text, comparison.is_better(), comparison.evidence())


def _birkhoff(table: Table) -> Claim:
    text = f"{table.title}. The Birkhoff polytope works better than the permutahedron with linear models (min-min)."
    linear = {"objective": "min-min", "model": "linear"}
    ours, other = ({**linear, "coupling": name} for name in ("birkhoff", "permutahedron"))
    comparison = Comparison.against_baseline(pairs(table, ours, other, ("loss",)))
    return Claim(text, comparison.is_better(), comparison.evidence())


def _permutahedron(table: Table) -> Claim:
    text = f"{table.title}. With an MLP the permutahedron works as well as the Birkhoff polytope (min-min)."
    mlp = {"objective": "min-min", "model": "mlp"}
    ours, other = ({**mlp, "coupling": name} for name in ("permutahedron", "birkhoff"))
    comparison = Comparison.of_equals(pairs(table, ours, other, ("loss",)))
    return Claim(text, comparison.is_as_good(both_ways=False), comparison.evidence())


def _losses(table: Table) -> Claim:
    text = f"{table.title}. The logistic and the sparsemax loss perform comparably overall (min-min; logistic first)."
    ours, other = ({"objective": "min-min", "loss": loss} for loss in LOSSES)
    comparison = Comparison.of_equals(pairs(table, ours, other, ("model", "coupling")))
    return Claim(text, comparison.is_as_good(both_ways=True), comparison.evidence())


def _regularizes(lookup: Lookup, effort: Effort) -> Claim:
    text = "Fewer draws regularize: some B' ends with a better test F1 than exact maximum likelihood, on most sets."
    ends = _ends("f1", lookup, effort)
    if not ends:
        return Claim(text, None, "Not all curves were run.")
    best = {name: max(end[draws] for draws in figures.DRAWS) - end[None] for name, end in ends.items()}
    gains = ", ".join(f"{name} {gain:+.2f}" for name, gain in best.items())
    return Claim(text, sum(gain > 0 for gain in best.values()) > len(best) / 2, f"Best B' less exact MLE: {gains}.")


def _approaches(lookup: Lookup, effort: Effort) -> Claim:
    text = "The more draws B', the nearer the exact train loss is to that of exact maximum likelihood."
    ends = _ends("loss", lookup, effort)
    if not ends:
        return Claim(text, None, "Not all curves were run.")
    losses = {name: [end[draws] for draws in (*figures.DRAWS, None)] for name, end in ends.items()}
    falling = all(a > b for values in losses.values() for a, b in itertools.pairwise(values))
    values = "; ".join(f"{name} {', '.join(f'{value:.2f}' for value in curve)}" for name, curve in losses.items())
    return Claim(text, falling, f"Last loss by B' = 10, 100, 1000, exact: {values}.")


def _correlates(setting: str, values: Mapping[str, float | None]) -> Claim:
    """Judged on the paper's sets; others are in the evidence."""
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


def _ends(quantity: str, lookup: Lookup, effort: Effort) -> dict[str, dict[int | None, float]]:
    """The last value of every curve, by set and draws; empty where one is missing."""
    ends: dict[str, dict[int | None, float]] = {}
    for dataset in itertools.chain.from_iterable(figures.CURVES.values()):
        results = {draws: lookup(config) for draws, config in figures.curves(dataset, effort).items()}
        if all(result is not None for result in results.values()):
            ends[figures.title(dataset)] = {draws: result[quantity][-1] for draws, result in results.items() if result}
        elif dataset not in (figures.LARGE, figures.REDUCED):
            return {}
    return ends
