"""What a step does with a gradient: the parts it trains, their optimizers, learning rates, schedule and penalties."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from ..model import EBM, Energy
from ..objectives import AbstractObjective
from ..types import Array, Float, Int, PyTree, Scalar

__all__ = ["BOTH", "ONLY_G", "ONLY_TAU", "AbstractTraining", "Alternating", "Parts", "Solver", "cosine"]

# A number, or an array for each model of a stack.
Rate = Float[Array, " *models"]
OptimizerLike = optax.GradientTransformation | Callable[[Any], optax.GradientTransformation]
Schedule = Callable[[Any], Any]
# Optimizers that do the same to every number, whatever array it is in.
ELEMENTWISE = (optax.adam, optax.optimistic_adam_v2, optax.sgd)


def cosine(steps: int) -> Schedule:
    """A schedule that decays from 1 to 0 by half a cosine wave.

    Parameters
    ----------
    steps
        The step at which the factor reaches 0.

    Returns
    -------
    Schedule
        From the number of a step to a factor on the learning rates.

    Examples
    --------
    >>> [round(float(cosine(4)(step)), 2) for step in range(5)]
    [1.0, 0.85, 0.5, 0.15, 0.0]
    """
    # An array, not an int: another number of steps compiles nothing.
    return eqx.Partial(_cosine, np.asarray(steps, np.float32))


def _cosine(steps: Any, step: Any) -> Any:
    return 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(step / steps, 1.0)))


class AbstractTraining(eqx.Module):
    """Which parts of a model each step trains."""

    @abc.abstractmethod
    def phases(self) -> tuple["Parts", ...]:
        """The parts that are trained together, one entry for each kind of step.

        Returns
        -------
        tuple of Parts
            The kinds of steps.
        """

    @abc.abstractmethod
    def phase(self, step: Int[Array, ""]) -> Int[Array, ""]:
        """The kind of a step.

        Parameters
        ----------
        step
            The number of the step, from 0.

        Returns
        -------
        Array
            An index into `phases()`.
        """


class Parts(AbstractTraining):
    """Every step trains the same parts: g, tau, or both. `BOTH`, `ONLY_G` and `ONLY_TAU` are the three of them.

    Parameters
    ----------
    g
        Whether g is trained.
    tau
        Whether tau is trained.
    """

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

    The number of a step decides its phase, so that a resumed run continues in the right one.

    Parameters
    ----------
    g
        Steps of g in a row.
    tau
        Steps of tau in a row.

    Examples
    --------
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
                    "To train one part alone use training.ONLY_G or training.ONLY_TAU."
                )

    def phases(self):
        return ONLY_G, ONLY_TAU

    def phase(self, step):
        return jnp.where(step % (self.g + self.tau) < self.g, 0, 1)


class Solver(eqx.Module):
    """An objective and how to minimize it.

    The weights of g, of tau and of an amortized surrogate are three parts, each with its own optimizer state. The
    penalty is 1/2 penalty |W|^2 over the weights of h and of the coupling; never over biases or tau.

    Parameters
    ----------
    objective
        What is minimized.
    learning_rate
        That of g, 1e-3 by default. It is traced: another value compiles nothing, and a grid of them is a `vmap`.
    tau_learning_rate
        That of tau; None: that of g.
    penalty
        On the squared weights of h and of the coupling.
    coupling_penalty
        On those of the coupling, where it differs: pairs of labels that are few beside the rows need less.
    optimizer
        A function from a learning rate to an optax transformation (`optax.adam`, `optax.sgd`, or your own that returns
        a chain), or a complete transformation, `optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))` say,
        which brings its own learning rate. None: `objective.preferred_optimizer()`. It sees each part as a tree of
        arrays, so that masks work.
    tau_optimizer
        That of tau; None: as that of g.
    schedule
        From the number of a step to a factor on the learning rates. It is evaluated apart from the steps: another
        schedule does not compile them again.
    train
        Which parts are trained: `BOTH`, `ONLY_G`, `ONLY_TAU`, or in turn, `Alternating(g=5, tau=1)`. The other parts
        keep their weights and their optimizer state bit for bit, and no gradient is taken with respect to them. The
        weights of an amortized surrogate are trained in every step: its draws must follow p while g moves, and with g
        fixed they still have p to reach.

    Examples
    --------
    >>> from partita import objectives, training
    >>> solver = training.Solver(objectives.MinMin(16), learning_rate=1e-2, schedule=training.cosine(500))
    """

    objective: AbstractObjective
    learning_rate: Rate
    tau_learning_rate: Rate
    penalty: Rate
    coupling_penalty: Rate
    optimizer: OptimizerLike = eqx.field(static=True)
    tau_optimizer: OptimizerLike = eqx.field(static=True)
    schedule: Schedule | None
    train: AbstractTraining

    def __init__(
        self,
        objective: AbstractObjective,
        *,
        learning_rate: float | None = None,
        tau_learning_rate: float | None = None,
        penalty: float = 0.0,
        coupling_penalty: float | None = None,
        optimizer: OptimizerLike | None = None,
        tau_optimizer: OptimizerLike | None = None,
        schedule: Schedule | None = None,
        train: AbstractTraining = BOTH,
    ):
        coupling_penalty = penalty if coupling_penalty is None else coupling_penalty
        self.optimizer = objective.preferred_optimizer() if optimizer is None else optimizer
        self.tau_optimizer = self.optimizer if tau_optimizer is None else tau_optimizer
        rates = {"learning_rate": learning_rate, "tau_learning_rate": tau_learning_rate}
        _check_rates(rates, schedule, self.optimizer, self.tau_optimizer)
        for name, value in [("penalty", penalty), ("coupling_penalty", coupling_penalty)]:
            if not value >= 0:
                raise ValueError(f"{name} must be non-negative; got {value}.")
        _check_training(train, objective)
        learning_rate = 1e-3 if learning_rate is None else learning_rate
        self.objective = objective
        self.learning_rate = jnp.asarray(learning_rate, float)
        self.tau_learning_rate = jnp.asarray(learning_rate if tau_learning_rate is None else tau_learning_rate, float)
        self.penalty = jnp.asarray(penalty, float)
        self.coupling_penalty = jnp.asarray(coupling_penalty, float)
        self.schedule = schedule
        self.train = train

    def check(self, model: EBM) -> None:
        """Raise where the objective cannot serve the model, or where a step would train nothing.

        Parameters
        ----------
        model
            The model to train.
        """
        self.objective.check(model)
        g, tau, _ = parts(eqx.filter(model, model.trained()))
        for phase in self.train.phases():
            if not jax.tree.leaves((g if phase.g else None, tau if phase.tau else None)):
                name = " and ".join(name for name, on in (("g", phase.g), ("tau", phase.tau)) if on)
                raise ValueError(
                    f"Steps that train {name} would learn nothing: this {name} has no parameters (tau is a "
                    f"{type(model.tau).__name__}). Train the other part, or use another tau, model.Network say."
                )

    def init_optimizers(self, weights: tuple[PyTree, PyTree, PyTree]) -> tuple[PyTree, ...]:
        """The first optimizer state of each part.

        Parameters
        ----------
        weights
            The trained weights of g, of tau and of the surrogate.

        Returns
        -------
        tuple
            One state for each part.
        """
        pairs = zip(self._transformations(jnp.ones(())), weights, strict=True)
        return tuple(by.init(part) if jax.tree.leaves(part) else optax.EmptyState() for by, part in pairs)

    def update(
        self, grads: tuple[PyTree, ...], states: tuple[PyTree, ...], weights: tuple[PyTree, ...], factor: Any
    ) -> tuple[tuple[PyTree, ...], tuple[PyTree, ...]]:
        """One step of every optimizer whose part has a gradient.

        Parameters
        ----------
        grads
            The gradient of each part; None: the part is not trained in this step.
        states
            The optimizer state of each part.
        weights
            The weights of each part.
        factor
            That of the schedule.

        Returns
        -------
        tuple
            The new weights, None where there is no gradient, and the new states.
        """
        new_weights, new_states = [], []
        for by, grad, state, part in zip(self._transformations(factor), grads, states, weights, strict=True):
            updated = grad
            if jax.tree.leaves(grad):
                change, state = by.update(grad, state, part)
                updated = optax.apply_updates(part, change)
            new_weights.append(updated)
            new_states.append(state)
        return tuple(new_weights), tuple(new_states)

    def penalize(self, g: Energy) -> Scalar:
        """The penalty on the weights of g.

        Parameters
        ----------
        g
            The energy.

        Returns
        -------
        Scalar
            1/2 penalty |W|^2, over h and the coupling.
        """
        of_coupling = _squared_weights(g.coupling) + g.coupling.squared_shared()
        return 0.5 * (self.penalty * _squared_weights(g.h) + self.coupling_penalty * of_coupling)

    def _transformations(self, factor: Any) -> tuple[optax.GradientTransformation, ...]:
        """The optimizers of g, of tau and of the surrogate."""
        of_g = _transformation(self.optimizer, self.learning_rate * factor)
        return of_g, _transformation(self.tau_optimizer, self.tau_learning_rate * factor), of_g


def parts(model: EBM) -> tuple[PyTree, PyTree, PyTree]:
    """What is trained, each with an optimizer of its own."""
    return model.g, model.tau, model.surrogate


def _transformation(optimizer: OptimizerLike, rate: Any) -> optax.GradientTransformation:
    if isinstance(optimizer, optax.GradientTransformation):
        return optimizer
    transformation = optimizer(rate)
    # Few operations to compile and to run, however many layers; other optimizers may need to tell the arrays apart.
    return optax.flatten(transformation) if optimizer in ELEMENTWISE else transformation


def _squared_weights(part: PyTree) -> Scalar:
    """|W|^2 over the arrays with two axes or more: no biases."""
    weights = [w for w in jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array)) if w.ndim > 1]
    return sum((jnp.sum(w**2) for w in weights), jnp.zeros(()))


def _check_rates(rates: dict[str, float | None], schedule: Any, *optimizers: OptimizerLike) -> None:
    for name, value in rates.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive; got {value}.")
    for (name, value), optimizer in zip(rates.items(), optimizers, strict=True):
        if isinstance(optimizer, optax.GradientTransformation):
            if value is not None:
                raise ValueError(
                    f"{name} = {value} has no effect on a complete optax transformation. Leave it out, or give the "
                    "optimizer as a function of the learning rate: optimizer=optax.adam."
                )
        elif not callable(optimizer):
            raise TypeError(
                "optimizer must be an optax transformation or a function from a learning rate to one, optax.adam say; "
                f"got a {type(optimizer).__name__}."
            )
    if schedule is not None and all(isinstance(by, optax.GradientTransformation) for by in optimizers):
        raise ValueError(
            "schedule has no effect on a complete optax transformation. Build the schedule into it, or give the "
            "optimizer as a function of the learning rate."
        )


def _check_training(train: AbstractTraining, objective: AbstractObjective) -> None:
    if not isinstance(train, AbstractTraining):
        raise TypeError(f"train must be training.BOTH, ONLY_G, ONLY_TAU or Alternating(g, tau); got {train!r}.")
    if not objective.trains_tau and not all(phase.g for phase in train.phases()):
        raise ValueError(
            f"{type(objective).__name__} does not train tau, so steps that train tau alone would learn nothing. Use "
            "objectives.MinMin or objectives.NCE to train tau, or train g."
        )
