"""Remarks on figures that differ from the printed ones: whom they match, and that they name what there is."""

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier

from paper import printed_values, protocol, remarks, run, store, tables, trials
from paper.document import Cell, Report, Row, Table
from paper.remarks import Remark, label_sets, rankings
from paper.report import latex, markdown, page
from paper.settings import FULL
from partita import metrics

SETTING = {"objective": "min-min", "loss": "logistic", "model": "mlp", "coupling": "unary", "tau": "constant"}


def table():
    """One cell below, one within, one above, one that was not run."""
    cells = {
        "birds": Cell(60.0, (50.0, 51.0)),
        "scene": Cell(60.0, (60.0, 61.0)),
        "yeast": Cell(60.0, (70.0, 71.0), "always"),
        "wine": Cell(60.0, ()),
    }
    return Table("t", "T", "", ("h",), tuple(cells), (Row(("x",), cells, setting=SETTING),))


def shown(*given):
    (row,) = remarks.annotate(table(), given).rows
    return {column: cell.notes for column, cell in row.cells.items()}


def test_remarks_are_shown_only_where_figures_differ():
    always = {"birds": (), "scene": (), "yeast": ("always",), "wine": ()}
    everywhere = {"birds": ("why",), "scene": (), "yeast": ("always", "why"), "wine": ()}
    assert shown() == always
    assert shown(Remark("why")) == everywhere
    assert shown(Remark("why", off="below")) == always | {"birds": ("why",)}
    assert shown(Remark("why", off="above")) == always | {"yeast": ("always", "why")}
    assert shown(Remark("why", dataset=("birds", "scene"))) == always | {"birds": ("why",)}
    assert shown(Remark("why", **{name: (value, "other") for name, value in SETTING.items()})) == everywhere
    for name in SETTING:
        assert shown(Remark("why", **{name: ("other",)})) == always
    # Even one that a cell carries without a pattern is not shown on a cell within two points.
    assert Cell(60.0, (61.0,), remarks=("why",)).notes == ()


def test_remarks_are_footnotes_in_every_form():
    found = remarks.annotate(table(), [Remark("because 2 < 3", off="below"), Remark("for both")])
    report = Report("R", {}, (found,), (), (), ())
    text = markdown.document(report)
    cells = "| x | **50.50** ± 0.71<sup>1, 2</sup><br>60.00 🟧 ▼ −9.50 | **60.50** ± 0.71<br>60.00 ⬜ ≈ +0.50 |"
    assert cells in text
    assert "- <sup>1</sup> because 2 &lt; 3\n- <sup>2</sup> for both\n- <sup>3</sup> always\n" in text
    text = latex.document(report)
    assert r"\cellcolor{below}50.50 \ensuremath{\pm} 0.71\textsuperscript{1,2} & \cellcolor{near}60.50" in text
    assert r"\item \textsuperscript{1} because 2 \textless{} 3" in text
    text = page.document(report)
    assert '<a href="#t_1" title="because 2 &lt; 3">1</a> <a href="#t_2" title="for both">2</a></sup>' in text
    assert '<li id="t_1"><sup>1</sup> because 2 &lt; 3</li>' in text


def test_a_summary_is_on_top_of_every_form():
    report = Report("R", {"run": "today"}, (), (), (), (), "all of\nit reproduces")
    for form in (markdown, latex, page):
        text = form.document(report)
        assert text.index("all of it reproduces") < text.index("today")
        assert "reproduces" not in form.document(dataclasses.replace(report, summary=""))


def test_cells_without_a_remark_are_listed_farthest_first():
    assert remarks.cells_without_remark([table()]) == [("t", "yeast", ("x",), 10.5), ("t", "birds", ("x",), -9.5)]
    found = remarks.annotate(table(), [Remark("why", off="above")])
    assert remarks.cells_without_remark([found]) == [("t", "birds", ("x",), -9.5)]


def test_a_table_may_have_notes_of_its_own(monkeypatch):
    monkeypatch.setattr(remarks, "TABLE_NOTES", {"t": ("about the whole",)})
    assert remarks.annotate(table()).notes == ("about the whole",)
    assert remarks.annotate(dataclasses.replace(table(), name="u")).notes == ()


NAMES = {
    "dataset": {tables.title(column) for spec in tables.TABLES.values() for column in spec.columns},
    **{
        name: {heads[place] for spec in tables.TABLES.values() for heads, _ in printed_values.rows(spec.printed)}
        for place, name in enumerate(remarks.NAMES)
    },
}


@pytest.mark.parametrize("remark", remarks.REMARKS, ids=lambda remark: remark.text[:30])
def test_patterns_name_what_the_tables_have(remark):
    for name, known in NAMES.items():
        assert set(getattr(remark, name)) <= known
    assert remark.text.endswith(".")
    # It matches some cell, if figures are off by enough.
    values = {"above": (1000.0,), "below": (-1000.0,)}[remark.off or "above"]
    built = [tables.build(name, lambda _: values, FULL) for name in tables.TABLES]
    assert any(remark.text in cell.remarks for one in built for row in one.rows for cell in row.cells.values())


def test_table_notes_name_tables():
    assert set(remarks.TABLE_NOTES) <= set(tables.TABLES)


RESULTS = Path(__file__).parents[1] / "docs" / "results"


@pytest.fixture(scope="module")
def stored():
    """The tables of the stored run."""
    return run.document(RESULTS).tables


def test_every_cell_of_the_stored_run_that_differs_has_a_remark(stored):
    cells = [cell for table in stored for row in table.rows for cell in row.cells.values() if cell.printed is not None]
    assert len(cells) == 150 + 96 + 60 + 90 + 72 + 108
    assert not [cell for cell in cells if cell.agreement == "none"]
    assert remarks.cells_without_remark(stored) == []


def test_every_remark_is_on_a_cell_of_the_stored_run(stored):
    texts = {note for table in stored for row in table.rows for cell in row.cells.values() for note in cell.remarks}
    assert {remark.text for remark in remarks.REMARKS} == texts


def test_printed_values_are_below_the_reference_that_a_remark_names(stored):
    count = 0
    for table in stored:
        for row in table.rows:
            for column, cell in row.cells.items():
                for remark in remarks.REMARKS:
                    if remark.reference and remark.matches(row, column, cell):
                        assert cell.printed < remark.reference[column], (table.name, row.heads, column)
                        count += 1
    assert count > 200


def test_the_summary_counts_what_the_tables_have(stored):
    """The paragraph on top of the pages and the two READMEs: agreement of min-min in Tables 1 and 2, and of all."""
    min_min = sum((table.tallies()["min-min"] for table in stored[:2]), Counter())
    everything = sum((table.tally() for table in stored), Counter())
    texts = [RESULTS / run.SUMMARY, RESULTS / "README.md", RESULTS.parents[1] / "README.md"]
    for text in (" ".join(path.read_text("utf-8").split()) for path in texts):
        assert f"of the {min_min.total()} min-min values of Tables 1 and 2, {min_min['near']} are within" in text
        assert f"{min_min['above']} above and {min_min['below']} below" in text
        assert f"{everything['near']} of {everything.total()} are within, {everything['above']} above" in text
    rows = [table.tallies() for table in stored[:2]] + [{"": table.tally()} for table in stored[2:]]
    for tally in (tally for groups in rows for tally in groups.values()):
        counts = " | ".join(str(count) for count in (tally.total(), tally["near"], tally["above"], tally["below"]))
        assert f"| {counts} |" in (RESULTS / "README.md").read_text("utf-8")


def test_trials_are_of_cells_and_stored():
    results = store.Store(trials.OUT)
    assert len(results) == len(trials.TRIALS)
    assert [name for name in trials.TRIALS if trials.trial_configuration(name) not in results] == []
    settings = {
        tables.setting(heads, column)
        for spec in tables.TABLES.values()
        for heads, _ in printed_values.rows(spec.printed)
        for column in spec.columns
    }
    assert {trial.setting for trial in trials.TRIALS.values()} <= settings


# The values of simple methods that remarks compare with, to their one decimal.


def f1(dataset, predict):
    rows = protocol.standardize(protocol.split(dataset))
    return 100 * metrics.micro_f1(rows.y_test, predict(rows))


@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("name", label_sets.CONSTANT_SETS)
def test_one_set_for_all_rows(name):
    share, score = label_sets.CONSTANT_SETS[name]
    dataset = next(column for column in tables.SETS if tables.title(column) == name)

    def predict(rows):
        return np.broadcast_to((rows.y.mean(axis=0) >= share).astype(int), rows.y_test.shape)

    assert f1(dataset, predict) == pytest.approx(score, abs=0.05)


@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("dataset", label_sets.LOGISTIC)
def test_logistic_regression_with_defaults(dataset):
    def predict(rows):
        model = OneVsRestClassifier(LogisticRegression(max_iter=1000))
        return np.asarray(model.fit(rows.x, rows.y).predict(rows.x_test))

    assert f1(dataset, predict) == pytest.approx(label_sets.LOGISTIC[dataset], abs=0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("dataset", label_sets.NETWORK)
def test_a_network_with_defaults(dataset):
    scores = [
        f1(
            dataset,
            lambda rows, seed=seed: MLPClassifier((128,), random_state=seed).fit(rows.x, rows.y).predict(rows.x_test),
        )
        for seed in range(3)
    ]
    # Sums of another machine may round differently: half a point.
    assert np.mean(scores) == pytest.approx(label_sets.NETWORK[dataset], abs=0.5)


def sort_vectors(rows):
    predicted = LinearRegression().fit(rows.x, rows.y).predict(rows.x_test)
    return np.argsort(np.argsort(predicted, axis=1, kind="stable"), axis=1)


def assign_matrices(rows):
    k = rows.y.shape[1]
    matrices = np.eye(k)[rows.y].reshape(len(rows.y), -1)
    predicted = LinearRegression().fit(rows.x, matrices).predict(rows.x_test).reshape(-1, k, k)
    return np.array([linear_sum_assignment(-scores)[1] for scores in predicted])


@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize(
    ("dataset", "predict", "score"),
    [(name, sort_vectors, score) for name, score in rankings.VECTORS.items()]
    + [(name, assign_matrices, score) for name, score in rankings.MATRICES.items()],
)
def test_least_squares(dataset, predict, score):
    splits = [protocol.standardize(protocol.split(dataset, seed)) for seed in FULL.seeds]
    scores = [100 * metrics.kendall(rows.y_test, predict(rows)) for rows in splits]
    assert np.mean(scores) == pytest.approx(score, abs=0.05)
