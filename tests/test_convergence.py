"""The convex case: F, its minimum, its stochastic gradients and SGD, on random rows of three labels."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

from paper import convergence, run
from paper.settings import FULL, QUICK
from partita import datasets
from partita.divergences import KL, ChiSquare

N, WIDTH, K = 30, 2, 3
LOSSES = {"logistic": KL(), "sparsemax": ChiSquare()}


@pytest.fixture(autouse=True)
def double():
    """As `compute` has it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def rows():
    """Labels that no hyperplane separates, so that there is a minimizer without penalty."""
    rng = np.random.RandomState(0)
    x = rng.randn(N, WIDTH)
    return x, (x @ rng.randn(WIDTH, K) + 2 * rng.randn(N, K) > 0).astype(int)


def made(rows, loss="logistic", penalty=0.0):
    return convergence.problem(*rows, LOSSES[loss], penalty=penalty, size=4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_the_objective_is_jointly_convex_and_with_a_penalty_strongly(rows, loss, penalty):
    """The gap at the middle of a segment is at least mu/8 of its squared length; up to rounding, 1e-12."""
    one = made(rows, loss, penalty)
    a, b = one.start + np.random.RandomState(1).randn(2, 300, one.start.size)
    value = jax.jit(jax.vmap(one.value))
    gaps = np.asarray((value(a) + value(b)) / 2 - value((a + b) / 2))
    least = penalty / 8 * np.sum((a - b) ** 2 / one.scale, axis=1)
    assert np.all(gaps >= least - 1e-12)
    assert gaps.max() > least.max() + 1e-3


def test_the_minimum_is_that_of_maximum_likelihood(rows):
    """Of the logistic loss: one logistic regression per label, by Newton's method, and tau its log-partition."""
    (x, y), best = rows, convergence.minimum(made(rows))
    extended, total, tau = np.column_stack([x, np.ones(N)]), 0.0, -K * np.log(2) * np.ones(N)
    for label in y.T:
        w = np.zeros(WIDTH + 1)
        for _ in range(30):
            p = scipy.special.expit(extended @ w)
            w += np.linalg.solve((extended.T * p * (1 - p)) @ extended, extended.T @ (label - p))
        total += np.mean(np.logaddexp(0, extended @ w) - label * (extended @ w))
        tau += np.logaddexp(0, extended @ w)
    # L-BFGS ends at gradients of 1e-9, and F is flat there.
    np.testing.assert_allclose(best.fun, total - K * np.log(2), atol=1e-10)
    np.testing.assert_allclose(best.x[-N:], tau, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_stochastic_gradients_are_unbiased(rows, loss):
    """|z| < 4.5 for each of 39 derivatives: wrong by chance with probability 3e-4."""
    one = made(rows, loss, 0.5)
    z = one.start + 0.3 * np.random.RandomState(2).randn(one.start.size)
    keys = jax.random.split(jax.random.key(3), 5_000)
    found = np.asarray(jax.jit(jax.vmap(lambda key: one.gradient(jnp.asarray(z), 4, 2, key=key)))(keys))
    error = found.mean(0) - jax.grad(one.value)(jnp.asarray(z))
    assert np.all(np.abs(error) < 4.5 * found.std(0) / np.sqrt(len(keys)))
    # They vary, those of tau too.
    assert found.std(0).min() > 1e-3


def test_the_smoothness_of_whole_batches_bounds_the_curvature_at_the_start(rows):
    for loss in LOSSES:
        one = convergence.problem(*rows, LOSSES[loss], penalty=0.5, size=10**9)
        root = np.sqrt(one.scale)
        hessian = jax.jit(jax.hessian(lambda z, one=one, root=root: one.value(root * z)))(one.start / root)
        largest = np.linalg.eigvalsh(hessian)[-1]
        assert largest <= one.smoothness <= 1.5 * largest


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("rule", convergence.RULES)
def test_sgd_comes_near_the_minimum(rows, rule, monkeypatch):
    """On average over 4 runs of 1000 steps at least two thirds of the way, however slow the rule."""
    small = datasets.Dataset("emotions", "multilabel", *rows, ("a", "b"), ("c", "d", "e"), N - 5)
    monkeypatch.setattr(datasets, "load", lambda name: small)
    given = next(each for each in convergence.configurations(QUICK) if each["rule"] == rule)
    found = run.compute(given | {"steps": 1000, "batch_size": 4, "seeds": [0, 1, 2, 3]})
    json.dumps(found)
    assert found["step"][0] == 1
    assert found["step"][-1] == 1000
    assert found["average"][0] == pytest.approx(found["last"][0]), "after one step there is nothing else to average"
    assert min(found["last"] + found["average"]) > 0
    assert found["average"][-1] < found["average"][0] / 3


def test_slopes_are_those_of_the_last_decade():
    steps = np.geomspace(1, 1000, 31)
    found = {"step": steps.tolist(), "last": (3 / steps).tolist()}
    found["average"] = np.where(steps < 100, 1.0, 10 / np.sqrt(steps)).tolist()
    assert convergence.slope(found, "last") == pytest.approx(-1)
    assert convergence.slope(found, "average") == pytest.approx(-0.5)


@pytest.mark.parametrize("effort", [QUICK, FULL], ids=["quick", "full"])
def test_configurations_survive_json_and_can_be_computed(effort):
    given = convergence.configurations(effort)
    assert json.loads(json.dumps(given)) == given
    assert {each["kind"] for each in given} <= set(run.COMPUTE)
    assert {len(each["seeds"]) for each in given} == {len(effort.seeds)}


def test_the_claim_is_about_the_average_iterate_of_every_run():
    def look(power, given):
        steps = np.geomspace(1, 1000, 31)
        fall = power * (1 if given["rule"] == "1/t" else 0.5)
        return {"step": steps.tolist(), "average": (steps**-fall).tolist(), "last": np.ones(31).tolist()}

    assert convergence.claim(lambda given: look(1.0, given), QUICK).verdict is True
    assert convergence.claim(lambda given: look(0.7, given), QUICK).verdict is False
    assert convergence.claim(lambda given: None, QUICK).verdict is None
    figure = convergence.build(lambda given: look(1.0, given), QUICK)
    assert len(figure.panels) == len(convergence.configurations(QUICK))
    assert all(panel.log_x and panel.log_y and len(panel.series) == 3 for panel in figure.panels)
