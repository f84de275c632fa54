"""What the examples share: the options of the command line, the files of data, an empty figure."""

import argparse
import gzip
import os
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure


def arguments(about: str) -> argparse.Namespace:
    """--quick, --out, and the folder of data; without data the example ends with a sentence that says what to do."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps: shows that it runs, not how good it is")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the picture")
    options = parser.parse_args()
    options.data = Path(os.environ.get("PARTITA_DATA", "data"))
    if not options.data.is_dir():
        sys.exit(f"The data are not here: set PARTITA_DATA to their folder (looked in {options.data.absolute()}).")
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def read(path: Path) -> list[str]:
    """The lines of a text file, packed or not."""
    packed = path.with_name(path.name + ".gz")
    if not path.exists() and not packed.exists():
        sys.exit(f"{path} is not there, nor {packed.name}: see the beginning of this example for the files it needs.")
    return (path.read_text() if path.exists() else gzip.decompress(packed.read_bytes()).decode()).splitlines()


def arff(path: Path, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and 0/1 labels of a Mulan file, whose last columns are the labels."""
    lines = read(path)
    start = next(i for i, line in enumerate(lines) if line.strip().lower() == "@data") + 1
    table = np.array([line.split(",") for line in lines[start:] if line.strip()], float)
    return table[:, :-labels], table[:, -labels:].astype(int)


def figure(rows: int, columns: int, size: tuple[float, float]):
    """A figure and its axes, without pyplot: nothing is opened on a screen."""
    made = Figure(figsize=size, layout="constrained")
    return made, made.subplots(rows, columns)
