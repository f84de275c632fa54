"""Shapes in the signatures are checked at run time, in tests only; real data come through PARTITA_DATA."""

import os
from pathlib import Path

import jax
import pytest


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def data_dir():
    """The folder of real data sets: PARTITA_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("PARTITA_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"real data needed: set PARTITA_DATA to their folder (looked in {folder})")
    return folder
