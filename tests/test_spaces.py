"""Laws of the output spaces; the truth is counting, scipy's chi-square, and closed forms."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from cases import SPACES, named

from partita.budget import TooLargeError
from partita.structures import Hypercube, KSubsets, Permutations, Simplex
from partita.structures.rank_vectors import FEW_LABELS, ranks, sort_by_rank

MORE = named(Hypercube(9), Permutations(6), KSubsets(8, 3), Simplex(7), Hypercube(2), Permutations(2), KSubsets(2, 1))
ALL = SPACES | MORE

CLOSED_FORMS = {
    Hypercube: lambda space: 2**space.k,
    Permutations: lambda space: math.factorial(space.k),
    KSubsets: lambda space: math.comb(space.k, space.m),
    Simplex: lambda space: space.k,
}

HUGE = [
    (Hypercube(174), 174 * math.log(2)),
    (Permutations(50), scipy.special.gammaln(51)),
    (KSubsets(174, 20), -math.log(175) - scipy.special.betaln(155, 21)),
]

NOT_MEMBERS = {
    Hypercube(4): [[0, 1, 2, 0], [0, -1, 0, 1], [0.5, 0, 1, 1], [math.nan, 0, 1, 1]],
    Permutations(4): [[0, 1, 1, 2], [1, 2, 3, 4], [-1, 0, 1, 2], [0, 0, 3, 3], [0, 0.5, 2, 3], [0, 1, 2, math.nan]],
    KSubsets(5, 2): [[0] * 5, [1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [2, 0, 0, 0, 0], [1, 1, 1, -1, 0], [1, 0.5, 0.5, 0, 0]],
    Simplex(4): [[0, 0, 0, 0], [1, 1, 0, 0], [2, -1, 0, 0], [0.5, 0.5, 0, 0], [math.nan, 1, 0, 0]],
}


@functools.cache
def elements(space):
    return np.asarray(jax.jit(space.elements)())


def contains(space, y):
    return np.asarray(jax.jit(jax.vmap(space.contains))(y))


@pytest.mark.parametrize("space", ALL.values(), ids=ALL)
def test_elements_are_the_whole_space_once(space):
    y = elements(space)
    assert space.size == CLOSED_FORMS[type(space)](space)
    assert y.shape == (space.size, *space.shape)
    assert np.issubdtype(y.dtype, np.integer)
    assert len(np.unique(y, axis=0)) == space.size
    assert contains(space, y).all()
    assert space.log_size == pytest.approx(math.log(len(y)))


@pytest.mark.parametrize(("space", "expected"), HUGE, ids=[str(space) for space, _ in HUGE])
def test_log_size_of_huge_spaces(space, expected):
    # gammaln and betaln are good to about 1e-14; pytest.approx asks for 1e-6.
    assert space.log_size == pytest.approx(expected)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_element_is_a_row_of_elements(space):
    last = space.size - 1
    np.testing.assert_array_equal(jax.jit(space.element)(jnp.asarray(last)), elements(space)[last])


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_contains_refuses_what_is_not_a_member(space):
    y = jnp.asarray(NOT_MEMBERS[space])
    assert y.shape[1:] == space.shape
    assert not contains(space, y).any()


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_sample_is_uniform(space, key):
    """Pearson's chi-square over all elements, p > 1e-3."""
    draws = space.sample(20_000, key=key)
    assert draws.shape == (20_000, *space.shape)
    assert contains(space, draws).all()
    counts = (np.asarray(draws)[:, None] == elements(space)).all(-1).sum(0)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("space", [space for space, _ in HUGE], ids=[str(space) for space, _ in HUGE])
def test_sample_of_huge_spaces_gives_members(space, key):
    draws = space.sample(200, key=key)
    assert draws.shape == (200, *space.shape)
    assert contains(space, draws).all()
    assert len(np.unique(draws, axis=0)) == 200


def test_sample_gives_other_draws_for_another_key(key):
    space = Hypercube(70)
    assert (space.sample(8, key=key) != space.sample(8, key=jax.random.fold_in(key, 1))).any()


@pytest.mark.parametrize("lag", [0, 1, 31, 32, 33, 64])
def test_hypercube_coins_are_fair_and_pairwise_independent(lag, key):
    """k = 70 takes three words of 32 bits: coins, and the sums modulo 2 of coins `lag` apart, are fair, p > 1e-3."""
    num, k = 20_000, 70
    y = np.asarray(Hypercube(k).sample(num, key=key))
    coins = y[:, lag:] ^ y[:, : k - lag] if lag else y
    # The pairs of one lag form paths, without a cycle, so their sums are independent: a chi-square of as many degrees.
    z = (coins.sum(0) - num / 2) / math.sqrt(num / 4)
    assert scipy.stats.chi2.sf((z**2).sum(), len(z)) > 1e-3


@pytest.mark.parametrize("space", [Hypercube(174), Permutations(20), KSubsets(100, 50)], ids=str)
def test_elements_of_a_large_space_are_refused(space):
    """The message says the size, the limit, and what to do."""
    digits = round(space.log_size / math.log(10))
    with pytest.raises(TooLargeError, match=rf"10\^{digits} elements.*limit is 1,073,741,824.*`sample`.*MinMin"):
        space.elements()


@pytest.mark.parametrize("make", [Hypercube, Permutations, lambda k: KSubsets(k, 1), Simplex])
@pytest.mark.parametrize("k", [1, 0, -3])
def test_fewer_than_two_labels_are_refused(make, k):
    with pytest.raises(ValueError, match=rf"needs k >= 2 labels; got k = {k}\. [A-Z].*\.$"):
        make(k)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("make", [Hypercube, Permutations, lambda k: KSubsets(k, 1), Simplex])
@pytest.mark.parametrize(
    ("k", "kind"), [(2.5, "float"), (4.0, "float"), (True, "bool"), ("4", "str"), (None, "NoneType")]
)
def test_a_number_of_labels_that_is_no_integer_is_refused(make, k, kind):
    with pytest.raises(TypeError, match=rf"must be an integer; got {k!r} of type {kind}"):
        make(k)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("space", [Hypercube(174), Permutations(50), Simplex(174)], ids=str)
def test_a_numpy_integer_is_an_integer(space):
    """k often comes from an array's shape or maximum."""
    again = type(space)(np.int64(space.k))
    assert again.size == space.size
    assert again.log_size == space.log_size


@pytest.mark.parametrize("m", [0, 5, 7, -1])
def test_subset_sizes_out_of_range_are_refused(m):
    with pytest.raises(ValueError, match=rf"needs 0 < m < k; got k = 5, m = {m}\..*Hypercube"):
        KSubsets(5, m)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("m", [2.5, 2.0, True])
def test_a_subset_size_that_is_no_integer_is_refused(m):
    with pytest.raises(TypeError, match="integer"):
        KSubsets(5, m)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_indicators_are_zero_one_statistics(space):
    """For rankings the permutation matrix, for sets y itself."""
    y = elements(space)
    expected = y[..., None] == np.arange(space.k) if isinstance(space, Permutations) else y
    np.testing.assert_array_equal(jax.vmap(space.indicators)(y), expected)


@pytest.mark.parametrize("space", ALL.values(), ids=ALL)
def test_local_moves_are_a_symmetric_neighborhood(space):
    """From every y: as many as max_degree says, all different, none y itself, all in Y, and each can be undone."""
    y = elements(space)
    near = jax.jit(jax.vmap(jax.vmap(space.move, in_axes=(None, 0)), in_axes=(0, None)))
    moved = np.asarray(near(y, jnp.arange(space.max_degree)))
    assert moved.shape == (space.size, space.max_degree, *space.shape)
    assert np.issubdtype(moved.dtype, np.integer)
    # Outputs by number: what is not in Y finds none.
    number = {tuple(one): i for i, one in enumerate(y.tolist())}
    to = np.array([[number[tuple(one)] for one in row] for row in moved.tolist()])
    adjacency = np.zeros((space.size, space.size), int)
    np.add.at(adjacency, (np.arange(space.size)[:, None], to), 1)
    assert adjacency.max() == 1
    np.testing.assert_array_equal(adjacency, adjacency.T)
    # Local: one label of a set, two entries of any other output, and all outputs that differ by as little.
    least = 1 if isinstance(space, Hypercube) else 2
    np.testing.assert_array_equal(adjacency, (y[:, None] != y).sum(-1) == least)


def test_moves_of_huge_spaces_stay_inside(key):
    for space in (Hypercube(174), Permutations(50), KSubsets(174, 20)):
        y = space.sample(3, key=key)
        moved = jax.jit(jax.vmap(space.move))(y, jnp.array([0, 1, space.max_degree - 1]))
        assert contains(space, moved).all()
        assert (moved != y).any(axis=1).all()


@pytest.mark.parametrize("k", [3, FEW_LABELS, FEW_LABELS + 1])
def test_few_labels_are_ranked_as_many_are(k, key):
    """By comparing all pairs as by sorting, also where scores are equal."""
    scores = jnp.round(4 * jax.random.normal(key, (5, k)))
    found = ranks(scores)
    np.testing.assert_array_equal(found, np.argsort(np.argsort(-np.asarray(scores), axis=1, kind="stable"), axis=1))
    ordered = jax.vmap(sort_by_rank)(scores, found)
    np.testing.assert_array_equal(ordered, -np.sort(-np.asarray(scores), axis=1))
