"""The command line: files in, files out, and for everything that goes wrong one sentence and an exit code."""

import csv
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jaxtyping
import numpy as np
import polars
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from typer.testing import CliRunner

import partita
from partita import atomic, datasets, divergences, objectives
from partita.cli import answers, app
from partita.datasets import registry, store
from partita.estimators import names
from partita.model import Network

ROOT = Path(partita.__file__).parents[1]
N = 60
FEATURES = ("height", "width", "weight")
LABELS = ("red", "green", "blue")
DRINKS = ("coffee", "tea", "water")
FIT = ("--task", "multilabel", "--labels", "3")
# A linear model is compiled in half of the time.
QUICK = ("--network", "linear", "--ensemble-size", "1", "--steps", "20", "--seed", "0")


def run(*args, code=0):
    """What a command says on both outputs, once it has ended as it should."""
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    assert done.exit_code == code, done.output
    return done


def sentence(*args, code):
    """The one line that a command says when it ends with this code."""
    done = run(*args, code=code)
    assert done.stdout == ""
    *before, line = done.stderr.splitlines()
    # Progress that was shown until then.
    assert all("━" in shown for shown in before)
    assert re.fullmatch(r"Error: .*[.?]", line)
    return line


def process(*args, **options):
    command = [sys.executable, "-m", "partita", *map(str, args)]
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, **options
    )


def write_csv(path, columns, rows):
    lines = [columns, *rows]
    path.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module", autouse=True)
def unchecked_module():
    """The library as a user meets it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield


@pytest.fixture(scope="module")
def rows():
    """Features; label sets in which green is the opposite of red; orders of drinks by noisy features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 3))
    red = x[:, 0] + 0.3 * rng.logistic(size=N) > 0
    sets = np.stack([red, ~red, x[:, 1] > 0], axis=1).astype(int)
    orders = [">".join(np.array(DRINKS)[np.argsort(-row)]) for row in x + 0.3 * rng.gumbel(size=x.shape)]
    return x, sets, orders


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows, unchecked_module):
    """The same label sets in four formats, rankings as CSV, and a model of each."""
    made = tmp_path_factory.mktemp("cli")
    x, sets, orders = rows
    both = np.hstack([x, sets]).tolist()
    write_csv(made / "sets.csv", FEATURES + LABELS, [[*row[:3], *map(int, row[3:])] for row in both])
    write_csv(made / "x.csv", FEATURES, x.tolist())
    write_csv(made / "drinks.csv", (*FEATURES, "order"), [[*row, order] for row, order in zip(x, orders, strict=True)])
    head = [f"@attribute {name} numeric" for name in FEATURES] + [f"@attribute {name} {{0,1}}" for name in LABELS]
    body = (made / "sets.csv").read_text().partition("\n")[2]
    (made / "sets.arff").write_text("@relation r\n" + "\n".join(head) + "\n@data\n" + body)
    polars.read_csv(made / "sets.csv").write_parquet(made / "sets.parquet")
    lines = [
        ",".join(str(j) for j in range(3) if y[j]) + " " + " ".join(f"{i + 1}:{value}" for i, value in enumerate(row))
        for row, y in zip(x.tolist(), sets, strict=True)
    ]
    (made / "sets.svm").write_text("\n".join(lines) + "\n")
    run("fit", made / "sets.csv", *FIT, "--out", made / "sets.partita", *QUICK)
    run("fit", made / "drinks.csv", "--task", "ranking", "--out", made / "drinks.partita", *QUICK)
    return made


def table(text):
    columns, *rows = csv.reader(io.StringIO(text))
    return {name: [row[j] for row in rows] for j, name in enumerate(columns)}


# Fit.


def test_fit_says_what_it_does_and_how_long_it_takes(folder, tmp_path):
    made = tmp_path / "new.partita"
    done = run("fit", folder / "sets.csv", *FIT, "--out", made, *QUICK)
    assert done.stdout == f"{made}: learned from 60 rows with 3 features and 3 labels.\n"
    assert re.search(r"fit .*20/20 loss .*0:00:\d\d 0:00:00", done.stderr)
    assert made.read_bytes() == (folder / "sets.partita").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["new.partita"]


def test_training_again_on_all_rows_is_shown_too(folder, tmp_path):
    done = run("fit", folder / "drinks.csv", "--task", "ranking", "--out", tmp_path / "m", *QUICK)
    assert re.search(r"^fit .*20/20.*\nfit on all rows .*20/20", done.stderr)


@pytest.mark.parametrize("kind", ["arff", "parquet"])
def test_the_format_of_the_training_file_does_not_matter(kind, folder, tmp_path):
    labels, made = ",".join(LABELS), tmp_path / "new.partita"
    run("fit", folder / f"sets.{kind}", "--task", "multilabel", "--labels", labels, "--out", made, *QUICK)
    assert made.read_bytes() == (folder / "sets.partita").read_bytes()


def test_a_model_of_sparse_rows(folder, tmp_path):
    made = tmp_path / "new.partita"
    run("fit", folder / "sets.svm", "--task", "multilabel", "--out", made, *QUICK)
    said = table(run("predict", made, folder / "sets.svm").stdout)
    assert list(said) == ["0", "1", "2", "log_prob"]
    figures = json.loads(run("score", made, folder / "sets.svm", "--json").stdout)
    # The same rows as CSV, where the model does not know the names.
    assert json.loads(run("score", made, folder / "sets.csv", "--json", "--labels", 3).stdout) == pytest.approx(figures)


def test_options_are_the_arguments_of_the_estimator(folder, tmp_path, monkeypatch):
    told = []

    def stop(self, x, y, checkpoint):
        told.append((self.get_params(), checkpoint))
        raise ValueError("That is enough.")

    monkeypatch.setattr(partita.MultilabelClassifier, "fit", stop)
    monkeypatch.setattr(partita.LabelRanker, "fit", stop)
    given = {
        "network": "linear",
        "coupling": "unary",
        "objective": "min-min",
        "decision": "hamming",
        "ensemble_size": 2,
        "steps": 9,
        "loss": "sparsemax",
        "proposal": "reference",
        "train": "alternate",
    }
    options = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)] + [
        "--tau",
        "mlp",
    ]
    command = ("fit", folder / "sets.csv", "--out", tmp_path / "m", "--checkpoint", tmp_path / "c", "--quiet")
    run(*command, *FIT, *options, "--seed", 7, code=2)
    usual = partita.MultilabelClassifier().get_params()
    given |= {"tau": "mlp", "classes": LABELS, "random_state": 7}
    assert told.pop() == ({**usual, **given}, tmp_path / "c")
    run("fit", folder / "drinks.csv", "--task", "ranking", "--out", tmp_path / "m", code=2)
    usual = partita.LabelRanker().get_params()
    assert told.pop() == ({**usual, "classes": DRINKS, "verbose": 1}, None)
    run(
        "fit", folder / "drinks.csv", "--task", "ranking", "--out", tmp_path / "m", "--reference", "extra-trees", code=2
    )
    assert isinstance(told.pop()[0]["reference"], ExtraTreesRegressor)


def test_names_of_columns_are_remembered(folder):
    fitted = partita.load(folder / "sets.partita")
    assert fitted.feature_names_in_.tolist() == list(FEATURES)
    assert list(fitted.classes_) == list(LABELS)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(polars.read_csv(folder / "x.csv").rename({"width": "breadth"}))


def test_help_names_what_there_is():
    # A long name may be broken at its hyphen.
    said = " ".join(run("fit", "--help").stdout.split()).replace("- ", "-")
    tables = (names.NETWORKS, names.SET_COUPLINGS, names.RANKING_COUPLINGS, names.OBJECTIVES)
    tables += (names.LOSSES, names.LOG_PARTITIONS, names.PROPOSALS, names.TRAININGS)
    rules = (partita.MultilabelClassifier._decisions, partita.LabelRanker._decisions)
    for known in (*tables, *rules, ("uniform", "extra-trees")):
        assert all(re.search(rf"\b{name}\b", said) for name in known)


def test_algorithm_1_and_sparsemax_from_a_file(folder, tmp_path):
    """Tau as in the paper, a network of x, and draws from the reference."""
    made = tmp_path / "new.partita"
    options = ("--objective", "min-min", "--loss", "sparsemax", "--proposal", "reference", "--tau", "mlp")
    run("fit", folder / "sets.csv", *FIT, "--out", made, *QUICK, *options)
    fitted = partita.load(made)
    assert isinstance(fitted.ebm_.f, divergences.ChiSquare)
    assert isinstance(fitted.ebm_.tau, Network)
    assert fitted.objective_ == objectives.MinMin(8, proposal=None)
    assert json.loads(run("score", made, folder / "sets.csv", "--json").stdout)["hamming_loss"] < 0.5


@pytest.mark.parametrize(
    ("option", "argument"),
    [("--loss", "loss"), ("--tau", "tau"), ("--proposal", "proposal"), ("--train", "train")],
)
def test_an_unknown_name_is_refused_before_any_training(option, argument, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("partita.training.fit_stack", None)
    said = sentence("fit", folder / "sets.csv", *FIT, "--out", tmp_path / "m", option, "nonsense", code=2)
    assert re.match(rf"Error: {argument} must be one of '.*; got 'nonsense'\.", said)
    assert not list(tmp_path.iterdir())


def test_tau_alone_needs_an_energy(folder, tmp_path):
    said = sentence("fit", folder / "sets.csv", *FIT, "--out", tmp_path / "m", "--train", "tau", code=2)
    assert "train='tau' needs a trained energy" in said


def test_a_reference_is_read_by_who_trusts_it(folder, tmp_path):
    made, side = tmp_path / "new.partita", tmp_path / "new.partita.sklearn"
    side.touch()
    command = ("fit", folder / "sets.csv", *FIT, "--out", made, "--reference", "extra-trees", *QUICK)
    assert f"{side} exists already" in sentence(*command, code=2)
    run(*command, "--force")
    assert "add --trust" in sentence("predict", made, folder / "x.csv", code=1)
    assert len(table(run("predict", made, folder / "x.csv", "--trust").stdout)["red"]) == N
    assert "add --trust" in sentence("score", made, folder / "sets.csv", code=1)
    assert json.loads(run("score", made, folder / "sets.csv", "--trust", "--json").stdout)["subset_accuracy"] > 0.5


# Predict.


def test_label_sets_come_with_their_names_and_probabilities(folder, rows):
    said = table(run("predict", folder / "sets.partita", folder / "sets.csv", "--proba").stdout)
    assert list(said) == [*LABELS, "log_prob", *(f"P({label})" for label in LABELS)]
    fitted = partita.load(folder / "sets.partita")
    del fitted.feature_names_in_
    answer = np.array([said[label] for label in LABELS], int).T
    np.testing.assert_array_equal(answer, fitted.predict(rows[0]))
    # Text of floats is read as the same floats.
    np.testing.assert_array_equal(np.array(said["log_prob"], float), fitted.log_prob(rows[0], answer))
    marginals = np.array([said[f"P({label})"] for label in LABELS], float).T
    np.testing.assert_array_equal(marginals, fitted.predict_proba(rows[0]))


def test_rankings_come_as_orders(folder, rows):
    said = table(run("predict", folder / "drinks.partita", folder / "drinks.csv", "--proba").stdout)
    ranks = [f"P({drink}={rank})" for drink in DRINKS for rank in range(3)]
    assert list(said) == ["ranking", "log_prob", *ranks]
    assert all(sorted(order.split(">")) == sorted(DRINKS) for order in said["ranking"])
    matrix = np.array([said[name] for name in ranks], float).reshape(3, 3, N)
    # Every label has a rank, and every rank a label; float32.
    np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-5)
    truth = [order.split(">")[0] for order in rows[2]]
    assert np.mean([order.split(">")[0] == best for order, best in zip(said["ranking"], truth, strict=True)]) > 0.5


@pytest.mark.parametrize("model", ["sets", "drinks"])
@pytest.mark.parametrize("name", ["x.csv", "sets.arff", "sets.parquet", "sets.svm"])
def test_the_format_of_the_rows_does_not_matter(name, model, folder):
    said = run("predict", folder / f"{model}.partita", folder / name).stdout
    assert said == run("predict", folder / f"{model}.partita", folder / "sets.csv").stdout


def test_columns_are_found_by_their_names(folder, tmp_path, rows):
    x = rows[0]
    mixed = [[*map("row {}".format, [i]), *row[[2, 0, 1]]] for i, row in enumerate(x)]
    path = write_csv(tmp_path / "mixed.csv", ("id", "weight", "height", "width"), mixed)
    said = run("predict", folder / "sets.partita", path).stdout
    assert said == run("predict", folder / "sets.partita", folder / "x.csv").stdout


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_every_output_format_holds_the_same(kind, folder, tmp_path):
    out = tmp_path / f"out.{kind}"
    shown = table(run("predict", folder / "drinks.partita", folder / "x.csv").stdout)
    assert run("predict", folder / "drinks.partita", folder / "x.csv", "--out", out).output == ""
    readers = {"csv": polars.read_csv, "jsonl": polars.read_ndjson, "parquet": polars.read_parquet}
    found = readers[kind](out)
    assert found.columns == list(shown)
    assert found["ranking"].to_list() == shown["ranking"]
    assert found["log_prob"].to_list() == list(map(float, shown["log_prob"]))
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_answers_are_a_file_that_can_be_read_and_learned_from(folder, tmp_path):
    for model, data, task, labels in (("sets", "x", "multilabel", LABELS), ("drinks", "x", "ranking", "ranking")):
        out = tmp_path / f"{model}.csv"
        run("predict", folder / f"{model}.partita", folder / f"{data}.csv", "--out", out)
        found = datasets.read(out, task=task, labels=labels)
        assert (found.y.shape, found.feature_names) == ((N, 3), ("log_prob",))
        again = tmp_path / f"{model}-again.csv"
        columns = {name: list(map(_number, values)) for name, values in table(out.read_text()).items()}
        answers.store(columns, again)
        assert again.read_bytes() == out.read_bytes()


def _number(text):
    return int(text) if text.isdecimal() else float(text) if text.startswith("-") else text


def test_what_json_has_no_number_for_is_null():
    assert answers.as_json({"log_prob": -np.inf, "on": 1, "name": "é"}) == '{"log_prob": null, "on": 1, "name": "é"}'


def test_brackets_are_shown_as_they_are(capsys):
    answers.show({"[bold]": ["[red]x[/red]"]})
    shown = capsys.readouterr().out
    assert "[bold]" in shown
    assert "[red]x[/red]" in shown


# Score.


def test_score_agrees_with_the_library(folder, rows):
    x, sets, orders = rows
    found = json.loads(run("score", folder / "sets.partita", folder / "sets.csv", "--json").stdout)
    fitted = partita.load(folder / "sets.partita")
    del fitted.feature_names_in_
    assert list(found) == ["rows", "subset_accuracy", "micro_f1", "hamming_loss", "log_likelihood"]
    assert found["rows"] == N
    assert found["subset_accuracy"] == fitted.score(x, sets)
    assert found["hamming_loss"] == pytest.approx(np.mean(fitted.predict(x) != sets))
    assert found["log_likelihood"] == pytest.approx(fitted.log_prob(x, sets).mean())
    found = json.loads(run("score", folder / "drinks.partita", folder / "drinks.csv", "--json").stdout)
    ranker = partita.load(folder / "drinks.partita")
    del ranker.feature_names_in_
    assert list(found) == ["rows", "kendall", "spearman", "log_likelihood"]
    ranks = [[order.split(">").index(label) for label in ranker.classes_] for order in orders]
    assert found["kendall"] == pytest.approx(ranker.score(x, ranks))
    # For three labels rho is 1, 0.5, -0.5 or -1 where tau is 1, 1/3, -1/3 or -1.
    assert found["kendall"] <= found["spearman"]


def test_score_is_a_table_for_people(folder):
    said = run("score", folder / "drinks.partita", folder / "drinks.csv").stdout
    assert all(word in said for word in ("rows", "Kendall tau", "Spearman rho", "mean log p"))


def test_labels_may_be_named_or_counted(folder, tmp_path, rows):
    x, sets, _ = rows
    usual = run("score", folder / "sets.partita", folder / "sets.csv", "--json").stdout
    turned = write_csv(tmp_path / "turned.csv", (*LABELS[::-1], *FEATURES), np.hstack([sets[:, ::-1], x]).tolist())
    assert run("score", folder / "sets.partita", turned, "--json").stdout == usual
    renamed = write_csv(tmp_path / "renamed.csv", (*"abc", *FEATURES), np.hstack([sets, x]).tolist())
    assert run("score", folder / "sets.partita", renamed, "--labels", "a,b,c", "--json").stdout == usual
    assert "expected 3 labels" in sentence("score", folder / "sets.partita", renamed, "--labels", "a,b", code=1)


def test_rows_whose_labels_are_not_all_known(folder, tmp_path, rows):
    x, sets, _ = rows
    lines = [[*row, *y] for row, y in zip(x, sets, strict=True)]
    lines[0][-1] = lines[1][-2] = "?"
    path = write_csv(tmp_path / "part.csv", FEATURES + LABELS, lines)
    found = json.loads(run("score", folder / "sets.partita", path, "--json").stdout)
    fitted = partita.load(folder / "sets.partita")
    del fitted.feature_names_in_
    assert (found["rows"], found["whole_rows"]) == (N, N - 2)
    assert found["subset_accuracy"] == fitted.score(x[2:], sets[2:])


def test_models_that_were_fitted_in_python(folder, tmp_path, rows):
    x, sets, orders = rows
    as_sets = [{label for label, on in zip(LABELS, row, strict=True) if on} for row in sets]
    options = {"network": "linear", "ensemble_size": 1, "steps": 20, "random_state": 0}
    partita.MultilabelClassifier(**options).fit(x, as_sets).save(tmp_path / "sets.partita")
    ranks = np.array([[order.split(">").index(drink) for drink in DRINKS] for order in orders])
    partita.LabelRanker(classes=DRINKS, **options).fit(x, ranks).save(tmp_path / "ranks.partita")
    found = json.loads(run("score", tmp_path / "sets.partita", folder / "sets.csv", "--json").stdout)
    assert found["subset_accuracy"] == partita.load(tmp_path / "sets.partita").score(x, as_sets)
    assert list(table(run("predict", tmp_path / "sets.partita", folder / "x.csv").stdout)) == [
        *sorted(LABELS),
        "log_prob",
    ]
    found = json.loads(run("score", tmp_path / "ranks.partita", folder / "drinks.csv", "--json").stdout)
    assert found["kendall"] == pytest.approx(partita.load(tmp_path / "ranks.partita").score(x, ranks))


# What goes wrong: before any work, by one sentence.


@pytest.fixture
def no_training(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing should be learned")

    monkeypatch.setattr("partita.estimators.cross_fitting.cross_fit", refuse)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--labels", "red,nobody"), 1, "expected one column 'nobody', got 0"),
        (("--task", "regression"), 2, "task must be 'multilabel' or 'ranking'; got 'regression'"),
        (("--labels", "1"), 1, "expected at least 2 labels, got 1"),
        (("--labels", "9"), 1, "has 6 columns"),
        (("--coupling", "birkhoff"), 2, "coupling must be one of 'unary'"),
        (("--network", "forest"), 2, "network must be one of 'linear'"),
        (("--objective", "magic"), 2, "objective must be one of 'auto'"),
        (("--decision", "kemeny"), 2, "decision must be one of 'mode'"),
        (("--reference", "magic"), 2, "reference must be uniform or extra-trees; got 'magic'"),
    ],
)
def test_wrong_options_of_fit(options, code, said, folder, tmp_path, no_training):
    assert said in sentence("fit", folder / "sets.csv", *FIT, "--out", tmp_path / "m", *options, code=code)


def test_where_a_model_cannot_be_written(folder, tmp_path, no_training):
    def fit(out):
        return sentence("fit", folder / "sets.csv", *FIT, "--out", out, code=2)

    assert f"there is no folder {tmp_path / 'none'}" in fit(tmp_path / "none" / "m.partita")
    assert "exists already; choose another name, or add --force" in fit(folder / "sets.partita")
    assert "is no plain file" in fit(tmp_path)
    # Not even with --force: the device would be replaced.
    assert "is no plain file" in sentence("fit", folder / "x.csv", *FIT, "--out", os.devnull, "--force", code=2)


def test_force_overwrites(folder, tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("old")
    command = ("predict", folder / "sets.partita", folder / "x.csv", "--out", out)
    assert "exists already" in sentence(*command, code=2)
    assert out.read_text() == "old"
    run(*command, "--force")
    assert out.read_text().startswith("red,")


def test_wrong_columns(folder, tmp_path, rows):
    path = write_csv(tmp_path / "narrow.csv", FEATURES[:2], rows[0][:, :2].tolist())
    said = sentence("predict", folder / "sets.partita", path, code=1)
    assert "narrow.csv: expected one column 'weight', got 0; the last are 'height', 'width'" in said
    said = sentence("score", folder / "sets.partita", folder / "x.csv", code=1)
    assert "x.csv: expected one column 'red', got 0" in said
    said = sentence("score", folder / "drinks.partita", folder / "x.csv", code=1)
    assert "x.csv, line 2: expected rankings such as 'b>a>c' in the column 'weight'" in said
    twice = write_csv(tmp_path / "twice.csv", ("a", "a", *LABELS), [[0.5, 1, 0, 1, 0]] * 9)
    said = sentence("fit", twice, *FIT, "--out", tmp_path / "m", code=1)
    assert "twice.csv: expected columns of different names, got 2 that are called 'a'" in said
    text = write_csv(tmp_path / "text.csv", (*FEATURES, *LABELS), [["tall", 1, 2, 0, 1, 0]] * 9)
    said = sentence("fit", text, *FIT, "--out", tmp_path / "m", code=1)
    assert "text.csv, line 2: expected a number in the column 'height', got 'tall'" in said


def test_a_ranking_with_a_repeated_letter(folder, tmp_path):
    path = write_csv(tmp_path / "letters.csv", ("x", "order"), [[0.5, "a>b>c"], [0.1, "b>a>b"]])
    said = sentence("fit", path, "--task", "ranking", "--out", tmp_path / "m", code=1)
    assert "letters.csv, line 3: 'b>a>b', names 'b' more than once" in said
    words = write_csv(tmp_path / "words.csv", (*FEATURES, "order"), [[1, 2, 3, "tea>coffee>gin"]])
    said = sentence("score", folder / "drinks.partita", words, code=1)
    assert "words.csv, line 2: has 'gin', which is not among the classes" in said


def test_a_damaged_model(folder, tmp_path):
    content = bytearray((folder / "sets.partita").read_bytes())
    content[-1] ^= 1
    damaged = tmp_path / "damaged.partita"
    damaged.write_bytes(content)
    assert f"{damaged} was changed or cut off" in sentence("predict", damaged, folder / "x.csv", code=1)
    assert "is not a file that partita wrote" in sentence("predict", folder / "x.csv", folder / "x.csv", code=1)
    partita.save({"a": 1}, tmp_path / "other.partita")
    said = sentence("score", tmp_path / "other.partita", folder / "x.csv", code=1)
    assert "holds no fitted MultilabelClassifier or LabelRanker, but a dict" in said


def test_an_output_of_no_known_kind(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("partita.cli.answers.load", None)
    said = sentence("predict", folder / "sets.partita", folder / "x.csv", "--out", tmp_path / "out.xls", code=2)
    assert "must end in .csv, .jsonl, .parquet" in said
    monkeypatch.setitem(sys.modules, "polars", None)
    out = tmp_path / "out.parquet"
    assert "pip install polars" in sentence("predict", folder / "sets.partita", folder / "x.csv", "--out", out, code=1)


def test_a_label_that_is_called_as_another_column(folder, tmp_path, rows):
    x, sets, _ = rows
    path = write_csv(tmp_path / "named.csv", (*FEATURES, "red", "green", "log_prob"), np.hstack([x, sets]).tolist())
    run("fit", path, *FIT, "--out", tmp_path / "m", *QUICK)
    assert "has the name of another column, as log_prob" in sentence("predict", tmp_path / "m", path, code=2)


def test_a_full_disk(folder, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, "fsync", full)
    out = tmp_path / "out.csv"
    said = sentence("predict", folder / "sets.partita", folder / "x.csv", "--out", out, code=1)
    assert said == f"Error: {out}: it could not be written: No space left on device."
    made = tmp_path / "m.partita"
    said = sentence("fit", folder / "sets.csv", *FIT, "--out", made, *QUICK, "--quiet", code=1)
    assert said == f"Error: {made}: it could not be written: No space left on device."
    assert not list(tmp_path.iterdir())


def test_debug_shows_where_an_error_comes_from(folder, tmp_path):
    command = ("predict", folder / "x.csv", folder / "x.csv")
    assert "Traceback" not in run(*command, code=1).output
    done = run("--debug", *command, code=1)
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: ")


def test_what_was_not_expected_is_a_sentence_too(folder, monkeypatch):
    def broken(*_, **__):
        raise KeyError("oops")

    monkeypatch.setattr("partita.cli.answers.open_model", broken)
    said = sentence("predict", folder / "sets.partita", folder / "x.csv", code=1)
    assert said == "Error: unexpected KeyError: 'oops'. Put --debug before the command for the traceback."


def test_wrong_usage(folder):
    for command in (
        ("predict", folder / "sets.partita", folder / "nowhere.csv"),
        ("fit", folder / "sets.csv", "--out", "m"),
        ("fit", folder / "sets.csv", *FIT, "--out", "m", "--steps", "0"),
        ("nonsense",),
    ):
        done = run(*command, code=2)
        assert done.stdout == ""
        assert re.search(r"^Error: .*", done.stderr, flags=re.MULTILINE)


# Real processes.


def test_version_and_help_are_quick():
    code = "import sys, partita.cli; print(sorted({'jax', 'numpy', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
    assert process("--version", stdout=subprocess.PIPE).communicate() == (f"partita {partita.__version__}\n", "")
    said, _ = process("--help", stdout=subprocess.PIPE).communicate()
    assert all(command in said for command in ("fit", "predict", "score", "data", "demo"))


def test_a_closed_pipe_is_no_error_to_speak_of(folder):
    done = process("predict", folder / "sets.partita", folder / "x.csv", stdout=subprocess.PIPE)
    done.stdout.close()
    assert done.stderr.read() == ""
    assert done.wait() == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_full_standard_output():
    with open("/dev/full", "w") as full:
        done = process("data", "list", stdout=full)
        assert done.communicate()[1] == "Error: The output could not be written: No space left on device.\n"
    assert done.returncode == 1


def test_an_interruption(folder, tmp_path):
    options = ("--task", "ranking", "--ensemble-size", "1", "--steps", "300000", "--seed", "0", "--quiet")
    running = tmp_path / "running"
    done = process("fit", folder / "drinks.csv", "--out", tmp_path / "m", *options, "--checkpoint", running)
    while not (running / "fit.json").exists():
        assert done.poll() is None, done.stderr.read()
        time.sleep(0.05)
    done.send_signal(signal.SIGINT)
    assert done.communicate()[1] == "Interrupted.\n"
    assert done.returncode == 130
    assert not (tmp_path / "m").exists()


def test_a_fit_that_is_interrupted_late_writes_nothing(folder, tmp_path, monkeypatch):
    """Though the estimator would hold the best model until then."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(partita.MultilabelClassifier, "_calibrate", interrupt)
    done = run("fit", folder / "sets.csv", *FIT, "--out", tmp_path / "m", *QUICK, "--quiet", code=130)
    assert done.output == "Interrupted.\n"
    assert not list(tmp_path.iterdir())


# Data.


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A made data set in a folder of data, an empty cache, and no network."""
    content = "@relation r\n@attribute a numeric\n@attribute u {0,1}\n@attribute v {0,1}\n@data\n1.5,0,1\n2,1,0\n"
    path = tmp_path / "data" / "multilabel" / "toy" / "toy.arff"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    file = registry.File("multilabel/toy/toy.arff", "http://127.0.0.1:9/toy.arff", store._digest(content.encode()))
    made = registry.Entry("toy", "multilabel", (2,), 1, 2, (file,), "nobody", "Not to be compared with anything.")
    monkeypatch.setitem(registry.SETS, "toy", made)
    monkeypatch.setenv("PARTITA_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PARTITA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    return path


def test_data_list_shows_every_set_where_it_is_and_its_caveat(toy, monkeypatch):
    monkeypatch.setattr(answers, "WIDE", 1000)
    said = run("data", "list").stdout
    lines = {name: next(line for line in said.splitlines() if f" {name} " in line) for name in datasets.names()}
    for name, line in lines.items():
        known = datasets.entry(name)
        assert all(text in line for text in (known.task, " + ".join(map(str, known.rows)), str(known.k), known.note))
    assert str(toy.parent) in lines["toy"]
    assert str(toy.parent.parent) not in lines["iris"]


def test_data_check(toy, monkeypatch):
    monkeypatch.setattr(answers, "WIDE", 1000)
    said = run("data", "check", "toy").stdout
    assert all(text in said for text in (str(toy), "good", datasets.entry("toy").files[0].sha256))
    assert "absent" in run("data", "check").stdout
    toy.write_text("other")
    done = run("data", "check", code=1)
    assert re.search(r"toy .* wrong ", done.stdout)
    assert done.stderr == f"Error: Not as published: {toy}. Replace or delete them.\n"


def test_data_fetch(toy):
    assert run("data", "fetch", "toy").stdout == f"toy: {toy}\n"
    toy.unlink()
    said = sentence("data", "fetch", "toy", code=1)
    assert "could not be downloaded" in said
    assert f"put it at {toy}" in said
    # An unknown name is told before anything is downloaded.
    assert "There is no data set 'toys'" in sentence("data", "fetch", "toy", "toys", code=2)
    assert "There is no data set 'toys'" in sentence("data", "check", "toys", code=2)


# The demo.


def test_demo_runs_the_demo(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("partita.cli.demo.run", asked.append)
    run("demo", "--out", tmp_path)
    assert asked == [tmp_path]
