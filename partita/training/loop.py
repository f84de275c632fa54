"""The one training loop: a stack of models, trained by chunks of steps; one model is a stack of one.

Validation, callbacks and checkpoints come between chunks.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..model import EBM
from ..shapes import on_device
from ..types import RESULTS, Array, Float, Key, Keys
from . import ensembles
from .data import AbstractSource, Chunk, Rows
from .engine import Steps, init_stack, run_stack, run_stack_briefly
from .layouts import AbstractLayout, choose_layout
from .optimizer import Schedule, Solver
from .runs import AbstractValidation, CallableValidation, History, Progress, Run, Solution, TrainState

__all__ = ["StackKeys", "fit", "fit_stack", "stack_keys", "start"]

Callbacks = Sequence[Callable[[Progress], bool | None]]


def fit(
    solver: Solver,
    model: EBM,
    data: AbstractSource | tuple[Any, Any],
    *,
    steps: int,
    key: Key,
    every: int = 100,
    validation: AbstractValidation | Callable[[EBM], float] | None = None,
    patience: int | None = None,
    callbacks: Callbacks = (),
    resume: Solution | None = None,
) -> Solution:
    """Minimize the solver's objective over g and tau, or over the part that it trains.

    Parameters
    ----------
    solver
        The objective and how to minimize it.
    model
        The model to start from.
    data
        A source of rows (`training.Rows`, `training.Stream`, ...), or (x, y) for the full batch.
    steps
        How many steps to do.
    key
        Of all random numbers.
    every
        Steps of a chunk: validation and callbacks come after each chunk.
    validation
        Scores models, lower is better: `training.ValidationLoss`, or a function of one model.
    patience
        The run stops where the score has not improved so many times in a row; None: it does not.
    callbacks
        Called with a `Progress` after each chunk; the run stops when one returns True.
    resume
        An earlier solution of the same solver and data, from which to continue, to the same end as if the run had never
        stopped (a stream must begin where the first one ended).

    Returns
    -------
    Solution
        The best model by the validation, else the last, and how the run ended. KeyboardInterrupt ends a run with what
        was done until then.

    Examples
    --------
    >>> import jax, numpy as np, partita as pt
    >>> h_key, fit_key = jax.random.split(jax.random.key(0))
    >>> coupling = pt.couplings.Bilinear(pt.structures.Cube(2))
    >>> model = pt.EBM(pt.Energy(pt.networks.Linear(3, 2, key=h_key), coupling), pt.model.Table(20))
    >>> x = np.random.RandomState(0).randn(20, 3)
    >>> solution = pt.fit(pt.Solver(pt.objectives.ExactMLE()), model, (x, x[:, :2] > 0), steps=10, key=fit_key)
    >>> solution.result.name
    'completed'
    """
    _check_run(steps, every, validation, patience)
    source = data if isinstance(data, AbstractSource) else Rows(*data)
    solver.check(model)
    begun = start(solver, ensembles.stack([model]), keys=key[None], data_key=jax.random.split(key, 3)[0])
    if validation is not None and not isinstance(validation, AbstractValidation):
        validation = CallableValidation(validation)
    run = fit_stack(
        solver,
        begun.models,
        source,
        steps=steps,
        every=every,
        validation=validation,
        patience=patience,
        callbacks=[functools.partial(_call_with_one, callback) for callback in callbacks],
        resume=begun if resume is None else _resumed(begun, resume),
    )
    history = History({name: values[:, 0] for name, values in run.steps.items()}, _validations(run))
    result = run.results(solver.objective, patience)[0]
    return Solution(ensembles.take(run.models, 0), result, history, ensembles.take(run.state, 0), run.data_key)


def fit_stack(
    solver: Solver,
    models: EBM,
    data: AbstractSource,
    *,
    steps: int,
    resume: Run,
    weights: Float[np.ndarray, "models n"] | None = None,
    every: int = 100,
    validation: AbstractValidation | None = None,
    validate_start: bool = False,
    patience: int | None = None,
    callbacks: Callbacks = (),
    keep: Callable[[Run], None] | None = None,
    layout: AbstractLayout | None = None,
    brief: bool = False,
) -> Run:
    """Train a stack of models on the same rows, each with weights of its own.

    Parameters
    ----------
    solver
        One for all models, or a stack of solvers that differ in their arrays.
    models
        The stack before training.
    data
        The rows.
    steps
        How many steps to do.
    resume
        What `start` makes, or an earlier run, which is continued to the same end bit for bit.
    weights
        Of the rows, for each model; None: those of the data.
    every
        Steps of a chunk.
    validation
        Scores the models after each chunk; of each model the best is kept.
    validate_start
        Whether the models before the first step are scored too: a model that never improves then stays there.
    patience
        A model stops that has not improved so many validations in a row; None: none does.
    callbacks
        Called after each chunk with the stack; the run stops when one returns True.
    keep
        Called with everything there is after each chunk: a checkpoint.
    layout
        How the stack is laid out over the machine; None: as `choose_layout` says.
    brief
        Compile faster, for slower steps: for runs of few steps.

    Returns
    -------
    Run
        The models and how they ended.
    """
    run = resume
    if validation is not None:
        validation.check(ensembles.take(models, 0))
    reader = data.open(ensembles.take(models, 0), key=run.data_key)
    if validate_start and validation is not None and not run.done:
        run = _validate(run, validation)
    layout = choose_layout(run.state.key) if layout is None else layout
    schedule = ensembles.take(solver.schedule, 0) if solver.learning_rate.ndim else solver.schedule
    compiled = run_stack_briefly if brief else run_stack
    program = _Program(compiled, layout, _for_stack(solver, models), schedule, weights, every)
    try:
        while run.done < steps and run.active(patience).any() and run.ending is RESULTS.completed:
            # Chunks end at multiples of `every`, also where a run is resumed in between.
            chunk = reader.read(run.done, min(every - run.done % every, steps - run.done), every)
            if chunk is None:
                run = dataclasses.replace(run, ending=RESULTS.exhausted)
                break
            advanced = program.advance(run, chunk, run.active(patience))
            run = advanced if validation is None else _validate(advanced, validation)
            if keep is not None:
                keep(run)
            if _call(callbacks, run, steps):
                run = dataclasses.replace(run, ending=RESULTS.stopped_by_callback)
    except KeyboardInterrupt:
        run = dataclasses.replace(run, ending=RESULTS.interrupted)
    return run


def start(solver: Solver, models: EBM, *, keys: Keys, data_key: Key, state: TrainState | None = None) -> Run:
    """A stack of models before its first step.

    Parameters
    ----------
    solver
        One for all models, or a stack.
    models
        The stack.
    keys
        One for each model: models that share a key make the same draws.
    data_key
        Of the order of the rows, which all models share.
    state
        That of an earlier run, whose optimizers continue; None: a new one.

    Returns
    -------
    Run
        To be given to `fit_stack`.
    """
    begun = init_stack(_for_stack(solver, models), models, keys) if state is None else state
    nothing = np.zeros((0, ensembles.size(models)))
    return Run(models, begun, data_key, {"loss": nothing}, nothing)


class StackKeys(NamedTuple):
    """The random keys of a stack.

    Parameters
    ----------
    models
        One for each model.
    data
        Of the order of the rows.
    validation
        Of the draws in validations.
    """

    models: Keys
    data: Key
    validation: Key


def stack_keys(key: Key, num: int) -> StackKeys:
    """The random keys of a stack of `num` models.

    Parameters
    ----------
    key
        From which all are made.
    num
        The number of models.

    Returns
    -------
    StackKeys
        All different.
    """
    data, validation = jax.random.split(jax.random.fold_in(key, 1))
    return StackKeys(jax.random.split(jax.random.fold_in(key, 0), num), data, validation)


@dataclasses.dataclass
class _Program:
    """Runs chunks of a stack, and records what happened."""

    compiled: Any
    layout: AbstractLayout
    solver: Solver
    schedule: Schedule | None
    weights: np.ndarray | None
    every: int

    def advance(self, run: Run, chunk: Chunk, active: np.ndarray) -> Run:
        """The run after the steps of a chunk, by the models that are active."""
        weights = None
        if self.weights is not None:
            weights = on_device(_columns(np.asarray(self.weights, float), np.asarray(chunk.data.index)))
        # Not `run.done`: a state may come from an earlier run, that of `partial_fit`.
        before = np.asarray(run.state.step)
        first = np.asarray(before.max())
        steps = Steps(chunk.data, chunk.rows, np.arange(self.every) < chunk.steps, self._factors(first), first)
        state, record = self.layout.run(self.compiled, self.solver, run.state, weights, active, steps)
        # A failed step is recorded too: its loss says when.
        done = np.where(active, np.asarray(state.step) - before + np.asarray(state.failed), 0)
        is_recorded = np.arange(done.max())[:, None] < done
        new = {name: np.where(is_recorded, values.T[: done.max()], np.nan) for name, values in record.items()}
        old = run.steps if len(run.losses) else {name: values[:0] for name, values in new.items()}
        joined = {name: np.concatenate([old[name], new[name]]) for name in new}
        models = run.models if len(run.validation) else state.model
        return dataclasses.replace(run, models=models, state=state, steps=joined, done=run.done + chunk.steps)

    def _factors(self, first: np.ndarray) -> np.ndarray:
        """The schedule's factor for every step of a chunk, evaluated apart: another schedule compiles no step."""
        if self.schedule is None:
            return np.ones(self.every, np.float32)
        return np.asarray(_evaluate(self.schedule, first + np.arange(self.every)), np.float32)


def _columns(weights: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The weights of rows by their index, 0 for padded rows."""
    return np.where(index < weights.shape[1], weights[:, np.minimum(index, weights.shape[1] - 1)], 0)


@eqx.filter_jit
def _evaluate(schedule: Any, steps: Any) -> Array:
    return jax.vmap(lambda step: jnp.asarray(schedule(step), float))(steps)


def _validate(run: Run, validation: AbstractValidation) -> Run:
    """Score the models, and keep of each the best; one whose scores were never finite is kept as it is now."""
    scores = validation.scores(run.state.model)
    is_kept = jnp.asarray((scores < run.best) | ~np.isfinite(np.fmin(scores, run.best)))

    def choose(new, old):
        return jnp.where(is_kept.reshape(-1, *[1] * (new.ndim - 1)), new, old) if eqx.is_array(new) else new

    models = jax.tree.map(choose, run.state.model, run.models)
    stacked, at = np.vstack([run.validation, scores]), (*run.validated_at, run.done)
    return dataclasses.replace(run, models=models, validation=stacked, validated_at=at)


def _call(callbacks: Callbacks, run: Run, steps: int) -> bool:
    """Call all of them; whether one wants to stop."""
    # The loss of a failed step is worth showing, even as NaN.
    last = run.losses[-1]
    loss = float(np.nanmean(last)) if np.isfinite(last).any() else float("nan")
    score = float(run.validation[-1].mean()) if len(run.validation) else None
    progress = Progress(run.done, steps, loss, score, run.state.model)
    answers = [callback(progress) for callback in callbacks]
    return any(answers)


def _call_with_one(callback: Callable[[Progress], bool | None], progress: Progress) -> bool | None:
    return callback(progress._replace(model=ensembles.take(progress.model, 0)))


def _for_stack(solver: Solver, models: EBM) -> Solver:
    """The solver's arrays with one entry per model, whether they came so or not; without the schedule."""
    solver = eqx.tree_at(lambda s: s.schedule, solver, None, is_leaf=lambda leaf: leaf is None)
    if solver.learning_rate.ndim:
        return solver
    return ensembles.stack([solver] * ensembles.size(models))


def _resumed(begun: Run, resume: Solution) -> Run:
    """The run of an earlier solution, if it is of the same solver and model."""
    state = ensembles.stack([resume.state])
    if jax.tree.structure(begun.state) != jax.tree.structure(state):
        raise ValueError("The solution to resume comes from another model, objective or optimizer than these.")
    # A run that had failed is at its last good model and may continue, with a smaller learning rate say.
    state = eqx.tree_at(lambda s: s.failed, state, jnp.zeros(1, bool))
    history, at = resume.history, tuple(step for step, _ in resume.history.validation)
    scores = np.array([score for _, score in history.validation]).reshape(-1, 1)
    models = ensembles.stack([resume.model]) if at else state.model
    steps = {name: np.asarray(values)[:, None] for name, values in history.steps.items()}
    return Run(models, state, resume.data_key, steps, scores, at, int(resume.state.step))


def _validations(run: Run) -> list[tuple[int, float]]:
    return [(step, float(score)) for step, score in zip(run.validated_at, run.validation[:, 0], strict=True)]


def _check_run(steps: int, every: int, validation: Any, patience: int | None) -> None:
    if steps < 1 or every < 1:
        raise ValueError(f"steps and every must be at least 1; got steps = {steps}, every = {every}.")
    if patience is not None and (validation is None or patience < 1):
        raise ValueError(
            "patience needs a validation, and must be at least 1: training.ValidationLoss(objective, batch, key), say."
        )
