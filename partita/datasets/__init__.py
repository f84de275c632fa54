"""Data sets: the paper's and larger ones by name, with their splits, and files of one's own."""

from .loading import Split, load, split
from .reading import Dataset, read
from .registry import SETS, Entry, File, Task, entry, names
from .store import DownloadError, State, cache, check, fetch
from .text import DataError

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
