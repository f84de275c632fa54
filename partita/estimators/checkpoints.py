"""A fit that can be killed at any moment: everything it needs to go on, in one file that is replaced whole."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..members import Members
from ..persistence import load_leaves, save_leaves

__all__ = ["Checkpoint", "fingerprint"]


class Checkpoint:
    """The file of one fit in a folder; `mark` tells its data and settings from others."""

    def __init__(self, folder: Any, mark: str):
        self.path, self.mark = Path(folder) / "fit.safetensors", mark
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def seed(self, seed: int, fixed: bool) -> int:
        """The seed of the fit that is to go on, else the one given; a `fixed` one must be the same."""
        beside = self.path.with_suffix(".seed")
        if not beside.exists():
            written = beside.with_suffix(".writing")
            written.write_text(str(seed))
            written.replace(beside)
        known = int(beside.read_text())
        if fixed and known != seed:
            raise ValueError(f"{self.path.parent} belongs to a fit with another random_state; give another folder.")
        return known

    def load(self, like: Members) -> Members | None:
        """Where the fit stood, if the file is there; an error if it is of another fit."""
        if not self.path.exists():
            return None
        (models, state), info = load_leaves(self.path, (like.models, like.state))
        if info["mark"] != self.mark:
            raise ValueError(
                f"{self.path} belongs to a fit of other data or settings. Give another folder, or delete the file."
            )
        return Members(models, state, info["losses"], info["measures"], tuple(info["steps"]))

    def keep(self, now: Members) -> None:
        info = {"mark": self.mark, "losses": now.losses, "measures": now.measures, "steps": list(now.steps)}
        save_leaves(self.path, (now.models, now.state), info)


def fingerprint(settings: dict[str, Any], *arrays: Any) -> str:
    """A digest of the settings and the data of a fit."""
    digest = hashlib.sha256(json.dumps({name: repr(value) for name, value in sorted(settings.items())}).encode())
    for array in arrays:
        if scipy.sparse.issparse(array):
            array = array.tocsr()
            parts = (array.data, array.indices, array.indptr)
        else:
            parts = (np.asarray(array),)
        for part in parts:
            digest.update(repr((part.shape, part.dtype)).encode())
            digest.update(np.ascontiguousarray(part).tobytes() if part.dtype != object else repr(part).encode())
    return digest.hexdigest()
