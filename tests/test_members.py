"""Members trained together are what each would be alone, and their mean is one model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COUPLINGS, data, jit
from cases import model as make

from partita import members
from partita.batches import Rows
from partita.couplings import Factored, LinearQuadratic, Sparse, Symmetric
from partita.objectives import ExactMLE
from partita.solver import Solver

SIZE, ROWS, STEPS = 3, 12, 8
COUPLING = COUPLINGS["ising-shared"]


def stack(coupling, size=SIZE):
    return members.stacked([make(coupling, key=jax.random.key(i)) for i in range(size)])


def rows(y=None):
    batch = data(COUPLING.space, ROWS)
    return Rows(np.asarray(batch.x), np.asarray(batch.y if y is None else y), batch_size=6)


def solver(penalty=0.1, rate=1e-2):
    return Solver(ExactMLE(), learning_rate=rate, penalty=penalty)


def fit(models, source, key, by=None, **options):
    by = solver() if by is None else by
    # Always with weights and the same number of members: one program serves all tests.
    options = {"weights": np.ones((SIZE, ROWS))} | options
    return members.fit(by, models, source, steps=STEPS, every=4, key=key, **options)


def same(a, b, tolerance=0.0):
    close = lambda p, q: np.allclose(p, q, rtol=0, atol=tolerance) if eqx.is_inexact_array(p) else True  # noqa: E731
    return all(jax.tree.leaves(jax.tree.map(close, a, b)))


@pytest.fixture(scope="module")
def trained():
    return fit(stack(COUPLING), rows(), jax.random.key(0))


def test_a_member_is_trained_as_if_it_were_alone(trained):
    """Up to rounding: a product of stacked matrices sums in another order."""
    one = jax.tree.map(lambda leaf: leaf[1:2] if eqx.is_array(leaf) else leaf, stack(COUPLING))
    alone = fit(one, rows(), jax.random.key(0), weights=np.ones((1, ROWS)))
    assert same(members.member(alone.models, 0), members.member(trained.models, 1), 1e-5)
    assert not same(members.member(trained.models, 0), members.member(trained.models, 1), 1e-2)


@pytest.mark.parametrize("shared", [False, True], ids=["keys of their own", "one key for three each"])
def test_blocks_are_what_all_would_be_at_once(monkeypatch, shared):
    """Bit for bit: a member reads nothing of the others. Blocks of which all have stopped are left as they are."""
    keys = jnp.stack([jax.random.key(i // 3 if shared else i) for i in range(2 * SIZE)])
    models = stack(COUPLING, 2 * SIZE)
    begun = members.start(members.stacked([solver()] * 2 * SIZE), models, key=keys)
    stopped = np.arange(2 * SIZE) >= SIZE
    begun = eqx.tree_at(lambda now: now.state.failed, begun, jnp.asarray(stopped))
    found = []
    for block, sizes in ((2 * SIZE, [2 * SIZE]), (SIZE, [SIZE, SIZE])):
        monkeypatch.setattr(members, "BLOCK", block)
        assert [len(range(2 * SIZE)[part]) for part in members._blocks(keys)[0]] == sizes
        found.append(fit(models, rows(), jax.random.key(0), weights=np.ones((2 * SIZE, ROWS)), resume=begun))
    assert eqx.tree_equal(*(now.state.model for now in found))
    assert np.array_equal(*(now.losses for now in found), equal_nan=True)
    assert (np.isnan(found[0].losses) == stopped).all()


@pytest.mark.parametrize(
    ("seeds", "blocks", "companies"),
    [
        ([0] * 12 + [1] * 12, 4, 1),
        ([0, 0, 1, 1, 2, 2], 1, 3),
        (range(10), 2, 5),
        (range(7), 1, 7),
        ([0], 1, 1),
    ],
)
def test_blocks_are_whole_companies_or_parts_of_one(seeds, blocks, companies):
    """Seven members have no half: they stay together."""
    assert members.BLOCK == 6
    found = members._blocks(jnp.stack([jax.random.key(seed) for seed in seeds]))
    assert [i for part in found[0] for i in range(len(seeds))[part]] == list(range(len(seeds)))
    assert (len(found[0]), found[1]) == (blocks, companies)


def test_each_member_has_its_own_rates_and_penalty(key):
    models = stack(COUPLING)
    solvers = (solver(0.1), solver(0.5, 1e-1), solver(0.0))
    found = fit(models, rows(), key, members.stacked(solvers))
    for i, each in enumerate(solvers):
        expected = members.member(fit(models, rows(), key, each).models, i)
        assert same(members.member(found.models, i), expected, 1e-5)


def test_rows_without_weight_teach_a_member_nothing(trained, key):
    weights = np.ones((SIZE, ROWS))
    weights[0, :4] = 0
    y = np.asarray(data(COUPLING.space, ROWS).y)
    other = np.where(np.arange(ROWS)[:, None] < 4, 1 - y, y)
    models = stack(COUPLING)
    first, second = (fit(models, rows(labels), key, weights=weights).models for labels in (y, other))
    assert same(members.member(first, 0), members.member(second, 0), 1e-6)
    assert not same(members.member(first, 1), members.member(second, 1), 1e-3)


def test_a_run_that_is_taken_up_ends_where_it_would_have_ended(key):
    """Bit for bit, held-out rows and stopping included."""
    kept, models = [], stack(COUPLING)
    batch = data(COUPLING.space, 5)
    held = members.stacked([eqx.tree_at(lambda b: b.index, batch, None)] * SIZE)
    whole = fit(models, rows(), key, held=held, patience=2, keep=kept.append)
    again = fit(models, rows(), key, held=held, patience=2, resume=kept[0])
    assert eqx.tree_equal(whole.models, again.models)
    assert np.array_equal(whole.losses, again.losses)
    assert np.array_equal(whole.measures, again.measures)
    assert whole.steps == again.steps == (0, 4, 8)


def test_the_best_of_each_member_is_kept(key):
    """At a learning rate that makes things worse, one of the first validations is the best."""
    batch = data(COUPLING.space, 5)
    held = members.stacked([eqx.tree_at(lambda b: b.index, batch, None)] * SIZE)
    kept = []
    found = fit(stack(COUPLING), rows(), key, solver(0.0, 3.0), held=held, keep=kept.append)
    seen = [stack(COUPLING), *(now.state.model for now in kept)]
    assert len(seen) == len(found.measures) == 3
    for i, best in enumerate(found.measures.argmin(axis=0)):
        assert same(members.member(found.models, i), members.member(seen[best], i))
    stopped = fit(stack(COUPLING), rows(), key, solver(0.0, 3.0), held=held, patience=1)
    assert len(stopped.measures) <= len(found.measures)


def test_a_callback_can_end_it(key):
    told = []
    found = fit(stack(COUPLING), rows(), key, callbacks=[lambda now: told.append(now.step) or True])
    assert told == [4]
    assert len(found.losses) == 4


def test_an_interrupted_run_returns_its_last_whole_chunk(trained, key, monkeypatch):
    """Between chunks or in the middle of one. Before the first one there is nothing to return."""

    def interrupt(*_):
        raise KeyboardInterrupt

    between = fit(stack(COUPLING), rows(), jax.random.key(0), callbacks=[interrupt])
    advance, calls = members._advance, []
    monkeypatch.setattr(members, "_advance", lambda *args: interrupt() if calls else calls.append(1) or advance(*args))
    within = fit(stack(COUPLING), rows(), jax.random.key(0))
    for run in (between, within):
        assert run.interrupted
        assert not trained.interrupted
        np.testing.assert_array_equal(run.losses, trained.losses[:4])
    with pytest.raises(KeyboardInterrupt):
        fit(stack(COUPLING), rows(), key)


@pytest.mark.parametrize("name", ["unary", "birkhoff", "ising-shared"])
def test_the_mean_has_the_mean_energy(name, key):
    coupling = COUPLINGS[name]
    models = stack(coupling)
    if getattr(coupling, "shared", None) is not None:
        shared = jax.random.normal(key, models.g.coupling.shared.shape)
        models = eqx.tree_at(lambda m: m.g.coupling.shared, models, shared)
    mean = members.averaged(models)
    batch = data(coupling.space)
    energies = jit(lambda g, batch: jax.vmap(g)(batch.x, batch.y))
    each = [energies(members.member(models, i).g, batch) for i in range(SIZE)]
    np.testing.assert_allclose(energies(mean.g, batch), np.mean(each, axis=0), rtol=1e-5, atol=1e-5)
    twice = members.scaled(mean, 2.0)
    np.testing.assert_allclose(energies(twice.g, batch), 2 * np.mean(each, axis=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["ising-low-rank", "neural-sets"])
def test_what_has_no_mean_is_refused(name):
    assert not members.can_average(COUPLINGS[name])
    with pytest.raises(ValueError, match="use one member"):
        members.averaged(stack(COUPLINGS[name], 2))


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
    found = Solver(ExactMLE(), penalty=2.0, coupling_penalty=10.0)._penalize(model.g)
    inside = sum(float(jnp.sum(w**2)) for w in jax.tree.leaves(model.g.h) if w.ndim > 1)
    assert float(found) == pytest.approx(0.5 * (2.0 * inside + 10.0 * 14.0), rel=1e-5)
    with pytest.raises(ValueError, match="coupling_penalty must be non-negative"):
        Solver(ExactMLE(), coupling_penalty=-1.0)
