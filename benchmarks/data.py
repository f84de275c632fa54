"""The real data sets that benchmarks and slow tests use; their folder is PARTITA_DATA, or ../shared/data."""

import gzip
import os
from pathlib import Path

import numpy as np
import scipy.sparse
from sklearn.model_selection import train_test_split

SPARSE = {"bibtex": 159, "delicious": 983, "tmc2007-500": 22}
LABELS = {"birds": 19, "cal500": 174, "emotions": 6, "scene": 6, "yeast": 14}
RANKINGS = ("authorship", "glass", "iris", "vehicle", "vowel", "wine")

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def data_dir() -> Path:
    """The folder of the data sets, whether it exists or not."""
    return Path(os.environ.get("PARTITA_DATA", Path(__file__).parents[2] / "shared" / "data"))


def cal500(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """All 502 songs: 68 standardized features, 174 labels. cal500 has no official split."""
    x, y = _arff(folder / "multilabel" / "cal500" / "cal500.arff", LABELS["cal500"])
    return _standardized(x, x)[0], y


def multilabel(folder: Path, name: str) -> Split:
    """x and y of train and test, standardized on train; cal500 by train_test_split(test_size=0.2, random_state=0)."""
    if name == "cal500":
        x, y = _arff(folder / "multilabel" / name / f"{name}.arff", LABELS[name])
        x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=0)
    else:
        parts = [
            _arff(folder / "multilabel" / name / f"{name}-{part}.arff", LABELS[name]) for part in ("train", "test")
        ]
        if name == "birds":
            # The paper's rows are those with a label.
            parts = [(x[y.any(axis=1)], y[y.any(axis=1)]) for x, y in parts]
        (x_train, y_train), (x_test, y_test) = parts
    x_train, x_test = _standardized(x_train, x_test)
    return x_train, y_train, x_test, y_test


def ranking(folder: Path, name: str, seed: int) -> Split:
    """x and rank vectors of train and test, 20 % test by this seed, standardized on train."""
    lines = _text(folder / "label_ranking" / f"{name}.txt").splitlines()[1:]
    fields = [line.split(",") for line in lines if line.strip()]
    x = np.array([row[:-1] for row in fields], float)
    # "b>a>c" names the labels from the best to the worst; the rank vector is its inverse.
    y = np.argsort([[ord(label) - ord("a") for label in row[-1].split(">")] for row in fields], axis=1)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=seed)
    x_train, x_test = _standardized(x_train, x_test)
    return x_train, y_train, x_test, y_test


def _arff(path: Path, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Features, then the 0/1 labels in the last columns."""
    lines = _text(path).splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().lower() == "@data")
    table = np.array([line.split(",") for line in lines[start + 1 :] if line.strip()], float)
    return table[:, :-labels], table[:, -labels:].astype(int)


def sparse(folder: Path, name: str) -> tuple:
    """x and y of train and test, both as scipy csr."""
    stem = folder / "multilabel" / name.split("-")[0]
    parts = [_sparse_arff(stem / f"{name}-{which}.arff", SPARSE[name]) for which in ("train", "test")]
    return tuple(table for part in parts for table in part)


def _sparse_arff(path: Path, labels: int) -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]:
    """Rows are {i v,i v,...}; what is not named is 0. The labels are the last columns."""
    lines = _text(path).splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().lower() == "@data")
    columns = sum(line.lower().startswith("@attribute") for line in lines[:start])
    rows = [line.strip()[1:-1] for line in lines[start + 1 :] if line.strip()]
    cells = [[cell.split() for cell in row.split(",") if cell.strip()] for row in rows]
    indices = np.array([int(cell[0]) for row in cells for cell in row])
    values = np.array([float(cell[1]) for row in cells for cell in row])
    ends = np.cumsum([0] + [len(row) for row in cells])
    table = scipy.sparse.csr_matrix((values, indices, ends), (len(rows), columns))
    return table[:, :-labels], table[:, -labels:].astype(int)


def _text(path: Path) -> str:
    """A file's text, packed or not."""
    packed = path.with_name(path.name + ".gz")
    return path.read_text() if path.exists() else gzip.decompress(packed.read_bytes()).decode()


def _standardized(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = train.std(axis=0)
    scale[scale == 0] = 1
    return (train - train.mean(axis=0)) / scale, (test - train.mean(axis=0)) / scale
