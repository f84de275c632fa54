"""Results are kept whatever happens, and none is computed twice."""

import json
import os
import sys
import time
from pathlib import Path

import joblib
import pytest

from paper.store import Store, run


def test_results_are_found_again_whatever_the_order_of_keys(tmp_path):
    store = Store(tmp_path / "new" / "results.jsonl")
    store.add({"a": 1, "b": [1, 2]}, {"test": [0.5]}, time="now")
    again = Store(store.path)
    assert again[{"b": [1, 2], "a": 1}] == {"test": [0.5]}
    assert {"a": 1} not in again
    assert again.get({"a": 1}) is None
    assert again.entries() == [{"config": {"a": 1, "b": [1, 2]}, "result": {"test": [0.5]}, "time": "now"}]


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_a_line_that_was_cut_off_gives_a_warning_and_is_computed_again(tmp_path, cut):
    store = Store(tmp_path / "results.jsonl")
    for i in range(3):
        store.add({"i": i}, {"square": i * i})
    raw = store.path.read_bytes()
    store.path.write_bytes(raw[:-cut])
    # Without its newline the last line is still whole.
    lost = cut > 1
    if lost:
        with pytest.warns(UserWarning, match="1 damaged lines"):
            again = Store(store.path)
    else:
        again = Store(store.path)
    assert len(again) == 3 - lost
    computed = []
    results = run([{"i": i} for i in range(4)], lambda c: computed.append(c["i"]) or {"square": c["i"] ** 2}, again)
    assert [result["square"] for result in results] == [0, 1, 4, 9]
    assert computed == ([2, 3] if lost else [3])


def test_what_is_there_is_not_computed_and_equal_configurations_once(tmp_path):
    store, calls, reported = Store(tmp_path / "results.jsonl"), [], []

    def compute(config):
        calls.append(config)
        return {"value": config["x"] + 1}

    wanted = [{"x": 1, "y": 0}, {"y": 0, "x": 1}, {"x": 2, "y": 0}]
    assert run(wanted, compute, store, on_result=reported.append) == [{"value": 2}, {"value": 3}]
    assert len(calls) == 2
    run(wanted, compute, store, on_result=reported.append)
    assert len(calls) == 2
    assert len(reported) == 4


def test_what_was_done_before_an_error_is_kept(tmp_path):
    store = Store(tmp_path / "results.jsonl")
    with pytest.raises(ZeroDivisionError):
        run([{"x": 1}, {"x": 0}, {"x": 2}], lambda c: {"value": 1 / c["x"]}, store)
    assert {"x": 1} in Store(store.path)


def logged(config):
    """A result that leaves a line behind each time it is computed."""
    with open(config["log"], "a") as log:
        log.write(f"{config['i']}\n")
    time.sleep(0.1)
    return {"i": config["i"]}


def configs(folder):
    return [{"i": i, "log": str(Path(folder) / "log.txt")} for i in range(30)]


def test_a_run_that_is_killed_goes_on(tmp_path, killed):
    here, path = Path(__file__), tmp_path / "results.jsonl"
    code = (
        f"import sys; sys.path[:0] = {[str(folder) for folder in here.parents[:2]]!r}; import test_store as t;"
        f"t.run(t.configs({str(tmp_path)!r}), t.logged, t.Store({str(path)!r}))"
    )
    for lines in (3, 9):
        killed([sys.executable, "-c", code], path, lines)
    results = run(configs(tmp_path), logged, Store(path))
    assert [result["i"] for result in results] == list(range(30))
    done = [json.loads(line)["result"]["i"] for line in path.read_text().splitlines()]
    assert sorted(done) == list(range(30)), "each is stored once"
    # Only what was being computed at the two kills may have been begun twice.
    assert len((tmp_path / "log.txt").read_text().split()) <= 32


def square(config):
    return {"square": config["x"] ** 2, "process": os.getpid()}


def test_processes_share_the_work(tmp_path):
    store = Store(tmp_path / "results.jsonl")
    results = run([{"x": x} for x in range(6)], square, store, jobs=2)
    assert [result["square"] for result in results] == [0, 1, 4, 9, 16, 25]
    assert os.getpid() not in {result["process"] for result in results}


def test_a_dask_cluster_does_it_too(tmp_path):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster), joblib.parallel_config("dask"):
        results = run([{"x": x} for x in range(6)], square, Store(tmp_path / "results.jsonl"))
    assert [result["square"] for result in results] == [0, 1, 4, 9, 16, 25]
    assert os.getpid() not in {result["process"] for result in results}
