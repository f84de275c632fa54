"""Results in a file of JSON lines, and a run that computes only those that are missing."""

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import joblib

__all__ = ["Config", "Store", "distinct", "run"]

# Names and numbers only, so that JSON keeps it as it is.
Config = Mapping[str, Any]


class Store:
    """Results in a file of JSON lines, each next to the configuration that it belongs to.

    Lines are only appended, and each is on the disk before `add` returns. A line that a kill cut off gives a warning,
    and its result is computed again.
    """

    def __init__(self, path: Any):
        self.path = Path(path)
        self._entries: dict[str, dict[str, Any]] = {}
        content = self.path.read_bytes() if self.path.exists() else b""
        self._ends_in_line = not content or content.endswith(b"\n")
        damaged = 0
        for line in filter(None, content.split(b"\n")):
            try:
                entry = json.loads(line)
                self._entries[_key(entry["config"])] = entry
            except (ValueError, KeyError, TypeError):
                damaged += 1
        if damaged:
            warnings.warn(f"{self.path} has {damaged} damaged lines; their results are computed again.", stacklevel=2)

    def __contains__(self, config: Config) -> bool:
        return _key(config) in self._entries

    def __getitem__(self, config: Config) -> dict[str, Any]:
        return self._entries[_key(config)]["result"]

    def get(self, config: Config) -> dict[str, Any] | None:
        """The result of a configuration, None where it is missing."""
        return self._entries.get(_key(config), {}).get("result")

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[dict[str, Any]]:
        """All entries, each with its `config`, its `result` and the notes that `add` stored with them."""
        return list(self._entries.values())

    def add(self, config: Config, result: Mapping[str, Any], **notes: Any) -> None:
        """Append a result."""
        entry = {"config": dict(config), "result": dict(result), **notes}
        line = json.dumps(entry, allow_nan=True).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            # One write: lines of several processes do not mix.
            file.write(line if self._ends_in_line else b"\n" + line)
            file.flush()
            os.fsync(file.fileno())
        self._ends_in_line = True
        self._entries[_key(config)] = json.loads(line)


def run(
    configs: Iterable[Config],
    compute: Callable[[Config], Mapping[str, Any]],
    store: Store,
    *,
    jobs: int | None = None,
    on_result: Callable[[Config], None] = lambda _: None,
    notes: Callable[[], Mapping[str, Any]] = dict,
) -> list[dict[str, Any]]:
    """The result of every configuration: from the store, else computed and stored at once.

    Parameters
    ----------
    configs
        Equal configurations count once.
    compute
        The result of one configuration, as JSON can hold it.
    jobs
        Number of processes of joblib; None: as `joblib.parallel_config` says (for instance a Dask cluster).
    on_result
        Called with each configuration as soon as its result is in the store.
    notes
        Called as a result is stored; what it returns is stored with it.
    """
    configs = distinct(configs)
    missing = []
    for config in configs:
        if config in store:
            on_result(config)
        else:
            missing.append(config)
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    results: Any = parallel(joblib.delayed(_with_config)(compute, config) for config in missing)
    with warnings.catch_warnings():
        # joblib replaces processes whose memory has grown, which loses nothing; if a process dies, it raises.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs")
        for config, result in results:
            store.add(config, result, **notes())
            on_result(config)
    return [store[config] for config in configs]


def distinct(configs: Iterable[Config]) -> list[Config]:
    """Each configuration once, in the order of first occurrence."""
    return list({_key(config): config for config in configs}.values())


def _with_config(compute: Callable, config: Config) -> tuple[Config, Mapping[str, Any]]:
    return config, compute(config)


def _key(config: Config) -> str:
    """The same for equal configurations, whatever the order of their names."""
    return json.dumps(config, sort_keys=True)
