"""Data sets: the paper's and larger ones by name, with their splits, and files of your own."""

from .formats import DataError
from .reading import Dataset, Split, load, read, split
from .registry import SETS, Entry, File, Task, entry, names
from .store import DownloadError, State, cache, check, fetch

__all__ = [
    "SETS",
    "DataError",
    "Dataset",
    "DownloadError",
    "Entry",
    "File",
    "Split",
    "State",
    "Task",
    "cache",
    "check",
    "entry",
    "fetch",
    "load",
    "names",
    "read",
    "split",
]
