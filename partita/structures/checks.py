"""Tests of the contract for a structure of your own, on a case that is small enough to enumerate."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ..divergences import KL
from ..types import Array
from .couplings import AbstractCoupling
from .enumeration import Enumeration
from .measures import AbstractMeasure
from .polytopes import AbstractPolytope
from .spaces import AbstractSpace, Uniform

__all__ = ["check_structure"]

DRAWS = 256
# Sums of float32 terms over a few thousand outputs.
TOLERANCE = 1e-4


def check_structure(
    space: AbstractSpace,
    *,
    polytope: AbstractPolytope | None = None,
    measures: Sequence[AbstractMeasure] = (),
    coupling: AbstractCoupling | None = None,
    seed: int = 0,
) -> None:
    """Check a small case of a structure of your own against the contract, by enumeration of its outputs.

    Parameters
    ----------
    space
        A space with at most a few thousand outputs.
    polytope
        A polytope of that space.
    measures
        Measures on that space, each for one row.
    coupling
        A coupling on that space: its exact method is compared with enumeration, under a uniform q and each measure.
    seed
        The seed of random draws and scores.

    Raises
    ------
    ValueError
        If a method breaks the contract; the message names it, with the expected and the actual value.

    Examples
    --------
    >>> from partita.structures import Cube, Hypercube, ProductBernoulli
    >>> check_structure(Hypercube(3), polytope=Cube(3), measures=[ProductBernoulli(jnp.arange(3.0))])
    """
    keys = iter(jax.random.split(jax.random.key(seed), 3 + len(measures)))
    outputs = _check_space(space, next(keys))
    theta_key, score_key = next(keys), next(keys)
    if polytope is not None:
        _check_polytope(polytope, space, outputs, theta_key)
    for measure in measures:
        _check_measure(measure, space, outputs, next(keys))
    if coupling is not None:
        theta = jax.random.normal(score_key, coupling.theta_shape)
        for q in (Uniform(space), *measures):
            _check_method(coupling, q, theta)


def _require(holds: object, message: str) -> None:
    if not bool(np.all(np.asarray(holds))):
        raise ValueError(message)


def _check_space(space: AbstractSpace, key: Array) -> Array:
    outputs = space.elements()
    name = type(space).__name__
    expected = (space.size, *space.shape)
    _require(outputs.shape == expected, f"{name}.element gives arrays {outputs.shape}, expected {expected}.")
    different = len(np.unique(np.asarray(outputs).reshape(space.size, -1), axis=0))
    _require(different == space.size, f"{name}.element gives {different} different outputs of {space.size}, its size.")
    contains = jax.vmap(space.contains)
    _require(contains(outputs), f"{name}.contains is False for an output that {name}.element gives.")
    draws = space.sample(DRAWS, key=key)
    expected = (DRAWS, *space.shape)
    _require(draws.shape == expected, f"{name}.sample({DRAWS}) has shape {draws.shape}, expected {expected}.")
    _require(contains(draws), f"{name}.sample draws arrays that {name}.contains says are not in the space.")
    if space.max_degree:
        _check_moves(space, outputs)
    return outputs


def _check_moves(space: AbstractSpace, outputs: Array) -> None:
    name = type(space).__name__
    moves, is_move = jax.vmap(space.moves)(outputs), np.asarray(jax.vmap(space.is_move)(outputs))
    flat = moves.reshape(-1, *space.shape)
    _require(jax.vmap(space.contains)(flat), f"{name}.move leads out of the space.")
    is_same = np.all(np.asarray(moves == outputs[:, None]).reshape(*is_move.shape, -1), axis=2)
    _require(~is_same[is_move], f"{name}.move gives y itself for an i below degree(y).")
    _require(is_same[~is_move], f"{name}.move must give y itself for i from degree(y) on.")
    places = {row.tobytes(): i for i, row in enumerate(np.asarray(outputs))}
    pairs = {
        (i, places[row.tobytes()])
        for i, (rows, which) in enumerate(zip(np.asarray(moves), is_move, strict=True))
        for row in rows[which]
    }
    _require(
        all((j, i) in pairs for i, j in pairs), f"{name}.move: some y' is a move from y, but y is not one from y'."
    )
    _require(len(pairs) == is_move.sum(), f"{name}.move gives the same output for two i below degree(y).")


def _check_polytope(polytope: AbstractPolytope, space: AbstractSpace, outputs: Array, key: Array) -> None:
    name = type(polytope).__name__
    _require(polytope.space == space, f"{name}.space is {polytope.space}, expected {space}.")
    vertices = jax.vmap(polytope.encode)(outputs)
    expected = (space.size, *polytope.shape)
    _require(vertices.shape == expected, f"{name}.encode gives {vertices.shape[1:]}, expected {polytope.shape}.")
    for theta in jax.random.normal(key, (8, *polytope.shape)):
        scores = vertices.reshape(space.size, -1) @ theta.ravel()
        best = polytope.argmax(theta)
        _require(space.contains(best), f"{name}.argmax gives an output that is not in the space.")
        value = float(polytope.score(theta, best))
        _require(
            abs(value - float(scores.max())) < TOLERANCE,
            f"{name}.argmax finds a score of {value:.6g}, but the largest over all outputs is {scores.max():.6g}.",
        )


def _check_measure(measure: AbstractMeasure, space: AbstractSpace, outputs: Array, key: Array) -> None:
    name = type(measure).__name__
    _require(measure.space == space, f"{name}.space is {measure.space}, expected {space}.")
    total = float(jnp.exp(jax.vmap(measure.log_prob)(outputs)).sum())
    _require(abs(total - 1) < TOLERANCE, f"{name}.log_prob: probabilities of all outputs sum to {total:.6g}, not to 1.")
    _require(
        jnp.allclose(jnp.exp(measure.log_probs(outputs)), jnp.exp(jax.vmap(measure.log_prob)(outputs)), atol=TOLERANCE),
        f"{name}.log_probs differs from log_prob.",
    )
    draws = measure.sample(DRAWS, key=key)
    expected = (DRAWS, *space.shape)
    _require(draws.shape == expected, f"{name}.sample({DRAWS}) has shape {draws.shape}, expected {expected}.")
    _require(jax.vmap(space.contains)(draws), f"{name}.sample draws outputs that are not in the space.")
    _require(
        jnp.isfinite(jax.vmap(measure.log_prob)(draws)), f"{name}.sample draws outputs to which log_prob gives -inf."
    )


def _check_method(coupling: AbstractCoupling, q: AbstractMeasure, theta: Array) -> None:
    method, truth = coupling.exact(q, KL()), Enumeration(coupling, KL())
    if method is None:
        return
    name = f"{type(method).__name__} under a {type(q).__name__} reference"
    value, expected = float(method.log_partition(theta, q)), float(truth.log_partition(theta, q))
    _require(
        abs(value - expected) < TOLERANCE * max(1.0, abs(expected)),
        f"{name}: log_partition is {value:.6g}, by enumeration {expected:.6g}.",
    )
    _require(
        jnp.allclose(method.marginals(theta, q), truth.marginals(theta, q), atol=10 * TOLERANCE),
        f"{name}: marginals differ from those by enumeration.",
    )
    score = lambda y: float(q.log_prob(y) + coupling(theta, y))  # noqa: E731
    value, best = score(method.mode(theta, q)), score(truth.mode(theta, q))
    _require(value > best - TOLERANCE, f"{name}: mode has log-weight {value:.6g}, the best output {best:.6g}.")
