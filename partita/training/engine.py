"""Steps of training: the gradient, the update, and chunks of steps for a stack of models as one compiled program.

A step is a function of (state, batch, key). This is the only module that takes the gradient of an objective.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from ..model import EBM
from ..types import Array, Batch, Bool, Float, Int, Key, Keys, PyTree, Scalar
from .optimizer import Parts, Solver, parts
from .runs import OPTIONS, TrainState

__all__ = ["init", "init_stack", "run_stack", "run_stack_briefly", "step"]

# Half the time to compile again, and steps that take half as long again: for runs of few steps, which are over before
# faster steps would pay for the compilation.
BRIEF_OPTIONS: Any = {**OPTIONS, "xla_cpu_use_fusion_emitters": False}
BRIEF_STEPS = 300


def init(solver: Solver, model: EBM, *, key: Key) -> TrainState:
    """The state of one model before the first step. It has the same structure whatever is trained.

    Parameters
    ----------
    solver
        The objective and how to minimize it.
    model
        The model to train.
    key
        Of all random numbers.

    Returns
    -------
    TrainState
        To be given to `step`.
    """
    solver.check(model)
    _, run_key, objective_key = jax.random.split(key, 3)
    optimizer = solver.init_optimizers(parts(eqx.filter(model, model.trained())))
    objective = solver.objective.init(model, key=objective_key)
    return TrainState(model, model, optimizer, objective, jnp.asarray(0), jnp.asarray(False), run_key)


def step(solver: Solver, state: TrainState, batch: Batch) -> tuple[TrainState, dict[str, Scalar]]:
    """One gradient step, for loops of your own.

    Parameters
    ----------
    solver
        The objective and how to minimize it.
    state
        What `init` or the last step returned.
    batch
        The rows of this step.

    Returns
    -------
    tuple
        The next state, and numbers worth recording. Where the loss or its gradient is not finite, the state is that of
        the last good model, for good.
    """
    layout = _Flattening(state.model)
    factor = 1.0 if solver.schedule is None else solver.schedule(state.step)
    key = jax.random.fold_in(state.key, state.step)
    moved, info = _step(solver, layout, layout.pack(state), batch, factor, (key, state.step))
    return layout.unpack(moved), info


# The weights of g, of tau and of the surrogate, each as one vector.
Weights = tuple[Float[Array, " g"], Float[Array, " tau"], Float[Array, " surrogate"]]


class _Packed(eqx.Module):
    """A state with its weights in vectors: a step has few operations to compile and to run, however many layers."""

    weights: Weights
    good: Weights
    optimizer: PyTree
    objective: PyTree
    step: Int[Array, ""]
    failed: Bool[Array, ""]
    key: Key


class _Flattening:
    """Where a model's weights are in the vectors, and everything of it that is not trained."""

    def __init__(self, model: EBM):
        params, self.fixed = eqx.partition(model, model.trained())
        self.unravel = tuple(ravel_pytree(part)[1] for part in parts(params))

    def trees(self, weights: Sequence[Any]) -> tuple[PyTree, ...]:
        return tuple(
            None if part is None else unravel(part) for unravel, part in zip(self.unravel, weights, strict=True)
        )

    def model(self, weights: Weights) -> EBM:
        trees = self.trees(weights)
        return eqx.combine(eqx.tree_at(parts, self.fixed, trees, is_leaf=lambda leaf: leaf is None), self.fixed)

    def pack(self, state: TrainState) -> _Packed:
        weights, good = _weights(state.model), _weights(state.good)
        return _Packed(weights, good, state.optimizer, state.objective, state.step, state.failed, state.key)

    def unpack(self, now: _Packed) -> TrainState:
        model, good = self.model(now.weights), self.model(now.good)
        return TrainState(model, good, now.optimizer, now.objective, now.step, now.failed, now.key)


def _weights(model: EBM) -> Weights:
    g, tau, surrogate = (ravel_pytree(part)[0] for part in parts(eqx.filter(model, model.trained())))
    return g, tau, surrogate


def _ravel_all(trees: Sequence[PyTree]) -> Any:
    """Each tree as one vector; None stays None."""
    return tuple(None if tree is None else ravel_pytree(tree)[0] for tree in trees)


def _step(
    solver: Solver, layout: _Flattening, now: _Packed, batch: Batch, factor: Any, when: tuple[Key, Int[Array, ""]]
) -> tuple[_Packed, dict[str, Scalar]]:
    """A step of the phase that its number belongs to. All models of a stack share it, so vmap keeps the branches."""
    phases = solver.train.phases()
    key, number = when
    if len(phases) == 1:
        return _move(solver, phases[0], layout, now, batch, factor, key)
    arrays, fixed = eqx.partition(now, eqx.is_array)

    def branch(phase, arrays):
        moved, info = _move(solver, phase, layout, eqx.combine(arrays, fixed), batch, factor, key)
        return eqx.filter(moved, eqx.is_array), info

    branches = [functools.partial(branch, phase) for phase in phases]
    arrays, info = jax.lax.switch(solver.train.phase(number), branches, arrays)
    return eqx.combine(arrays, fixed), info


def _move(
    solver: Solver, phase: Parts, layout: _Flattening, now: _Packed, batch: Batch, factor: Any, key: Key
) -> tuple[_Packed, dict[str, Scalar]]:
    """A step of the parts of a phase; the surrogate's is always among them."""
    is_trained = (phase.g, phase.tau and solver.objective.trains_tau, True)

    def total(trained):
        model = layout.model(_fill(trained, now.weights))
        loss, (carried, info) = solver.objective.loss(model, now.objective, batch, key=key)
        penalty = solver.penalize(model.g) if phase.g else 0.0
        return loss + penalty, (carried, {"loss": loss, **info})

    trained = tuple(part if on else None for part, on in zip(now.weights, is_trained, strict=True))
    (value, (carried, info)), grads = jax.value_and_grad(total, has_aux=True)(trained)
    norm = optax.tree.norm(grads)
    updated, optimizer = solver.update(layout.trees(grads), now.optimizer, layout.trees(now.weights), factor)
    updated = _ravel_all(updated)
    finite = jnp.isfinite(value) & jnp.isfinite(norm) & jnp.isfinite(optax.tree.norm(updated))
    weights = _fill(updated, now.weights)
    moved = _Packed(weights, now.weights, optimizer, carried, now.step + 1, now.failed, now.key)
    failed = eqx.tree_at(lambda s: (s.weights, s.failed), now, (now.good, jnp.asarray(True)))
    return _where(finite & ~now.failed, moved, failed), {**info, "gradient_norm": norm}


def _fill(trained: Sequence[Any], weights: Weights) -> Weights:
    """The weights, with those of the trained parts in place of their own."""
    g, tau, surrogate = (old if new is None else new for new, old in zip(trained, weights, strict=True))
    return g, tau, surrogate


def _where(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    """One tree or the other."""
    select = lambda a, b: jax.lax.select(condition, a, b) if eqx.is_array(a) else a  # noqa: E731
    return jax.tree.map(select, yes, no)


class Steps(eqx.Module):
    """What all models of a stack share in a chunk: the data, and for every step its rows, whether it is done, and the
    factor of the schedule."""

    data: Batch
    rows: Any
    is_done: Any
    factors: Any
    first: Any


def _run_chunk(solver: Solver, state: TrainState, chunk: Steps, key: Key, active: Any) -> tuple[TrainState, dict]:
    """A scan over the steps of a chunk, for one model. After a failure, and where it is not `active`, nothing moves."""
    layout = _Flattening(state.model)
    begun = layout.pack(state)
    arrays, fixed = eqx.partition(begun, eqx.is_array)

    def one(arrays, xs):
        rows, is_done, factor, number = xs
        batch = chunk.data if rows is None else jax.tree.map(lambda a: a[rows], chunk.data)
        when = (jax.random.fold_in(key, number), number)

        # Traced once: for the shapes, and as a branch.
        @jax.jit
        def go(arrays):
            moved, info = _step(solver, layout, eqx.combine(arrays, fixed), batch, factor, when)
            return eqx.filter(moved, eqx.is_array), info

        shapes = jax.eval_shape(go, arrays)[1]
        idle = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        # By `is_done` alone, which models share: vmapped, a branch that depends on a model would copy every state.
        return jax.lax.cond(is_done, go, lambda a: (a, idle), arrays)

    numbers = chunk.first + jnp.arange(len(chunk.is_done))
    arrays, record = jax.lax.scan(one, arrays, (chunk.rows, chunk.is_done, chunk.factors, numbers))
    return layout.unpack(_where(active, eqx.combine(arrays, fixed), begun)), record


def _run_stack(
    groups: int, solver: Solver, state: TrainState, weights: Array | None, active: Any, chunk: Steps
) -> tuple[TrainState, dict[str, Array]]:
    """The steps of a chunk, for a stack whose groups have their key in common, and so their draws."""

    def one(solver, state, weight, active, key):
        data = chunk.data
        if weight is not None:
            weight = weight if data.weight is None else weight * data.weight
            data = dataclasses.replace(data, weight=weight)
        return _run_chunk(solver, state, dataclasses.replace(chunk, data=data), key, active)

    def group(solver, state, weights, active, keys):
        return eqx.filter_vmap(one, in_axes=(*[eqx.if_array(0)] * 4, None), out_axes=eqx.if_array(0))(
            solver, state, weights, active, keys[0]
        )

    stacks, num = (solver, state, weights, active, state.key), len(active)
    if num == 1:
        return _reshape(one(*jax.tree.map(lambda a: a[0] if eqx.is_array(a) else a, stacks)), 0, 1)
    if groups == num:
        return eqx.filter_vmap(one, out_axes=eqx.if_array(0))(*stacks)
    grouped = eqx.filter_vmap(group, out_axes=eqx.if_array(0))(*_reshape(stacks, 1, groups, num // groups))
    return _reshape(grouped, 2, num)


def _reshape(tree: PyTree, axes: int, *sizes: int) -> PyTree:
    """The arrays with other leading axes."""
    return jax.tree.map(lambda leaf: leaf.reshape(*sizes, *leaf.shape[axes:]) if eqx.is_array(leaf) else leaf, tree)


run_stack = eqx.filter_jit(compiler_options=OPTIONS)(_run_stack)  # pyright: ignore
run_stack_briefly = eqx.filter_jit(compiler_options=BRIEF_OPTIONS)(_run_stack)  # pyright: ignore


def init_stack(solver: Solver, models: EBM, keys: Keys) -> TrainState:
    """The state of a stack of models, by a stack of solvers, before the first step."""
    rest = _init_rest(solver, models, keys)
    # The models themselves need not pass through a compiled program.
    return eqx.tree_at(_both_models, rest, (models, models), is_leaf=lambda leaf: leaf is None)


@eqx.filter_jit(compiler_options=BRIEF_OPTIONS)  # pyright: ignore
def _init_rest(solver: Solver, models: EBM, keys: Any) -> TrainState:
    """All of the first state but the models."""

    def one(solver, model, key):
        return eqx.tree_at(_both_models, init(solver, model, key=key), (None, None))

    return eqx.filter_vmap(one, out_axes=eqx.if_array(0))(solver, models, keys)


def _both_models(state: TrainState) -> tuple[Any, Any]:
    return state.model, state.good
