"""What fitted estimators answer between small and huge: exact as far as sums reach, and beyond it they say so.

Training plays no part: a model of known weights takes the place of the one that was learned.
"""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from partita import budget, inference
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.decisions import F1, Joint, Kemeny
from partita.estimators import LabelRanker, MultilabelClassifier
from partita.estimators.references import Reference
from partita.model import EBM, Bound, Energy
from partita.networks import Linear
from partita.objectives import ExactMLE
from partita.structures import Birkhoff, Permutahedron, Permutations

D, ROWS = 2, 3
X = np.random.default_rng(0).normal(size=(12, D))


@pytest.fixture(scope="module", autouse=True)
def unchecked_module():
    """The library as a user meets it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield


def fitted(estimator, y, model):
    """An estimator as `fit` leaves it, with a model of known weights: nothing is trained."""
    codec, _ = estimator._codec.fit_encode(y)
    state = {"codec_": codec, "classes_": np.arange(y.shape[1]), "scaler_": None, "reference_": Reference(model.q)}
    state |= {"ebm_": model, "objective_": ExactMLE(), "threshold_": None, "seed_": 0, "n_features_in_": D}
    vars(estimator).update(state)
    return estimator


def copies(k, fidelity=2.0, pull=0.3):
    """The model of k noisy copies of one hidden coin, nearly: interactions that make all labels agree, and two modes,
    all on and all off, of which x says which is more probable."""
    coupling = LinearQuadratic(Symmetric(k), shared=True)
    u = -fidelity * (k - 1) / 2
    coupling = eqx.tree_at(lambda c: c.shared, coupling, jnp.full(coupling.shared.shape, fidelity))
    h = Linear(D, (k,), key=jax.random.key(0))
    weight = pull * jax.random.normal(jax.random.key(1), (k, D))
    return Energy(eqx.tree_at(lambda h: (h.layer.weight, h.layer.bias), h, (weight, jnp.full(k, u))), coupling)


def strong(k):
    """Random interactions of standard deviation 2."""
    g = copies(k)
    return eqx.tree_at(
        lambda g: g.coupling.shared, g, 2 * jax.random.normal(jax.random.key(2), g.coupling.shared.shape)
    )


def classifier(g, k, **choices):
    """A fitted classifier whose energy is g."""
    y = np.random.default_rng(1).integers(0, 2, size=(len(X), k))
    return fitted(MultilabelClassifier(**choices), y, EBM(g, Bound()))


@pytest.fixture(scope="module")
def sixteen():
    return classifier(copies(16), 16)


def log_p(model, x):
    """log p of every output of one row, in float64, and the outputs."""
    y = np.asarray(model.space.elements())
    theta = model.g.h(jnp.asarray(x, jnp.float32))
    g = np.asarray(model.g.coupling.scores(theta, jnp.asarray(y)), np.float64)
    return y, g - np.logaddexp.reduce(g)


def assert_exact(made, x):
    """Every answer of a classifier, against all outputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", budget.ApproximationWarning)
        marginals, best, whole = made.predict_proba(x), made.top_k(x, 4), made.predict(x)
        drawn, tau = np.asarray(made.sample(x, 400)), made.log_partition(x)
        sizes = made.set_params(decision="f1").predict(x)
        made.set_params(decision="mode")
        log_prob = made.log_prob(x, whole)
    assert best.method == "exact"
    for i, row in enumerate(x):
        y, truth = log_p(made.ebm_, row)
        p = np.exp(truth)
        np.testing.assert_allclose(marginals[i], p @ y, atol=1e-4)
        order = np.argsort(-truth)
        np.testing.assert_allclose(np.log(best.probability[i]), truth[order[:4]], atol=1e-3)
        np.testing.assert_array_equal(whole[i], best.y[i][0])
        np.testing.assert_allclose(log_prob[i], truth.max(), atol=1e-3)
        g = float(made.ebm_.g(jnp.asarray(row, jnp.float32), jnp.asarray(whole[i])))
        np.testing.assert_allclose(tau[i], g - truth.max() - made.ebm_.space.log_size, atol=1e-3)
        # 400 independent draws: five standard errors, p = 6e-7 for each label.
        assert (np.abs(drawn[i].mean(axis=0) - p @ y) <= 5 * np.sqrt((p @ y) * (1 - p @ y) / 400) + 1e-3).all()
        expected = F1()(Joint(made.ebm_.space, y, p[None], exact=True)).y[0]
        np.testing.assert_array_equal(sizes[i], expected)


def test_copies_of_a_coin_are_answered_exactly(sixteen):
    """Mean field sees one of the two modes: marginals were off by up to 0.64."""
    assert_exact(sixteen, X[:ROWS])


@pytest.mark.parametrize("k", [15, pytest.param(18, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.slow)])
def test_strong_interactions_are_answered_exactly(k):
    assert_exact(classifier(strong(k), k), X[:2])


@pytest.mark.parametrize(
    "coupling", [Bilinear(Permutahedron(8)), pytest.param(Bilinear(Birkhoff(8)), marks=pytest.mark.slow)]
)
def test_rankings_of_eight_labels_are_answered_exactly(coupling):
    """8! = 40,320 rankings, of which all were drawn: the first of top_k was no mode."""
    k = 8
    y = np.argsort(np.random.default_rng(1).normal(size=(len(X), k)), axis=1)
    h = Linear(D, coupling.theta_shape, zero=False, key=jax.random.key(3))
    made = fitted(LabelRanker(), y, EBM(Energy(jax.tree.map(lambda w: 2 * w, h), coupling), Bound()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", budget.ApproximationWarning)
        best, marginals = made.top_k(X[:ROWS], 4), made.predict_proba(X[:ROWS])
        kemeny = made.set_params(decision="kemeny").predict(X[:ROWS])
        mode = made.set_params(decision="mode").predict(X[:ROWS])
    for i, row in enumerate(X[:ROWS]):
        y, truth = log_p(made.ebm_, row)
        p = np.exp(truth)
        np.testing.assert_allclose(np.log(best.probability[i]), np.sort(truth)[:-5:-1], atol=1e-4)
        np.testing.assert_array_equal(best.y[i][0], y[np.argmax(truth)])
        np.testing.assert_array_equal(mode[i], best.y[i][0])
        indicators = np.asarray(jax.vmap(Permutations(k).indicators)(y))
        np.testing.assert_allclose(marginals[i], np.tensordot(p, indicators, 1), atol=1e-4)
        expected = Kemeny()(Joint(Permutations(k), y, p[None], exact=True)).y[0]
        np.testing.assert_array_equal(kemeny[i], expected)


def test_probabilities_are_probabilities(sixteen):
    """Rounding left 1.00000024."""
    p = sixteen.predict_proba(X * 30)
    assert p.min() >= 0
    assert p.max() <= 1
    assert (sixteen.log_prob(X * 30, sixteen.predict(X * 30)) <= 0).all()


def test_beyond_the_reach_of_sums_every_answer_says_how_it_was_found():
    """24 labels. Chains that start apart stay in the two modes, and disagree."""
    made = classifier(copies(24), 24)
    x, y = X[:2], np.zeros((2, 24), int)
    questions = {
        "label probabilities.*mean field": lambda: made.predict_proba(x),
        "learned log-partition": lambda: made.log_prob(x, y),
        "log_partition.*too many for exact sums": lambda: made.log_partition(x),
        "the mode.*local search": lambda: made.predict(x),
        "found by local search": lambda: made.top_k(x, 2),
        "chains of the draws disagree on 2 of 2 rows": lambda: made.sample(x, 4),
    }
    for message, ask in questions.items():
        with pytest.warns(budget.ApproximationWarning, match=message):
            ask()
    with pytest.warns(budget.ApproximationWarning):
        assert made.top_k(x, 2).method == "search"


def test_chains_that_agree_say_nothing():
    """Independent labels in effect: R-hat is near 1, and the draws are those of p."""
    g = copies(22, fidelity=0.0, pull=1.0)
    made = classifier(g, 22)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = np.asarray(made.sample(X[:2], 400))
    p = np.asarray(jax.nn.sigmoid(jax.vmap(g.h)(jnp.asarray(X[:2], jnp.float32))))
    np.testing.assert_allclose(drawn.mean(axis=1), p, atol=5 * 0.5 / 20)


def test_an_answer_takes_no_longer_than_its_budget(sixteen, monkeypatch):
    """With no time at all the same classifier answers by mean field, and says what exact sums would take."""
    monkeypatch.setattr(budget, "SECONDS", 0.0)
    with pytest.warns(budget.ApproximationWarning, match="65,536 outputs of 2 rows would take about .* s, more than"):
        sixteen.predict_proba(X[:2])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({0: 0.5}, "whole numbers from 0 to 1, .* got 0.5 for 0"),
        ({3: np.inf}, "got inf for 3"),
        ({3: 10**30}, "got 1e\\+30 for 3"),
        ({3: -1}, "got -1 for 3"),
        ({3: "on"}, "given must hold numbers; got"),
        ({99: 1}, "given names \\['99'\\]"),
        (np.full((2, 16), 0.7), "got 0.7 for 0"),
        (np.zeros((3, 16)), "a table of shape \\(2, 16\\)"),
    ],
)
def test_what_is_given_must_be_values_of_labels(sixteen, given, message):
    with pytest.raises(ValueError, match=message):
        sixteen.predict_proba(X[:2], given=given)


def test_a_label_that_is_given_decides_the_others(sixteen):
    """With one copy known the mode is, and mean field would not know."""
    on = sixteen.predict_proba(X[:2], given={0: 1})
    off = sixteen.predict_proba(X[:2], given={0: 0})
    assert (on > 0.99).all()
    assert (off < 0.01).all()
    model = sixteen.ebm_
    evidence = np.asarray(inference.evidence(model, X[:2], np.where(np.arange(16) == 0, 1, -1)))
    np.testing.assert_allclose(np.exp(evidence), sixteen.predict_proba(X[:2])[:, 0], atol=1e-4)
