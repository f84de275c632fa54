"""The real data sets that benchmarks and slow tests use; their folder is PARTITA_DATA, or ../shared/data."""

import os
from pathlib import Path

import numpy as np

from partita.datasets import SETS, Split, load, split

# The full mediamill is not among the files that benchmarks are run on.
PAPER = [made for made in SETS.values() if made.paper and made.name != "mediamill"]
LABELS = {made.name: made.k for made in PAPER if made.task == "multilabel"}
RANKINGS = tuple(made.name for made in PAPER if made.task == "ranking")


def data_dir() -> Path:
    """The folder of the data sets, whether it exists or not."""
    return Path(os.environ.get("PARTITA_DATA", Path(__file__).parents[2] / "shared" / "data"))


def cal500(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """All 502 songs: 68 standardized features, 174 labels. cal500 has no official split."""
    songs = load("cal500", folder=folder)
    return _standardized(songs.x, songs.x)[0], songs.y


def multilabel(folder: Path, name: str) -> Split:
    """x and y of train and test, standardized on train; cal500 by train_test_split(test_size=0.2, random_state=0)."""
    return _scaled(split(load(name, folder=folder)))


def ranking(folder: Path, name: str, seed: int) -> Split:
    """x and rank vectors of train and test, 20 % test by this seed, standardized on train."""
    return _scaled(split(load(name, folder=folder), seed=seed))


def sparse(folder: Path, name: str) -> Split:
    """x and y of train and test, both as scipy csr."""
    return split(load(name, folder=folder))


def _scaled(made: Split) -> Split:
    x, x_test = _standardized(made.x, made.x_test)
    return made._replace(x=x, x_test=x_test)


def _standardized(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = train.std(axis=0)
    scale[scale == 0] = 1
    return (train - train.mean(axis=0)) / scale, (test - train.mean(axis=0)) / scale
