"""The real data sets that benchmarks and slow tests use; their folder is PARTITA_DATA, or ../shared/data."""

import os
from pathlib import Path

import numpy as np


def data_dir() -> Path:
    """The folder of the data sets, whether it exists or not."""
    return Path(os.environ.get("PARTITA_DATA", Path(__file__).parents[2] / "shared" / "data"))


def cal500(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """All 502 songs: 68 standardized features, 174 labels. cal500 has no official split."""
    lines = (folder / "multilabel" / "cal500" / "cal500.arff").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().lower() == "@data")
    table = np.array([line.split(",") for line in lines[start + 1 :] if line.strip()], float)
    x, y = table[:, :-174], table[:, -174:].astype(int)
    return (x - x.mean(axis=0)) / x.std(axis=0), y
