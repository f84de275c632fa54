"""Laws of the couplings; the truth is a loop in numpy over the written formulas."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COUPLINGS, FEATURES

from partita import argmax
from partita.argmax import SquaredNorm
from partita.couplings import (
    AbstractCoupling,
    Bilinear,
    Factored,
    Full,
    LinearQuadratic,
    NegativeSemidefinite,
    Neural,
    Sparse,
    Symmetric,
)
from partita.model import EBM, Energy, Network
from partita.networks import MLP, Paired
from partita.structures import Birkhoff, Cube, Hypersimplex, ProbabilitySimplex

KEY = jax.random.key(5)

INTERACTIONS = {
    "symmetric": Symmetric(5),
    "factored": Factored(5, key=KEY),
    "low-rank": Factored(5, 2, key=KEY),
    "concave": Factored(5, concave=True, key=KEY),
    "full": Full(5),
    "negative-semidefinite": NegativeSemidefinite(5, key=KEY),
    "negative-semidefinite-low-rank": NegativeSemidefinite(5, 2, key=KEY),
    "concave-low-rank": Factored(5, 3, concave=True, key=KEY),
}


def trained(coupling):
    """With an interaction that is no longer zero."""
    return eqx.tree_at(lambda c: c.shared, coupling, jax.random.normal(KEY, coupling.shared.shape))


ALL = COUPLINGS | {f"{name}-trained": trained(COUPLINGS[name]) for name in ("ising-shared", "ising-concave")}


def of_kind(kind, table=ALL):
    return pytest.mark.parametrize("name", [name for name, coupling in table.items() if isinstance(coupling, kind)])


class Scored(NamedTuple):
    coupling: AbstractCoupling
    theta: np.ndarray
    y: np.ndarray
    values: np.ndarray


@functools.cache
def elements(space):
    return np.asarray(jax.jit(space.elements)())


def scores(coupling, theta):
    """Phi(theta, y) for all theta and all y of the space."""
    score = jax.vmap(jax.vmap(coupling, (None, 0)), (0, None))
    return np.asarray(jax.jit(score)(theta, elements(coupling.space)))


@functools.cache
def scored(name):
    """A coupling's scores of all y: at theta = 0, then at random theta."""
    coupling = ALL[name]
    theta = jax.random.normal(KEY, (4, *coupling.theta_shape)).at[0].set(0)
    return Scored(coupling, np.asarray(theta), elements(coupling.space), scores(coupling, theta))


def encodings(polytope):
    """All phi(y), flattened, in float64."""
    phi = jax.jit(jax.vmap(polytope.encode))(elements(polytope.space))
    return np.asarray(phi, np.float64).reshape(len(phi), -1)


@pytest.mark.parametrize("name", ALL)
def test_a_score_is_one_number(name):
    _, theta, y, values = scored(name)
    assert values.shape == (len(theta), len(y))
    assert values.dtype == theta.dtype
    # So that the other laws say something: y matters.
    assert values[1:].std(1).min() > 1e-3


@pytest.mark.parametrize("name", ALL)
def test_outputs_in_common_score_as_each_alone(name):
    coupling, theta, y, values = scored(name)
    found = jax.jit(jax.vmap(coupling.scores, in_axes=(0, None)))(theta, y)
    np.testing.assert_allclose(found, values, atol=1e-5)


@of_kind(Bilinear)
def test_bilinear_is_the_inner_product(name):
    coupling, theta, _, values = scored(name)
    expected = theta.reshape(len(theta), -1).astype(np.float64) @ encodings(coupling.polytope).T
    # A float32 sum of 5 terms of size 1.
    np.testing.assert_allclose(values, expected, atol=5e-6)
    assert coupling.theta_shape == coupling.polytope.shape
    assert coupling.space == coupling.polytope.space


@of_kind(LinearQuadratic)
def test_linear_quadratic_is_a_double_sum(name):
    """sum_i u_i y_i + sum_{i, j} U_ij y_i y_j / 2, U the interaction's matrix."""
    coupling, theta, outputs, values = scored(name)
    k, interaction = coupling.interaction.k, coupling.interaction
    rest = theta[:, k:] if coupling.shared is None else np.tile(coupling.shared, (len(theta), 1))
    matrices = np.asarray(jax.jit(jax.vmap(interaction.matrix))(rest), np.float64)
    for row, u, matrix in zip(values, theta[:, :k].astype(np.float64), matrices, strict=True):
        for value, y in zip(row, outputs, strict=True):
            chosen = np.flatnonzero(y)
            expected = sum(u[i] for i in chosen) + sum(matrix[i, j] for i in chosen for j in chosen) / 2
            # A float32 sum of at most 20 terms of size 1.
            assert value == pytest.approx(expected, abs=1e-5)


@of_kind(LinearQuadratic)
def test_theta_has_the_interaction_unless_it_is_shared(name):
    coupling = ALL[name]
    k, size = coupling.interaction.k, coupling.interaction.size
    assert coupling.theta_shape == ((k,) if "shared" in name or "concave" in name else (k + size,))
    u, s = coupling.parameters(jnp.arange(float(coupling.theta_shape[0])))
    np.testing.assert_array_equal(u, np.arange(k))
    np.testing.assert_array_equal(s, np.arange(k, k + size) if coupling.shared is None else coupling.shared)


@of_kind(LinearQuadratic, COUPLINGS)
def test_at_the_start_every_output_scores_the_same(name):
    """With theta = 0 all scores are 0; of a concave form, which cannot be 0 with a gradient, near 0."""
    # Documented of concave forms: "at this scale they start below 0.01".
    assert np.abs(scored(name).values[0]).max() <= (0.01 if "concave" in name else 0)


@pytest.mark.parametrize("interaction", INTERACTIONS.values(), ids=INTERACTIONS)
def test_interactions_are_symmetric_matrices_with_their_form(interaction, key):
    """form(s, y) = y' U(s) y / 2, for any real y."""
    s = jax.random.normal(key, (10, interaction.size))
    y = jax.random.normal(jax.random.fold_in(key, 1), (10, interaction.k))
    matrices, forms = jax.jit(jax.vmap(lambda s, y: (interaction.matrix(s), interaction.form(s, y))))(s, y)
    matrices = np.asarray(matrices, np.float64)
    assert matrices.shape == (10, 5, 5)
    # Float32 sums of 5 and 25 terms of about size 1.
    np.testing.assert_allclose(matrices, matrices.transpose(0, 2, 1), atol=1e-6)
    expected = [0.5 * v @ matrix @ v for v, matrix in zip(np.asarray(y, np.float64), matrices, strict=True)]
    np.testing.assert_allclose(forms, expected, atol=1e-5)
    assert np.linalg.norm(matrices, axis=(1, 2)).min() > 1e-3


@pytest.mark.parametrize("k", [2, 3, 7])
def test_symmetric_has_a_parameter_for_each_pair(k):
    interaction = Symmetric(k)
    assert interaction.size == k * (k - 1) // 2
    matrix = np.asarray(jax.jit(interaction.matrix)(jnp.arange(1.0, interaction.size + 1)))
    np.testing.assert_array_equal(np.diag(matrix), 0)
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(np.sort(matrix[np.triu_indices(k, 1)]), np.arange(1, interaction.size + 1))


@pytest.mark.parametrize("rank", [2, None])
@pytest.mark.parametrize("concave", [False, True])
def test_factored_has_its_rank_and_is_concave_if_asked(rank, concave, key):
    interaction = Factored(5, rank, concave=concave, key=KEY)
    assert interaction.size == (5 if rank is None else rank)
    s = 3 * jax.random.normal(key, (50, interaction.size))
    eigenvalues = np.linalg.eigvalsh(np.asarray(jax.jit(jax.vmap(interaction.matrix))(s), np.float64))
    # Entries of size 10 at most, rounded to float32.
    largest = np.sort(np.abs(eigenvalues), axis=1)[:, ::-1]
    assert (largest[:, interaction.size :] < 1e-5).all()
    assert largest.max() > 1e-3
    assert (eigenvalues <= 1e-5).all() == concave


@pytest.mark.parametrize("name", INTERACTIONS)
def test_interactions_are_concave_and_linear_where_they_say_so(name, key):
    interaction = INTERACTIONS[name]
    s = 3 * jax.random.normal(key, (50, interaction.size))
    matrices = np.asarray(jax.jit(jax.vmap(interaction.matrix))(s), np.float64)
    # Entries of size 100 at most, rounded to float32.
    assert (np.linalg.eigvalsh(matrices) <= 1e-4).all() == interaction.is_concave
    gap = np.abs(np.asarray(interaction.matrix(s.mean(axis=0))) - matrices.mean(axis=0)).max()
    learned = jax.tree.leaves(eqx.filter(interaction, eqx.is_inexact_array))
    assert (gap < 1e-5 and not learned) == interaction.is_linear


def test_a_negative_semidefinite_u_learns_from_zero_logits():
    """U(x) = -A(x) A(x)' has no gradient at A = 0, where h starts; the offset is there for it."""
    coupling = LinearQuadratic(NegativeSemidefinite(5, key=KEY), shared=False)
    y = jnp.array([1, 1, 0, 1, 0])
    slope = jax.grad(coupling)(jnp.zeros(coupling.theta_shape), y)
    assert np.abs(slope[5:]).max() > 1e-2
    assert isinstance(argmax.oracle(coupling, SquaredNorm(1.0)), argmax.CoordinateAscent)


@pytest.mark.parametrize("family", [Factored, NegativeSemidefinite])
@pytest.mark.parametrize("rank", [0, -1, 6])
def test_ranks_out_of_range_are_refused(rank, family):
    with pytest.raises(ValueError, match=rf"needs 0 < rank <= k; got rank = {rank}, k = 5"):
        family(5, rank, key=KEY)


def test_spaces_that_are_not_label_sets_are_refused():
    with pytest.raises(TypeError, match=r"scores label sets; got Permutations.*Bilinear"):
        LinearQuadratic(Symmetric(4), shared=False, polytope=Birkhoff(4))


@pytest.mark.parametrize("polytope", [Cube(5), Hypersimplex(5, 2), ProbabilitySimplex(5)], ids=str)
def test_spaces_of_another_size_are_refused(polytope):
    with pytest.raises(ValueError, match=r"space has 5 labels, the interaction 4"):
        LinearQuadratic(Symmetric(4), shared=True, polytope=polytope)


@of_kind(LinearQuadratic, COUPLINGS)
def test_learning_of_the_interaction_starts(name):
    """At theta = 0 the interaction's parameters have a gradient."""
    coupling, y = ALL[name], elements(ALL[name].space)

    def total(coupling, theta):
        return jax.vmap(coupling, (None, 0))(theta, y).sum()

    of_coupling, of_theta = jax.jit(jax.grad(total, (0, 1)))(coupling, jnp.zeros(coupling.theta_shape))
    gradient = of_theta[coupling.interaction.k :] if coupling.shared is None else of_coupling.shared
    assert jnp.abs(gradient).max() > 1e-4


@of_kind(Neural)
def test_neural_calls_its_network_with_the_encoding(name):
    coupling, theta, _, values = scored(name)
    phi = encodings(coupling.polytope)
    inputs = np.stack([[np.concatenate([t, p]) for p in phi] for t in theta]).astype(np.float32)
    # The same sums of a few terms in another order.
    np.testing.assert_allclose(values, jax.jit(jax.vmap(jax.vmap(coupling.network.body)))(inputs), atol=1e-5)


class Distance(eqx.Module):
    """A user's own network of two arrays: -|A theta - phi|^2 / 2."""

    matrix: jax.Array

    def __call__(self, theta, phi):
        return -0.5 * jnp.sum((self.matrix @ theta - phi.ravel()) ** 2)


@pytest.mark.parametrize("polytope", [Cube(4), Birkhoff(3)], ids=str)
def test_neural_takes_the_users_own_network(polytope, key):
    coupling = Neural(polytope, (2,), Distance(jax.random.normal(KEY, (np.prod(polytope.shape), 2))))
    theta = jax.random.normal(key, (3, 2))
    images = np.asarray(theta, np.float64) @ np.asarray(coupling.network.matrix, np.float64).T
    expected = -0.5 * np.sum((images[:, None] - encodings(polytope)[None]) ** 2, axis=-1)
    # Float32 sums of 9 squares of size 10 at most.
    np.testing.assert_allclose(scores(coupling, theta), expected, rtol=1e-5, atol=1e-5)


def test_any_equinox_module_serves_as_h(key):
    """eqx.nn.MLP in Energy and EBM: g, log_prob and the choice of trained arrays."""
    coupling = COUPLINGS["ising"]
    h = eqx.nn.MLP(FEATURES, coupling.theta_shape[0], 8, 1, key=KEY)
    ebm = EBM(Energy(h, coupling), Network(MLP(FEATURES, (), width=4, key=KEY)))
    x, y = jax.random.normal(key, (FEATURES,)), jnp.asarray(elements(ebm.space)[5])
    expected = float(eqx.filter_jit(lambda h: coupling(h(x), y))(h))
    # tau starts at 0 and q is uniform; float32 sums of a few terms of size 1.
    g, log_p = eqx.filter_jit(lambda ebm: (ebm.g(x, y), ebm.log_prob(ebm.row(x), y)))(ebm)
    assert float(g) == pytest.approx(expected, abs=1e-5)
    assert float(log_p) == pytest.approx(expected - ebm.space.log_size, abs=1e-5)
    params, fixed = eqx.partition(ebm, ebm.trained())
    learned = [a.shape for a in jax.tree.leaves(eqx.filter(h, eqx.is_inexact_array))]
    assert [a.shape for a in jax.tree.leaves(params.g)] == learned
    gradient = jax.jit(jax.grad(lambda params: eqx.combine(params, fixed).g(x, y)))(params)
    assert max(jnp.abs(a).max() for a in jax.tree.leaves(gradient.g)) > 0


def test_any_equinox_module_serves_in_paired(key):
    """The body of Paired, like h, may be a user's own."""
    coupling = Neural(Cube(4), (3,), Paired(eqx.nn.MLP(7, "scalar", 8, 1, key=KEY)))
    assert np.isfinite(scores(coupling, jax.random.normal(key, (3, 3)))).all()


@pytest.mark.parametrize("name", COUPLINGS)
def test_the_score_on_the_hull_is_the_score_at_its_vertices(name, key):
    coupling = COUPLINGS[name]
    theta = jax.random.normal(key, coupling.theta_shape)
    for y in coupling.space.sample(5, key=key):
        np.testing.assert_allclose(coupling.relaxed(theta, coupling.polytope.encode(y)), coupling(theta, y), rtol=1e-5)


@pytest.mark.parametrize("edges", [[], [(0, 0)], [(0, 4)], [(0, 1), (1, 0)]], ids=["none", "loop", "outside", "twice"])
def test_edges_that_are_no_pairs_of_labels_are_refused(edges):
    with pytest.raises(ValueError, match=r"different pairs of different labels among 0..3"):
        Sparse(4, edges)
