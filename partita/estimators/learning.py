"""From checked rows to a trained ensemble. Nothing here changes the estimator."""

import abc
import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .. import partial, training
from ..divergences import AbstractDivergence
from ..model import EBM
from ..objectives import AbstractObjective
from ..progress import ProgressBar
from ..structures import AbstractMeasure, AbstractSpace
from ..training import AbstractTraining, History, Progress, Solver, TrainState
from ..types import Key, PyTree
from . import cross_fitting, names
from .arguments import AbstractArguments
from .checkpoints import Checkpoint

# Of a triplet the loss is that of one comparison, not of all labels: less penalty may suit it.
TRIPLET_PENALTIES = (3e-3, 3e-2)

Callbacks = Sequence[Callable[[Progress], bool | None]]


class InterruptedFitWarning(ConvergenceWarning):
    """A fit was interrupted, and the estimator holds the best model until then."""


class Calibration(NamedTuple):
    """What decisions need: the factor on the energy, and the threshold of micro-F1."""

    scale: float = 1.0
    threshold: float | None = None


class Start(NamedTuple):
    """Stacked models before training, and what trains them. `warm` says whether they are those of the last fit.

    `completion` is how outputs that are known in part are summed over, "exact" or by a "bound"; None where all are
    whole.
    """

    models: EBM
    objective: AbstractObjective
    completion: str | None
    warm: bool


class Learned(NamedTuple):
    """What training leaves: the ensemble, by what and how it was trained, what its decisions need; of `partial_fit`
    the state from which the next pass goes on."""

    ensemble: EBM
    objective: AbstractObjective
    completion: str | None
    penalty: float
    calibration: Calibration
    history: History
    state: TrainState | None = None


class AbstractLearner(AbstractArguments):
    """Training by an estimator's arguments; how much is calibrated, and by what penalties are chosen, is up to it."""

    @abc.abstractmethod
    def _calibrate(
        self, trained: cross_fitting.Trained, data: cross_fitting.Data, start: Start, calibration: Calibration, key: Key
    ) -> Calibration:
        """Learn from rows that the members have not seen what decisions need; `calibration` is what there is."""

    @abc.abstractmethod
    def _usual_penalties(self, data: cross_fitting.Data) -> tuple[float, ...]:
        """Those to choose from where none is asked for."""

    def _choice_score(self, key: Key) -> Callable[[EBM, cross_fitting.Data], float] | None:
        """By what to choose among penalties, if not by the likelihood of held-out rows."""
        return None

    def _begin(
        self,
        data: cross_fitting.Data,
        space: AbstractSpace,
        q: AbstractMeasure,
        last: EBM | None,
        objective: Any,
        key: Key,
    ) -> Start:
        """New members, or those of the last fit if they are given and of the same kind; the objective, by name or as it
        is, for them."""
        shape = data.x.shape[1:]
        make_key, coupling_key, objective_key = jax.random.split(jax.random.fold_in(key, 2), 3)
        coupling = names.coupling(self.coupling, space, coupling_key)
        alone = not coupling.can_average or (isinstance(self.tau, str) and self.tau == "constant")
        f = names.named("loss", self.loss, names.LOSSES, AbstractDivergence)
        rows = len(data.y) if alone else 0
        recipe = names.Recipe(coupling, self.network, self.tau, q, f, shape, rows, self.width, self.depth)
        models = training.stack([recipe(k) for k in jax.random.split(make_key, 1 if alone else self.ensemble_size)])
        warm = False
        if last is not None and _alike(last, models):
            models, warm = last, True
        train = self._check_training(objective, has_energy=warm)
        first = training.take(models, 0)
        chosen = names.objective(
            objective, self.proposal, first, self.num_samples, int(np.prod(shape)), train=train, key=objective_key
        )
        completion = None if data.mask is None else "exact" if partial.is_summed_exactly(first) else "bound"
        return Start(models, chosen, completion, warm)

    def _train(
        self,
        start: Start,
        data: cross_fitting.Data,
        *,
        folds: list[np.ndarray],
        validation: cross_fitting.Data | None,
        callbacks: Callbacks,
        checkpoint: Checkpoint | None,
        key: Key,
    ) -> Learned:
        """The ensemble that a fit keeps. Interrupted after a first chunk of steps, it is the best until then."""
        plan = self._plan(start, data, folds)
        at_reference = not start.warm and isinstance(self.network, str)
        score = self._choice_score(key)
        if data.target is not None:
            score = cross_fitting.score_by_loss(start.objective, key)
        with _progress(self.verbose) as shown:
            trained = cross_fitting.cross_fit(
                plan,
                start.models,
                data,
                validation=validation,
                score=score,
                key=key,
                callbacks=[*shown, *callbacks],
                **({} if checkpoint is None else {"keep": checkpoint.keep, "resume": checkpoint.load}),
            )
        _warn_of_endings(trained.endings, at_reference)
        history = History({"loss": _mean_losses(trained.losses)}, trained.validation)
        ensemble, calibration, interrupted = trained.models, Calibration(), trained.interrupted
        try:
            calibration = self._calibrate(trained, data, start, calibration, key)
            if not interrupted:
                ensemble = self._finish(plan, start, trained, data, at_reference, key)
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:
            if self.decision == "micro_f1" and calibration.threshold is None:
                calibration = calibration._replace(threshold=0.5)
            _warn_of_interruption(len(history.loss), plan.steps)
        return Learned(ensemble, start.objective, start.completion, trained.penalty, calibration, history)

    def _plan(self, start: Start, data: cross_fitting.Data, folds: list[np.ndarray]) -> cross_fitting.Plan:
        n, k = data.y.shape
        return cross_fitting.Plan(
            start.objective,
            self.learning_rate,
            self._penalties(data),
            self.batch_size,
            self.steps or cross_fitting.num_steps(n, self.batch_size),
            self.patience,
            folds,
            training.size(start.models),
            min(1.0, k**2 / 2 / n),
            names.training(self.train, start.objective),
        )

    def _finish(
        self,
        plan: cross_fitting.Plan,
        start: Start,
        trained: cross_fitting.Trained,
        data: cross_fitting.Data,
        at_reference: bool,
        key: Key,
    ) -> EBM:
        """The members trained on all rows, where `refit` asks for it; of triplets, with a tau where answers need it."""
        models = trained.models
        if self.refit and trained.unseen:
            with _progress(self.verbose, "fit on all rows") as shown:
                again = cross_fitting.refit(
                    plan, start.models, data, trained.penalty, key=jax.random.fold_in(key, 1), callbacks=shown
                )
            _warn_of_endings(again.endings, at_reference)
            models = again.models
        if data.target is not None and _needs_tau(start.models, plan.train):
            first, tau_key = training.take(models, 0), jax.random.fold_in(key, 3)
            min_min = names.objective("min-min", self.proposal, first, self.num_samples, 0, key=tau_key)
            with _progress(self.verbose, "fit the normalizer") as shown:
                normalized = cross_fitting.fit_tau(plan, models, data, min_min, key=tau_key, callbacks=shown)
            _warn_of_endings(normalized.endings)
            models = normalized.models
        return models

    def _pass_over(self, last: Learned, data: cross_fitting.Data, key: Key) -> Learned:
        """One pass over the rows, at a constant rate."""
        start = Start(last.ensemble, last.objective, last.completion, warm=True)
        train = names.training(self.train, last.objective)
        penalty = self._penalties(data)[0]
        solver = Solver(last.objective, learning_rate=self.learning_rate, penalty=penalty, train=train)
        pass_key = jax.random.fold_in(key, len(last.history.loss))
        steps = max(1, len(data.y) // self.batch_size)
        # A pass is one chunk or several of 100 steps: few shapes.
        every = next(size for size in (1, 10, 100) if size >= min(steps, 100))
        run = cross_fitting.fit_all_rows(
            solver, last.ensemble, data, self.batch_size, steps, every, pass_key, state=last.state
        )
        history = History({"loss": np.concatenate([last.history.loss, _mean_losses(run.losses)])}, [])
        endings = cross_fitting.endings(run, last.objective)
        _warn_of_endings(endings)
        trained = cross_fitting.Trained(run.models, [], run.losses, [], penalty, endings)
        calibration = self._calibrate(trained, data, start, last.calibration, key)
        return last._replace(
            ensemble=run.models, penalty=penalty, calibration=calibration, history=history, state=run.state
        )

    def _penalties(self, data: cross_fitting.Data) -> tuple[float, ...]:
        """Those to choose from."""
        usual = TRIPLET_PENALTIES if data.target is not None else self._usual_penalties(data)
        penalties = usual if self.penalty is None else self.penalty
        return tuple(float(penalty) for penalty in np.atleast_1d(penalties))


def _needs_tau(models: EBM, train: AbstractTraining) -> bool:
    """Whether answers may need a tau that triplets have not trained, where it may be and can be trained."""
    first = training.take(models, 0)
    learned = jax.tree.leaves(eqx.filter(first.tau, eqx.is_inexact_array))
    return bool(learned) and all(parts.tau for parts in train.phases()) and not names.cheap(first)


def _warn_of_interruption(step: int, steps: int) -> None:
    warnings.warn(
        f"The fit was interrupted after {step} of {steps} steps: the model is the best until then.",
        InterruptedFitWarning,
        stacklevel=4,
    )


def _warn_of_endings(endings: cross_fitting.Endings, at_reference: bool = False) -> None:
    """Warn of models that failed, diverged or did not improve; `at_reference` where they started at p = q."""
    size, failed, diverged, unimproved = endings
    messages = []
    if failed:
        # Such a model stays at its last finite step: an answer, but perhaps not a good one.
        messages.append(
            f"The loss of {failed} of {size} models became infinite, and they are kept as they were before. Lower "
            "learning_rate or raise penalty."
        )
    if diverged:
        messages.append(
            f"{diverged} of {size} models diverged: their loss ended far above where it began, or their energies are "
            "too large to be normalized. Lower learning_rate or raise penalty."
        )
    if unimproved:
        which = "None" if unimproved == size else str(size - unimproved)
        others = "the ensemble" if unimproved == size else "each of the others"
        stays = "the reference itself, p = q" if at_reference else "what it was before the fit"
        messages.append(
            f"{which} of {size} models improved on held-out rows: {others} is {stays}. More informative features, more "
            "rows, another learning_rate or more steps may help."
        )
    for message in messages:
        warnings.warn(message, ConvergenceWarning, stacklevel=4)


def _mean_losses(losses: np.ndarray) -> np.ndarray:
    """Over the members that were still learning."""
    return np.ma.masked_invalid(losses).mean(axis=1).filled(np.nan)


@contextlib.contextmanager
def _progress(verbose: int, title: str = "fit"):
    """Callbacks that show how it goes, if anything is to be shown."""
    if not verbose:
        yield ()
        return
    with ProgressBar(title) as bar:
        yield (bar,)


def _alike(a: PyTree, b: PyTree) -> bool:
    """Whether two stacks of models have the same parts of the same shapes."""
    same = jax.tree.structure(a) == jax.tree.structure(b)
    return same and all(np.shape(p) == np.shape(q) for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
