"""The table of cases: every law runs over these. A new space, polytope, divergence or coupling adds one row."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from partita import inference
from partita.couplings import Bilinear, Factored, Full, LinearQuadratic, Neural, Sparse, Symmetric
from partita.divergences import KL, ChiSquare, JensenShannon, ReverseKL, SquaredHellinger, Tsallis
from partita.model import EBM, Energy, Network, Table
from partita.networks import MLP, Paired
from partita.structures import (
    Amortized,
    Birkhoff,
    Components,
    ConditionalBernoulli,
    Cube,
    Hypercube,
    Hypersimplex,
    KSubsets,
    Mallows,
    Mixture,
    Permutahedron,
    Permutations,
    PlackettLuce,
    ProbabilitySimplex,
    ProductBernoulli,
    Sequential,
    Simplex,
    Uniform,
)
from partita.types import Batch

FEATURES = 3

# Compiling is most of the time of the tests; unoptimized programs compile twice as fast and obey the same laws.
jit = functools.partial(eqx.filter_jit, compiler_options={"xla_backend_optimization_level": 0})


def data(space, rows=4, **fields):
    """A few rows, y drawn uniformly."""
    x_key, y_key = jax.random.split(jax.random.key(1))
    x = jax.random.normal(x_key, (rows, FEATURES))
    return Batch(x, space.sample(rows, key=y_key), index=jnp.arange(rows), **fields)


def named(*objects):
    """{readable name: object}, for pytest ids."""
    return {str(o).replace(" ", "").replace("\n", ""): o for o in objects}


SPACES = named(Hypercube(4), Permutations(4), KSubsets(5, 2), Simplex(4))

POLYTOPES = named(Cube(4), Permutahedron(4), Birkhoff(4), Hypersimplex(5, 2), ProbabilitySimplex(4))

DIVERGENCES = named(KL(), ChiSquare(), Tsallis(1.5), Tsallis(0.5), JensenShannon(), SquaredHellinger(), ReverseKL())

_key = jax.random.key(7)

COUPLINGS = {
    "unary": Bilinear(Cube(4)),
    "subsets": Bilinear(Hypersimplex(5, 2)),
    "classes": Bilinear(ProbabilitySimplex(4)),
    "permutahedron": Bilinear(Permutahedron(4)),
    "birkhoff": Bilinear(Birkhoff(4)),
    "ising": LinearQuadratic(Symmetric(4), shared=False),
    "ising-shared": LinearQuadratic(Symmetric(4), shared=True),
    "ising-sparse": LinearQuadratic(Sparse(4, [(0, 1), (3, 1)]), shared=False),
    "ising-low-rank": LinearQuadratic(Factored(4, 2, key=_key), shared=False),
    "ising-full": LinearQuadratic(Full(4), shared=False),
    "ising-concave": LinearQuadratic(Factored(4, concave=True, key=_key), shared=True),
    "ising-subsets": LinearQuadratic(Symmetric(5), shared=False, polytope=Hypersimplex(5, 2)),
    "neural-sets": Neural(Cube(4), (3,), Paired(MLP(3 + 4, (), width=6, zero=False, key=_key))),
    "neural-rankings": Neural(Birkhoff(3), (2,), Paired(MLP(2 + 9, (), width=6, zero=False, key=_key))),
}

# A reference that is not uniform, for the spaces that have one.
REFERENCES = {
    Hypercube(4): ProductBernoulli(jax.random.normal(_key, (4,))),
    Permutations(4): PlackettLuce(jax.random.normal(_key, (4,))),
    Permutations(3): PlackettLuce(jax.random.normal(_key, (3,))),
}

# Measures that propose where to look, and those that the laws of measures and of exact sums are enough for.
PROPOSALS = {
    "mallows": Mallows(jnp.array([2, 0, 3, 1]), 0.6),
    "sequential": Sequential(jax.random.normal(_key, (4, 4))),
    "conditional": ConditionalBernoulli(jax.random.normal(_key, (5,)), 2),
    "components": Components(ProductBernoulli(jax.random.normal(_key, (3, 4))), jnp.log(jnp.array([0.5, 0.3, 0.2]))),
    "mixture": Mixture(ProductBernoulli(2 * jax.random.normal(_key, (4,))), Uniform(Hypercube(4)), 0.2),
    "mixture-rankings": Mixture(Sequential(jax.random.normal(_key, (4, 4))), Uniform(Permutations(4)), 0.3),
}


def neighbor_of(coupling, q=None, f=None):
    """The surrogate of the table, or where there is none an amortized one that has moved from its start."""
    found = coupling.surrogate(Uniform(coupling.space) if q is None else q, KL() if f is None else f)
    if found is not None:
        return found
    start = Amortized(coupling, width=8, key=_key)
    return eqx.tree_at(lambda a: a.body.output.bias, start, replace_fn=lambda b: b + jnp.linspace(-1, 1, b.size))


def references(space):
    """All q that the cases have for a space: uniform, and another where there is one."""
    return [Uniform(space)] + [q for known, q in REFERENCES.items() if known == space]


def model(coupling, *, f=None, q=None, scale=1.0, key=_key):
    """A random nonlinear model on `FEATURES` features; theta has entries of about `scale`."""
    h_key, tau_key = jax.random.split(key)
    h = MLP(FEATURES, coupling.theta_shape, width=8, zero=False, key=h_key)
    h = jax.tree.map(lambda w: scale * w, h)
    body = MLP(FEATURES, (), width=8, zero=False, key=tau_key)
    near = None if isinstance(coupling.space, Simplex) else neighbor_of(coupling, q, f)
    return EBM(Energy(h, coupling), Network(body), q=q, f=f, surrogate=near)


def some(values, quick):
    """Parameters of a test: those in `quick` by default, the others with `make test-slow`."""
    return [pytest.param(value, id=str(value), marks=() if value in quick else pytest.mark.slow) for value in values]


# Sets and rankings, with and without a surrogate, and two divergences that are not KL.
NORMALIZED = {
    **{name: (name, KL()) for name in ("unary", "classes", "birkhoff", "ising")},
    "ising-chi-square": ("ising", ChiSquare()),
    "unary-jensen-shannon": ("unary", JensenShannon()),
}
MANY = np.random.default_rng(2).normal(size=(12, FEATURES)).astype(np.float32)


@functools.cache
def exactly(case):
    """A model with a table of the exact tau, relative to the least uniform q; logits of about 1."""
    name, f = NORMALIZED[case]
    ebm = model(COUPLINGS[name], f=f, q=references(COUPLINGS[name].space)[-1], scale=0.7)
    return off(ebm, inference.log_partition(ebm, MANY), 0)


def off(ebm, tau, shift):
    """The model with a table of tau + shift."""
    table = eqx.tree_at(lambda table: table.values, Table(len(tau)), jnp.asarray(tau) - ebm.f.start + shift)
    return eqx.tree_at(lambda model: model.tau, ebm, table)
