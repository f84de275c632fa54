"""What the examples share and is not their subject: the command line, the data, an empty figure."""

import argparse
import sys
from pathlib import Path

from matplotlib.figure import Figure

import partita as pt


def arguments(about: str | None) -> argparse.Namespace:
    """--quick and --out."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps: shows that it runs, not how good it is")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the picture")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def load(name: str) -> pt.datasets.Dataset:
    """A data set; where it is neither here nor to be had, the example ends with a sentence that says what to do."""
    try:
        return pt.datasets.load(name)
    except (OSError, ValueError) as error:
        sys.exit(str(error))


def figure(rows: int, columns: int, size: tuple[float, float]):
    """A figure and its axes, without pyplot: nothing is opened on a screen."""
    made = Figure(figsize=size, layout="constrained")
    return made, made.subplots(rows, columns)
