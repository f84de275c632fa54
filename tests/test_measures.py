"""Laws of the measures; the truth is enumeration and scipy's chi-square."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
from cases import PROPOSALS, REFERENCES, SPACES, references

from partita.structures import (
    AbstractSequentialMeasure,
    ConditionalBernoulli,
    Hypercube,
    KSubsets,
    Mallows,
    Mixture,
    Permutations,
    PlackettLuce,
    ProductBernoulli,
    Sequential,
    Uniform,
)

MEASURES = {
    str(type(q).__name__) + f"-{q.space}": q for space in [*SPACES.values(), Permutations(3)] for q in references(space)
}
MEASURES |= PROPOSALS
RANKINGS = {name: q for name, q in MEASURES.items() if isinstance(q, AbstractSequentialMeasure)}
RANKINGS = {name: q for name, q in RANKINGS.items() if isinstance(q.space, Permutations)}
PER_ROW = jax.random.normal(jax.random.key(2), (3, 4))
ROWS = {
    "ProductBernoulli": ProductBernoulli(PER_ROW),
    "PlackettLuce": PlackettLuce(PER_ROW),
    "Mallows": Mallows(jnp.argsort(PER_ROW), jnp.array([0.0, 0.5, 2.0])),
    "Sequential": Sequential(PER_ROW[:, :, None] * jnp.array([1.0, -1.0, 2.0, 1.0])),
    "ConditionalBernoulli": ConditionalBernoulli(PER_ROW, 2),
    "Mixture of rows": Mixture(ProductBernoulli(3 * PER_ROW), ProductBernoulli(-PER_ROW), 0.3),
    "Mixture with one for all": Mixture(ProductBernoulli(3 * PER_ROW), Uniform(Hypercube(4)), 0.3),
}

measures = pytest.mark.parametrize("q", MEASURES.values(), ids=MEASURES)
rankings = pytest.mark.parametrize("q", RANKINGS.values(), ids=RANKINGS)
rows = pytest.mark.parametrize("q", ROWS.values(), ids=ROWS)


@functools.cache
def elements(space):
    return np.asarray(jax.jit(space.elements)())


def probabilities(q):
    """The probability of every element, in their order."""
    return np.exp(np.asarray(jax.jit(jax.vmap(q.log_prob))(elements(q.space)), np.float64))


def p_value(draws, p, space):
    """Of Pearson's chi-square test that the draws follow p."""
    counts = (np.asarray(draws)[:, None] == elements(space)).all(-1).sum(0)
    assert counts.sum() == len(draws), "a draw is not in the space"
    # float32 probabilities sum to 1 up to 1e-6, scipy asks for 1e-8.
    return scipy.stats.chisquare(counts, counts.sum() * p / p.sum()).pvalue


@measures
def test_probabilities_sum_to_one(q):
    # Up to 24 float32 probabilities.
    assert probabilities(q).sum() == pytest.approx(1, abs=1e-5)


@measures
def test_samples_follow_the_probabilities(q, key):
    """Chi-square over all elements, p > 1e-3."""
    draws = q.sample(20_000, key=key)
    assert draws.shape == (20_000, *q.space.shape)
    assert p_value(draws, probabilities(q), q.space) > 1e-3


@pytest.mark.parametrize("q", REFERENCES.values(), ids=[str(type(q).__name__) for q in REFERENCES.values()])
def test_other_references_are_not_uniform(q, key):
    """So that the chi-square test can tell: uniform draws do not follow q."""
    assert p_value(q.space.sample(20_000, key=key), probabilities(q), q.space) < 1e-6


@rows
def test_rows_are_drawn_in_one_call_and_each_follows_its_own(q, key):
    """A leading axis of the parameters: chi-square for each row, p > 1e-3; rows are independent."""
    draws = q.sample(20_000, key=key)
    assert draws.shape == (3, 20_000, 4)
    singles = [jax.tree.map(lambda a, i=i: a[i], q) for i in range(3)]
    for row, single in zip(draws, singles, strict=True):
        assert p_value(row, probabilities(single), single.space) > 1e-3
    # Label 0 in different rows: correlations of 20,000 pairs have standard error 0.007, so 0.03 is beyond 4 of them.
    correlations = np.corrcoef(np.asarray(draws[:, :, 0]))
    assert np.abs(correlations - np.eye(3)).max() < 0.03


@rows
def test_log_prob_of_rows_is_a_vmap(q):
    y = jnp.asarray(elements(q.space)[5])
    together = jax.jit(jax.vmap(lambda q: q.log_prob(y)))(q)
    singles = [jax.tree.map(lambda a, i=i: a[i], q).log_prob(y) for i in range(3)]
    np.testing.assert_allclose(together, singles, rtol=1e-6)
    assert np.ptp(together) > 0.1


@measures
def test_log_prob_is_one_number(q):
    value = jax.eval_shape(q.log_prob, jnp.asarray(elements(q.space)[0]))
    assert value.shape == ()
    assert jnp.issubdtype(value.dtype, jnp.floating)


def test_product_bernoulli_is_a_product():
    logits = np.array([-2.0, 0.0, 1.0, 30.0])
    q = ProductBernoulli(jnp.asarray(logits, jnp.float32))
    y = elements(q.space)
    expected = np.prod(scipy.special.expit(np.where(y, logits, -logits)), axis=1)
    # Relative, also where a label of probability 1 - 1e-13 is off; log-probabilities of size 30 are good to 1e-5.
    np.testing.assert_allclose(probabilities(q), expected, rtol=1e-5)


def test_plackett_luce_is_a_product_of_choices():
    """prod_p exp(s of the label at rank p) / sum over labels at ranks p, p + 1, ..."""
    scores = np.array([0.3, -1.0, 2.0, 0.0])
    q = PlackettLuce(jnp.asarray(scores, jnp.float32))
    for y, p in zip(elements(q.space), probabilities(q), strict=True):
        weights = np.exp(scores[np.argsort(y)])
        expected = np.prod([weights[rank] / weights[rank:].sum() for rank in range(4)])
        assert p == pytest.approx(expected, rel=1e-5)


def test_conditional_bernoulli_is_a_conditioned_product():
    """The independent labels' probabilities over the sets of two, renormalized."""
    logits = jnp.array([0.3, -1.0, 2.0, 0.0])
    sets = elements(KSubsets(4, 2))
    weights = np.exp(np.asarray(sets @ logits, np.float64))
    np.testing.assert_allclose(probabilities(ConditionalBernoulli(logits, 2)), weights / weights.sum(), rtol=1e-5)


def test_plackett_luce_is_sequential_with_the_same_scores_at_every_rank():
    scores = jnp.array([0.3, -1.0, 2.0, 0.0])
    sequential = Sequential(jnp.broadcast_to(scores[:, None], (4, 4)))
    np.testing.assert_allclose(probabilities(sequential), probabilities(PlackettLuce(scores)), rtol=1e-5)


def test_mallows_falls_with_every_pair_out_of_order():
    """From the definition; spread 0 is uniform, and a large one is the center."""
    center = jnp.array([2, 0, 3, 1])
    y = elements(Permutations(4))
    pairs = [(a, b) for a in range(4) for b in range(4) if center[a] < center[b]]
    discordant = np.sum([y[:, a] > y[:, b] for a, b in pairs], axis=0)
    for spread in (0.0, 0.6, 50.0):
        truth = scipy.special.softmax(-spread * discordant)
        np.testing.assert_allclose(probabilities(Mallows(center, spread)), truth, atol=1e-6)


def test_a_center_is_a_ranking_and_a_spread_not_negative():
    with pytest.raises(ValueError, match=r"permutation of 0..2.*>= 0; got \[1, 2, 3\] and 0.5.*argsort"):
        Mallows(jnp.array([1, 2, 3]), 0.5)
    with pytest.raises(ValueError, match=r"got \[0, 1, 2\] and -0.5"):
        Mallows(jnp.array([0, 1, 2]), -0.5)


def test_scale_and_spread_are_those_of_the_highest_likelihood(key):
    """Against scipy on the mean log-likelihood of 300 rankings; float32 sums leave 1e-3 of it."""
    score_key, draw_key = jax.random.split(key)
    scores = jax.random.normal(score_key, (300, 5))
    center = jnp.argsort(jnp.argsort(-scores, axis=1), axis=1)
    y = PlackettLuce(1.7 * scores).sample(1, key=draw_key)[:, 0]
    likelihoods = {
        "scale": lambda a: jax.vmap(lambda s, y: PlackettLuce(a * s).log_prob(y))(scores, y),
        "spread": lambda a: jax.vmap(lambda c, y: Mallows(c, a).log_prob(y))(center, y),
    }
    found = {"scale": PlackettLuce.fit_scale(scores, y), "spread": Mallows.fit_spread(center, y)}
    for name, log_prob in likelihoods.items():
        loss = jax.jit(lambda a, log_prob=log_prob: -log_prob(a).mean())
        truth = scipy.optimize.minimize_scalar(lambda a, loss=loss: float(loss(a)), bounds=(0, 20), method="bounded").x
        assert float(found[name]) == pytest.approx(truth, rel=5e-3)
    # 1.7 is within 4 standard errors of about 0.07.
    assert float(found["scale"]) == pytest.approx(1.7, abs=0.3)
    # Rankings that contradict them, and rankings that follow them all.
    assert float(PlackettLuce.fit_scale(-scores, y)) == pytest.approx(0, abs=1e-6)
    assert float(Mallows.fit_spread(4 - center, y)) == pytest.approx(0, abs=1e-6)
    assert float(Mallows.fit_spread(center, center)) > 10
    assert np.isfinite(float(PlackettLuce.fit_scale(scores, center)))


def test_a_mixture_is_the_weighted_mean_and_keeps_weights_bounded():
    """Its probabilities are the weighted mean; so with share s of q no weight q/r exceeds 1/s."""
    first, second = ProductBernoulli(jnp.array([50.0, -50.0, 50.0, -50.0])), Uniform(Hypercube(4))
    mixture = Mixture(first, second, 0.2)
    expected = 0.8 * probabilities(first) + 0.2 * probabilities(second)
    np.testing.assert_allclose(probabilities(mixture), expected, rtol=1e-5)
    assert (probabilities(second) / probabilities(mixture)).max() == pytest.approx(1 / 0.2, rel=1e-5)
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="share of the second measure between 0 and 1"):
            Mixture(first, second, share)


@rankings
def test_a_ranking_is_a_sequence_of_choices(q):
    """log_prob is the sum of log_choice along the ranks, for every permutation."""
    assert isinstance(q, AbstractSequentialMeasure)
    y = elements(q.space)

    def along(y):
        order = jnp.argsort(y)
        return sum(q.log_choice(y < rank)[order[rank]] for rank in range(len(y)))

    # At most 4 float32 terms of size 3.
    np.testing.assert_allclose(jax.jit(jax.vmap(along))(y), np.log(probabilities(q)), atol=1e-5)


@rankings
def test_choices_sum_to_one_over_the_labels_not_placed(q):
    placed = elements(Hypercube(q.space.k)).astype(bool)
    placed = placed[~placed.all(1)]
    log_choice = jax.jit(jax.vmap(q.log_choice))(placed)
    assert log_choice.shape == placed.shape
    np.testing.assert_allclose(np.sum(np.exp(log_choice) * ~placed, axis=1), 1, atol=1e-6)


def test_extreme_parameters_stay_finite(key):
    """Scores of 1e4: log-probabilities are finite, and draws are the mode."""
    scores = jnp.array([3e4, 1e4, 2e4, 0.0])
    q = PlackettLuce(scores)
    assert np.isfinite(jax.jit(jax.vmap(q.log_prob))(elements(q.space))).all()
    np.testing.assert_array_equal(q.sample(10, key=key), np.tile([0, 2, 1, 3], (10, 1)))
    q = ProductBernoulli(scores - 1.5e4)
    assert np.isfinite(jax.jit(jax.vmap(q.log_prob))(elements(q.space))).all()
    np.testing.assert_array_equal(q.sample(10, key=key), np.tile([1, 0, 1, 0], (10, 1)))


def test_uniform_measures_of_huge_spaces():
    """log q = -log |Y| where |Y| itself is no float32."""
    y = jnp.zeros(174, int)
    assert float(Uniform(Hypercube(174)).log_prob(y)) == pytest.approx(-174 * np.log(2))
