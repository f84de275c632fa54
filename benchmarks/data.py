"""The real data sets of benchmarks and slow tests: from the folder PARTITA_DATA or the cache, else downloaded."""

import numpy as np

from partita.datasets import SETS, Split, load, split

# Benchmarks are not run on the full mediamill.
PAPER = [entry for entry in SETS.values() if entry.paper and entry.name != "mediamill"]
LABELS = {entry.name: entry.k for entry in PAPER if entry.task == "multilabel"}
RANKINGS = tuple(entry.name for entry in PAPER if entry.task == "ranking")


def cal500() -> tuple[np.ndarray, np.ndarray]:
    """All 502 songs: 68 standardized features, 174 labels. cal500 has no official split."""
    songs = load("cal500")
    return _standardize(Split(songs.x, songs.y, songs.x, songs.y)).x, songs.y


def multilabel(name: str) -> Split:
    """x and y of train and test, standardized on train; cal500 by train_test_split(test_size=0.2, random_state=0)."""
    return _standardize(split(load(name)))


def ranking(name: str, seed: int) -> Split:
    """x and rank vectors of train and test, 20 % test by this seed, standardized on train."""
    return _standardize(split(load(name), seed=seed))


def sparse(name: str) -> Split:
    """x and y of train and test, both as scipy csr."""
    return split(load(name))


def _standardize(rows: Split) -> Split:
    mean, scale = rows.x.mean(axis=0), rows.x.std(axis=0)
    scale[scale == 0] = 1
    return rows._replace(x=(rows.x - mean) / scale, x_test=(rows.x_test - mean) / scale)
