"""Laws of the networks: convexity, shapes, starts at zero, pickling."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from partita.networks import ICNN, MLP, Linear, Paired, ResNet

IN = 3
KEY = jax.random.key(3)

MAKERS = {
    "Linear": lambda out=(), zero=True: Linear(IN, out, zero=zero, key=KEY),
    "MLP": lambda out=(), zero=True: MLP(IN, out, width=5, zero=zero, key=KEY),
    "MLP-deep": lambda out=(), zero=True: MLP(IN, out, width=5, depth=3, zero=zero, key=KEY),
    "ResNet": lambda out=(), zero=True: ResNet(IN, out, width=5, zero=zero, key=KEY),
    "ResNet-deep": lambda out=(), zero=True: ResNet(IN, out, width=5, depth=3, zero=zero, key=KEY),
}
CONVEX = {
    "ICNN": lambda zero=True: ICNN(IN, width=5, zero=zero, key=KEY),
    "ICNN-shallow": lambda zero=True: ICNN(IN, width=5, depth=1, zero=zero, key=KEY),
    "ICNN-deep": lambda zero=True: ICNN(IN, width=5, depth=4, zero=zero, key=KEY),
}
# Networks with scalar output, of all kinds.
ALL = MAKERS | CONVEX

kinds = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
all_kinds = pytest.mark.parametrize("make", ALL.values(), ids=ALL)
convex_kinds = pytest.mark.parametrize("make", CONVEX.values(), ids=CONVEX)


X = jax.random.normal(jax.random.key(4), (500, IN))


@jax.jit
def apply(network, x):
    """Compiled once for each structure, whatever the parameters."""
    return jax.vmap(network)(x)


@jax.jit
def gradient(network):
    return jax.grad(lambda network: jax.vmap(network)(X).mean())(network)


def output_layer(network):
    """The last affine layer's weight."""
    if isinstance(network, ICNN):
        return network.skips[-1].weight
    return (network.layer if isinstance(network, Linear) else network.output).weight


def perturbed(network):
    leaves, structure = jax.tree.flatten(network)
    keys = jax.random.split(jax.random.key(11), len(leaves))
    noisy = [leaf + jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noisy)


@convex_kinds
@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("change", [lambda network: network, perturbed], ids=["start", "perturbed"])
def test_icnn_is_convex_in_its_input(make, zero, change, key):
    """f(t a + (1 - t) b) <= t f(a) + (1 - t) f(b) on random segments, whatever the parameters."""
    network = change(make(zero=zero))
    a, b = 3 * jax.random.normal(key, (2, 500, IN))
    t = jax.random.uniform(jax.random.fold_in(key, 1), (500, 1))
    chord = t[:, 0] * apply(network, a) + (1 - t[:, 0]) * apply(network, b)
    # Sums of 5 terms in each of up to 4 layers, rounded relative to the largest value.
    slack = 1e-5 * (1 + jnp.abs(chord).max())
    assert (apply(network, t * a + (1 - t) * b) <= chord + slack).all()


@convex_kinds
def test_icnn_is_not_just_affine(make):
    """So that convexity says something: some chord lies clearly above."""
    network = make(zero=False)
    assert (apply(network, 3 * X) + apply(network, -3 * X) - 2 * apply(network, 0 * X)).max() > 0.1


@kinds
@pytest.mark.parametrize(("out", "shape"), [(4, (4,)), ((4,), (4,)), ((), ()), ((2, 2), (2, 2)), (1, (1,))])
def test_output_has_the_shape_asked_for(make, out, shape):
    """An int is a vector."""
    network = make(out, zero=False)
    assert network.out_shape == shape
    assert jax.eval_shape(network, X[0]).shape == shape


@kinds
def test_inputs_are_flattened(make):
    network = make(zero=False)
    np.testing.assert_array_equal(network(X[0][None, :, None]), network(X[0]))


@convex_kinds
def test_icnn_is_a_scalar(make):
    assert make().out_shape == make()(jnp.ones(IN)).shape == ()


@kinds
def test_output_starts_at_zero(make):
    assert (apply(make((2, 2)), X) == 0).all()


@convex_kinds
def test_icnn_starts_near_zero(make):
    """Its positive output weights cannot start at zero with a gradient."""
    assert (jnp.abs(apply(make(), X)) < 0.05).all()


@all_kinds
def test_without_zero_the_output_varies(make):
    assert apply(make(zero=False), X).std() > 0.1


@all_kinds
def test_learning_starts(make):
    """At the start the output layer has a gradient, though its output is zero."""
    assert jnp.abs(output_layer(gradient(make()))).max() > 1e-3


@convex_kinds
def test_icnn_learns_its_positive_weights_too(make):
    assert jnp.abs(gradient(make()).roots[-1]).max() > 1e-3


@all_kinds
def test_fields_are_arrays(make):
    leaves = jax.tree.leaves(make())
    assert leaves
    assert all(isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves)


@all_kinds
def test_pickle_keeps_every_bit(make):
    network = make(zero=False)
    again = pickle.loads(pickle.dumps(network))
    assert jax.tree.structure(again) == jax.tree.structure(network)
    for old, new in zip(jax.tree.leaves(network), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(new, old)
    np.testing.assert_array_equal(apply(again, X), apply(network, X))


@pytest.mark.parametrize("depth", [1, 10])
@pytest.mark.parametrize("kind", [MLP, ResNet])
def test_the_start_keeps_the_scale_of_its_input(kind, depth, key):
    """Hidden layers neither explode nor die with depth: a standard normal x gives outputs of about that size."""
    network = kind(50, 200, width=100, depth=depth, zero=False, key=KEY)
    value = apply(network, jax.random.normal(key, (50, 50)))
    # Variances double or halve by chance from one network of this width to the next, not tenfold.
    assert 0.1 < value.var() < 10


@pytest.mark.parametrize("size", [0, -2])
@pytest.mark.parametrize("kind", [Linear, MLP, ResNet, ICNN])
def test_input_sizes_below_one_are_refused(kind, size):
    out = () if kind is ICNN else (4,)
    with pytest.raises(ValueError, match=f"in_size must be at least 1; got {size}"):
        kind(size, *out, key=KEY)


@pytest.mark.parametrize("size", [0, -2])
@pytest.mark.parametrize("name", ["width", "depth"])
@pytest.mark.parametrize("kind", [MLP, ResNet, ICNN])
def test_hidden_sizes_below_one_are_refused(kind, name, size):
    out = () if kind is ICNN else (4,)
    with pytest.raises(ValueError, match=f"{name} must be at least 1; got {size}"):
        kind(IN, *out, **{name: size}, key=KEY)


@pytest.mark.parametrize("out", [0, -2, (3, 0), (-1,)])
@pytest.mark.parametrize("kind", [Linear, MLP, ResNet])
def test_output_sizes_below_one_are_refused(kind, out):
    with pytest.raises(ValueError, match="at least 1; got"):
        kind(IN, out, key=KEY)


def test_paired_concatenates(key):
    """body of theta's entries, then y's."""
    body = MLP(2 + 6, (), width=5, zero=False, key=KEY)
    theta, y = jax.random.normal(key, (2,)), jax.random.normal(jax.random.fold_in(key, 1), (2, 3))
    np.testing.assert_array_equal(Paired(body)(theta, y), body(jnp.concatenate([theta, y.ravel()])))
