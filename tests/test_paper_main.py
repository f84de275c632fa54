"""`python -m paper`: what its commands pass on, and for what goes wrong one sentence and an exit code."""

import os
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

import paper
from paper.__main__ import app, with_command
from paper.document import Report


def run(*arguments, code=0):
    """The result of a command that ends with this code."""
    result = CliRunner().invoke(app, with_command([str(argument) for argument in arguments]))
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def calls(monkeypatch):
    """The calls of a stand-in for the module that runs the experiments."""
    calls = []
    stand_in = types.SimpleNamespace(
        NAMES=("table1", "figure1"),
        reproduce=lambda *args, **options: calls.append((args, options)),
        document=lambda out: calls.append(out) or Report("Results", {"date": "today"}, (), (), (), ()),
    )
    monkeypatch.setattr(paper, "run", stand_in, raising=False)
    return calls


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["table1", "--quick"], ["run", "table1", "--quick"]),
        (["--quick", "table1"], ["run", "--quick", "table1"]),
        (["--debug", "table1"], ["--debug", "run", "table1"]),
        (["run", "all"], ["run", "all"]),
        (["report", "docs/results"], ["report", "docs/results"]),
        (["--debug", "report", "docs/results"], ["--debug", "report", "docs/results"]),
        (["--help"], ["--help"]),
        ([], []),
    ],
)
def test_the_command_run_may_be_left_out(arguments, expected):
    assert with_command(arguments) == expected


def test_run_passes_on_its_options(calls, tmp_path):
    sets = ("--dataset", "yeast", "--dataset", "birds")
    run("table1", *sets, "--model", "mlp", "--quick", "--jobs", 2, "--out", tmp_path)
    options = {"datasets": ("yeast", "birds"), "models": ("mlp",), "quick": True, "jobs": 2, "out": tmp_path}
    assert calls.pop() == ((("table1",),), options)
    run("all")
    options = {"datasets": (), "models": (), "quick": False, "jobs": 1, "out": Path("out/paper")}
    assert calls.pop() == ((("table1", "figure1"),), options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table9"], "There is no 'table9' in the paper; there are table1, figure1, and all."),
        (["all", "table9"], "There is no 'table9' in the paper; there are table1, figure1, and all."),
        (["all", "--dataset", "nonsense"], "There is no data set 'nonsense'"),
    ],
)
def test_unknown_names_are_refused_by_one_sentence(calls, arguments, message):
    result = run(*arguments, code=2)
    assert result.stderr.startswith(f"Error: {message}")
    assert result.stderr.count("\n") == 1
    assert not calls


def test_report_lists_the_files_that_it_wrote(calls, tmp_path):
    paths = run("report", tmp_path).stdout.split()
    assert calls == [tmp_path]
    assert paths == [str(tmp_path / name) for name in ("report.html", "report.md", "report.tex")]
    assert all(Path(path).stat().st_size for path in paths)
    run("report", tmp_path / "absent", code=2)


@pytest.mark.usefixtures("calls")
def test_processes_share_compiled_programs(monkeypatch, tmp_path):
    """In a folder that is removed after the run; where JAX has a folder already, in that."""
    name, folders = "JAX_COMPILATION_CACHE_DIR", []

    def reproduce(*_, **__):
        folders.append((os.environ[name], os.path.isdir(os.environ[name])))

    monkeypatch.setattr(paper.run, "reproduce", reproduce)
    monkeypatch.delenv(name, raising=False)
    run("all")
    folder, exists = folders.pop()
    assert exists
    assert not Path(folder).exists()
    assert name not in os.environ
    monkeypatch.setenv(name, str(tmp_path))
    run("all")
    assert folders == [(str(tmp_path), True)]
    assert os.environ[name] == str(tmp_path)
