"""The examples run from top to bottom, draw their pictures, and say what to do where the data are absent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = ("forest", "sushi", "yeast")
# What each says only if it comes to its end.
LAST = {"forest": "mean P(no label)", "sushi": "after fatty tuna", "yeast": "learned tau is off by"}


def run(name: str, *options: str, data: Path) -> subprocess.CompletedProcess:
    settings = {**os.environ, "PARTITA_DATA": str(data), "PYTHONPATH": str(FOLDER.parent)}
    command = [sys.executable, str(FOLDER / f"{name}.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, env=settings)


def test_every_example_is_here():
    assert {path.stem for path in FOLDER.glob("*.py")} == {*EXAMPLES, "common"}
    shown = (FOLDER / "README.md").read_text()
    for name in EXAMPLES:
        assert f"({name}.py)" in shown
        assert f"({name}.png)" in shown
        assert 10_000 < (FOLDER / f"{name}.png").stat().st_size < 150_000


@pytest.mark.parametrize("name", EXAMPLES)
def test_without_data_an_example_says_what_to_do(name, tmp_path):
    # It imports all that it uses, and has a main, before it looks for data.
    done = run(name, data=tmp_path / "absent")
    assert done.returncode == 1
    assert done.stderr.startswith("The data are not here: set PARTITA_DATA to their folder")
    done = run(name, data=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("see the beginning of this example for the files it needs.")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name, data_dir, tmp_path):
    done = run(name, "--quick", "--out", str(tmp_path), data=data_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert LAST[name] in done.stdout
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
