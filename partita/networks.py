"""Networks for h and tau: Linear, MLP, ResNet, ICNN.

Fields are arrays and numbers only, so that every network can be pickled. By default the output layer is initialized to
zero, so that training starts at g = 0 with the initial tau. Any other callable pytree from x to an array of the right
shape can be used in place of these classes.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp

from .types import Array, Float, Key, PyTree

__all__ = ["ICNN", "MLP", "AbstractNetwork", "Linear", "Mean", "Paired", "ResNet", "Scaled", "without_gradient"]

Shape = int | tuple[int, ...]


class Affine(eqx.Module):
    """x -> W x + b with W drawn from a normal of variance gain / fan_in, zero for a gain of 0."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]

    def __init__(self, fan_in: int, fan_out: int, gain: float = 2.0, *, key: Key):
        shape = (fan_out, fan_in)
        self.weight = math.sqrt(gain / fan_in) * jax.random.normal(key, shape) if gain else jnp.zeros(shape)
        self.bias = jnp.zeros(fan_out)

    def __call__(self, x):
        # x is the left factor: under vmap the products are then in the order of the rows, without a transposition. The
        # bias is a column of the matrix, so that its gradient is a matmul too: matmuls round identically alone or under
        # vmap, sums over rows do not.
        extended = jnp.concatenate([x, jnp.ones(1, x.dtype)])
        return extended @ jnp.column_stack([self.weight, self.bias]).T


class AbstractNetwork(eqx.Module):
    """A function of x, flattened to a vector, with values of shape `out_shape`."""

    out_shape: eqx.AbstractVar[tuple[int, ...]]

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " *features"]) -> Float[Array, " *out"]:
        """The value for one x."""


class Linear(AbstractNetwork):
    """Affine function W x + b.

    Parameters
    ----------
    in_size
        The number of features.
    out_shape
        The shape of the output.
    zero
        Whether W starts at 0, else at random.
    key
        For the initial weights.
    """

    layer: Affine
    out_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, in_size: int, out_shape: Shape, *, zero: bool = True, key: Key):
        self.out_shape = _shape(out_shape)
        self.layer = _output(in_size, self.out_shape, zero, key)

    def __call__(self, x):
        return self.layer(x.ravel()).reshape(self.out_shape)


class MLP(AbstractNetwork):
    """Multilayer perceptron: ReLU layers, then an affine layer.

    Parameters
    ----------
    in_size
        The number of features.
    out_shape
        The shape of the output.
    width
        The number of units of each hidden layer.
    depth
        The number of hidden layers.
    zero
        Whether the output layer starts at 0, else at random.
    key
        For the initial weights.

    Examples
    --------
    >>> MLP(5, (3,), key=jax.random.key(0))(jnp.ones(5)).tolist()
    [0.0, 0.0, 0.0]
    """

    hidden: tuple[Affine, ...]
    output: Affine
    out_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self, in_size: int, out_shape: Shape, *, width: int = 128, depth: int = 1, zero: bool = True, key: Key
    ):
        _check_sizes(in_size=in_size, width=width, depth=depth)
        self.out_shape = _shape(out_shape)
        *keys, out_key = jax.random.split(key, depth + 1)
        sizes = [in_size] + [width] * depth
        self.hidden = tuple(Affine(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True))
        self.output = _output(width, self.out_shape, zero, out_key)

    def __call__(self, x):
        z = x.ravel()
        for layer in self.hidden:
            z = jax.nn.relu(layer(z))
        return self.output(z).reshape(self.out_shape)


class ResNet(AbstractNetwork):
    """Residual network: an affine layer, blocks z + B relu(A relu(z)), then an affine layer.

    Parameters
    ----------
    in_size
        The number of features.
    out_shape
        The shape of the output.
    width
        The number of units of each layer.
    depth
        The number of blocks.
    zero
        Whether the output layer starts at 0, else at random.
    key
        For the initial weights.
    """

    enter: Affine
    blocks: tuple[tuple[Affine, Affine], ...]
    output: Affine
    out_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self, in_size: int, out_shape: Shape, *, width: int = 128, depth: int = 2, zero: bool = True, key: Key
    ):
        _check_sizes(in_size=in_size, width=width, depth=depth)
        self.out_shape = _shape(out_shape)
        in_key, out_key, *keys = jax.random.split(key, 2 * depth + 2)
        self.enter = Affine(in_size, width, 1.0, key=in_key)
        # Gains of 1 / depth keep the variance at the output independent of the depth.
        pairs = zip(keys[::2], keys[1::2], strict=True)
        self.blocks = tuple((Affine(width, width, key=a), Affine(width, width, 1 / depth, key=b)) for a, b in pairs)
        self.output = _output(width, self.out_shape, zero, out_key)

    def __call__(self, x):
        z = self.enter(x.ravel())
        for first, second in self.blocks:
            z = z + second(jax.nn.relu(first(jax.nn.relu(z))))
        return self.output(jax.nn.relu(z)).reshape(self.out_shape)


class ICNN(AbstractNetwork):
    """Input-convex network: a scalar that is convex in x, by layers relu(S^2 z + A x + b) with S squared entrywise.

    The weights of the output on z are squares, which have no gradient at zero; with `zero` they start at 1e-3 / width.

    Parameters
    ----------
    in_size
        The number of features.
    width
        The number of units of each hidden layer.
    depth
        The number of hidden layers.
    zero
        Whether the output starts near 0.
    key
        For the initial weights.
    """

    enter: Affine
    skips: tuple[Affine, ...]
    roots: tuple[Float[Array, "out in"], ...]
    out_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, in_size: int, *, width: int = 128, depth: int = 2, zero: bool = True, key: Key):
        _check_sizes(in_size=in_size, width=width, depth=depth)
        self.out_shape = ()
        in_key, out_key, *keys = jax.random.split(key, 2 * depth)
        self.enter = Affine(in_size, width, key=in_key)
        hidden = tuple(Affine(in_size, width, 1.0, key=k) for k in keys[::2])
        self.skips = (*hidden, _output(in_size, (), zero, out_key))
        # Squares of normals of this scale have mean 1 / width, so that layers keep the size of z.
        inner = tuple(jax.random.normal(k, (width, width)) / math.sqrt(width) for k in keys[1::2])
        scale = 1e-3 if zero else 1.0
        self.roots = (*inner, jnp.full((1, width), math.sqrt(scale / width)))

    def __call__(self, x):
        x = x.ravel()
        z = jax.nn.relu(self.enter(x))
        for root, skip in zip(self.roots[:-1], self.skips[:-1], strict=True):
            z = jax.nn.relu(z @ (root**2).T + skip(x))
        return (z @ (self.roots[-1] ** 2).T + self.skips[-1](x)).reshape(())


class Paired(eqx.Module):
    """A network of two arrays, for `couplings.Neural`: body(concatenate(theta, y)).

    Parameters
    ----------
    body
        A network of one vector.
    """

    body: PyTree

    def __call__(self, theta, y):
        return self.body(jnp.concatenate([theta.ravel(), y.ravel()]))


class Mean(eqx.Module):
    """The mean of several networks of one architecture.

    Parameters
    ----------
    bodies
        The networks as one, each array with a leading axis for them.
    """

    bodies: PyTree

    def __call__(self, x):
        return jnp.mean(eqx.filter_vmap(lambda body: body(x))(self.bodies), axis=0)


class Scaled(eqx.Module):
    """The output of a network times a factor.

    Parameters
    ----------
    body
        The network.
    factor
        A number, trained with the network.
    """

    body: PyTree
    factor: Float[Array, ""]

    def __call__(self, x):
        return self.factor * self.body(x)


def without_gradient(tree: PyTree) -> PyTree:
    """A pytree with `jax.lax.stop_gradient` applied to its inexact arrays.

    Parameters
    ----------
    tree
        A pytree, such as a network; leaves that are no arrays are kept.

    Returns
    -------
    PyTree
        The same tree, whose parameters have no gradient.
    """
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf, tree)


def _output(fan_in: int, out_shape: tuple[int, ...], zero: bool, key: Key) -> Affine:
    _check_sizes(in_size=fan_in)
    return Affine(fan_in, math.prod(out_shape), 0.0 if zero else 1.0, key=key)


def _shape(out_shape: Shape) -> tuple[int, ...]:
    shape = (out_shape,) if isinstance(out_shape, int) else tuple(out_shape)
    _check_sizes(**{f"out_shape[{i}]": size for i, size in enumerate(shape)})
    return shape


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1; got {size}.")
