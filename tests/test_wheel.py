"""The built wheel holds the library and nothing else, and serves in an environment that has only what it asks for."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import partita

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

FIT = """
import importlib.util, sys
import numpy as np
import partita as pt

assert pt.__file__.startswith(sys.prefix), pt.__file__
for name in ("pandas", "polars", "matplotlib", "beartype", "pytest", "paper"):
    assert importlib.util.find_spec(name) is None, f"{name} should not be here"
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
sets = [{"a", "b"} if x[0] > 0 else {"c"} for x in X]
ranks = np.argsort(np.argsort(X, axis=1), axis=1)
classifier = pt.MultilabelClassifier(ensemble_size=2, steps=60, random_state=0).fit(X, sets)
ranker = pt.LabelRanker(ensemble_size=2, steps=60, penalty=0.01, random_state=0).fit(X, ranks)
right = [said == truth for said, truth in zip(classifier.predict(X), sets)]
assert np.mean(right) > 0.8 and ranker.score(X, ranks) > 0.8
classifier.save("sets.partita")
ranker.save("ranks.partita")
np.savez("said.npz", X=X, sets=classifier.predict_proba(X), ranks=ranker.predict_proba(X))
try:
    pt.plots
except ModuleNotFoundError as error:
    assert "partita[plots]" in str(error)
else:
    raise AssertionError("plots should need matplotlib")
"""
LOAD = """
import numpy as np
import partita as pt

said = np.load("said.npz")
for name in ("sets", "ranks"):
    np.testing.assert_array_equal(pt.load(f"{name}.partita").predict_proba(said["X"]), said[name])
"""
DRAW = """
import partita as pt

pt.plots.interactions(pt.load("sets.partita").ebm_).figure.savefig("interactions.png")
"""


def run(*command: object) -> subprocess.CompletedProcess:
    """Any command, without the settings of the tests."""
    settings = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, env=settings)


def check(done: subprocess.CompletedProcess) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    probe = run(sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder / "probe", "hatchling")
    if probe.returncode:
        pytest.skip(f"pip reaches no package index: {probe.stderr.strip().splitlines()[-1]}")
    check(run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, ROOT))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of a new environment into which the wheel and what it asks for were installed."""
    folder = tmp_path_factory.mktemp("environment")
    check(run(sys.executable, "-m", "venv", folder))
    made = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    check(run(made, "-m", "pip", "install", wheel))
    return made


def test_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/"
    assert all(name.startswith(("partita/", info)) for name in names), names
    files = (path for path in (ROOT / "partita").rglob("*") if path.is_file() and path.suffix != ".pyc")
    library = {path.relative_to(ROOT).as_posix() for path in files}
    assert {name for name in names if name.startswith("partita/")} == library
    assert "partita/py.typed" in library
    assert not any("paper" in name for name in names), "the experiments run from a clone"
    assert f"{info}licenses/LICENSE" in names
    described = zipfile.ZipFile(wheel).read(f"{info}METADATA").decode()
    assert f"Version: {partita.__version__}\n" in described
    required = [line for line in described.splitlines() if line.startswith("Requires-Dist")]
    assert all("extra ==" in line for line in required if any(name in line for name in ("pandas", "polars", "matplot")))


def test_fits_saves_and_loads_in_an_empty_environment(python, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(run(python, "-I", "-c", FIT))
    check(run(python, "-I", "-c", LOAD))
    check(run(python.with_name("partita"), "--version"))
    check(run(python, "-m", "pip", "check"))


def test_the_extra_brings_plots(python, wheel, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(run(python, "-I", "-c", FIT))
    check(run(python, "-m", "pip", "install", f"{wheel}[plots]"))
    check(run(python, "-I", "-c", DRAW))
    assert (tmp_path / "interactions.png").stat().st_size > 0
