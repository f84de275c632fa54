"""Training: convergence, no recompilation, resumption, failure, early stopping, every source of rows."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize
import scipy.sparse
from cases import COUPLINGS, FEATURES, model, some

from partita import objectives, training
from partita.couplings import Bilinear
from partita.divergences import ChiSquare
from partita.model import EBM, Bound, Energy, Network, Table, UnseenRowError
from partita.networks import MLP, Linear
from partita.progress import ProgressBar
from partita.structures import Cube, Hypercube, ProductBernoulli
from partita.training import BOTH, ONLY_G, ONLY_TAU, Alternating, Parts, Solver, ValidationLoss, fit, has_diverged
from partita.types import RESULTS, Batch

ROWS = 64


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, FEATURES))
    y = (x @ rng.normal(size=(FEATURES, 4)) + rng.logistic(size=(ROWS, 4)) > 0).astype(int)
    return x, y


@pytest.fixture
def unary(key):
    """A linear unary model at its start: g = 0."""
    h_key, tau_key = jax.random.split(key)
    coupling = Bilinear(Cube(4))
    tau = Network(MLP(FEATURES, (), width=16, key=tau_key))
    return EBM(Energy(Linear(FEATURES, 4, key=h_key), coupling), tau)


def equal(a, b):
    return eqx.tree_equal(a, b) is True or bool(eqx.tree_equal(a, b))


def test_exact_mle_ends_where_scipy_says(unary, data, key):
    """Independent logistic regressions, minimized to convergence by scipy."""
    x, y = data
    solution = fit(Solver(objectives.ExactMLE(), learning_rate=0.1), unary, data, steps=600, key=key)

    def nll(w):
        z = x @ w[: FEATURES * 4].reshape(FEATURES, 4) + w[FEATURES * 4 :]
        return np.mean(np.sum(np.logaddexp(0, z) - y * z, axis=1)) - 4 * np.log(2)

    best = scipy.optimize.minimize(nll, np.zeros(FEATURES * 4 + 4)).fun
    assert solution.result is RESULTS.completed
    # float32, and Adam at a constant rate: a few 1e-6.
    assert solution.history.loss[-1] == pytest.approx(best, abs=1e-4)


def test_min_min_approaches_exact_mle(unary, data, key):
    """256 uniform draws of 16 sets a step, the rate decayed to zero: within 1 % of the exact loss."""
    steps = 800
    decay = optax.cosine_decay_schedule(1.0, steps)
    mle = fit(Solver(objectives.ExactMLE(), learning_rate=0.03, schedule=decay), unary, data, steps=steps, key=key)
    table = eqx.tree_at(lambda m: m.tau, unary, Table(ROWS), is_leaf=lambda t: t is unary.tau)
    learner = Solver(objectives.MinMin(256, proposal=None), learning_rate=0.03, schedule=decay)
    minmin = fit(learner, table, data, steps=steps, key=key)
    exact_loss = ValidationLoss(objectives.ExactMLE(), training.batch(unary, *data), key)
    assert exact_loss(minmin.model) == pytest.approx(mle.history.loss[-1], rel=0.01)


@pytest.mark.parametrize(
    "name",
    some(
        ("subsets", "classes", "permutahedron", "birkhoff", "ising-low-rank", "neural-sets", "neural-rankings"),
        ("subsets", "birkhoff", "ising-low-rank"),
    ),
)
def test_min_min_lowers_the_exact_loss_for_every_coupling(name, key):
    rng = np.random.default_rng(1)
    start = model(COUPLINGS[name], scale=0.5)
    x = rng.normal(size=(16, FEATURES))
    y = start.space.elements()[rng.integers(0, start.space.size // 2, size=16)]
    exact_loss = ValidationLoss(objectives.ExactMLE(), training.batch(start, x, y), key)
    done = fit(Solver(objectives.MinMin(32, proposal=None), learning_rate=0.02), start, (x, y), steps=100, key=key)
    assert exact_loss(done.model) < exact_loss(start) - 0.1


def test_learning_rates_and_penalty_do_not_recompile(unary, data, key):
    traced = []

    class Counting(objectives.AbstractObjective):
        inner: objectives.MinMin

        def loss(self, model, state, batch, *, key):
            traced.append(1)
            return self.inner.loss(model, state, batch, key=key)

    def run(**rates):
        learner = Solver(Counting(objectives.MinMin(8, proposal=None)), **rates)
        return fit(learner, unary, data, steps=5, every=5, key=key).history.loss

    first = run(learning_rate=1e-3)
    count = len(traced)
    others = [run(learning_rate=1e-2), run(learning_rate=1e-2, tau_learning_rate=1e-3), run(penalty=0.5)]
    assert len(traced) == count
    assert all(not np.array_equal(first, other) for other in others)
    # Fewer steps than a chunk, and a step count that a chunk does not divide, run the same program.
    fit(Solver(Counting(objectives.MinMin(8, proposal=None))), unary, data, steps=7, every=5, key=key)
    assert len(traced) == count


def test_a_grid_of_rates_is_a_vmap(unary, data, key):
    """Two learning rates at once give what each gives alone."""
    rows = training.batch(unary, *data)
    learner = lambda rate: eqx.tree_at(  # noqa: E731
        lambda s: s.learning_rate, Solver(objectives.ExactMLE()), jnp.asarray(rate)
    )

    @eqx.filter_jit
    def run(rate):
        one = learner(rate)
        state = training.init(one, unary, key=key)
        for _ in range(3):
            state, info = training.step(one, state, rows)
        return info["loss"]

    together = eqx.filter_vmap(run)(jnp.array([1e-3, 1e-1]))
    alone = [run(jnp.array(1e-3)), run(jnp.array(1e-1))]
    np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_same_key_same_result_and_another_key_another(unary, data, key):
    learner = Solver(objectives.MinMin(8, proposal=None))
    rows = training.Rows(*data, batch_size=16)
    one, two = (fit(learner, unary, rows, steps=20, key=key) for _ in range(2))
    other = fit(learner, unary, rows, steps=20, key=jax.random.key(1))
    assert equal(one.model, two.model)
    assert not equal(one.model, other.model)


def test_resumed_equals_uninterrupted(unary, data, key):
    learner = Solver(objectives.MinMin(8, proposal=None))
    rows = training.Rows(*data, batch_size=16)
    whole = fit(learner, unary, rows, steps=50, every=10, key=key)
    half = fit(learner, unary, rows, steps=23, every=10, key=key)
    rest = fit(learner, unary, rows, steps=50, every=10, key=key, resume=half)
    assert equal(whole.model, rest.model)
    np.testing.assert_array_equal(whole.history.loss, rest.history.loss)


def test_an_interrupt_keeps_what_was_done(unary, data, key):
    def interrupt(told):
        if told.step == 20:
            raise KeyboardInterrupt

    learner = Solver(objectives.MinMin(8, proposal=None))
    stopped = fit(learner, unary, data, steps=50, every=10, key=key, callbacks=[interrupt])
    assert stopped.result is RESULTS.interrupted
    assert len(stopped.history.loss) == 20
    rest = fit(learner, unary, data, steps=50, every=10, key=key, resume=stopped)
    assert equal(rest.model, fit(learner, unary, data, steps=50, every=10, key=key).model)


def test_arrays_sparse_matrices_and_streams_are_the_same_rows(unary, data, key):
    """The same batches through three sources train the same model."""
    x, y = data
    learner = Solver(objectives.ExactMLE(), learning_rate=1e-2)
    dense = fit(learner, unary, training.Rows(x, y, batch_size=16), steps=12, every=5, key=key)
    sparse = fit(
        learner, unary, training.Rows(scipy.sparse.csr_matrix(x), y, batch_size=16), steps=12, every=5, key=key
    )
    reader = training.Rows(x, y, batch_size=16).open(unary, key=dense.data_key)
    order = [reader.read(step, 1, 1).rows[0] for step in range(12)]
    stream = fit(learner, unary, training.Stream((x[i], y[i]) for i in order), steps=12, every=5, key=key)
    assert equal(dense.model, sparse.model)
    assert equal(dense.model, stream.model)


def test_an_epoch_sees_every_row_once(unary, data, key):
    reader = training.Rows(*data, batch_size=16).open(unary, key=key)
    first, second = (np.concatenate(reader.read(start, 4, 4).rows) for start in (0, 4))
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert list(first) != list(second)


def test_a_stream_that_ends_says_so(unary, data, key):
    x, y = data
    solution = fit(
        Solver(objectives.MinMin(8, proposal=None)), unary, training.Stream([(x, y)] * 7), steps=50, every=5, key=key
    )
    assert solution.result is RESULTS.exhausted
    assert len(solution.history.loss) == 7


def test_sample_weights_count_like_repeated_rows(unary, data, key):
    x, y = data[0][:8], data[1][:8]
    weight = np.array([3, 1, 1, 0, 2, 1, 1, 1])
    repeated = np.repeat(np.arange(8), weight)
    learner = Solver(objectives.ExactMLE(), learning_rate=1e-2)
    weighted = fit(learner, unary, training.Rows(x, y, weight=weight), steps=10, key=key)
    written_out = fit(learner, unary, (x[repeated], y[repeated]), steps=10, key=key)
    np.testing.assert_allclose(weighted.history.loss, written_out.history.loss, rtol=1e-5)


def test_the_penalty_is_on_the_weights_of_g_only(key):
    """Under a huge penalty the weights of h and the shared interactions vanish; biases and tau do not."""
    h_key, tau_key = jax.random.split(key)
    coupling = COUPLINGS["ising-shared"]
    tau = Network(MLP(FEATURES, (), width=8, key=tau_key))
    start = EBM(Energy(MLP(FEATURES, coupling.theta_shape, width=8, key=h_key), coupling), tau)
    start = eqx.tree_at(lambda m: m.g.coupling.shared, start, jnp.ones(6))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(16, FEATURES)), np.tile([1, 1, 0, 0], (16, 1))
    learner = Solver(objectives.MinMin(16, proposal=None), learning_rate=0.02, penalty=1e3)
    done = fit(learner, start, (x, y), steps=300, key=key).model
    assert max(float(jnp.abs(layer.weight).max()) for layer in (*done.g.h.hidden, done.g.h.output)) < 0.05
    assert float(jnp.abs(done.g.coupling.shared).max()) < 0.05
    assert float(jnp.abs(done.g.h.output.bias).max()) > 0.5
    assert float(jnp.abs(done.tau.body.output.weight).max()) > 0.05


def test_g_and_tau_have_their_own_learning_rates(unary, data, key):
    """With a vanishing rate for tau only g moves, and the other way round (from g != 0: at g = 0 the mass is 1)."""
    start = eqx.tree_at(lambda m: m.g.h.layer.bias, unary, jnp.ones(4))

    def moved(**rates):
        done = fit(Solver(objectives.MinMin(8, proposal=None), **rates), start, data, steps=3, key=key).model
        change = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), done, start)
        return [max(jax.tree.leaves(part)) > 1e-3 for part in (change.g, change.tau)]

    assert moved(learning_rate=1e-2, tau_learning_rate=1e-30) == [True, False]
    assert moved(learning_rate=1e-30, tau_learning_rate=1e-2) == [False, True]


@pytest.mark.parametrize("optimizer", [optax.sgd, optax.adamw, optax.lion], ids=lambda o: o.__name__)
def test_any_optax_optimizer(optimizer, unary, data, key):
    solution = fit(
        Solver(objectives.ExactMLE(), learning_rate=1e-2, optimizer=optimizer), unary, data, steps=50, key=key
    )
    assert solution.history.loss[-1] < solution.history.loss[0] - 0.01


class Exploding(objectives.AbstractObjective):
    """ExactMLE until step `when`, then nan."""

    when: int = eqx.field(static=True)

    def init(self, model, *, key):
        return jnp.asarray(0)

    def loss(self, model, state, batch, *, key):
        loss, _ = objectives.ExactMLE().loss(model, None, batch, key=key)
        return jnp.where(state == self.when, jnp.nan, loss), (state + 1, {})


def test_a_non_finite_loss_stops_and_keeps_the_last_good_parameters(unary, data, key):
    """Loss number 13 (from 0) is nan: what is returned is the model whose loss, number 12, was the last finite one."""
    solution = fit(Solver(Exploding(13)), unary, data, steps=40, every=5, key=key)
    assert solution.result is RESULTS.non_finite
    assert np.isfinite(solution.history.loss[:13]).all()
    assert np.isnan(solution.history.loss[13])
    assert len(solution.history.loss) == 14
    assert equal(solution.model, fit(Solver(Exploding(13)), unary, data, steps=12, every=5, key=key).model)


def test_a_loss_that_is_never_finite_gives_back_the_start(unary, data, key):
    solution = fit(Solver(Exploding(0)), unary, data, steps=10, key=key)
    assert solution.result is RESULTS.non_finite
    assert equal(solution.model, unary)


def test_parameters_that_overflow_in_the_last_step_are_not_returned(unary, data, key):
    """The loss of the last model is never taken: its parameters must be finite all the same."""
    x, y = data
    learner = Solver(objectives.ExactMLE(), learning_rate=3e38, optimizer=optax.sgd)
    solution = fit(learner, unary, (1e3 * x, y), steps=1, key=key)
    assert solution.result is RESULTS.non_finite
    assert equal(solution.model, unary)


def test_a_failure_before_the_first_validation_keeps_what_was_learned(unary, data, key):
    validated = fit(Solver(Exploding(5)), unary, data, steps=40, key=key, validation=lambda model: 0.0)
    without = fit(Solver(Exploding(5)), unary, data, steps=40, key=key)
    assert validated.result is RESULTS.non_finite
    assert equal(validated.model, without.model)
    assert not equal(validated.model, unary)


def test_a_failed_run_can_go_on_with_a_smaller_rate(unary, data, key):
    x, y = data
    wild = Solver(objectives.ExactMLE(), learning_rate=3e38, optimizer=optax.sgd)
    tame = Solver(objectives.ExactMLE(), learning_rate=1e-2, optimizer=optax.sgd)
    failed = fit(wild, unary, (x, y), steps=5, key=key)
    assert failed.result is RESULTS.non_finite
    solution = fit(tame, unary, (x, y), steps=20, key=key, resume=failed)
    assert solution.result is RESULTS.completed
    assert solution.history.loss[-1] < 0


def test_resuming_something_else_is_refused_before_any_work(unary, data, key):
    half = fit(Solver(objectives.MinMin(4, proposal=None)), unary, data, steps=3, key=key)
    for other in (Solver(Exploding(50)), Solver(objectives.MinMin(4, proposal=None), optimizer=optax.sgd)):
        with pytest.raises(ValueError, match="another model, objective or optimizer"):
            fit(other, unary, data, steps=6, key=key, resume=half)


def test_resumed_validation_and_key_are_the_first_run_s_own(unary, data, key):
    """Stopped between two validations, and resumed with another key: the same models are measured."""
    rows = training.Rows(*data, batch_size=16)
    validation = ValidationLoss(objectives.ExactMLE(), training.batch(unary, *data), key)
    learner = Solver(objectives.MinMin(8, proposal=None))
    whole = fit(learner, unary, rows, steps=30, every=10, key=key, validation=validation)
    half = fit(learner, unary, rows, steps=14, every=10, key=key, validation=validation)
    rest = fit(learner, unary, rows, steps=30, every=10, key=jax.random.key(9), validation=validation, resume=half)
    assert set(whole.history.validation) <= set(rest.history.validation)
    assert equal(whole.state.model, rest.state.model)


@pytest.mark.usefixtures("unchecked")
def test_validation_loss_needs_a_batch(data, key):
    with pytest.raises(TypeError, match=r"needs a Batch, as training\.batch makes it; got a tuple"):
        ValidationLoss(objectives.MinMin(4, proposal=None), data, key)


def test_a_validation_that_cannot_serve_is_refused_before_any_work(unary, data, key):
    table = EBM(unary.g, Table(ROWS))
    validation = ValidationLoss(objectives.MinMin(4, proposal=None), training.batch(unary, *data), key)
    with pytest.raises(UnseenRowError):
        fit(Solver(NeverReached()), table, data, steps=3, key=key, validation=validation)


class NeverReached(objectives.AbstractObjective):
    def loss(self, model, state, batch, *, key):
        raise AssertionError("work was started")


def test_a_validation_that_is_always_nan_chooses_no_model(unary, data, key):
    solution = fit(Solver(objectives.ExactMLE()), unary, data, steps=30, every=10, key=key, validation=lambda m: np.nan)
    assert equal(solution.model, solution.state.model)


def test_early_stopping_returns_the_best_model(unary, data, key):
    """A validation that is lowest at step 20 and then rises."""
    seen = []

    def validation(model):
        seen.append(model)
        return abs(len(seen) - 2)

    solution = fit(
        Solver(objectives.ExactMLE()), unary, data, steps=200, every=10, key=key, validation=validation, patience=3
    )
    assert solution.result is RESULTS.stopped_early
    assert [step for step, _ in solution.history.validation] == [10, 20, 30, 40, 50]
    assert equal(solution.model, seen[1])


def test_a_nan_score_is_never_the_best(unary, data, key):
    values = iter([1.0, float("nan"), 2.0, float("nan")])
    seen = []

    def validation(model):
        seen.append(model)
        return next(values)

    solution = fit(Solver(objectives.ExactMLE()), unary, data, steps=40, every=10, key=key, validation=validation)
    assert equal(solution.model, seen[0])


def test_callbacks_are_told_and_can_stop(unary, data, key):
    told = []

    def callback(progress):
        told.append(progress)
        return progress.step >= 20

    solution = fit(Solver(objectives.ExactMLE()), unary, data, steps=100, every=10, key=key, callbacks=[callback])
    assert solution.result is RESULTS.stopped_by_callback
    assert [p.step for p in told] == [10, 20]
    assert told[-1].loss == solution.history.loss[-1]
    assert equal(told[-1].model, solution.model)


def test_the_users_arrays_are_not_changed(unary, data, key):
    x, y = data[0].copy(), data[1].copy()
    fit(Solver(objectives.MinMin(8, proposal=None)), unary, (x, y), steps=3, key=key)
    np.testing.assert_array_equal(x, data[0])
    np.testing.assert_array_equal(y, data[1])


def test_per_row_references_reach_the_objective(data, key):
    """A reference that already is the truth leaves the energy nothing to learn: exact loss 0 at g = 0."""
    x, y = data
    coupling = Bilinear(Cube(4))
    start = EBM(Energy(Linear(FEATURES, 4, key=key), coupling), Table(ROWS), q=ProductBernoulli(jnp.zeros(4)))
    reference = ProductBernoulli(jnp.asarray(np.where(y, 20.0, -20.0)))
    rows = training.Rows(x, y, reference=reference)
    done = fit(Solver(objectives.ExactMLE(), learning_rate=0.1), start, rows, steps=50, key=key)
    assert abs(float(done.history.loss[-1])) < 1e-3
    no_reference = fit(Solver(objectives.ExactMLE(), learning_rate=0.1), start, (x, y), steps=50, key=key)
    assert no_reference.history.loss[-1] < -0.3


def test_a_users_own_module_serves_as_h(data, key):
    """eqx.nn.MLP holds functions in its fields; the solver trains its arrays all the same."""
    h = eqx.nn.MLP(FEATURES, 4, 8, 1, key=key)
    start = EBM(Energy(h, Bilinear(Cube(4))), Network(MLP(FEATURES, (), width=8, key=key)))
    solution = fit(Solver(objectives.MinMin(16, proposal=None), learning_rate=1e-2), start, data, steps=30, key=key)
    assert solution.history.loss[-5:].mean() < solution.history.loss[:5].mean()


def test_step_by_hand_is_what_fit_does(unary, data, key):
    learner = Solver(objectives.MinMin(8, proposal=None))
    state = training.init(learner, unary, key=key)
    x, y = (jnp.asarray(a) for a in data)
    rows = Batch(x.astype(float), y, jnp.arange(ROWS))
    step = eqx.filter_jit(training.step)
    for _ in range(4):
        state, _ = step(learner, state, rows)
    done = fit(learner, unary, data, steps=4, every=4, key=key)
    for a, b in zip(*(jax.tree.leaves(eqx.filter(m, eqx.is_array)) for m in (state.model, done.model)), strict=True):
        # Two compilations of the same arithmetic may differ in the last bits.
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_validation_loss_is_the_same_number_every_time(unary, data, key):
    validation = ValidationLoss(objectives.MinMin(4, proposal=None), training.batch(unary, *data), key)
    assert validation(unary) == validation(unary)


def test_history_has_what_the_objective_adds(unary, data, key):
    history = fit(Solver(objectives.MinMin(8, proposal=None)), unary, data, steps=12, every=5, key=key).history
    assert set(history.steps) == {"loss", "gradient_norm", "mass", "effective", "scale"}
    assert all(len(values) == 12 and np.isfinite(values).all() for values in history.steps.values())


def test_progress_bar_shows_the_run(unary, data, key, capsys):
    with ProgressBar("training") as bar:
        fit(Solver(objectives.MinMin(8, proposal=None)), unary, data, steps=20, every=10, key=key, callbacks=[bar])
    shown = capsys.readouterr().err
    assert "training" in shown
    assert "20/20" in shown
    assert "loss" in shown


# ------------------------------------------------------------------------------------------------ what is trained

TRAININGS = {"g": ONLY_G, "tau": ONLY_TAU, "in turn": Alternating(g=2, tau=1)}
RATE, PENALTY = 1e-2, 0.1
MIN_MIN = objectives.MinMin(8, proposal=None)


@pytest.fixture
def moved(unary):
    """g away from 0, where tau has something to learn."""
    return eqx.tree_at(lambda m: m.g.h.layer.bias, unary, jnp.ones(4))


def train_parts(start, data, key, train, steps=6, **options):
    learner = Solver(MIN_MIN, learning_rate=RATE, penalty=PENALTY, train=train)
    return fit(learner, start, data, steps=steps, every=6, key=key, **options)


@eqx.filter_jit
def slope(part, model, batch, key):
    """The gradient of the penalized loss in one part of the model, by itself."""
    where = lambda m: getattr(m, part)  # noqa: E731

    def loss(weights):
        now = eqx.tree_at(where, model, weights)
        value = MIN_MIN.loss(now, None, batch, key=key)[0]
        return value + 0.5 * PENALTY * jnp.sum(weights.h.layer.weight**2) if part == "g" else value

    return eqx.filter_grad(loss)(where(model))


def by_hand(start, batch, key, train, steps=6):
    """optax on each part alone, its own state for each, on the pytree as it is."""
    model, adam, run_key = start, optax.adam(RATE), training.init(Solver(MIN_MIN), start, key=key).key
    states = {part: adam.init(eqx.filter(getattr(start, part), eqx.is_inexact_array)) for part in ("g", "tau")}
    for step in range(steps):
        part = {"g": "g", "tau": "tau", "in turn": "ggtggt"[step].replace("t", "tau")}[train]
        grads = slope(part, model, batch, jax.random.fold_in(run_key, step))
        update, states[part] = adam.update(grads, states[part])
        model = eqx.tree_at(
            lambda m, part=part: getattr(m, part), model, eqx.apply_updates(getattr(model, part), update)
        )
    return model


@pytest.mark.parametrize("train", TRAININGS)
def test_the_trained_part_follows_optax_by_hand_and_the_other_is_not_moved(train, moved, data, key):
    solution = train_parts(moved, data, key, TRAININGS[train])
    x, y = data
    expected = by_hand(moved, Batch(jnp.asarray(x, float), jnp.asarray(y), jnp.arange(ROWS)), key, train)
    for a, b in zip(*(jax.tree.leaves(eqx.filter(m, eqx.is_array)) for m in (solution.model, expected)), strict=True):
        # Adam on a vector or on a tree, compiled twice: the last bits differ.
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    first = training.init(Solver(MIN_MIN), moved, key=key)
    for i, part in enumerate(("g", "tau")):
        kept = train in ("g", "tau") and part != train
        assert equal(getattr(solution.model, part), getattr(moved, part)) == kept
        assert equal(solution.state.optimizer[i], first.optimizer[i]) == kept


def test_a_run_resumed_in_mid_phase_equals_an_uninterrupted_one(moved, data, key):
    """Four steps are g, g, tau, g: the fifth is the second of its phase."""
    rows = training.Rows(*data, batch_size=16)
    whole = train_parts(moved, rows, key, TRAININGS["in turn"], 12)
    half = train_parts(moved, rows, key, TRAININGS["in turn"], 4)
    rest = train_parts(moved, rows, key, TRAININGS["in turn"], 12, resume=half)
    assert equal(whole.state, rest.state)
    np.testing.assert_array_equal(whole.history.loss, rest.history.loss)


def test_frozen_parts_cost_nothing(unary, data, key):
    """Fewer operations than training both, as XLA counts them: no gradient, no optimizer for what is frozen."""
    start = EBM(Energy(MLP(FEATURES, 4, width=16, key=key), unary.g.coupling), unary.tau)
    rows = training.batch(start, *data)

    def flops(train):
        learner = Solver(MIN_MIN, train=train)
        arrays, fixed = eqx.partition(training.init(learner, start, key=key), eqx.is_array)
        step = jax.jit(
            lambda arrays: eqx.filter(training.step(learner, eqx.combine(arrays, fixed), rows), eqx.is_array)
        )
        return step.lower(arrays).compile().cost_analysis()["flops"]

    both, only_g, only_tau = (flops(train) for train in (BOTH, ONLY_G, ONLY_TAU))
    # The backward pass of each network is about twice its forward pass, and Adam a dozen operations for each weight.
    assert only_g < 0.9 * both
    assert only_tau < 0.9 * both


def test_an_objective_without_tau_leaves_it_alone_under_any_optimizer(unary, data, key):
    """Decay of all weights would shrink a tau that has no gradient."""
    learner = Solver(objectives.ExactMLE(), learning_rate=0.1, optimizer=optax.adamw)
    start = eqx.tree_at(lambda m: m.tau.body.output.bias, unary, jnp.ones(1))
    assert equal(fit(learner, start, data, steps=5, key=key).model.tau, start.tau)


def test_an_amortized_surrogate_is_trained_with_tau_alone_too(key):
    """Its draws have p to reach, whether g moves or not."""
    start = model(COUPLINGS["neural-sets"])
    batch = np.zeros((8, FEATURES)), np.zeros((8, 4), int)
    learner = Solver(objectives.MinMin(4), learning_rate=RATE, train=ONLY_TAU)
    done = fit(learner, start, batch, steps=3, every=3, key=key).model
    assert equal(done.g, start.g)
    assert not equal(done.tau, start.tau)
    assert not equal(done.surrogate, start.surrogate)


def test_tau_can_be_trained_for_an_energy_that_is_there(data, key):
    """After exact likelihood tau is where it began; trained alone it comes near LSE, and g stays as it is.

    One number per row is free to be LSE itself, and the surrogate of independent labels is p: the draws have no noise.
    """
    start = EBM(Energy(Linear(FEATURES, 4, key=key), Bilinear(Cube(4))), Table(ROWS))
    learned = fit(Solver(objectives.ExactMLE(), learning_rate=0.1), start, data, steps=100, key=key).model
    objective = objectives.MinMin(1, proposal=objectives.SurrogateProposal(0.0))
    # The first masses are e^LSE: an Adam that forgets them soon.
    quick = functools.partial(optax.adam, b2=0.9)
    decay = optax.cosine_decay_schedule(1.0, 300)
    learner = Solver(objective, learning_rate=0.3, optimizer=quick, schedule=decay, train=ONLY_TAU)
    done = fit(learner, learned, data, steps=300, key=key).model
    assert equal(done.g, learned.g)
    exact = np.logaddexp(0, np.asarray(jax.vmap(learned.g.h)(data[0]))).sum(axis=1) - 4 * np.log(2)
    off = [np.abs(np.asarray(m.tau.values) - exact).mean() for m in (learned, done)]
    assert off[0] > 0.5
    assert off[1] < 0.02


NO_TAU = "does not train tau, so steps that train tau alone would learn nothing. Use objectives.MinMin"
NOTHING_LEARNED = {
    "everything frozen": (lambda: Parts(g=False, tau=False), r"Parts\(g=False, tau=False\) trains nothing"),
    "no steps of g": (lambda: Alternating(g=0), "at least 1 for g and for tau; got g = 0"),
    "half a step": (lambda: Alternating(tau=0.5), "whole numbers of steps.*got tau = 0.5"),
    "True steps": (lambda: Alternating(tau=True), "got tau = True"),
    **{
        type(objective).__name__: (lambda objective=objective: Solver(objective, train=ONLY_TAU), NO_TAU)
        for objective in (
            objectives.ExactMLE(),
            objectives.MCMC(),
            objectives.PseudoLikelihood(),
            objectives.RatioMatching(),
            objectives.ConcreteScoreMatching(),
            objectives.GeneralizedFenchelYoung(),
            objectives.Perceptron(),
            objectives.Preferences(),
            objectives.Scores(),
        )
    },
    "alternating without tau": (lambda: Solver(objectives.ExactMLE(), train=Alternating()), NO_TAU),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", NOTHING_LEARNED)
def test_what_cannot_learn_is_refused(case):
    make, message = NOTHING_LEARNED[case]
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.usefixtures("unchecked")
def test_names_of_trainings_belong_to_the_estimators():
    with pytest.raises(TypeError, match=r"train must be training.BOTH, ONLY_G.*got 'tau'"):
        Solver(MIN_MIN, train="tau")


@pytest.mark.parametrize("train", [ONLY_TAU, Alternating()])
def test_a_tau_without_parameters_is_refused_before_any_work(train, unary, data, key):
    bound = EBM(unary.g, Bound())
    with pytest.raises(ValueError, match=r"train tau would learn nothing.*tau is a Bound"):
        fit(Solver(NeverReached(), train=train), bound, data, steps=3, key=key)


# ------------------------------------------------------------------------------------------------ runs that diverge


def test_a_run_that_ran_away_says_so(unary, data, key):
    """Sixteen sets: q is worse than the truth by 2.8 nats. At this rate the run ends some hundred nats above q."""
    wild = Solver(objectives.ExactMLE(), learning_rate=1e3, optimizer=optax.sgd)
    solution = fit(wild, unary, data, steps=40, every=20, key=key)
    assert np.isfinite(solution.history.loss).all()
    assert np.median(solution.history.loss[-4:]) > 20
    assert solution.result is RESULTS.diverged
    assert "learning rate" in solution.result.value
    # The best validated model is kept all the same.
    values = iter([0.0, 1.0])
    validated = fit(wild, unary, data, steps=40, every=20, key=key, validation=lambda _: next(values))
    assert validated.result is RESULTS.diverged
    assert equal(validated.model, fit(wild, unary, data, steps=20, every=20, key=key).model)


TENTH = np.linspace(1, 0, 50)
ENDS = {
    "learned": (objectives.ExactMLE(), -TENTH[::-1], [], False),
    "above q by less than log |Y|": (objectives.ExactMLE(), 2.5 * TENTH[::-1], [], False),
    "above q by more": (objectives.ExactMLE(), 4 * TENTH[::-1], [], True),
    "from a warm start back to q": (objectives.MinMin(), 5 * TENTH[::-1] - 5, [], False),
    "from a bad start": (objectives.MinMin(), 100 * TENTH + 1, [], False),
    "one bad step at the end": (objectives.MinMin(), np.r_[TENTH, 1e6], [], False),
    "away and back": (objectives.MinMin(), np.r_[0, 1e4 * TENTH, np.zeros(10)], [], False),
    "below what any likelihood can be": (objectives.MinMin(), -6 * TENTH[::-1], [], True),
    "chains, whose loss is no likelihood": (objectives.MCMC(), -1e3 * TENTH[::-1], [9.0] * 50, False),
    "chains at a little more than the data's energy": (objectives.MCMC(), 5 * TENTH[::-1], [9.0] * 50, False),
    "chains at far more": (objectives.MCMC(), 7 * TENTH[::-1], [9.0] * 50, True),
    "chains with too large an energy": (objectives.MCMC(), TENTH, [1e6] * 50, True),
    "a large energy that can be normalized": (objectives.ExactMLE(), -TENTH, [1e5] * 50, False),
    "a perceptron": (objectives.Perceptron(), 1e3 * TENTH[::-1], [], False),
    "no step": (objectives.ExactMLE(), [], [], False),
}


@pytest.mark.parametrize("case", ENDS)
def test_what_counts_as_run_away(case, unary):
    objective, losses, scales, expected = ENDS[case]
    assert has_diverged(objective, unary, np.asarray(losses, float), np.asarray(scales, float)) == expected


def test_other_divergences_have_other_scales(unary):
    """Sparsemax wants energies and losses of the size of |Y|."""
    sparse = EBM(unary.g, Network(unary.tau.body), f=ChiSquare())
    rising = np.linspace(0, 5, 50)
    assert has_diverged(objectives.MinMin(proposal=None), unary, rising, np.zeros(0))
    assert not has_diverged(objectives.MinMin(proposal=None), sparse, rising, np.full(50, 1e6))
    assert has_diverged(objectives.MinMin(proposal=None), sparse, 10 * rising, np.zeros(0))


# --------------------------------------------------------------------------------------------------- the optimizer


def test_the_objective_says_which_optimizer_it_wants():
    body = MLP(FEATURES, (4,), width=4, key=jax.random.key(0))
    game = objectives.MinMax(objectives.Generator(Hypercube(4), body))
    assert Solver(MIN_MIN).optimizer is optax.adam
    assert Solver(game).optimizer is game.optimizer is optax.optimistic_adam_v2
    assert Solver(game, optimizer=optax.sgd).optimizer is optax.sgd


def count_traces(inner):
    """An objective that counts how often it is traced, and the list in which it does."""
    traces = []

    class Counting(objectives.AbstractObjective):
        inner: objectives.AbstractObjective

        def loss(self, model, state, batch, *, key):
            traces.append(1)
            return self.inner.loss(model, state, batch, key=key)

    return Counting(inner), traces


def test_another_schedule_compiles_no_step(unary, data, key):
    """A closure, a function of optax, and the library's own, all of which change the result."""
    objective, traces = count_traces(objectives.ExactMLE())
    schedules = [
        lambda step: 1 / (step + 1.0),
        optax.cosine_decay_schedule(1.0, 20),
        optax.polynomial_schedule(1.0, 0.0, 4, 20),
        training.cosine(10),
        training.cosine(20),
    ]
    losses, count = [], None
    for schedule in schedules:
        learner = Solver(objective, learning_rate=0.1, schedule=schedule)
        losses.append(fit(learner, unary, data, steps=20, every=10, key=key).history.loss[-1])
        count = len(traces) if count is None else count
    assert len(traces) == count
    # optax's cosine and ours are one schedule, computed twice.
    assert losses[1] == pytest.approx(losses[4], abs=1e-6)
    assert len({round(float(loss), 4) for loss in losses}) == 4


def test_a_schedule_is_a_factor_on_the_learning_rate(unary, data, key):
    """Constant schedules of 1/2 and a rate twice as large, bit for bit; also step by step."""
    half = Solver(objectives.ExactMLE(), learning_rate=0.2, schedule=lambda step: 0.5 + 0 * step)
    plain = Solver(objectives.ExactMLE(), learning_rate=0.1)
    assert equal(*(fit(by, unary, data, steps=5, every=5, key=key).model for by in (half, plain)))
    rows = training.batch(unary, *data)
    states = [training.step(by, training.init(by, unary, key=key), rows)[0] for by in (half, plain)]
    assert equal(*(state.model for state in states))


def norms(start, end):
    """How far g and tau have moved."""
    return [float(optax.tree.norm(jax.tree.map(jnp.subtract, *parts))) for parts in _parts_of(end, start)]


def _parts_of(end, start):
    arrays = [eqx.filter((model.g.h, model.tau), eqx.is_inexact_array) for model in (end, start)]
    return zip(*arrays, strict=True)


def test_a_complete_transformation_is_taken_as_it_is(moved, data, key):
    """SGD at rate 1 after clipping to norm 0.01: one step moves each part by 0.01, whatever the gradient is."""
    clipped = optax.chain(optax.clip_by_global_norm(0.01), optax.sgd(1.0))
    done = fit(Solver(MIN_MIN, optimizer=clipped), moved, data, steps=1, key=key).model
    np.testing.assert_allclose(norms(moved, done), [0.01, 0.01], rtol=1e-4)


def test_tau_may_have_an_optimizer_of_its_own(moved, data, key):
    tau = optax.chain(optax.clip_by_global_norm(0.03), optax.sgd(1.0))
    learner = Solver(MIN_MIN, optimizer=optax.sgd, learning_rate=1e-3, tau_optimizer=tau)
    done = fit(learner, moved, data, steps=1, key=key).model
    assert norms(moved, done)[1] == pytest.approx(0.03, rel=1e-4)
    alone = fit(Solver(MIN_MIN, optimizer=optax.sgd, learning_rate=1e-3), moved, data, steps=1, key=key).model
    assert equal(done.g, alone.g)


def test_masks_of_a_transformation_see_the_arrays(moved, data, key):
    """Decay of matrices alone, with a gradient of zero weight: biases stay, weights shrink by the rate."""
    decay = optax.masked(optax.add_decayed_weights(0.5), lambda tree: jax.tree.map(lambda leaf: leaf.ndim > 1, tree))
    only_decay = optax.chain(optax.scale(0.0), decay, optax.scale(-0.1))
    start = eqx.tree_at(lambda m: m.g.h.layer.weight, moved, jnp.ones_like(moved.g.h.layer.weight))
    done = fit(Solver(MIN_MIN, optimizer=only_decay), start, data, steps=1, key=key).model
    np.testing.assert_allclose(done.g.h.layer.weight, 0.95, rtol=1e-6)
    assert equal(done.g.h.layer.bias, start.g.h.layer.bias)


COMPLETE = optax.adam(1e-3)
BAD_OPTIMIZERS = {
    "rate of a complete one": (
        {"optimizer": COMPLETE, "learning_rate": 1e-2},
        "learning_rate = 0.01 has no effect on a complete optax transformation",
    ),
    "rate of a complete one for tau": (
        {"tau_optimizer": COMPLETE, "tau_learning_rate": 1e-2},
        "tau_learning_rate = 0.01 has no effect",
    ),
    "schedule of a complete one": (
        {"optimizer": COMPLETE, "schedule": training.cosine(10)},
        "schedule has no effect on a complete optax transformation",
    ),
    "no optimizer": ({"optimizer": 1e-3}, "function from a learning rate to one, optax.adam say; got a float"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", BAD_OPTIMIZERS)
def test_what_has_no_effect_is_refused(case):
    options, message = BAD_OPTIMIZERS[case]
    with pytest.raises((ValueError, TypeError), match=message):
        Solver(MIN_MIN, **options)
