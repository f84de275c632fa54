"""A fit that can be killed at any moment: what it needs to go on, in files that are replaced whole."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import scipy.sparse

from ..atomic import write
from ..persistence import load_leaves, save_leaves
from ..training import Run
from ..types import PyTree

__all__ = ["Checkpoint", "fingerprint"]


class Checkpoint:
    """The files of one fit in a folder; `mark` tells its data and settings from others.

    `fit.json` says whose folder it is, and by which seed; `fit.safetensors` the state of its training.
    """

    def __init__(self, folder: Any, mark: str):
        self.folder, self.mark = Path(folder), mark
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".partita-*.tmp"):
            # What was being written when the fit was killed.
            left.unlink(missing_ok=True)

    def seed(self, seed: int, fixed: bool) -> int:
        """The seed of the fit that is to go on, else the one given; a `fixed` one must be the same."""
        path = self.folder / "fit.json"
        if not path.exists():
            write({str(path): json.dumps({"mark": self.mark, "seed": seed}).encode()})
        try:
            known = json.loads(path.read_bytes())
            mark, begun = str(known["mark"]), int(known["seed"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not what a fit writes, or was cut off; delete the folder.") from error
        self._check(mark, path)
        if fixed and begun != seed:
            raise ValueError(f"{self.folder} belongs to a fit with another random_state; give another folder.")
        return begun

    def load(self, like: Run) -> Run | None:
        """The run as it was kept last, if the file is there; an error if it is of another fit."""
        path = self.folder / "fit.safetensors"
        if not path.exists():
            return None
        (models, state), info = load_leaves(path, (like.models, like.state))
        self._check(info["mark"], path)
        at = tuple(info["validated_at"])
        return Run(models, state, like.data_key, info["steps"], info["validation"], at, info["done"])

    def keep(self, run: Run) -> None:
        info = {"mark": self.mark, "steps": run.steps, "validation": run.validation, "done": run.done}
        info |= {"validated_at": list(run.validated_at)}
        save_leaves(self.folder / "fit.safetensors", (run.models, run.state), info)

    def _check(self, mark: str, path: Path) -> None:
        if mark != self.mark:
            raise ValueError(f"{path} belongs to a fit of other data or settings. Give another folder, or delete it.")


def fingerprint(*parts: PyTree) -> str:
    """A digest of the settings and the data of a fit, the same in every process."""
    digest = hashlib.sha256()
    leaves, structure = jax.tree.flatten(parts)
    for leaf in (*leaves, structure):
        if scipy.sparse.issparse(leaf):
            leaf = leaf.tocsr()
            arrays = [leaf.data, leaf.indices, leaf.indptr]
        else:
            arrays = [leaf] if eqx.is_array_like(leaf) or hasattr(leaf, "__array__") else []
        for array in map(_plain, arrays):
            digest.update(repr((array.shape, array.dtype)).encode())
            digest.update(array.tobytes() if array.dtype != object else repr(array.tolist()).encode())
        if not arrays:
            # Addresses of functions and of objects without a repr change from run to run.
            digest.update(re.sub(" at 0x[0-9a-f]+", "", repr(leaf)).encode())
    return digest.hexdigest()


def _plain(array: Any) -> np.ndarray:
    is_key = isinstance(array, jax.Array) and jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key)
    return np.ascontiguousarray(jax.random.key_data(array) if is_key else array)
