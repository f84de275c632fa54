"""Training: init, step and fit. One compiled program runs a chunk of steps; everything else happens between chunks.

Learning rates and penalty are traced numbers, so a new value does not recompile, and a grid of them is a `vmap`.
"""

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from .batches import AbstractSource, Chunk, Rows
from .divergences import KL
from .model import EBM, Energy
from .objectives import AbstractObjective
from .types import RESULTS, Array, Batch, Bool, Float, Int, Key, PyTree, Scalar

__all__ = [
    "BOTH",
    "ONLY_G",
    "ONLY_TAU",
    "AbstractTraining",
    "Alternating",
    "HeldOut",
    "History",
    "Parts",
    "Progress",
    "Solution",
    "Solver",
    "State",
    "cosine",
    "fit",
    "ran_away",
]


# Nats of log p that rounding of g may cost.
MAX_ROUNDING = 0.1


@functools.cache
def cosine(steps: int) -> Callable[[Any], Any]:
    """A schedule from 1 to 0: one object per number of steps, so that programs are compiled once."""
    return optax.cosine_decay_schedule(1.0, steps)


class AbstractTraining(eqx.Module):
    """Which parts of a model each step trains."""

    @abc.abstractmethod
    def phases(self) -> tuple["Parts", ...]:
        """The parts that are trained together, one entry for each kind of step."""

    @abc.abstractmethod
    def phase(self, step: Int[Array, ""]) -> Int[Array, ""]:
        """The index of the phase that a step belongs to."""


class Parts(AbstractTraining):
    """Every step trains the same parts: g, tau, or both. `BOTH`, `ONLY_G` and `ONLY_TAU` are the three of them."""

    g: bool = eqx.field(static=True, default=True)
    tau: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        if not (self.g or self.tau):
            raise ValueError("Parts(g=False, tau=False) trains nothing. Train g, tau, or both.")

    def phases(self):
        return (self,)

    def phase(self, step):
        return jnp.asarray(0)


BOTH, ONLY_G, ONLY_TAU = Parts(), Parts(tau=False), Parts(g=False)


class Alternating(AbstractTraining):
    """Alternating minimization: `g` steps that train g, then `tau` steps that train tau, and again.

    The number of a step decides its phase, so that a resumed run goes on in the right one.

    >>> [int(Alternating(g=2, tau=1).phase(jnp.asarray(step))) for step in range(6)]
    [0, 0, 1, 0, 0, 1]
    """

    g: int = eqx.field(static=True, default=1)
    tau: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        for name, length in (("g", self.g), ("tau", self.tau)):
            if not isinstance(length, int | np.integer) or isinstance(length, bool) or length < 1:
                raise ValueError(
                    f"Alternating needs whole numbers of steps, at least 1 for g and for tau; got {name} = {length!r}. "
                    "To train one part alone use solver.ONLY_G or solver.ONLY_TAU."
                )

    def phases(self):
        return ONLY_G, ONLY_TAU

    def phase(self, step):
        return jnp.where(step % (self.g + self.tau) < self.g, 0, 1)


class State(eqx.Module):
    """Everything a run needs to go on. `model` is the current one, `good` the last whose loss was seen to be finite."""

    model: EBM
    good: EBM
    optimizer: PyTree
    objective: PyTree
    step: Int[Array, ""]
    failed: Bool[Array, ""]
    key: Key
    data_key: Key


class Solver(eqx.Module):
    """An objective and how to minimize it.

    `optimizer` makes an optax transformation of a learning rate (`optax.adam`, `optax.sgd`, ...); it sees the weights
    of g as one vector, and those of tau as another. Without one it is the objective's `preferred_optimizer`. `schedule`
    maps the step to a factor on the learning rates. The penalty is 1/2 penalty |W|^2 over the weights of h and of the
    coupling; never over biases or tau. `coupling_penalty` is that of the coupling's own weights, `penalty` unless
    given: pairs of labels that are few beside the rows need less.

    `train` says which parts are trained: `BOTH`, `ONLY_G`, `ONLY_TAU`, or in turn, `Alternating(g=5, tau=1)`. The
    others keep their weights and their optimizer state bit for bit, and no gradient is taken with respect to them. The
    weights of an amortized surrogate are trained in every step: its draws must follow p while g moves, and with g fixed
    they still have p to reach.
    """

    objective: AbstractObjective
    learning_rate: Float[Array, ""]
    tau_learning_rate: Float[Array, ""]
    penalty: Float[Array, ""]
    coupling_penalty: Float[Array, ""]
    optimizer: Callable[[Any], optax.GradientTransformation] = eqx.field(static=True)
    schedule: Callable[[Any], Any] | None = eqx.field(static=True)
    train: AbstractTraining

    def __init__(
        self,
        objective: AbstractObjective,
        *,
        learning_rate: float = 1e-3,
        tau_learning_rate: float | None = None,
        penalty: float = 0.0,
        coupling_penalty: float | None = None,
        optimizer: Callable[[Any], optax.GradientTransformation] | None = None,
        schedule: Callable[[Any], Any] | None = None,
        train: AbstractTraining = BOTH,
    ):
        for name, value in [("learning_rate", learning_rate), ("tau_learning_rate", tau_learning_rate)]:
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive; got {value}.")
        coupling_penalty = penalty if coupling_penalty is None else coupling_penalty
        for name, value in [("penalty", penalty), ("coupling_penalty", coupling_penalty)]:
            if not value >= 0:
                raise ValueError(f"{name} must be non-negative; got {value}.")
        _check_training(train, objective)
        self.objective = objective
        self.learning_rate = jnp.asarray(learning_rate, float)
        self.tau_learning_rate = jnp.asarray(learning_rate if tau_learning_rate is None else tau_learning_rate, float)
        self.penalty = jnp.asarray(penalty, float)
        self.coupling_penalty = jnp.asarray(coupling_penalty, float)
        self.optimizer = objective.preferred_optimizer() if optimizer is None else optimizer
        self.schedule = schedule
        self.train = train

    def check(self, model: EBM) -> None:
        """Raise where the objective cannot serve the model, or where a step would train nothing."""
        self.objective.check(model)
        g, tau, _ = _parts(eqx.filter(model, model.trained()))
        for parts in self.train.phases():
            if not jax.tree.leaves((g if parts.g else None, tau if parts.tau else None)):
                name = " and ".join(name for name, on in (("g", parts.g), ("tau", parts.tau)) if on)
                raise ValueError(
                    f"Steps that train {name} would learn nothing: this {name} has no parameters (tau is a "
                    f"{type(model.tau).__name__}). Train the other part, or use another tau, model.Network say."
                )

    def init(self, model: EBM, *, key: Key) -> State:
        """The state before the first step. It has the same structure whatever is trained."""
        self.check(model)
        data_key, run_key, objective_key = jax.random.split(key, 3)
        moments = tuple(
            self.optimizer(rate).init(part) for rate, part in zip(self._rates(0), _flat(model), strict=True)
        )
        state = self.objective.init(model, key=objective_key)
        return State(model, model, moments, state, jnp.asarray(0), jnp.asarray(False), run_key, data_key)

    def step(self, state: State, batch: Batch) -> tuple[State, dict[str, Scalar]]:
        """One gradient step; where the loss or its gradient is not finite, back to the last good model for good."""
        layout = _Layout(state.model)
        key = jax.random.fold_in(state.key, state.step)
        moved, info = self._step(layout, layout.pack(state), batch, key, state.step)
        return layout.unpack(moved, state.data_key), info

    def _step(
        self, layout: "_Layout", now: "_Packed", batch: Batch, key: Key, step: Int[Array, ""]
    ) -> tuple["_Packed", dict[str, Scalar]]:
        """A step of the phase that its number belongs to. Members share `step`, so that vmap keeps the branches."""
        phases = self.train.phases()
        if len(phases) == 1:
            return self._move(phases[0], layout, now, batch, key)
        arrays, fixed = eqx.partition(now, eqx.is_array)

        def branch(parts, arrays):
            moved, info = self._move(parts, layout, eqx.combine(arrays, fixed), batch, key)
            return eqx.filter(moved, eqx.is_array), info

        branches = [functools.partial(branch, parts) for parts in phases]
        arrays, info = jax.lax.switch(self.train.phase(step), branches, arrays)
        return eqx.combine(arrays, fixed), info

    def _move(
        self, parts: Parts, layout: "_Layout", now: "_Packed", batch: Batch, key: Key
    ) -> tuple["_Packed", dict[str, Scalar]]:
        """A step of the parts given; the surrogate's is always among them."""
        moving = (parts.g, parts.tau and self.objective.trains_tau, True)

        def total(trained):
            model = layout.model(_filled(trained, now.weights))
            loss, (carried, info) = self.objective.loss(model, now.objective, batch, key=key)
            penalty = self._penalize(model.g) if parts.g else 0.0
            return loss + penalty, (carried, {"loss": loss, **info})

        trained = tuple(part if on else None for part, on in zip(now.weights, moving, strict=True))
        (value, (carried, info)), grads = jax.value_and_grad(total, has_aux=True)(trained)
        size = optax.tree.norm(grads)
        updated, moments = self._update(now, grads)
        finite = jnp.isfinite(value) & jnp.isfinite(size) & jnp.isfinite(optax.tree.norm(updated))
        weights = _filled(updated, now.weights)
        moved = _Packed(weights, now.weights, moments, carried, now.step + 1, now.failed, now.key)
        failed = eqx.tree_at(lambda s: (s.weights, s.failed), now, (now.good, jnp.asarray(True)))
        return where(finite & ~now.failed, moved, failed), {**info, "gradient_norm": size}

    def _penalize(self, g: Energy) -> Scalar:
        inside, between = _squared_weights(g.h), _squared_weights(g.coupling)
        between = between + g.coupling.squared_shared()
        return 0.5 * (self.penalty * inside + self.coupling_penalty * between)

    def _update(self, now: "_Packed", grads: PyTree) -> tuple[PyTree, PyTree]:
        """The new weights, None where there is no gradient, and the optimizer's states."""
        new, moments = [], []
        for rate, part, slope, moment in zip(self._rates(now.step), now.weights, grads, now.optimizer, strict=True):
            updated = None
            if slope is not None:
                update, moment = self.optimizer(rate).update(slope, moment, part)
                updated = optax.apply_updates(part, update)
            new.append(updated)
            moments.append(moment)
        return tuple(new), tuple(moments)

    def _rates(self, step: Any) -> tuple[Any, Any, Any]:
        """The learning rates of g, of tau and of the surrogate."""
        factor = 1.0 if self.schedule is None else self.schedule(step)
        return self.learning_rate * factor, self.tau_learning_rate * factor, self.learning_rate * factor


# Those of g, of tau and of the surrogate, each as one vector.
Weights = tuple[Float[Array, " g"], Float[Array, " tau"], Float[Array, " surrogate"]]


def _filled(trained: PyTree, weights: Weights) -> Weights:
    """The weights, with those of the trained parts in place of their own."""
    g, tau, surrogate = (old if new is None else new for new, old in zip(trained, weights, strict=True))
    return g, tau, surrogate


class _Packed(eqx.Module):
    """A state with its weights in vectors: a step has few operations to compile and to run, however many layers."""

    weights: Weights
    good: Weights
    optimizer: PyTree
    objective: PyTree
    step: Int[Array, ""]
    failed: Bool[Array, ""]
    key: Key


class _Layout:
    """Where a model's weights are in the vectors, and everything of it that is not trained."""

    def __init__(self, model: EBM):
        params, self.fixed = eqx.partition(model, model.trained())
        self.unravel = tuple(ravel_pytree(part)[1] for part in _parts(params))

    def model(self, weights: Weights) -> EBM:
        parts = tuple(unravel(part) for unravel, part in zip(self.unravel, weights, strict=True))
        return eqx.combine(eqx.tree_at(_parts, self.fixed, parts, is_leaf=lambda leaf: leaf is None), self.fixed)

    def pack(self, state: State) -> _Packed:
        return _Packed(
            _flat(state.model), _flat(state.good), state.optimizer, state.objective, state.step, state.failed, state.key
        )

    def unpack(self, now: _Packed, data_key: Key) -> State:
        model, good = self.model(now.weights), self.model(now.good)
        return State(model, good, now.optimizer, now.objective, now.step, now.failed, now.key, data_key)


def _flat(model: EBM) -> Weights:
    g, tau, surrogate = _parts(eqx.filter(model, model.trained()))
    return ravel_pytree(g)[0], ravel_pytree(tau)[0], ravel_pytree(surrogate)[0]


class History(eqx.Module):
    """Numbers of every step (loss, gradient norm, what the objective adds) and of every validation (step, measure)."""

    steps: dict[str, np.ndarray]
    measures: list[tuple[int, float]]

    @property
    def loss(self) -> np.ndarray:
        return self.steps["loss"]


class Solution(eqx.Module):
    """The model, how the run ended, its history, and the state from which it can go on."""

    model: EBM
    result: RESULTS
    history: History
    state: State


class Progress(NamedTuple):
    """What a callback is told between chunks. `model` is the current one."""

    step: int
    steps: int
    loss: float
    measure: float | None
    model: EBM


class HeldOut(eqx.Module):
    """A validation measure: an objective's loss on rows that are not training rows, always with the same draws."""

    objective: AbstractObjective
    batch: Batch
    key: Key

    def __check_init__(self):
        if not isinstance(self.batch, Batch):
            raise TypeError(f"HeldOut needs a Batch, as batches.batch makes it; got a {type(self.batch).__name__}.")

    def __call__(self, model: EBM) -> float:
        return float(_loss(self.objective, model, self.batch, self.key))

    def check(self, model: EBM) -> None:
        """Raise what the first validation would raise, before any work."""
        self.objective.check(model)
        eqx.filter_eval_shape(_loss, self.objective, model, self.batch, self.key)


def fit(
    solver: Solver,
    model: EBM,
    data: AbstractSource | tuple[Any, Any],
    *,
    steps: int,
    key: Key,
    every: int = 100,
    measure: Callable[[EBM], float] | None = None,
    patience: int | None = None,
    callbacks: Sequence[Callable[[Progress], bool | None]] = (),
    resume: Solution | None = None,
) -> Solution:
    """Minimize the solver's objective over g and tau, or the one that it trains, for `steps` steps.

    `data` is a source of rows, or (x, y) for the full batch. Between chunks of `every` steps: `measure` (lower is
    better) is taken, and the run stops when it has not improved `patience` times in a row; the callbacks are called,
    and the run stops when one returns True. With a measure the best model seen is returned, otherwise the last one. A
    run that `ran_away` ends as `RESULTS.diverged`. `resume` goes on from an earlier solution of the same solver on the
    same data, to the same end as if it had never stopped (a stream must then begin where the first one ended).
    """
    _check_run(steps, every, measure, patience)
    source = data if isinstance(data, AbstractSource) else Rows(*data)
    state = _first_state(solver, model, resume, key)
    reader = source.open(model, key=state.data_key)
    if isinstance(measure, HeldOut):
        measure.check(model)
    run = _Run(state, resume, measure, patience)
    result = RESULTS.completed
    try:
        while run.step < steps and result is RESULTS.completed:
            # Chunks end at multiples of `every`, also when a run is taken up in between.
            chunk = reader.read(run.step, min(every - run.step % every, steps - run.step), every)
            if chunk is None:
                result = RESULTS.exhausted
                break
            result = run.advance(solver, chunk, every)
            told = Progress(run.step, steps, run.last_loss, run.last_measure, run.state.model)
            asked = [callback(told) for callback in callbacks]
            if any(asked) and result is RESULTS.completed:
                result = RESULTS.stopped_by_callback
    except KeyboardInterrupt:
        result = RESULTS.interrupted
    return run.solution(result, solver.objective)


class _Run:
    """The part of a run that lives on the host: the state between chunks, the history, the best model so far."""

    def __init__(self, state: State, resume: Solution | None, measure: Any, patience: int | None):
        self.state, self.measure, self.patience = state, measure, patience
        self.step = int(state.step)
        self.records = [] if resume is None or not len(resume.history.loss) else [resume.history.steps]
        self.measures = [] if resume is None else list(resume.history.measures)
        self.best = None if resume is None or not self.measures else resume.model
        self.last_loss, self.last_measure = float("nan"), None

    def advance(self, solver: Solver, chunk: Chunk, every: int) -> RESULTS:
        """Do the chunk's steps, record them, validate."""
        self.state, record = _run_chunk(solver, self.state, chunk.data, chunk.rows, np.arange(every) < chunk.steps)
        done = int(self.state.step) - self.step
        failed = bool(self.state.failed)
        self.step += done
        # A failed step is recorded too: its non-finite loss says when.
        self.records.append({name: np.asarray(values)[: done + failed] for name, values in record.items()})
        self.last_loss = float(self.records[-1]["loss"][-1])
        if failed:
            return RESULTS.non_finite
        return self._validate()

    def _validate(self) -> RESULTS:
        if self.measure is None:
            return RESULTS.completed
        self.last_measure = float(self.measure(self.state.model))
        self.measures.append((self.step, self.last_measure))
        values = [np.inf if np.isnan(value) else value for _, value in self.measures]
        since_best = len(values) - 1 - int(np.argmin(values))
        if since_best == 0 and np.isfinite(values[-1]):
            self.best = self.state.model
        stop = self.patience is not None and since_best >= self.patience
        return RESULTS.stopped_early if stop else RESULTS.completed

    def solution(self, result: RESULTS, objective: AbstractObjective) -> Solution:
        records = self.records or [{"loss": np.zeros(0)}]
        steps = {name: np.concatenate([record[name] for record in records]) for name in records[0]}
        ended = result in (RESULTS.completed, RESULTS.stopped_early, RESULTS.exhausted)
        if ended and ran_away(objective, self.state.model, steps["loss"], steps.get("scale", np.zeros(0))):
            result = RESULTS.diverged
        # Without a measure, or before it was first finite, the last model.
        best = self.state.model if self.measure is None or self.best is None else self.best
        return Solution(best, result, History(steps, self.measures), self.state)


def ran_away(
    objective: AbstractObjective, model: EBM, losses: Float[np.ndarray, " n"], scales: Float[np.ndarray, " m"]
) -> bool:
    """Whether a run whose losses are finite has diverged all the same, by the losses and the largest |g| of its steps.

    It has where the loss ends outside of what is `credible` to the objective: too low, or too far above its start and
    above 0, the loss of q. For KL it has also where rounding of |g| moves log p by more than 0.1 nats: beyond 8e5 in
    float32. The median of the last tenth of the steps counts: single steps of few draws say little.
    """
    if not len(losses):
        return False
    last = max(1, len(losses) // 10)
    (least, rise), end = objective.credible(model), np.median(losses[-last:])
    precision = jnp.finfo(jnp.zeros(0).dtype).eps
    rounding = precision * np.median(scales[-last:]) if len(scales) and isinstance(model.f, KL) else 0.0
    return bool(end < least or end - max(losses[0], 0.0) > rise or rounding > MAX_ROUNDING)


def run_chunk(
    solver: Solver, state: State, data: Batch, index: Any, active: Any, *, going: Any = None, key: Any = None
) -> tuple[State, dict[str, Array]]:
    """A scan over the steps of a chunk. Steps that are not active do nothing, nor do those after a failure.

    Where `going` is False, all of them are for nothing. `key` are the state's key and its step, where members that
    have both in common are to make their draws together.
    """
    layout = _Layout(state.model)
    run_key, first = (state.key, state.step) if key is None else key
    begun = layout.pack(state)
    arrays, fixed = eqx.partition(begun, eqx.is_array)

    def one(arrays, xs):
        rows, on, i = xs
        batch = data if rows is None else jax.tree.map(lambda a: a[rows], data)
        step_key = jax.random.fold_in(run_key, first + i)

        # Traced once: for the shapes, and as a branch.
        @jax.jit
        def go(arrays):
            moved, info = solver._step(layout, eqx.combine(arrays, fixed), batch, step_key, first + i)
            return eqx.filter(moved, eqx.is_array), info

        shapes = jax.eval_shape(go, arrays)[1]
        idle = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        # By `on` alone, which members share: vmapped, a branch that depends on a member would copy every state.
        return jax.lax.cond(on, go, lambda a: (a, idle), arrays)

    arrays, record = jax.lax.scan(one, arrays, (index, active, jnp.arange(len(active))))
    moved = eqx.combine(arrays, fixed)
    return layout.unpack(moved if going is None else where(going, moved, begun), state.data_key), record


_run_chunk = eqx.filter_jit(run_chunk)


def held_out(objective: AbstractObjective, model: EBM, batch: Batch, key: Key) -> Scalar:
    """The loss of rows that are not training rows."""
    state_key, loss_key = jax.random.split(key)
    return objective.loss(model, objective.init(model, key=state_key), batch, key=loss_key)[0]


_loss = eqx.filter_jit(held_out)


def _parts(model: EBM) -> tuple[PyTree, PyTree, PyTree]:
    """What is trained, each with a rate of its own."""
    return model.g, model.tau, model.surrogate


def _squared_weights(part: PyTree) -> Scalar:
    """|W|^2 over the arrays with two axes or more: no biases."""
    weights = [w for w in jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array)) if w.ndim > 1]
    return sum((jnp.sum(w**2) for w in weights), jnp.zeros(()))


def where(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    """One tree or the other."""
    select = lambda a, b: jax.lax.select(condition, a, b) if eqx.is_array(a) else a  # noqa: E731
    return jax.tree.map(select, yes, no)


def _first_state(solver: Solver, model: EBM, resume: Solution | None, key: Key) -> State:
    """The state to start from: a new one, or the resumed one if it is of the same solver and model."""
    fresh = solver.init(model, key=key)
    if resume is None:
        return fresh
    if jax.tree.structure(fresh) != jax.tree.structure(resume.state):
        raise ValueError("The solution to resume comes from another model, objective or optimizer than these.")
    # A run that had failed stands at its last good model and may go on, with a smaller learning rate say.
    return eqx.tree_at(lambda s: s.failed, resume.state, jnp.asarray(False))


def _check_training(train: AbstractTraining, objective: AbstractObjective) -> None:
    if not isinstance(train, AbstractTraining):
        raise TypeError(f"train must be solver.BOTH, ONLY_G, ONLY_TAU or Alternating(g, tau); got {train!r}.")
    if not objective.trains_tau and not all(parts.g for parts in train.phases()):
        raise ValueError(
            f"{type(objective).__name__} does not train tau, so steps that train tau alone would learn nothing. Use "
            "objectives.MinMin or objectives.NCE to train tau, or train g."
        )


def _check_run(steps: int, every: int, measure: Any, patience: int | None) -> None:
    if steps < 1 or every < 1:
        raise ValueError(f"steps and every must be at least 1; got steps = {steps}, every = {every}.")
    if patience is not None and (measure is None or patience < 1):
        raise ValueError(
            "patience needs a measure, and must be at least 1: solver.HeldOut(objective, batch, key), say."
        )
