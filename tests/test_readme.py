"""The README's Python runs as it stands, block after block, and says what it claims."""

import re
from pathlib import Path

import numpy as np
import polars
from typer.testing import CliRunner

import partita
from partita import datasets
from partita.cli import app
from partita.estimators import cross_fitting

README = Path(__file__).parents[1] / "README.md"
QUICK, PIECES = README.read_text().split("## The pieces")
COMMANDS = QUICK.split("## On the command line")[1]


def run(text):
    names = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, str(README), "exec"), names)
    return names


def test_quick_start_runs(unchecked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A tenth of the usual steps is enough for what is asked below.
    monkeypatch.setattr(cross_fitting, "LEAST_STEPS", 60)
    names = run(QUICK)
    X, truth = names["X_new"], names["Y_new"]
    assert names["answers"].shape == names["single"].shape == truth.shape == (100, 5)
    assert names["sets"].shape == (100, 3, 5)
    assert names["p"].shape == (100, 3)
    # Which labels go with which features is plain in these data: a whole set is far more probable than 1 in 32.
    assert names["whole"].mean() > np.log(1 / 16)
    assert (names["answers"] == truth).mean() > 0.75
    np.testing.assert_allclose(names["updated"][:, [0, 3]], np.tile([1, 0], (100, 1)), atol=1e-5)
    assert set(names["rankings"][0].split(">")) == set(names["drinks"])
    assert names["ranks"].shape == (100, 4, 4)
    assert all(ranking.startswith("tea>") for ranking in names["after_tea"])
    assert names["agreement"] > 0.4
    np.testing.assert_array_equal(names["again"].predict_proba(X), names["joint"].predict_proba(X))
    assert (tmp_path / "joint.partita.sklearn").exists()
    assert list((tmp_path / "running").iterdir())
    assert names["agrees"].mean() > 0.85
    assert names["rated"].predict(names["X"]).shape == (600, 4)


def test_the_commands_run(unchecked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cross_fitting, "LEAST_STEPS", 60)
    head = re.search(r"```csv\n(.*)\n", COMMANDS).group(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    # Red and green exclude each other; both follow the height.
    red = x[:, 0] + 0.3 * rng.logistic(size=300) > 0
    rows = np.hstack([x, np.stack([red, ~red, x[:, 1] > 0], axis=1)])
    for name, part in {"train": rows[:200], "test": rows[200:], "new": rows[200:, :3]}.items():
        columns = ",".join(head.split(",")[: part.shape[1]])
        np.savetxt(tmp_path / f"{name}.csv", part, fmt="%.6g", delimiter=",", header=columns, comments="")
    said = []
    for line in re.search(r"```sh\n(.*?)```", COMMANDS, flags=re.DOTALL).group(1).splitlines():
        done = CliRunner().invoke(app, line.removeprefix("partita ").split())
        assert done.exit_code == 0, done.output
        said.append(done.stdout)
    found = datasets.read("answers.csv", task="multilabel", labels=["red", "green", "blue"])
    assert found.feature_names == ("log_prob", "P(red)", "P(green)", "P(blue)")
    assert partita.load("model.partita").score(polars.read_csv("new.csv"), found.y) == 1
    # Guessing is right in one of eight rows.
    assert float(re.search(r"subset accuracy\D*([\d.]+)", said[-1]).group(1)) > 0.7
    for command in re.findall(r"`partita ([a-z ]+)`", COMMANDS):
        assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0


def test_pieces_run(capsys):
    names = run(PIECES)
    printed = capsys.readouterr().out
    assert "all steps were done" in printed
    off = float(re.search(r"\|tau - LSE\| = (\S+)", printed).group(1))
    assert off < 0.1
    assert "\nnormalized | tau is off by" in printed
    assert (names["best"] == names["best"].astype(bool)).all()
    assert names["marginals"].shape == (400, 4)
    assert names["matrix"].shape == (400, 6, 6)
    # The rankings are a noiseless linear function of x: nearly all of them are found.
    assert (names["ranks"] == names["Y"]).all(axis=1).mean() > 0.8


def test_readme_commands_exist_in_the_makefile():
    targets = set(re.findall(r"^([\w-]+):", (README.parent / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"make ([\w-]+)", README.read_text())) <= targets


def test_readme_links_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert links
    assert all((README.parent / link).exists() for link in links)
