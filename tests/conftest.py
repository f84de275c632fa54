"""What all tests share. Shapes in the signatures are checked at run time (`--jaxtyping-packages`), in tests only."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jaxtyping
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

MANY_MAPS = 40_000

# Compilation makes many objects and little garbage: looking for it as often as Python does takes an eighth of the time.
gc.set_threshold(100_000, 50, 100)


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture(autouse=True, scope="module")
def room():
    """Every compiled program maps memory, and Linux allows a process 65,530 maps: beyond, XLA ends in a segfault."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_text().count("\n") > MANY_MAPS:
        jax.clear_caches()


@pytest.fixture
def unchecked(monkeypatch):
    """The library as a user meets it, without the tests' checks of the signatures."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def killed():
    """Runs a command and kills it (SIGKILL) as soon as a file has so many lines."""

    def run(command, path, lines):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not path.exists() or path.read_bytes().count(b"\n") < lines:
            assert process.poll() is None, "the command ended before it could be killed"
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    return run


@pytest.fixture(scope="session")
def data_dir():
    """The folder of real data sets."""
    folder = os.environ.get("PARTITA_DATA")
    if folder is None:
        pytest.skip("real data needed: set PARTITA_DATA to their folder (it is not set)")
    if not Path(folder).is_dir():
        pytest.skip(f"real data needed: set PARTITA_DATA to their folder (there is no folder {folder})")
    return Path(folder)
