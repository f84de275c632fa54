"""Rows compared cell by cell: what is better, worse and undecided, and which pairs may be judged at all."""

import numpy as np
import pytest
from scipy import stats

from paper.comparisons import Comparison, Pair, list_differences, pairs
from paper.document import Cell, Row, Table


def pair(difference, spread=0.125, *, short=False, printed=1.0):
    """Three seeds; the baseline is at its printed figure, or three points short of it."""
    figure = 53.0 if short else 50.0
    seeds = (-spread, 0.0, spread)
    return Pair(
        "cell",
        Cell(figure + printed, tuple(50.0 + difference + seed for seed in seeds)),
        Cell(figure, tuple(50.0 + seed for seed in seeds)),
    )


@pytest.mark.parametrize(
    ("ours", "other", "expected"),
    [
        ((70.0, 71.0, 72.0), (60.0, 61.0, 62.0), "better"),
        ((60.0, 61.0, 62.0), (70.0, 71.0, 72.0), "worse"),
        ((60.0, 65.0, 70.0), (61.0, 64.0, 69.0), "undecided"),
        ((70.0,), (60.0, 61.0), "undecided"),
        ((70.0,), (60.0,), "undecided"),
        ((61.0, 61.0), (60.0, 60.0), "better"),
        ((60.0, 60.0), (60.0, 60.0), "undecided"),
        # The standard error is 1: two of them are not beyond two of them.
        ((3.0, 5.0), (2.0, 2.0), "undecided"),
        ((3.0, 5.0), (1.99, 1.99), "better"),
        ((float("nan"), 70.0), (60.0, 60.0), "worse"),
    ],
)
def test_a_pair_is_decided_beyond_two_standard_errors(ours, other, expected):
    assert Pair("", Cell(60.0, ours), Cell(60.0, other)).outcome == expected


def test_the_standard_error_is_that_of_welch():
    rng = np.random.RandomState(0)
    for _ in range(20):
        ours, other = (tuple(rng.normal(60, 3, size=rng.randint(2, 6))) for _ in range(2))
        found = Pair("", Cell(60.0, ours), Cell(60.0, other))
        expected = stats.ttest_ind(ours, other, equal_var=False).statistic
        np.testing.assert_allclose(found.difference / found.error, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("differences", "spread", "expected"),
    [
        ((3, 4, 5, 4), 0.125, True),
        ((-3, -4, -5, -4), 0.125, False),
        # As many worse as better.
        ((9, 9, -1, -1), 0.125, False),
        # More pairs are better, but one is so much worse that the average says nothing.
        ((1, 1, 1, -5), 0.125, None),
        # Better on average, but each pair is within its spread.
        ((3, 4, 5, 4), 10.0, None),
        ((0, 0, 0, 0), 0.125, None),
    ],
)
def test_better_needs_pairs_and_an_average(differences, spread, expected):
    compared = Comparison.against_baseline([pair(difference, spread) for difference in differences])
    assert compared.is_better() is expected
    mean, error = np.mean(differences), np.std(differences, ddof=1) / 2
    assert f"{mean:+.2f} ± {error:.2f} points on average" in compared.evidence()


@pytest.mark.parametrize(
    ("differences", "as_good", "comparable"),
    [
        ((1, -1, 1, -1), True, True),
        ((-2, -2, -2, -2), True, True),
        ((-3, -3, -3, -3), False, False),
        ((5, 5, 5, 5), True, False),
        ((-9, 4, -9, 4), None, None),
    ],
)
def test_as_good_is_one_sided_and_comparable_is_not(differences, as_good, comparable):
    compared = Comparison.of_equals([pair(difference, printed=difference) for difference in differences])
    assert compared.is_as_good(both_ways=False) is as_good
    assert compared.is_as_good(both_ways=True) is comparable


def test_baselines_that_fell_short_are_counted_apart_and_decide_nothing():
    good, bad = [pair(-3.0, printed=1.0)] * 3, [pair(20.0, short=True, printed=-1.0)] * 2
    compared = Comparison.against_baseline(good + bad)
    assert compared.is_better() is False
    said = compared.evidence()
    assert "Better in 0, worse in 3, undecided in 0 of 3 pairs; -3.00" in said
    assert "2 of 5 baselines fell short of the printed figure by more than 2 points and are left out." in said
    assert "same way in 0 of the 3 decided pairs" in said
    assert "Printed: better in 3, worse in 2 of 5; +0.20" in said
    # Most baselines fell short: the few that are left decide nothing.
    assert Comparison.against_baseline([pair(3.0)] * 2 + bad * 2).is_better() is None
    assert Comparison.against_baseline(bad).evidence().startswith("2 of 2 baselines")


def test_one_seed_and_missing_cells_decide_nothing():
    single = [Pair("", Cell(60.0, (70.0,)), Cell(50.0, (50.0,)))] * 4
    assert Comparison.against_baseline(single).is_better() is None
    assert "With one seed nothing is decided." in Comparison.against_baseline(single).evidence()
    missing = Comparison.against_baseline([pair(3.0), Pair("", Cell(60.0, ()), Cell(50.0, (50.0, 51.0)))])
    assert missing.is_better() is None
    assert missing.evidence() == "Not all cells were run."


def test_pairs_are_rows_that_differ_in_what_is_compared_only():
    def row(objective, model, *figures):
        cells = {
            column: Cell(figure, (1.0, 2.0)) for column, figure in zip(("a", "no printed figure"), figures, strict=True)
        }
        return Row((objective, model), cells, setting={"objective": objective, "model": model})

    rows = (
        row("min-min", "linear", 1.0, None),
        row("min-min", "mlp", 2.0, None),
        row("mcmc", "mlp", 3.0, None),
        row("mcmc", "resnet", 4.0, None),
        Row(("beside", ""), {"a": Cell(None, (5.0,))}),
    )
    table = Table("t", "", "", ("Objective", "Model"), ("a", "no printed figure"), rows)
    found = pairs(table, {"objective": "min-min"}, {"objective": "mcmc"}, ("model",))
    assert [(one.name, one.ours.printed, one.other.printed) for one in found] == [("a mlp", 2.0, 3.0)]


def test_a_long_list_names_the_lowest():
    assert list_differences({"a": -1.0, "b": -3.0, "c": -2.0}) == "b -3.0; c -2.0; a -1.0"
    assert list_differences({"a": -1.0, "b": -3.0, "c": -2.0}, most=1) == "b -3.0; and 2 more"
