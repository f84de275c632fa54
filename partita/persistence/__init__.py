"""Models and checkpoints as files that execute nothing when they are read.

A file is one safetensors file: arrays are its tensors, everything else is a JSON description in its metadata, and a
checksum covers every byte. Reading looks classes up in a fixed table, partita's own and those that the caller passes;
nothing is unpickled, imported by a name in the file, or initialized. Any other tool can read the tensors.

scikit-learn has no such format for fitted estimators; its guide to persistence says to unpickle only what one trusts.
So they are in a second file, `<path>.sklearn`, which is read with `trusted=True` only, and after its checksum.
"""

from .objects import ConsentError, FileError
from .store import load, load_leaves, save, save_leaves

__all__ = ["ConsentError", "FileError", "load", "load_leaves", "save", "save_leaves"]
