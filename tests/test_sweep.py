"""A grid is trained as its points would be alone; results are kept whatever happens, and none is computed twice."""

import json
import os
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import joblib
import numpy as np
import pytest

import partita as pt
from partita import sweep
from partita.batches import Rows

RNG = np.random.RandomState(0)
X = RNG.randn(40, 3)
Y = (X @ RNG.randn(3, 4) > 0).astype(int)
SPACE = pt.structures.Hypercube(4)


def make(key):
    h = pt.networks.MLP(3, 4, width=8, key=key)
    tau = pt.partition.Network(pt.networks.MLP(3, (), width=8, key=key))
    return pt.EBM(pt.Energy(h, pt.couplings.Bilinear(pt.structures.Cube(4))), tau)


def train(points, **more):
    objective = pt.objectives.MinMin(8, "shared", proposal=None)
    return sweep.train(make, objective, Rows(X, Y, batch_size=16), points, steps=20, every=10, **more)


def test_a_grid_is_all_combinations():
    points = sweep.Grid((1e-3, 1e-2), (0.0, 0.1, 1.0), (0, 7)).points()
    assert len(points) == len(set(points)) == 12
    assert sweep.Point(1e-2, 0.1, 7) in points


def test_a_point_is_trained_to_the_same_end_in_any_company():
    points = sweep.Grid((1e-3, 3e-2), (0.0, 1.0), (0, 1)).points()
    together = train(points).losses
    assert together.shape == (20, 8)
    for i in (0, 3, 6):
        # Products round alike; the loss that is told is a sum over rows, which rounds in another order.
        np.testing.assert_allclose(train([points[i]]).losses[:, 0], together[:, i], rtol=1e-6, atol=1e-7)
    # They are not all the same run: each part of a point matters.
    assert len(np.unique(together[-1].round(4))) == 8


def test_points_may_weigh_rows_their_own_way():
    points = [sweep.Point(1e-2, 0.0, 0)] * 2
    weights = np.ones((2, len(X)))
    weights[1, :20] = 0
    losses = train(points, weights=weights).losses
    # Before the first step every loss is 0.
    assert (losses[1:, 0] != losses[1:, 1]).all()


def test_a_grid_trains_what_it_is_told_to():
    """Ten steps of g, then ten of tau: what is frozen keeps its bits, and each point is trained as it is alone."""
    points, in_turn, seen = sweep.Grid((1e-3, 3e-2), (0.1,), (0,)).points(), pt.solver.Alternating(g=10, tau=10), []
    together = train(points, train=in_turn, callbacks=[lambda now: seen.append(now.model)])
    for i, point in enumerate(points):
        alone = train([point], train=in_turn)
        # As above: the loss is a sum over rows, which rounds in another order.
        np.testing.assert_allclose(alone.losses[:, 0], together.losses[:, i], rtol=1e-6, atol=1e-7)
    begun, half, end = pt.members.stacked([make(jax.random.key(0))] * 2), *seen
    assert eqx.tree_equal(half.tau, begun.tau)
    assert not eqx.tree_equal(half.g, begun.g)
    assert eqx.tree_equal(end.g, half.g)
    assert not eqx.tree_equal(end.tau, half.tau)


def test_no_points_are_refused():
    with pytest.raises(ValueError, match="at least one point"):
        train([])


# ---------------------------------------------------------------------------------------------------- what is kept


def test_results_are_found_again_whatever_the_order_of_keys(tmp_path):
    store = sweep.Store(tmp_path / "new" / "results.jsonl")
    store.add({"a": 1, "b": [1, 2]}, {"test": [0.5]}, time="now")
    again = sweep.Store(store.path)
    assert again[{"b": [1, 2], "a": 1}] == {"test": [0.5]}
    assert {"a": 1} not in again
    assert again.get({"a": 1}) is None
    assert again.entries() == [{"config": {"a": 1, "b": [1, 2]}, "result": {"test": [0.5]}, "time": "now"}]


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_a_line_that_was_cut_off_is_told_of_and_computed_again(tmp_path, cut):
    store = sweep.Store(tmp_path / "results.jsonl")
    for i in range(3):
        store.add({"i": i}, {"square": i * i})
    raw = store.path.read_bytes()
    store.path.write_bytes(raw[:-cut])
    # Without its newline the last line is still whole.
    lost = cut > 1
    if lost:
        with pytest.warns(UserWarning, match="1 damaged lines"):
            again = sweep.Store(store.path)
    else:
        again = sweep.Store(store.path)
    assert len(again) == 3 - lost
    computed = []
    found = sweep.run([{"i": i} for i in range(4)], lambda c: computed.append(c["i"]) or {"square": c["i"] ** 2}, again)
    assert [each["square"] for each in found] == [0, 1, 4, 9]
    assert computed == ([2, 3] if lost else [3])


def test_what_is_there_is_not_computed_and_equal_configurations_once(tmp_path):
    store, calls, told = sweep.Store(tmp_path / "results.jsonl"), [], []

    def compute(config):
        calls.append(config)
        return {"value": config["x"] + 1}

    wanted = [{"x": 1, "y": 0}, {"y": 0, "x": 1}, {"x": 2, "y": 0}]
    assert sweep.run(wanted, compute, store, told=told.append) == [{"value": 2}, {"value": 3}]
    assert len(calls) == 2
    sweep.run(wanted, compute, store, told=told.append)
    assert len(calls) == 2
    assert len(told) == 4


def test_what_was_done_before_an_error_is_kept(tmp_path):
    store = sweep.Store(tmp_path / "results.jsonl")
    with pytest.raises(ZeroDivisionError):
        sweep.run([{"x": 1}, {"x": 0}, {"x": 2}], lambda c: {"value": 1 / c["x"]}, store)
    assert {"x": 1} in sweep.Store(store.path)


def noted(config):
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
        f"import sys; sys.path.insert(0, {str(here.parent)!r}); import test_sweep as t; from partita import sweep;"
        f"sweep.run(t.configs({str(tmp_path)!r}), t.noted, sweep.Store({str(path)!r}))"
    )
    for lines in (3, 9):
        killed([sys.executable, "-c", code], path, lines)
    found = sweep.run(configs(tmp_path), noted, sweep.Store(path))
    assert [each["i"] for each in found] == list(range(30))
    done = [json.loads(line)["result"]["i"] for line in path.read_text().splitlines()]
    assert sorted(done) == list(range(30)), "each is stored once"
    # Only what was being computed at the two kills may have been begun twice.
    assert len((tmp_path / "log.txt").read_text().split()) <= 32


def square(config):
    return {"square": config["x"] ** 2, "process": os.getpid()}


def test_processes_share_the_work(tmp_path):
    store = sweep.Store(tmp_path / "results.jsonl")
    found = sweep.run([{"x": x} for x in range(6)], square, store, jobs=2)
    assert [each["square"] for each in found] == [0, 1, 4, 9, 16, 25]
    assert os.getpid() not in {each["process"] for each in found}


def test_a_dask_cluster_does_it_too(tmp_path):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster), joblib.parallel_config("dask"):
        found = sweep.run([{"x": x} for x in range(6)], square, sweep.Store(tmp_path / "results.jsonl"))
    assert [each["square"] for each in found] == [0, 1, 4, 9, 16, 25]
    assert os.getpid() not in {each["process"] for each in found}
