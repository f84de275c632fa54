"""Outputs observed in part: missing labels and ties, against sums over all outputs that agree."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COUPLINGS, FEATURES, data, jit, model, references

from partita import budget, inference, objectives, partial, training
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.divergences import ChiSquare
from partita.model import EBM, Bound, Energy, Table
from partita.networks import Linear
from partita.objectives import ExactMLE, MinMin
from partita.structures import (
    Birkhoff,
    Cube,
    Hypercube,
    Hypersimplex,
    KSubsets,
    Mallows,
    Permutations,
    PlackettLuce,
    ProductBernoulli,
    Uniform,
    condition,
)
from partita.training import Solver, ValidationLoss, fit
from partita.types import Batch

# Values are of order 1 with at most 24 terms: float32 leaves errors of some 1e-6.
TOLERANCE = 2e-5
# (y, mask) of a few rows, by space: whole, some labels, all but one, nothing.
ROWS = {
    Hypercube(4): [
        ([1, 0, 1, 1], [0, 0, 0, 0]),
        ([1, 0, 0, 1], [0, 1, 1, 0]),
        ([0, 0, 1, 1], [1, 1, 0, 1]),
        ([0, 0, 0, 0], [1, 1, 1, 1]),
    ],
    KSubsets(5, 2): [
        ([1, 0, 0, 1, 0], [0, 0, 0, 0, 0]),
        ([1, 0, 0, 1, 0], [0, 1, 0, 1, 1]),
        ([1, 0, 0, 1, 0], [1, 1, 0, 1, 0]),
        ([0, 0, 0, 1, 1], [1, 1, 1, 1, 1]),
    ],
    # A list of the first, ties at the end or twice, a tie that goes around another label, all tied.
    Permutations(4): [
        ([2, 0, 3, 1], [0, 0, 0, 0]),
        ([2, 0, 3, 1], [4, 0, 4, 4]),
        ([2, 0, 3, 1], [1, 2, 1, 2]),
        ([2, 0, 3, 1], [3, 3, 0, 0]),
        ([2, 0, 3, 1], [1, 1, 1, 1]),
    ],
    Permutations(3): [([2, 0, 1], [0, 0, 0]), ([2, 0, 1], [1, 0, 1]), ([2, 0, 1], [1, 1, 1])],
}


def partly_known(space):
    y, mask = zip(*ROWS[space], strict=True)
    return jnp.asarray(y), jnp.asarray(mask)


def agreeing(space, y, mask):
    """Which outputs agree, from the definition: the labels of a group share its ranks, missing ones may be anything."""
    every, y, mask = (np.asarray(a) for a in (space.elements(), y, mask))
    if not isinstance(space, Permutations):
        return (every[:, mask == 0] == y[mask == 0]).all(axis=1)
    groups = [np.flatnonzero(mask == group) for group in set(mask[mask > 0])] + [[j] for j in np.flatnonzero(mask == 0)]
    return np.all([(np.sort(every[:, g], axis=1) == np.sort(y[g])).all(axis=1) for g in groups], axis=0)


def test_tied_groups_without_gaps_are_linear_extensions():
    """Every pair of labels that is not tied keeps its order; and q restricted is uniform over them."""
    space = Permutations(4)
    every = np.asarray(space.elements())
    for y, mask in [*ROWS[space][:3], ROWS[space][4], ([3, 1, 2, 0], [0, 2, 2, 0])]:
        tied = np.equal.outer(mask, mask) & (np.array(mask) > 0)
        order = np.less.outer(y, y)
        kept = ((every[:, :, None] < every[:, None, :]) == order) | tied
        inside = kept.all(axis=(1, 2))
        np.testing.assert_array_equal(agreeing(space, y, mask), inside)
        held, log_mass = condition(references(space)[0], jnp.asarray(y), jnp.asarray(mask))
        np.testing.assert_allclose(jnp.exp(jax.vmap(held.log_prob)(every)), inside / inside.sum(), atol=1e-6)
        assert float(log_mass) == pytest.approx(np.log(inside.mean()), abs=1e-6)


@jit
def enumerated(model, x, y, inside, reference):
    """(g, log q) of each row's agreeing outputs, and the slope of g in theta, by their sum."""

    def of_row(x, inside, q):
        def g(theta):
            every = model.space.elements()
            log_q, g = jax.vmap(lambda y: (q.log_prob(y), model.g.coupling(theta, y)))(every)
            log_q = jnp.where(inside, log_q, -jnp.inf)
            return jax.nn.logsumexp(log_q + g) - jax.nn.logsumexp(log_q), jax.nn.logsumexp(log_q)

        return jax.value_and_grad(g, has_aux=True)(model.g.h(x))

    return jax.vmap(of_row, in_axes=(0, 0, None if reference is None else 0))(
        x, inside, model.q if reference is None else reference
    )


def found(model, x, y, mask, reference=None):
    def of_row(x, y, mask, reference):
        row = model.row(x, reference=reference)
        slope = lambda theta: partial.energy(model, eqx.tree_at(lambda r: r.theta, row, theta), y, mask)  # noqa: E731
        return jax.value_and_grad(slope, has_aux=True)(row.theta)

    return jit(jax.vmap(of_row))(x, y, mask, reference)


def cases():
    for name in ("unary", "ising-shared", "permutahedron", "subsets"):
        for q in references(COUPLINGS[name].space):
            yield name, q, False
    yield "birkhoff", Uniform(Permutations(4)), False
    yield "unary", ProductBernoulli(jnp.zeros(4)), True
    yield "birkhoff", PlackettLuce(jnp.zeros(4)), True
    yield "birkhoff", Mallows(jnp.array([1, 3, 0, 2]), 0.7), False
    yield "neural-rankings", Mallows(jnp.array([1, 0, 2]), 0.7), True


CASES = {f"{name}-{type(q).__name__}{'-rows' if rows else ''}": (name, q, rows) for name, q, rows in cases()}


def rows_of(q, n):
    """A q for each row: another one than the model's."""
    noise = jax.random.normal(jax.random.key(3), (n, q.space.k))
    if isinstance(q, Mallows):
        return Mallows(jnp.argsort(noise), jnp.linspace(0.2, 2, n))
    return type(q)(noise)


@pytest.mark.parametrize(("name", "q", "by_row"), CASES.values(), ids=CASES)
def test_what_is_observed_has_the_sum_over_all_outputs_that_agree(name, q, by_row, key):
    """g, log q, and the gradient; a whole y has exactly its own."""
    asked = model(COUPLINGS[name], q=q)
    y, mask = partly_known(asked.space)
    x = jax.random.normal(key, (len(y), FEATURES))
    reference = rows_of(q, len(y)) if by_row else None
    inside = np.stack([agreeing(asked.space, *row) for row in zip(y, mask, strict=True)])
    truth = enumerated(asked, x, y, jnp.asarray(inside), reference)
    # A set of two of five is held by 2 labels at 1000: 1e-4 each.
    tolerance = 5e-4 if name == "subsets" else TOLERANCE
    answers = found(asked, x, y, mask, reference)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=tolerance), answers, truth)
    whole = jit(jax.vmap(lambda x, y: asked.g.coupling(asked.g.h(x), y)))(x, y)
    assert partial.is_summed_exactly(asked)
    assert answers[0][0][0] == whole[0]
    assert answers[0][0][1] != whole[1]


def few_states(monkeypatch):
    """As if no method could sum over what is not observed."""
    for kind in (budget.Kind.PROGRAM, budget.Kind.ENUMERATION):
        monkeypatch.setitem(budget.LIMITS, kind, budget.LIMITS[kind]._replace(partial=1))


@pytest.mark.parametrize("name", ["unary", "ising-shared", "birkhoff"])
def test_the_bound_of_large_spaces_lies_below(name, key, monkeypatch):
    """As if the spaces were large. For independent labels there is no need of a bound."""
    few_states(monkeypatch)
    asked = model(COUPLINGS[name])
    assert partial.is_summed_exactly(asked) == (name == "unary")
    y, mask = partly_known(asked.space)
    x = jax.random.normal(key, (len(y), FEATURES))
    inside = np.stack([agreeing(asked.space, *row) for row in zip(y, mask, strict=True)])
    (truth, log_q), slope = enumerated(asked, x, y, jnp.asarray(inside), None)
    (bound, of_bound), slope_of_bound = found(asked, x, y, mask)
    np.testing.assert_allclose(of_bound, log_q, atol=TOLERANCE)
    assert np.all(bound <= truth + 1e-4)
    # Of rankings the Bethe bound misses up to 1/2 log 2 per label, which labels tied in pairs attain.
    np.testing.assert_allclose(
        bound, truth, atol={"unary": TOLERANCE, "ising-shared": 0.1}.get(name, 2 * np.log(2) + 0.1)
    )
    np.testing.assert_allclose(slope_of_bound, slope, atol=TOLERANCE if name == "unary" else 0.3)


def test_many_labels_held_cost_no_digits(key):
    """174 labels, 150 of them observed: within 1e-6 of the sum over the others."""
    theta, logits = 3 * jax.random.normal(key, (2, 174))
    y, mask = (theta > 0).astype(int), (jnp.arange(174) >= 150).astype(int)
    theta64, logits64 = np.asarray(theta, float), np.asarray(logits, float)
    truth = theta64[:150] @ np.asarray(y[:150]) + np.sum(
        np.logaddexp(0, theta64 + logits64)[150:] - np.logaddexp(0, logits64)[150:]
    )
    for coupling in (Bilinear(Cube(174)), LinearQuadratic(Symmetric(174), shared=True)):
        ebm = EBM(Energy(lambda theta: theta, coupling), Bound(), q=ProductBernoulli(logits))
        g, _ = jit(lambda ebm, theta: partial.energy(ebm, ebm.row(theta), y, mask))(ebm, theta)
        assert float(g) == pytest.approx(truth, rel=1e-6)


@jit
def ask(objective, model, batch, key):
    """Loss and gradient in g and tau."""
    loss = eqx.filter_value_and_grad(lambda model: objective.loss(model, None, batch, key=key), has_aux=True)
    (value, _), gradient = loss(model)
    return value, (gradient.g, gradient.tau)


@pytest.mark.parametrize(("name", "objective"), [("ising-shared", MinMin(5)), ("birkhoff", ExactMLE())])
def test_losses_take_what_is_observed_for_y(name, objective, key):
    """By a batch with `mask` they change by the change of g, and its gradient; a row of which nothing is observed has
    no loss and no gradient at all."""
    asked = model(COUPLINGS[name])
    y, mask = partly_known(asked.space)
    whole = eqx.tree_at(lambda b: b.y, data(asked.space, rows=len(y)), y)
    batch = eqx.tree_at(lambda b: b.mask, whole, mask, is_leaf=lambda leaf: leaf is None)
    inside = np.stack([agreeing(asked.space, *row) for row in zip(y, mask, strict=True)])
    (g, _), _ = enumerated(asked, batch.x, y, jnp.asarray(inside), None)
    of_y = jax.vmap(asked.g)(batch.x, y)
    spoken = jnp.arange(len(y)) < len(y) - 1
    weighed = lambda batch, which: eqx.tree_at(  # noqa: E731
        lambda b: b.weight, batch, which.astype(float), is_leaf=lambda leaf: leaf is None
    )
    change = (
        ask(objective, asked, weighed(batch, spoken), key)[0] - ask(objective, asked, weighed(whole, spoken), key)[0]
    )
    assert float(change) == pytest.approx(float(jnp.mean(spoken * (of_y - g))), abs=TOLERANCE)
    silent = ask(objective, asked, weighed(batch, ~spoken), key)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(silent))
    heard = ask(objective, asked, weighed(whole, ~spoken), key)
    assert float(heard[0]) != 0


@pytest.mark.parametrize("name", ["ising-shared", "birkhoff"])
def test_probabilities_of_what_may_be_observed_sum_to_one(name, key, monkeypatch):
    """The outputs fall into classes by what is observed of them: labels 0 and 2, or which label is first and which
    last. By exact sums; by holding what is observed; and by weighted draws, 4 standard errors of 1,000."""
    asked = model(COUPLINGS[name])
    every = np.asarray(asked.space.elements())
    if name == "birkhoff":
        mask = ((every > 0) & (every < 3)).astype(int)
        observation = np.where(mask > 0, -1, every)
    else:
        mask = np.tile([0, 1, 0, 1], (len(every), 1))
        observation = np.where(mask > 0, -1, every)
    _, first, classes = np.unique(observation, axis=0, return_index=True, return_inverse=True)
    x = np.tile(jax.random.normal(key, FEATURES), (len(every), 1))
    each = inference.log_prob(asked, x, every)
    truth = np.log(np.bincount(classes.ravel(), np.exp(each)))
    summed = inference.log_prob(asked, x[first], every[first], mask=mask[first])
    np.testing.assert_allclose(summed, truth, atol=TOLERANCE)
    assert np.exp(summed).sum() == pytest.approx(1, abs=1e-5)
    few_states(monkeypatch)
    held = inference.log_prob(asked, x[first], every[first], mask=mask[first])
    np.testing.assert_allclose(held, truth, atol=1e-4)
    if name == "birkhoff":
        return
    drawn = inference.log_prob(asked, x[first], every[first], mask=mask[first], method="importance", key=key)
    np.testing.assert_allclose(drawn, truth, atol=0.2)


def test_a_learned_tau_normalizes_what_is_observed(key):
    asked = model(COUPLINGS["ising"])
    y, mask = partly_known(asked.space)
    x = jax.random.normal(key, (len(y), FEATURES))
    learned, exactly = (inference.log_prob(asked, x, y, mask=mask, method=method) for method in ("learned", "exact"))
    tau, truth = (inference.log_partition(asked, x, method=method) for method in ("learned", "exact"))
    np.testing.assert_allclose(learned - exactly, truth - tau, atol=TOLERANCE)


def recovered(name, hide, key, steps=150):
    """Negative log-likelihood of whole test rows, trained on: whole rows, rows in part, the same read as whole."""
    coupling, keys = COUPLINGS[name], jax.random.split(key, 4)
    truth = model(coupling, scale=2.0)
    x = jax.random.normal(keys[0], (400, FEATURES))
    y = inference.sample(truth, x, 1, key=keys[1])[:, 0]
    seen, mask = hide(keys[2], y)
    start = EBM(Energy(Linear(FEATURES, coupling.theta_shape, key=keys[3]), coupling), Table(200))
    test = training.batch(start, x[200:], y[200:])
    solver = Solver(ExactMLE(), learning_rate=0.1, penalty=1e-3)
    losses = []
    for source in (
        training.Rows(x[:200], y[:200]),
        training.Rows(x[:200], seen[:200], mask=mask[:200]),
        training.Rows(x[:200], seen[:200]),
    ):
        trained = fit(solver, start, source, steps=steps, every=steps, key=key).model
        losses.append(ValidationLoss(ExactMLE(), test, key)(trained))
    return losses


def hide_labels(key, y):
    mask = jax.random.bernoulli(key, 0.4, y.shape).astype(int)
    return jnp.where(mask > 0, 0, y), mask


def hide_tail(key, y):
    """Only the first two labels are known; the others in the order of their number."""
    mask = (y >= 2).astype(int)
    return jnp.argsort(jnp.argsort(jnp.where(mask > 0, 2 + jnp.arange(4), y))), mask


@pytest.mark.slow
@pytest.mark.parametrize(("name", "hide"), [("ising-shared", hide_labels), ("permutahedron", hide_tail)])
def test_a_model_is_learned_from_what_is_observed(name, hide, key):
    """40 % of the labels missing, or only the first two of four ranked: on whole rows the loss is much nearer to that
    of a model that saw all than that of one that reads what is missing as 0, or ties as an order."""
    whole, partly, misread = recovered(name, hide, key)
    assert partly - whole < 0.25 * (misread - whole)
    assert misread - whole > 0.1


def test_min_min_learns_from_a_stream_of_partial_rows(key):
    """The same data by batches, some of them whole, with a held-out measure."""
    coupling = COUPLINGS["unary"]
    ebm = EBM(Energy(Linear(FEATURES, 4, key=key), coupling), Bound())
    batch = data(coupling.space, rows=8)
    mask = jnp.zeros((8, 4), int).at[:, 1].set(1)
    parts = [Batch(batch.x, batch.y, mask=f) for f in (mask, jnp.zeros_like(mask))]
    measure = ValidationLoss(MinMin(4), training.batch(ebm, batch.x, batch.y, mask=mask), key)
    solved = fit(Solver(MinMin(4)), ebm, training.Stream(parts * 10), steps=20, every=10, key=key, validation=measure)
    assert solved.history.validation[-1][1] < solved.history.validation[0][1]


X = np.zeros((2, FEATURES))
SETS, RANKS, PAIR = [[0, 1, 1, 0]] * 2, [[3, 1, 0, 2]] * 2, [[0, 1, 1, 0, 0]] * 2


def test_free_is_put_in_order():
    sets, ranks = model(COUPLINGS["unary"]), model(COUPLINGS["birkhoff"])
    np.testing.assert_array_equal(training.batch(sets, X, SETS, mask=np.eye(2, 4, dtype=bool)).mask, np.eye(2, 4))
    assert training.batch(sets, X, SETS, mask=np.zeros((2, 4), int)).mask is None
    assert training.batch(ranks, X, RANKS, mask=[[1, 2, 3, 0], [0, 0, 4, 0]]).mask is None
    made = training.batch(ranks, X, RANKS, mask=[[2, 2, 3, 1], [0, 4, 4, 4]])
    np.testing.assert_array_equal(made.mask, [[2, 2, 0, 0], [0, 4, 4, 4]])


def check(name, y, mask):
    return training.batch(model(COUPLINGS[name]), X, y, mask=mask)


def lose(objective, name, y, f=None, target=None):
    batch = Batch(jnp.asarray(X), jnp.asarray(y), target=target, mask=jnp.ones_like(jnp.asarray(y)))
    asked = model(COUPLINGS[name], f=f)
    state = objective.init(asked, key=jax.random.key(0))
    jax.eval_shape(lambda batch: objective.loss(asked, state, batch, key=jax.random.key(0))[0], batch)


def generator(key):
    return objectives.Generator(Hypercube(4), Linear(FEATURES, 4, key=key))


REFUSED = {
    "classes": (lambda: check("classes", np.eye(2, 4, dtype=int), np.eye(2, 4, dtype=int)), "for Simplex"),
    "shape": (lambda: check("unary", SETS, [1, 0, 0, 0]), r"shape \(2, 4\).*got int64 of shape \(4,\)"),
    "fractions": (lambda: check("unary", SETS, np.zeros((2, 4))), "must hold integers.*got float64"),
    "negative": (
        lambda: check("birkhoff", RANKS, np.full((2, 4), -1)),
        "a number per tied group, up to 4; got -1 to -1",
    ),
    "groups of sets": (
        lambda: check("unary", SETS, np.full((2, 4), 2)),
        "1 where a label is missing; got numbers from 2 to 2",
    ),
    "groups beyond k": (lambda: check("birkhoff", RANKS, np.full((2, 4), 5)), "up to 4; got .* 5"),
    "other f, exact": (lambda: lose(ExactMLE(), "unary", SETS, f=ChiSquare()), "for f = KL only; f is ChiSquare"),
    "other f, min-min": (
        lambda: lose(MinMin(proposal=None), "unary", SETS, f=ChiSquare()),
        "for f = KL only; f is ChiSquare",
    ),
    "MCMC": (lambda: lose(objectives.MCMC(), "unary", SETS), "MCMC needs every y whole.*MinMin"),
    "MinMax": (
        lambda: lose(objectives.MinMax(generator(jax.random.key(0))), "unary", SETS),
        "MinMax needs every y whole",
    ),
    "NCE": (lambda: lose(objectives.NCE(), "unary", SETS), "NCE needs every y whole"),
    "PseudoLikelihood": (lambda: lose(objectives.PseudoLikelihood(), "unary", SETS), "PseudoLikelihood needs every y"),
    "RatioMatching": (lambda: lose(objectives.RatioMatching(), "unary", SETS), "RatioMatching needs every y whole"),
    "ConcreteScoreMatching": (
        lambda: lose(objectives.ConcreteScoreMatching(), "unary", SETS),
        "ConcreteScoreMatching needs every y whole",
    ),
    "Fenchel-Young": (
        lambda: lose(objectives.GeneralizedFenchelYoung(), "unary", SETS),
        "GeneralizedFenchelYoung needs every y whole",
    ),
    "Perceptron": (lambda: lose(objectives.Perceptron(), "unary", SETS), "Perceptron needs every y whole"),
    "Preferences": (
        lambda: lose(objectives.Preferences(), "unary", SETS, target=jnp.zeros((2, 4), int)),
        "Preferences needs every y whole",
    ),
    "Scores": (lambda: lose(objectives.Scores(), "unary", SETS, target=jnp.zeros(2)), "Scores needs every y whole"),
    "neither sum nor bound": (
        lambda: partial.is_summed_exactly(
            model(LinearQuadratic(Symmetric(20), shared=False, polytope=Hypersimplex(20, 9)))
        ),
        r"few outputs, or by a surrogate, and none serves a LinearQuadratic coupling on KSubsets\(k=20, m=9\)",
    ),
    "large q": (
        lambda: partial.is_summed_exactly(model(Bilinear(Birkhoff(13)), q=PlackettLuce(jnp.zeros(13)))),
        r"none serves a Bilinear coupling on Permutations\(k=13\) with a PlackettLuce",
    ),
    "learned with a bound": (
        lambda: inference.log_prob(
            model(LinearQuadratic(Symmetric(20), shared=True)),
            X,
            np.zeros((2, 20), int),
            mask=np.ones((2, 20), int),
            method="learned",
        ),
        "not learned; use 'exact', 'importance' or 'annealed'",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
