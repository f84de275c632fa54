"""Models of a stack are trained as each would be alone, and their mean is one model."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COUPLINGS, data, jit
from cases import model as make

from partita import training
from partita.couplings import Factored, LinearQuadratic, Sparse, Symmetric
from partita.objectives import ExactMLE
from partita.training import Rows, Solver, ValidationLosses, layouts, loop

SIZE, ROWS, STEPS = 3, 12, 8
COUPLING = COUPLINGS["ising-shared"]


def stack(coupling, size=SIZE):
    return training.stack([make(coupling, key=jax.random.key(i)) for i in range(size)])


def rows(y=None):
    batch = data(COUPLING.space, ROWS)
    return Rows(np.asarray(batch.x), np.asarray(batch.y if y is None else y), batch_size=6)


def solver(penalty=0.1, rate=1e-2):
    return Solver(ExactMLE(), learning_rate=rate, penalty=penalty)


def fit(models, source, key, by=None, **options):
    by, keys = solver() if by is None else by, training.stack_keys(key, training.size(models))
    # Always with weights and the same number of models: one program serves all tests.
    options = {"weights": np.ones((SIZE, ROWS)), "brief": True} | options
    options.setdefault("resume", training.start(by, models, keys=keys.models, data_key=keys.data))
    return training.fit_stack(by, models, source, steps=STEPS, every=4, **options)


def validation(key):
    """Five rows for each model."""
    batch = eqx.tree_at(lambda b: b.index, data(COUPLING.space, 5), None)
    return ValidationLosses(ExactMLE(), training.stack([batch] * SIZE), training.stack_keys(key, SIZE).validation)


def same(a, b, tolerance=0.0):
    close = lambda p, q: np.allclose(p, q, rtol=0, atol=tolerance) if eqx.is_inexact_array(p) else True  # noqa: E731
    return all(jax.tree.leaves(jax.tree.map(close, a, b)))


@pytest.fixture(scope="module")
def trained():
    return fit(stack(COUPLING), rows(), jax.random.key(0))


def test_a_model_is_trained_as_if_it_were_alone(trained):
    """Up to rounding: a product of stacked matrices sums in another order."""
    one = jax.tree.map(lambda leaf: leaf[1:2] if eqx.is_array(leaf) else leaf, stack(COUPLING))
    alone = fit(one, rows(), jax.random.key(0), weights=np.ones((1, ROWS)))
    assert same(training.take(alone.models, 0), training.take(trained.models, 1), 1e-5)
    assert not same(training.take(trained.models, 0), training.take(trained.models, 1), 1e-2)


@pytest.mark.parametrize("shared", [False, True], ids=["keys of their own", "one key for three models"])
def test_blocks_give_what_one_program_gives(shared):
    """Bit for bit: a model reads nothing of the others. Blocks in which no model is active keep their state."""
    keys = jnp.stack([jax.random.key(i // 3 if shared else i) for i in range(2 * SIZE)])
    models, by = stack(COUPLING, 2 * SIZE), training.stack([solver()] * 2 * SIZE)
    begun = training.start(by, models, keys=keys, data_key=jax.random.key(0))
    stopped = np.arange(2 * SIZE) >= SIZE
    begun = eqx.tree_at(lambda run: run.state.failed, begun, jnp.asarray(stopped))
    whole, blocks = layouts.choose_layout(keys, 2 * SIZE), layouts.choose_layout(keys, SIZE)
    assert isinstance(whole, layouts.OneProgram)
    assert [range(2 * SIZE)[part] for part in blocks.slices] == [range(SIZE), range(SIZE, 2 * SIZE)]
    options = {"weights": np.ones((2 * SIZE, ROWS)), "resume": begun}
    one, two = (fit(models, rows(), keys[0], by, layout=layout, **options) for layout in (whole, blocks))
    assert eqx.tree_equal(one.state.model, two.state.model)
    assert np.array_equal(one.losses, two.losses, equal_nan=True)
    assert (np.isnan(one.losses) == stopped).all()


@pytest.mark.parametrize(
    ("seeds", "blocks", "groups"),
    [
        ([0] * 12 + [1] * 12, 4, 1),
        ([0, 0, 1, 1, 2, 2], 1, 3),
        (range(10), 2, 5),
        (range(7), 1, 7),
        ([0], 1, 1),
    ],
)
def test_blocks_are_whole_groups_or_parts_of_one(seeds, blocks, groups):
    """Seven models have no half: they stay together."""
    layout = layouts.choose_layout(jnp.stack([jax.random.key(seed) for seed in seeds]), 6)
    slices = layout.slices if isinstance(layout, layouts.Blocks) else [slice(None)]
    assert [i for part in slices for i in range(len(seeds))[part]] == list(range(len(seeds)))
    assert (len(slices), layout.groups) == (blocks, groups)


def test_each_model_has_its_own_rates_and_penalty(key):
    models = stack(COUPLING)
    solvers = (solver(0.1), solver(0.5, 1e-1), solver(0.0))
    together = fit(models, rows(), key, training.stack(solvers))
    for i, by in enumerate(solvers):
        expected = training.take(fit(models, rows(), key, by).models, i)
        assert same(training.take(together.models, i), expected, 1e-5)


def test_rows_without_weight_teach_a_model_nothing(trained, key):
    weights = np.ones((SIZE, ROWS))
    weights[0, :4] = 0
    y = np.asarray(data(COUPLING.space, ROWS).y)
    other = np.where(np.arange(ROWS)[:, None] < 4, 1 - y, y)
    models = stack(COUPLING)
    first, second = (fit(models, rows(labels), key, weights=weights).models for labels in (y, other))
    assert same(training.take(first, 0), training.take(second, 0), 1e-6)
    assert not same(training.take(first, 1), training.take(second, 1), 1e-3)


def test_a_resumed_run_ends_where_it_would_have_ended(key):
    """Bit for bit, validation and stopping included."""
    kept, models = [], stack(COUPLING)
    options = {"validation": validation(key), "validate_start": True, "patience": 2}
    whole = fit(models, rows(), key, keep=kept.append, **options)
    again = fit(models, rows(), key, resume=kept[0], **options)
    assert eqx.tree_equal(whole.models, again.models)
    assert np.array_equal(whole.losses, again.losses)
    assert np.array_equal(whole.validation, again.validation)
    assert whole.validated_at == again.validated_at == (0, 4, 8)


def test_the_best_of_each_model_is_kept(key):
    """At a learning rate that makes things worse, one of the first validations is the best."""
    kept, options = [], {"validation": validation(key), "validate_start": True}
    run = fit(stack(COUPLING), rows(), key, solver(0.0, 3.0), keep=kept.append, **options)
    seen = [stack(COUPLING), *(part.state.model for part in kept)]
    assert len(seen) == len(run.validation) == 3
    for i, best in enumerate(run.validation.argmin(axis=0)):
        assert same(training.take(run.models, i), training.take(seen[best], i))
    stopped = fit(stack(COUPLING), rows(), key, solver(0.0, 3.0), patience=1, **options)
    assert len(stopped.validation) <= len(run.validation)


def test_a_callback_can_end_it(key):
    steps = []
    run = fit(stack(COUPLING), rows(), key, callbacks=[lambda progress: steps.append(progress.step) or True])
    assert steps == [4]
    assert len(run.losses) == 4


def test_an_interrupted_run_returns_its_last_whole_chunk(trained, key, monkeypatch):
    """Between chunks or in the middle of one; before the first one it is the start."""

    def interrupt(*_):
        raise KeyboardInterrupt

    between = fit(stack(COUPLING), rows(), jax.random.key(0), callbacks=[interrupt])
    advance, calls = loop._Program.advance, []
    monkeypatch.setattr(
        loop._Program, "advance", lambda *args: interrupt() if calls else calls.append(1) or advance(*args)
    )
    within = fit(stack(COUPLING), rows(), jax.random.key(0))
    for run in (between, within):
        assert run.interrupted
        assert not trained.interrupted
        np.testing.assert_array_equal(run.losses, trained.losses[:4])
    nothing = fit(stack(COUPLING), rows(), key)
    assert nothing.interrupted
    assert nothing.done == 0


@pytest.mark.parametrize("name", ["unary", "birkhoff", "ising-shared"])
def test_the_mean_has_the_mean_energy(name, key):
    coupling = COUPLINGS[name]
    models = stack(coupling)
    if getattr(coupling, "shared", None) is not None:
        shared = jax.random.normal(key, models.g.coupling.shared.shape)
        models = eqx.tree_at(lambda m: m.g.coupling.shared, models, shared)
    mean = training.average(models)
    batch = data(coupling.space)
    energies = jit(lambda g, batch: jax.vmap(g)(batch.x, batch.y))
    energy_of = [energies(training.take(models, i).g, batch) for i in range(SIZE)]
    np.testing.assert_allclose(energies(mean.g, batch), np.mean(energy_of, axis=0), rtol=1e-5, atol=1e-5)
    twice = training.scale(mean, 2.0)
    np.testing.assert_allclose(energies(twice.g, batch), 2 * np.mean(energy_of, axis=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["ising-low-rank", "neural-sets"])
def test_what_has_no_mean_is_refused(name):
    assert not COUPLINGS[name].can_average
    with pytest.raises(ValueError, match="use one model"):
        training.average(stack(COUPLINGS[name], 2))


@pytest.mark.parametrize(
    "interaction", [Symmetric(5), Sparse(5, [(0, 1), (3, 4)]), Factored(5, 2, key=jax.random.key(0))]
)
def test_the_operator_of_an_interaction_is_its_matrix(interaction, key):
    s_key, m_key = jax.random.split(key)
    s, m = jax.random.normal(s_key, (interaction.size,)), jax.random.normal(m_key, (5,))
    np.testing.assert_allclose(interaction.operator(s)(m), interaction.matrix(s) @ m, rtol=1e-5, atol=1e-6)


def test_the_coupling_has_a_penalty_of_its_own():
    """One step of plain gradient descent on a loss that does not depend on the weights."""
    coupling = LinearQuadratic(Symmetric(3), shared=True)
    model = make(coupling)
    model = eqx.tree_at(lambda m: m.g.coupling.shared, model, jnp.arange(1.0, 4.0))
    value = Solver(ExactMLE(), penalty=2.0, coupling_penalty=10.0).penalize(model.g)
    inside = sum(float(jnp.sum(w**2)) for w in jax.tree.leaves(model.g.h) if w.ndim > 1)
    assert float(value) == pytest.approx(0.5 * (2.0 * inside + 10.0 * 14.0), rel=1e-5)
    with pytest.raises(ValueError, match="coupling_penalty must be non-negative"):
        Solver(ExactMLE(), coupling_penalty=-1.0)


def test_blocks_of_balanced_rankings_end():
    """Two blocks at a time, each of which balances matrices in every step: in a process that can be ended."""
    code = """
import numpy as np
from partita import LabelRanker
rng = np.random.RandomState(0)
x = rng.randn(80, 3)
y = (x @ rng.randn(3, 6)).argsort(axis=1).argsort(axis=1)
LabelRanker(objective="min-min", penalty=[0.01, 0.1], steps=20, width=4, random_state=0).fit(x, y)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
