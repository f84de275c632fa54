"""A fit that is killed and called again ends, bit for bit, where one that was left alone does."""

import os
import random
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from sklearn.linear_model import Ridge

from partita.estimators import InterruptedFitWarning, LabelRanker, MultilabelClassifier

pytestmark = pytest.mark.usefixtures("unchecked")

SMALL = {"ensemble_size": 2, "steps": 120, "width": 2, "depth": 1, "batch_size": 8, "patience": None, "random_state": 0}
X = np.random.RandomState(0).randn(24, 2)
SETS = (X @ [[1, -1, 0.5], [0.5, 1, -1]] > 0).astype(int)
RANKS = np.argsort(np.argsort(X @ [[1, -1, 0.5], [0.5, 1, -1]], axis=1), axis=1)


def classifier():
    return MultilabelClassifier(**SMALL)


def ranker():
    # Reference, cross-fit and refit: every phase that there is.
    return LabelRanker(**SMALL, penalty=0.01, reference=Ridge(), reference_family="mallows")


def stop_here(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


class KilledAt:
    """A callback by which the process ends at its `chunk`-th call."""

    def __init__(self, chunk):
        self.left = chunk

    def __call__(self, _):
        self.left -= 1
        if not self.left:
            stop_here()


def killed(code, folder):
    """Run code that is meant to be killed, in another process."""
    start = f"import sys, pathlib; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_checkpoints as here;"
    done = subprocess.run([sys.executable, "-c", f"{start} folder = {str(folder)!r}; {code}"], check=False)
    assert done.returncode == -signal.SIGKILL


def assert_same(a, b):
    for p, q in zip(jax.tree.leaves(a.ebm_), jax.tree.leaves(b.ebm_), strict=True):
        np.testing.assert_array_equal(p, q)
    np.testing.assert_array_equal(a.history_.loss, b.history_.loss)


@pytest.mark.slow
def test_a_killed_fit_goes_on_to_the_same_end(tmp_path):
    killed("here.classifier().fit(here.X, here.SETS, checkpoint=folder, callbacks=[here.KilledAt(5)])", tmp_path)
    steps = []
    resumed = classifier().fit(X, SETS, checkpoint=tmp_path, callbacks=[lambda told: steps.append(told.step)])
    assert steps[0] == 60, "5 of 12 chunks of 10 steps were done"
    assert_same(resumed, classifier().fit(X, SETS))
    # Finished, it is read back.
    assert_same(classifier().fit(X, SETS, checkpoint=tmp_path), resumed)


def test_an_interrupted_fit_goes_on_to_the_same_end(tmp_path):
    def interrupt(_):
        raise KeyboardInterrupt

    small = {**SMALL, "steps": 20, "ensemble_size": 1}
    with pytest.warns(InterruptedFitWarning, match="after 10 of 20 steps"):
        MultilabelClassifier(**small).fit(X, SETS, checkpoint=tmp_path, callbacks=[interrupt])
    assert_same(
        MultilabelClassifier(**small).fit(X, SETS, checkpoint=tmp_path), MultilabelClassifier(**small).fit(X, SETS)
    )


def test_another_fit_is_refused(tmp_path):
    small = {**SMALL, "steps": 2, "ensemble_size": 1}
    MultilabelClassifier(**small).fit(X, SETS, checkpoint=tmp_path)
    others = [
        (MultilabelClassifier(**small, penalty=0.5), X, "other data or settings"),
        (MultilabelClassifier(**small), X + 1, "other data or settings"),
        (MultilabelClassifier(**{**small, "random_state": 1}), X, "another random_state"),
    ]
    for estimator, x, said in others:
        with pytest.raises(ValueError, match=said):
            estimator.fit(x, SETS, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="other data or settings"):
        MultilabelClassifier(**small).fit(X, SETS, eval_set=(X, SETS), checkpoint=tmp_path)


@pytest.mark.parametrize("name", ["fit.json", "fit.safetensors"])
def test_a_file_that_was_cut_off_is_refused(tmp_path, name):
    small = {**SMALL, "steps": 2, "ensemble_size": 1}
    MultilabelClassifier(**small).fit(X, SETS, checkpoint=tmp_path)
    raw = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ValueError, match="cut off"):
        MultilabelClassifier(**small).fit(X, SETS, checkpoint=tmp_path)


def test_a_seed_that_was_left_open_is_remembered(tmp_path):
    small = {**SMALL, "steps": 2, "ensemble_size": 1, "random_state": None}
    first, second = (MultilabelClassifier(**small).fit(X, SETS, checkpoint=tmp_path) for _ in range(2))
    assert first.seed_ == second.seed_
    assert_same(first, second)


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        # While the third file is being written: complete under its temporary name, not yet in its place.
        """
import partita.atomic as atomic
real, count = atomic.os.replace, [0]
def replace(a, b):
    count[0] += 1
    here.stop_here() if count[0] == 3 else real(a, b)
atomic.os.replace = replace
here.classifier().fit(here.X, here.SETS, checkpoint=folder)""",
        # While the reference is fitted, and in the refit on all rows.
        """
import partita.estimators.references as references
references._fit_scale = here.stop_here
here.ranker().fit(here.X, here.RANKS, checkpoint=folder)""",
        """
import partita.estimators.cross_fitting as cross_fitting
cross_fitting.refit = here.stop_here
here.ranker().fit(here.X, here.RANKS, checkpoint=folder)""",
    ],
    ids=["writing", "reference", "refit"],
)
def test_every_phase_can_be_killed(tmp_path, code):
    killed(f"exec({code!r})", tmp_path)
    make, y = (ranker, RANKS) if "ranker" in code else (classifier, SETS)
    assert_same(make().fit(X, y, checkpoint=tmp_path), make().fit(X, y))
    assert not list(tmp_path.glob(".partita-*.tmp"))


@pytest.mark.slow
def test_ten_random_moments(tmp_path):
    alone = ranker().fit(X, RANKS)
    code = "here.ranker().fit(here.X, here.RANKS, checkpoint=folder); print('done', flush=True)"
    start = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_checkpoints as here;"
    moments, ended = random.Random(0), 0
    for i in range(10):
        folder = tmp_path / str(i)
        run = subprocess.Popen(
            [sys.executable, "-c", f"{start} folder = {str(folder)!r}; {code}"], stdout=subprocess.PIPE, text=True
        )
        while not (folder / "fit.json").exists() and run.poll() is None:
            time.sleep(0.05)
        time.sleep(moments.uniform(0, 20))
        run.kill()
        ended += "done" in run.communicate()[0]
        assert_same(ranker().fit(X, RANKS, checkpoint=folder), alone)
    assert ended < 10, "some must have been killed on the way"
