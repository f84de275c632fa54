"""The examples run from top to bottom, draw their pictures, and say what to do where the data are absent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import some

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = ("forest", "sushi", "yeast")
# What each says only if it comes to its end.
LAST = {"forest": "mean P(no label)", "sushi": "after fatty tuna", "yeast": "learned tau is off by"}


def run(name: str, *options: str, **settings: object) -> subprocess.CompletedProcess:
    made = {**os.environ, "PYTHONPATH": str(FOLDER.parent), **{name: str(value) for name, value in settings.items()}}
    command = [sys.executable, str(FOLDER / f"{name}.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, env=made)


def test_every_example_is_here():
    assert {path.stem for path in FOLDER.glob("*.py")} == {*EXAMPLES, "common"}
    shown = (FOLDER / "README.md").read_text()
    for name in EXAMPLES:
        assert f"({name}.py)" in shown
        assert f"({name}.png)" in shown
        assert 10_000 < (FOLDER / f"{name}.png").stat().st_size < 150_000


@pytest.mark.parametrize("name", some(EXAMPLES, ("sushi",)))
def test_offline_an_example_says_what_to_do(name, tmp_path):
    # It imports all that it uses, and has a main, before it looks for data. Nothing answers at port 9 of this machine.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = run(name, PARTITA_DATA=tmp_path / "absent", PARTITA_CACHE=tmp_path, **nowhere)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert "could not be downloaded from https://raw.githubusercontent.com/" in said
    assert f"put it at {tmp_path / 'absent'}" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name, data_dir, tmp_path):
    done = run(name, "--quick", "--out", str(tmp_path), PARTITA_DATA=data_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert LAST[name] in done.stdout
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
