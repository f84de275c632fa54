"""What the timed benchmarks share: one core, medians with their spread, JSON lines on disk."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax


def pin() -> None:
    """Keep this process and its children on one core. To be called before JAX starts its threads: they inherit it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What one call gives, its arrays computed, and the seconds it took."""
    began = time.perf_counter()
    value = jax.block_until_ready(call())
    return value, time.perf_counter() - began


def in_turn(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each call, `repeats` times, one after the other: a slow spell of the machine meets all of them."""
    for call in calls.values():
        timed(call)
    turns = [{name: timed(call)[1] for name, call in calls.items()} for _ in range(repeats)]
    return {name: [turn[name] for turn in turns] for name in calls}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and largest."""
    return {"median": statistics.median(values), "least": min(values), "largest": max(values)}


def shown(values: dict[str, float]) -> str:
    """A `spread` in words."""
    return f"{values['median']:.2f} ({values['least']:.2f} - {values['largest']:.2f})"


def write(path: Path, row: dict) -> None:
    """Append the row, with what it was measured on, to a file of JSON lines."""
    row = row | {"jax": jax.__version__, "machine": platform.machine(), "time": time.strftime("%FT%T%z")}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lines:
        lines.write(json.dumps(row) + "\n")
