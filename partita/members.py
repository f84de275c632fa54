"""Several models trained at once, as one program: on the same rows, each with weights of its own.

Member i of a cross-fitted committee leaves out fold i, and is stopped where it is best there; a grid of learning rates
and penalties is members that share all rows. The members' mean is one model again.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .batches import AbstractRows, CheckedRows, Chunk
from .model import EBM, Bound, Energy, Network, Residual
from .networks import Mean, Scaled
from .objectives import AbstractObjective
from .solver import Progress, Solver, State, held_out, ran_away, run_chunk
from .structures import AbstractCoupling
from .types import Array, Batch, Bool, Float, Key, PyTree

__all__ = ["Members", "averaged", "can_average", "fit", "made", "member", "scaled", "size", "stacked", "start"]


# Compiled as a whole, but little optimized: it runs no slower, and compiles in 6 s in place of 21 on yeast.
OPTIONS: Any = {"xla_backend_optimization_level": 1}
# Half the time to compile again, and steps that take half as long again: for runs that are over before that counts.
BRIEF_OPTIONS: Any = {**OPTIONS, "xla_cpu_use_fusion_emitters": False}
BRIEF_STEPS = 300
# So many at a time: of more, the states leave a core's cache. emotions, MLP, one core: 0.23 ms a step and member with
# 6, 0.26 with 12, 0.32 with 36. Cores that are free take a block each.
BLOCK = 6
compiled = eqx.filter_jit(compiler_options=OPTIONS)  # pyright: ignore
compiled_briefly = eqx.filter_jit(compiler_options=BRIEF_OPTIONS)  # pyright: ignore


class Members(eqx.Module):
    """Trained members: arrays of `models` and `state` have the members as leading axis.

    `models` are the best seen of each member where rows are held out, else the last. `losses` has the loss of every
    step, `scales` the largest |g| where the objective records it, `measures` the held-out loss of every validation; all
    with a column for each member, NaN after its end. `steps` says when the validations were, `interrupted` whether
    KeyboardInterrupt ended the run.
    """

    models: EBM
    state: State
    losses: Float[np.ndarray, "steps members"]
    scales: Float[np.ndarray, "steps members"]
    measures: Float[np.ndarray, "validations members"]
    steps: tuple[int, ...] = eqx.field(static=True)
    interrupted: bool = eqx.field(static=True, default=False)

    @property
    def best(self) -> Float[np.ndarray, " members"]:
        """The least held-out loss of each member, infinite where there is none."""
        values = np.where(np.isnan(self.measures), np.inf, self.measures)
        return values.min(axis=0, initial=np.inf)

    def ran_away(self, objective: AbstractObjective) -> Bool[np.ndarray, " members"]:
        """Which members diverged with finite losses, as `solver.ran_away` decides it."""
        model, columns = member(self.state.model, 0), zip(self.losses.T, self.scales.T, strict=True)
        each = [ran_away(objective, model, *(part[np.isfinite(part)] for part in parts)) for parts in columns]
        return np.array(each) & ~np.asarray(self.state.failed)

    def stale(self) -> np.ndarray:
        """How many validations ago each member was at its best."""
        values = np.where(np.isnan(self.measures), np.inf, self.measures)
        return np.zeros(values.shape[1], int) if not len(values) else len(values) - 1 - values.argmin(axis=0)


def stacked(trees: Sequence[PyTree]) -> PyTree:
    """One tree of many, its arrays with a leading axis; what is no array must be the same in all."""
    return _gathered(trees, np.stack, jnp.stack)


def _gathered(trees: Sequence[PyTree], gather: Callable, gather_keys: Callable) -> PyTree:
    """By numpy, for which nothing need be compiled; keys are no arrays to it."""

    def together(*leaves):
        if not eqx.is_array(leaves[0]):
            return leaves[0]
        return gather_keys(leaves) if _is_key(leaves[0]) else jnp.asarray(gather(leaves))

    return jax.tree.map(together, *trees)


def member(tree: PyTree, i: int | slice | np.ndarray) -> PyTree:
    """The i-th of a stacked tree; of several i, a stack of them."""

    def cut(leaf):
        if not eqx.is_array(leaf):
            return leaf
        return leaf[i] if _is_key(leaf) else jnp.asarray(np.asarray(leaf)[i])

    return jax.tree.map(cut, tree)


def made(make: Callable[[Key], EBM], keys: Any) -> EBM:
    """A model for each key, stacked."""
    return stacked([make(key) for key in keys])


def start(solver: Solver, models: EBM, *, key: Any, state: State | None = None) -> Members:
    """Stacked models before the first step, with a new state or that of an earlier run; one key, or one for each."""
    solver.check(member(models, 0))
    nothing = np.zeros((0, size(models)))
    keys = key if key.ndim else jax.random.split(jax.random.fold_in(key, 0), size(models))
    begun = _begin(_for_each(solver, models), models, keys) if state is None else state
    return Members(models, begun, nothing, nothing, nothing, ())


def fit(
    solver: Solver,
    models: EBM,
    data: AbstractRows | CheckedRows,
    *,
    weights: Float[np.ndarray, "members n"] | None = None,
    held: Batch | None = None,
    judge: AbstractObjective | None = None,
    steps: int,
    key: Key,
    every: int = 100,
    patience: int | None = None,
    callbacks: Sequence[Callable[[Progress], bool | None]] = (),
    keep: Callable[[Members], None] | None = None,
    resume: Members | None = None,
) -> Members:
    """Train stacked models by one solver, or by one each if its arrays are stacked too.

    `held` has a leading axis for the members; every `every` steps the `judge` (the solver's own objective unless given)
    measures each member on its own rows, and a member stops that has not improved `patience` times. `keep` is told
    everything there is after each chunk: `resume` goes on from it, to the same end bit for bit. KeyboardInterrupt ends
    the run after the last whole chunk, with a result that says so; before the first one it is raised.
    """
    judge = solver.objective if judge is None else judge
    data_key, judge_key = jax.random.split(jax.random.fold_in(key, 1))
    now = start(solver, models, key=key) if resume is None else resume
    reader = data.open(member(models, 0), key=data_key)
    if held is not None and not len(now.losses):
        # Before the first step p is q: a member that learns nothing worth having stays there.
        now = _judge(now, judge, held, judge_key)
    run = _Run(_run_briefly if steps <= BRIEF_STEPS else _run, _for_each(solver, models), *_blocks(now.state.key))
    active, asked = _active(now, patience), False
    try:
        while (step := len(now.losses)) < steps and active.any() and not asked:
            chunk = reader.read(step, min(every - step % every, steps - step), every)
            moved = _advance(now, run, chunk, weights, active, every)
            now = moved if held is None else _judge(moved, judge, held, judge_key)
            active = _active(now, patience)
            if keep is not None:
                keep(now)
            measure = float(now.measures[-1].mean()) if held is not None else None
            told = Progress(len(now.losses), steps, float(np.nanmean(now.losses[-1])), measure, now.models)
            answers = [callback(told) for callback in callbacks]
            asked = any(answers)
    except KeyboardInterrupt:
        if not len(now.losses):
            raise
        return dataclasses.replace(now, interrupted=True)
    return now


def size(models: EBM) -> int:
    """How many they are."""
    return jax.tree.leaves(eqx.filter(models, eqx.is_array))[0].shape[0]


def scaled(model: EBM, factor: float) -> EBM:
    """The model with g times a factor, where its coupling is linear in what it is made of."""
    if factor == 1.0:
        return model
    coupling = jax.tree.map(lambda leaf: factor * leaf if eqx.is_array(leaf) else leaf, model.g.coupling)
    g = Energy(Scaled(model.g.h, jnp.asarray(factor, float)), coupling)
    return eqx.tree_at(lambda model: model.g, model, g)


def _for_each(solver: Solver, models: EBM) -> Solver:
    """The solver's arrays with one entry per member, whether they came so or not."""
    if solver.learning_rate.ndim:
        return solver
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * size(models)) if eqx.is_array(leaf) else leaf, solver)


def _active(now: Members, patience: int | None) -> np.ndarray:
    """Which members go on: no failure, and not too long since their best."""
    going = ~np.asarray(now.state.failed)
    return going if patience is None else going & (now.stale() < patience)


def _advance(
    now: Members,
    run: "_Run",
    chunk: Chunk,
    weights: np.ndarray | None,
    active: np.ndarray,
    every: int,
) -> Members:
    """The chunk's steps, of the members that are still active."""
    index = np.asarray(chunk.data.index)
    # As large without weights as with them: one program for both.
    share = np.ones((len(active), len(index))) if weights is None else np.asarray(weights)[:, index]
    # Of the members that are active; a state may come from an earlier run, `partial_fit`'s.
    on, step = np.arange(every) < chunk.steps, np.asarray(now.state.step).max()
    state, record = run(now.state, jnp.asarray(share, float), active, (chunk.data, chunk.rows, on, step))
    # A member that has stopped has no loss.
    new = np.where(active[:, None, None], record, np.nan).T[: chunk.steps]
    losses, scales = np.concatenate([now.losses, new[:, 0]]), np.concatenate([now.scales, new[:, 1]])
    models = now.models if len(now.measures) else state.model
    return Members(models, state, losses, scales, now.measures, now.steps)


def _judge(now: Members, objective: AbstractObjective, held: Batch, key: Key) -> Members:
    """Validate, and keep of each member the best."""
    values = np.asarray(_held_out(objective, now.state.model, held, key), float)
    better = jnp.asarray(values < now.best)
    first = not len(now.measures)

    def choose(new, old):
        return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old) if eqx.is_array(new) else new

    models = now.state.model if first else jax.tree.map(choose, now.state.model, now.models)
    measures, steps = np.vstack([now.measures, values]), (*now.steps, len(now.losses))
    return Members(models, now.state, now.losses, now.scales, measures, steps)


def _begin(solver: Solver, models: EBM, keys: Any) -> State:
    """The first state of each. Its models need not pass through a program."""
    rest = _start(solver, models, keys)
    return eqx.tree_at(_both, rest, (models, models), is_leaf=lambda leaf: leaf is None)


@compiled_briefly
def _start(solver: Solver, models: EBM, keys: Any) -> State:
    """All of the first state but the models."""

    def one(solver, model, key):
        return eqx.tree_at(_both, solver.init(model, key=key), (None, None))

    return eqx.filter_vmap(one, out_axes=eqx.if_array(0))(solver, models, keys)


def _both(state: State) -> tuple[Any, Any]:
    return state.model, state.good


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _steps(
    companies: int, solver: Solver, state: State, weights: Array, active: Any, shared: tuple[Batch, Any, Any, Any]
) -> tuple[State, Array]:
    """The steps of a chunk, member by member in companies that have their key in common, and so their draws.

    With the states, (loss, scale) of each member and step.
    """
    data, rows, on, step = shared

    def one(solver, state, weight, active, key):
        weight = weight if data.weight is None else weight * data.weight
        weighted = dataclasses.replace(data, weight=weight)
        moved, record = run_chunk(solver, state, weighted, rows, on, going=active, key=(key, step))
        loss = record["loss"]
        return moved, jnp.stack([loss, record.get("scale", jnp.full_like(loss, jnp.nan))])

    def company(solver, state, weights, active, keys):
        return eqx.filter_vmap(one, in_axes=(*[eqx.if_array(0)] * 4, None), out_axes=eqx.if_array(0))(
            solver, state, weights, active, keys[0]
        )

    each = (solver, state, weights, active, state.key)
    if companies == len(active):
        return eqx.filter_vmap(one, out_axes=eqx.if_array(0))(*each)
    size = len(active) // companies
    found = eqx.filter_vmap(company, out_axes=eqx.if_array(0))(*_reshaped(each, 1, companies, size))
    return _reshaped(found, 2, len(active))


_run, _run_briefly = compiled(_steps), compiled_briefly(_steps)


def _reshaped(tree: PyTree, axes: int, *sizes: int) -> PyTree:
    """Its arrays with other leading axes."""
    return jax.tree.map(lambda leaf: leaf.reshape(*sizes, *leaf.shape[axes:]) if eqx.is_array(leaf) else leaf, tree)


class _Run(NamedTuple):
    """A chunk of all members, block by block: one program for all blocks, and as many at a time as there are cores."""

    program: Any
    solver: Solver
    blocks: list[slice]
    companies: int

    def __call__(self, state: State, weights: Array, active: np.ndarray, shared: Any) -> tuple[State, np.ndarray]:
        if len(self.blocks) == 1:
            state, record = self.program(self.companies, self.solver, state, weights, active, shared)
            return state, np.asarray(record)
        parts = [(*member((self.solver, state, weights), block), active[block]) for block in self.blocks]
        # Compiled here: settings of JAX may be those of this thread alone.
        program = self.program.lower(self.companies, *parts[0], shared).compile()

        def moved(part: tuple) -> tuple[State, np.ndarray]:
            _, before, _, going = part
            if not going.any():
                return before, np.full((len(going), 2, len(shared[2])), np.nan)
            after, record = program(self.companies, *part, shared)
            return after, np.asarray(record)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            states, records = zip(*pool.map(moved, parts), strict=True)
        return _gathered(states, np.concatenate, jnp.concatenate), np.concatenate(records)


def _blocks(keys: Any) -> tuple[list[slice], int]:
    """Members that are trained at a time, and how many companies are in each such block: whole ones, or part of one."""
    num, companies = len(keys), _companies(keys)
    size = num // companies
    block = _divisor(companies, BLOCK // size) * size if size <= BLOCK else _divisor(size, BLOCK)
    # An accelerator is the faster the more it is given at once; and members one by one are slower than all together.
    if jax.default_backend() != "cpu" or block < BLOCK // 2:
        block = num
    return [slice(i, i + block) for i in range(0, num, block)], max(1, block // size)


def _divisor(number: int, most: int) -> int:
    """The largest divisor up to `most`."""
    return max(d for d in range(1, most + 1) if number % d == 0)


def _companies(keys: Any) -> int:
    """How many blocks of equally many members have a key in common."""
    data = np.asarray(jax.random.key_data(keys))
    same = (data[1:] == data[:-1]).all(axis=1)
    starts = np.flatnonzero(np.append(True, ~same))
    sizes = np.diff(np.append(starts, len(data)))
    return len(starts) if (sizes == sizes[0]).all() else len(data)


@compiled
def _held_out(objective: AbstractObjective, models: EBM, held: Batch, key: Key) -> Float[Array, " members"]:
    return eqx.filter_vmap(lambda model, batch: held_out(objective, model, batch, key))(models, held)


def can_average(coupling: AbstractCoupling) -> bool:
    """Whether the mean of several energies with this coupling has one again."""
    return coupling.can_average


def averaged(models: EBM) -> EBM:
    """The model whose energy is the mean of the members', its tau the mean of their corrections or networks.

    One member is its own mean, whatever its coupling.
    """
    if size(models) == 1:
        return member(models, 0)
    if not can_average(models.g.coupling):
        name = type(models.g.coupling).__name__
        raise ValueError(f"The mean of several energies with a {name} coupling has no such coupling; use one member.")
    tau = models.tau
    if isinstance(tau, Residual | Network):
        tau = eqx.tree_at(lambda tau: tau.body, tau, Mean(tau.body))
    elif not isinstance(tau, Bound):
        tau = member(tau, 0)
    coupling = jax.tree.map(lambda leaf: leaf.mean(axis=0) if eqx.is_array(leaf) else leaf, models.g.coupling)
    g = Energy(Mean(models.g.h), coupling)
    return EBM(g, tau, q=member(models.q, 0), f=models.f, surrogate=member(models.surrogate, 0))
