"""What both estimators share: arguments, fit, and what a fit leaves behind."""

import abc
import contextlib
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from .. import members, partial
from .._types import Key, PyTree
from ..batches import Features
from ..couplings import AbstractCoupling
from ..decisions import AbstractRule
from ..divergences import AbstractDivergence
from ..model import EBM, AbstractTau, Table
from ..objectives import AbstractObjective, SurrogateProposal
from ..progress import ProgressBar
from ..solver import AbstractTraining, History, Progress, Solver
from ..structures import AbstractMeasure
from . import names, training
from .checkpoints import Checkpoint, fingerprint
from .codecs import Encoded, LabelSets, Rankings
from .features import Scaler, read_features, scaled
from .references import Reference, check_reference, fit_reference
from .triplets import AbstractTriplets, check_observed, given

# Of a triplet the loss is that of one comparison, not of all labels: less penalty may suit it.
TRIPLET_PENALTIES = (3e-3, 3e-2)

Codec = LabelSets | Rankings
Callbacks = Sequence[Callable[[Progress], bool | None]]


def all_or_nothing(method: Callable) -> Callable:
    """A method that fits: where it fails or is interrupted, the estimator stays what it was."""

    @functools.wraps(method)
    def guarded(self, *args, **options):
        before = dict(self.__dict__)
        try:
            return method(self, *args, **options)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return guarded


class ParameterAndMethod:
    """A constructor's argument and a method of one name: setting it sets the argument, reading it gives the method."""

    def __init__(self, method: Callable):
        self.method, self.__doc__ = method, method.__doc__

    def __set_name__(self, owner: type, name: str):
        self.name = name

    def __set__(self, obj: Any, value: Any):
        obj.__dict__[self.name] = value

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else self.method.__get__(obj, owner)


class AbstractEstimator(BaseEstimator):
    """A scikit-learn estimator over the library's objects; the final classes list its arguments.

    `log_partition` is one of them too, but read as an attribute it is the method.
    """

    _codec: type[Codec]
    _couplings: Mapping[str, Any]
    _decisions: tuple[str, ...]

    objective: Any
    loss: Any
    coupling: Any
    model: Any
    reference: Any
    proposal: Any
    decision: Any
    random_state: Any
    verbose: int
    train: Any
    members: int
    steps: int | None
    learning_rate: float
    penalty: Any
    batch_size: int
    num_samples: int
    width: int
    depth: int
    patience: int | None
    refit: bool
    standardize: bool
    classes: Any
    warm_start: bool
    dtype: Literal["float32", "float64"]

    n_features_in_: int
    feature_names_in_: np.ndarray
    codec_: Codec
    classes_: np.ndarray
    scaler_: Scaler | None
    reference_: Reference
    seed_: int
    members_: EBM
    ebm_: EBM
    objective_: AbstractObjective
    completion_: str | None
    penalty_: float
    scale_: float
    threshold_: float | None
    history_: History
    n_iter_: int

    def _hold(self, arguments: dict[str, Any]) -> None:
        """Keep the arguments of the constructor as they are."""
        for name in self._get_param_names():
            setattr(self, name, arguments[name])

    def get_params(self, deep=True):
        # From where they are stored: as an attribute `log_partition` is the method.
        params = {name: self.__dict__[name] for name in self._get_param_names()}
        for name, value in list(params.items()):
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                params.update({f"{name}__{key}": inner for key, inner in value.get_params().items()})
        return params

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    @abc.abstractmethod
    def _scores(self, truth: Encoded, answer: Encoded) -> np.ndarray:
        """How good each answer is."""

    @abc.abstractmethod
    def _calibrate(self, trained: training.Trained, data: training.Data) -> None:
        """Learn from rows that the members have not seen what decisions need."""

    def _family(self) -> dict[str, str]:
        """How a reference is read, where there is a choice."""
        return {}

    # ---------------------------------------------------------------- fit

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        worse: Any = None,
        scores: Any = None,
        eval_set: tuple[Any, ...] | None = None,
        callbacks: Callbacks = (),
        checkpoint: Any = None,
    ) -> "AbstractEstimator":
        """Learn p(y|x) from rows X and outputs y.

        With `worse`, outputs written as y is, each y is preferred to the one in the same row of `worse`; with `scores`,
        each y has a number that says how good it is. Such triplets do not say how often y occurs. They determine g, by
        `objectives.Preferences` or `objectives.Scores` (logistic where all scores are 0 or 1, else squared, with their
        standard deviation as unit), and p = q exp(g) / Z only as far as g: the unit of the scores is the temperature of
        p, and what no triplet compares is left to the penalty. Where training would not sum over all outputs, tau is
        trained afterwards, with g fixed. Decisions other than the mode read p.

        `eval_set=(X, y)`, of triplets (X, y, worse) or (X, y, scores), are rows to stop on, in place of held-out folds.
        Between chunks of steps the `callbacks` are told how it goes; one that returns True ends training. With a
        `checkpoint` folder a fit that was killed goes on where it stood when it is called again, to the same end bit
        for bit.
        """
        with self._precision():
            triplets = given(worse, scores)
            objective = self._choose(triplets, "fit(X, y)")
            self._check_arguments(objective)
            if triplets is not None:
                self._check_triplets(triplets.keyword)
            data, raw = self._first_rows(X, y, sample_weight, self.classes, triplets)
            if triplets is not None:
                objective = triplets.choose(self.objective, data.target)
            held, held_raw = (None, None) if eval_set is None else self._held_rows(eval_set, triplets)
            self.seed_, kept = check_random_state(self.random_state).randint(2**31 - 1), None
            if checkpoint is not None:
                start = self.members_ if self.warm_start and hasattr(self, "members_") else None
                kept = Checkpoint(
                    checkpoint, fingerprint(self._settings(), raw, data[1:], held_raw, held and held[1:], start)
                )
                self.seed_ = kept.seed(self.seed_, fixed=self.random_state is not None)
            rng = np.random.RandomState(self.seed_)
            folds = training.folds_of(len(data.y), max(self.members, 2) if self.members > 1 else 5, rng)
            self.reference_, reference = fit_reference(
                self.reference,
                raw,
                data.y,
                self.codec_.space,
                free=data.free,
                folds=folds,
                weight=data.weight,
                rng=rng,
                **self._family(),
            )
            data = data._replace(reference=reference)
            held = None if held is None else held._replace(reference=self.reference_(held_raw))
            return self._train(data, folds, held, callbacks, kept, objective=objective)

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "AbstractEstimator":
        """One pass over some more rows, at a constant rate. Scales and labels are those of the first call.

        The first call must show all labels or name them in `classes`. No rows are held out.
        """
        with self._precision():
            first = not hasattr(self, "ebm_")
            objective = self._choose(None, "partial_fit")
            if first:
                self._check_arguments(objective)
                if not isinstance(self.reference, str | AbstractMeasure):
                    raise ValueError("partial_fit cannot fit a reference out of fold: use reference='uniform', or fit.")
                if isinstance(tau := self.__dict__["log_partition"], Table) or tau == "constant":
                    raise ValueError("log_partition='constant' has a number for each training row: use fit.")
                data, raw = self._first_rows(X, y, sample_weight, self.classes if classes is None else classes)
                self.seed_ = check_random_state(self.random_state).randint(2**31 - 1)
                self.reference_, _ = fit_reference(self.reference, raw, data.y, self.codec_.space)
                self._begin(data, jax.random.key(self.seed_), objective)
                self.history_ = History({"loss": np.zeros(0)}, [])
            else:
                check_observed(self.objective_, "partial_fit")
                data, raw = self._more_rows(X, y, sample_weight)
                data = data._replace(reference=self.reference_(raw))
            return self._pass_over(data)

    def _train(
        self, data: training.Data, folds: list, held: Any, callbacks: Callbacks, kept: Any, *, objective: Any
    ) -> Any:
        key = jax.random.key(self.seed_)
        self._warn_of_unobserved(data)
        at_reference = not self._begin(data, key, objective) and isinstance(self.model, str)
        size = members.size(self.members_)
        penalties = self._penalties(data)
        plan = training.Plan(
            self.objective_,
            self.learning_rate,
            penalties,
            self.batch_size,
            self.steps or training.num_steps(len(data.y), self.batch_size),
            self.patience,
            folds,
            size,
            min(1.0, len(self.classes_) ** 2 / 2 / len(data.y)),
            names.training(self.train, self.objective_),
        )
        started = self.members_
        with _progress(self.verbose) as shown:
            trained = training.cross_fit(
                plan,
                started,
                data,
                judged_on=held,
                worth=self._worth() if data.target is None else training.worth_by_loss(self.objective_, key),
                key=key,
                callbacks=[*shown, *callbacks],
                **({} if kept is None else {"keep": kept.keep, "resume": kept.load}),
            )
        _warn_of_endings(trained.endings, at_reference)
        self.penalty_ = trained.penalty
        self.history_ = History({"loss": _mean_losses(trained.losses)}, trained.measures)
        self._calibrate(trained, data)
        if self.refit and trained.unseen:
            with _progress(self.verbose, "fit on all rows") as shown:
                again = jax.random.fold_in(key, 1)
                trained = training.refit(plan, started, data, trained.penalty, key=again, callbacks=shown)
            _warn_of_endings(trained.endings, at_reference)
        if data.target is not None and self._needs_tau(plan.train):
            first, tau_key = members.member(trained.models, 0), jax.random.fold_in(key, 3)
            min_min = names.objective("min-min", self.proposal, first, self.num_samples, 0, key=tau_key)
            with _progress(self.verbose, "fit the normalizer") as shown:
                trained = training.fit_tau(plan, trained.models, data, min_min, key=tau_key, callbacks=shown)
            _warn_of_endings(trained.endings)
        return self._keep(trained.models)

    def _needs_tau(self, train: AbstractTraining) -> bool:
        """Whether answers may need a tau that triplets have not trained, where it may be and can be trained."""
        first = members.member(self.members_, 0)
        learned = jax.tree.leaves(eqx.filter(first.tau, eqx.is_inexact_array))
        return bool(learned) and all(parts.tau for parts in train.phases()) and not names.cheap(first)

    def _warn_of_unobserved(self, data: training.Data) -> None:
        """Say so where nothing can be learned from any row."""
        if data.free is not None and ((data.free[:, :1] > 0) & (data.free == data.free[:, :1])).all():
            warnings.warn("Nothing of y is observed in any row: the model is the reference itself.", stacklevel=4)

    def _worth(self) -> Callable[[EBM, training.Data], float] | None:
        """By what to choose among penalties, if not by the likelihood of held-out rows."""
        return None

    def _penalties(self, data: training.Data) -> tuple[float, ...]:
        """Those to choose from."""
        usual = TRIPLET_PENALTIES if data.target is not None else self._usual_penalties(data)
        found = usual if self.penalty is None else self.penalty
        return tuple(float(penalty) for penalty in np.atleast_1d(found))

    @abc.abstractmethod
    def _usual_penalties(self, data: training.Data) -> tuple[float, ...]:
        """Those to choose from where none is asked for."""

    def _begin(self, data: training.Data, key: Key, objective: Any) -> bool:
        """Members to start from: new ones, or with `warm_start` those of the last fit; and what trains them, the
        objective by name or as it is.

        Returns whether they are those of the last fit.
        """
        space, shape = self.codec_.space, data.x.shape[1:]
        make_key, coupling_key, objective_key = jax.random.split(jax.random.fold_in(key, 2), 3)
        coupling = names.coupling(self.coupling, space, coupling_key)
        tau = names.named("log_partition", self.__dict__["log_partition"], names.LOG_PARTITIONS, AbstractTau)
        alone = not members.can_average(coupling) or (isinstance(tau, str) and tau == "constant")
        h = self.model if callable(self.model) else names.named("model", self.model, tuple(names.NETWORKS), object)
        recipe = names.Recipe(
            coupling,
            h,
            tau,
            self.reference_.q,
            names.named("loss", self.loss, names.LOSSES, AbstractDivergence),
            shape,
            len(data.y) if alone else 0,
            self.width,
            self.depth,
        )
        fresh = members.made(recipe, jax.random.split(make_key, 1 if alone else self.members))
        same = self.warm_start and hasattr(self, "members_") and _alike(self.members_, fresh)
        train = self._check_training(objective, has_energy=same)
        self.members_ = self.members_ if same else fresh
        self.scale_, self.threshold_, self._state = 1.0, None, None
        first = members.member(self.members_, 0)
        self.objective_ = names.objective(
            objective, self.proposal, first, self.num_samples, int(np.prod(shape)), train=train, key=objective_key
        )
        # How outputs that are known in part are summed over, "exact" or by a "bound"; None where all are whole.
        self.completion_ = None if data.free is None else "exact" if partial.is_summed_exactly(first) else "bound"
        return same

    def _pass_over(self, data: training.Data) -> "AbstractEstimator":
        train = names.training(self.train, self.objective_)
        rate, penalty = self.learning_rate, self._penalties(data)[0]
        solver = Solver(self.objective_, learning_rate=rate, penalty=penalty, train=train)
        key = jax.random.fold_in(jax.random.key(self.seed_), len(self.history_.loss))
        steps = max(1, len(data.y) // self.batch_size)
        began = members.start(solver, self.members_, key=key, state=self._state)
        rows = data.rows(self.batch_size)
        now = members.fit(solver, self.members_, rows, steps=steps, key=key, every=steps, resume=began)
        self._state = now.state
        self.history_ = History({"loss": np.concatenate([self.history_.loss, _mean_losses(now.losses)])}, [])
        ended = training.endings(now, self.objective_)
        _warn_of_endings(ended)
        self._calibrate(training.Trained(now.models, [], now.losses, [], 0.0, ended), data)
        return self._keep(now.models)

    def _keep(self, models: EBM) -> "AbstractEstimator":
        """The members, and the one model that they make."""
        self.members_ = models
        self.ebm_ = members.scaled(members.averaged(models), self.scale_)
        self.n_iter_ = len(self.history_.loss)
        return self

    # ---------------------------------------------------------------- what comes in

    def _choose(self, triplets: AbstractTriplets | None, method: str) -> Any:
        """The objective for what is given besides X and y, if anything: a name, or an object."""
        if triplets is not None:
            return triplets.choose(self.objective, triplets.values)
        check_observed(self.objective, method)
        return self.objective

    def _check_triplets(self, keyword: str) -> None:
        """Refuse settings that need observed outputs."""
        if not isinstance(self.reference, str | AbstractMeasure):
            raise ValueError(
                f"A {type(self.reference).__name__} as reference is fitted on observed outputs; with {keyword}= use "
                "reference='uniform' or a measure."
            )

    def _first_rows(
        self, X: Any, y: Any, weight: Any, classes: Any, triplets: AbstractTriplets | None = None
    ) -> tuple[training.Data, Any]:
        """The training rows, from which scales and labels are learned; and X as it is, for the reference."""
        x = self._features(X, first=True)
        if y is None:
            raise ValueError(f"This {type(self).__name__} requires y to be passed, but the target y is None.")
        check_consistent_length(x, y)
        self.codec_, (y, free) = self._codec.fit_encode(y, classes)
        self.classes_ = _array_of(self.codec_.classes)
        data = training.Data(x, y, free, self._weights(weight, x, y), target=self._target(triplets, y, free))
        if data.weight is not None and not data.weight.all():
            data = data.take(np.flatnonzero(data.weight))
        x: Any = data.x
        self.scaler_ = Scaler.fit(x, data.weight, dtype=self.dtype) if self.standardize else None
        return data._replace(x=self._scaled(x)), x

    def _more_rows(self, X: Any, y: Any, weight: Any = None) -> tuple[training.Data, Any]:
        """Other rows, in the terms of the training rows."""
        x = self._features(X)
        check_consistent_length(x, y)
        y, free = self.codec_.encode(y)
        return training.Data(self._scaled(x), y, free, self._weights(weight, x, y)), x

    def _held_rows(self, eval_set: tuple[Any, ...], triplets: AbstractTriplets | None) -> tuple[training.Data, Any]:
        """The rows of `eval_set`, which have what the training rows have."""
        parts = ("X", "y") if triplets is None else ("X", "y", triplets.keyword)
        if len(eval_set) != len(parts):
            raise ValueError(f"eval_set must be ({', '.join(parts)}), as the rows of fit; got {len(eval_set)} parts.")
        data, raw = self._more_rows(*eval_set[:2])
        other = None if triplets is None else type(triplets)(eval_set[2])
        return data._replace(target=self._target(other, data.y, data.free)), raw

    def _target(self, triplets: AbstractTriplets | None, y: np.ndarray, free: np.ndarray | None) -> np.ndarray | None:
        """What triplets have besides x and y."""
        if triplets is None:
            return None
        triplets.check_whole(free, "y")
        return triplets.encode(self.codec_, y)

    def _features(self, X: Any, first: bool = False) -> Any:
        return read_features(X, self, fitting=first)

    def _scaled(self, x: Any) -> Features:
        return scaled(x, self.scaler_, self.dtype)

    def _weights(self, weight: Any, x: Any, y: np.ndarray) -> np.ndarray | None:
        """The weights of the rows, if they have any."""
        if weight is None:
            return None
        weight = _check_sample_weight(weight, x, dtype=np.float64, ensure_non_negative=True)
        if not weight.any():
            raise ValueError("sample_weight is zero in every row: there is nothing to learn from.")
        return weight

    def _check_arguments(self, objective: Any) -> None:
        """What can be said before the data are seen."""
        for name in ("members", "batch_size", "num_samples", "width", "depth"):
            _check_number(name, getattr(self, name), int | np.integer, least=1)
        for name in ("steps", "patience"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), int | np.integer, least=1)
        _check_number("learning_rate", self.learning_rate, float | int | np.number, above=0)
        for penalty in () if self.penalty is None else np.atleast_1d(self.penalty).tolist() or [None]:
            _check_number("penalty", penalty, float | int | np.number, least=0)
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64'; got {self.dtype!r}.")
        self._check_names()
        self._check_training(objective, has_energy=self.warm_start and hasattr(self, "members_"))

    def _check_names(self) -> None:
        names.named("objective", self.objective, names.OBJECTIVES, AbstractObjective)
        names.named("loss", self.loss, names.LOSSES, AbstractDivergence)
        names.named("coupling", self.coupling, self._couplings, AbstractCoupling)
        names.named("log_partition", self.__dict__["log_partition"], names.LOG_PARTITIONS, AbstractTau)
        names.named("proposal", self.proposal, names.PROPOSALS, SurrogateProposal, AbstractMeasure)
        names.named("decision", self.decision, self._decisions, AbstractRule)
        if not callable(self.model):
            names.named("model", self.model, tuple(names.NETWORKS), eqx.Module)
        check_reference(self.reference, "predict" if self._family() else "predict_proba", **self._family())

    def _check_training(self, objective: Any, has_energy: bool) -> AbstractTraining:
        """What is trained; refused where tau alone is and g would stay at its start, where p is q."""
        train = names.training(self.train, objective)
        if not (has_energy or any(parts.g for parts in train.phases())) and isinstance(self.model, str):
            raise ValueError(
                f"train={self.train!r} needs an energy that is there, but g starts at zero. Fit with train='g' or "
                "'both' first and then with warm_start=True (same coupling, model and log_partition), or give a "
                "trained module as model."
            )
        return train

    def _settings(self) -> dict[str, Any]:
        """What changes the result of a fit."""
        return {name: value for name, value in self.get_params().items() if name not in ("verbose", "random_state")}

    def _precision(self) -> Any:
        return jax.enable_x64(True) if self.dtype == "float64" else contextlib.nullcontext()


def _check_number(name: str, value: Any, kind: Any, least: float = -np.inf, above: float = -np.inf) -> None:
    fine = isinstance(value, kind) and not isinstance(value, bool) and value >= least and above < value < np.inf
    if not fine:
        what = "a whole number" if kind == int | np.integer else "a finite number"
        bound = f"above {above}" if above > least else f"of at least {least}"
        raise ValueError(f"{name} must be {what} {bound}; got {value!r}.")


def _warn_of_endings(ended: training.Endings, at_reference: bool = False) -> None:
    """Say which members did not end as they should; `at_reference` where they started at p = q."""
    size, failed, diverged, unimproved = ended
    messages = []
    if failed:
        # Such a member stays at the last step before: an answer, but perhaps not a good one.
        messages.append(
            f"The loss of {failed} of {size} members became infinite, and they are kept as they were before. Lower "
            "learning_rate or raise penalty."
        )
    if diverged:
        messages.append(
            f"{diverged} of {size} members ran away: their loss ended far above where it began, or their energies are "
            "too large to be normalized. Lower learning_rate or raise penalty."
        )
    if unimproved:
        who = "No member" if unimproved == size else f"{size - unimproved} of {size} members"
        stays = "the reference itself, p = q" if at_reference else "what it was before the fit"
        model = "the model" if unimproved == size else "each of the others"
        messages.append(
            f"{who} improved on held-out rows: {model} is {stays}. Features that tell more, more rows, another "
            "learning_rate or more steps may help."
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


def _array_of(labels: tuple) -> np.ndarray:
    """Labels as an array; of objects where they are of several kinds."""
    if len({type(label) for label in labels}) == 1 and not isinstance(labels[0], tuple):
        return np.array(labels)
    made = np.empty(len(labels), object)
    made[:] = labels
    return made
