"""The arguments of both estimators and of `fit`, and their checks before the data are read."""

import abc
import contextlib
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight

from ..compilation import enable_cache
from ..couplings import AbstractCoupling
from ..decisions import AbstractRule
from ..divergences import AbstractDivergence
from ..model import AbstractTau
from ..objectives import AbstractObjective, Preferences, Scores, SurrogateProposal
from ..structures import AbstractMeasure
from ..training import AbstractTraining
from ..training.checks import check_pairs, check_scores
from . import names
from .codecs import AbstractCodec
from .references import check_reference

AT_LEAST_ONE = Interval(Integral, 1, None, closed="left")


class AbstractTriplets(abc.ABC):
    """Rows (x, y, value) that compare or rate outputs in place of observed outputs, and the objective that reads them.

    `keyword` is the argument of `fit`, `example` an objective for the message of an error.
    """

    keyword: str
    example: str
    objective: type[AbstractObjective]

    def __init__(self, values: Any):
        self.values = values

    @abc.abstractmethod
    def default_objective(self, values: Any) -> AbstractObjective:
        """The objective of "auto" for these values."""

    @abc.abstractmethod
    def encode(self, codec: AbstractCodec, y: np.ndarray) -> np.ndarray:
        """The checked values, one for each row of y."""

    def choose(self, objective: Any, values: Any) -> AbstractObjective:
        """The objective to minimize, for the estimator's `objective` and the values of the rows of positive weight."""
        if isinstance(objective, str) and objective == "auto":
            return self.default_objective(values)
        if not isinstance(objective, self.objective):
            name = self.objective.__name__
            raise ValueError(
                f"fit(X, y, {self.keyword}=...) minimizes objectives.{name}: use objective='auto' or an object such as "
                f"objectives.{self.example}; got {objective!r}, which learns from observed outputs, fit(X, y)."
            )
        return objective

    def target(self, codec: AbstractCodec, y: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """The checked values for encoded outputs y, which must have no mask."""
        self.check_whole(mask, "y")
        return self.encode(codec, y)

    def check_whole(self, mask: np.ndarray | None, what: str) -> None:
        """Raise where labels are missing or tied."""
        if mask is not None:
            bad = np.flatnonzero(mask.any(axis=1))
            raise ValueError(
                f"fit(X, y, {self.keyword}=...) needs whole outputs, but {bad.size} rows of {what} have missing labels "
                f"or ties, the first is row {bad[0]}. Leave these rows out."
            )


class Worse(AbstractTriplets):
    """Rows (x, y, worse): y is preferred to `worse`, which is written as y is."""

    keyword, example, objective = "worse", "Preferences(scale=2.0)", Preferences

    def default_objective(self, values):
        return Preferences()

    def encode(self, codec, y):
        try:
            worse, mask = codec.encode(self.values)
        except ValueError as error:
            raise ValueError(f"worse must hold outputs as y does. {error}") from error
        if len(worse) != len(y):
            raise ValueError(f"worse must have a row for each of the {len(y)} rows of y; got {len(worse)}.")
        self.check_whole(mask, "worse")
        check_pairs(y, worse)
        return worse


class Scored(AbstractTriplets):
    """Rows (x, y, score): the score says how good y is."""

    keyword, example, objective = "scores", "Scores('logistic')", Scores

    def default_objective(self, values):
        scores = check_scores(values)
        if np.isin(scores, (0, 1)).all():
            return Scores("logistic", intercept=True)
        # With the standard deviation as the unit, learning rate and penalty suit scores of any size.
        return Scores("squared", intercept=True, unit=float(scores.std()) or 1.0)

    def choose(self, objective, values):
        chosen, scores = super().choose(objective, values), check_scores(values)
        if scores.size and scores.min() == scores.max():
            raise ValueError(f"All scores are {scores[0]:g}: they do not say which outputs are better than others.")
        if isinstance(chosen, Scores) and chosen.kind == "logistic" and (scores.min() < 0 or scores.max() > 1):
            raise ValueError(
                f"Scores('logistic') needs scores from 0 (bad) to 1 (good); got {scores.min():g} to "
                f"{scores.max():g}. Use Scores('squared'), or scale them."
            )
        return chosen

    def encode(self, codec, y):
        return check_scores(self.values, len(y))


def read_triplets(worse: Any, scores: Any) -> AbstractTriplets | None:
    """The triplets of the arguments `worse` and `scores` of `fit`; None without them."""
    if worse is not None and scores is not None:
        raise ValueError("fit takes worse= or scores=, not both: fit one estimator for each.")
    return Scored(scores) if scores is not None else None if worse is None else Worse(worse)


def check_observed(objective: Any, method: str) -> None:
    """Raise for an objective that needs triplets, where there are observed outputs only."""
    for kind in (Worse, Scored):
        if isinstance(objective, kind.objective):
            advice = f"fit(X, y, {kind.keyword}=...)"
            raise ValueError(
                f"{type(objective).__name__} cannot learn from X and y alone, as in {method}. Use {advice}; to learn "
                "from observed outputs, another objective."
            )


class AbstractArguments(BaseEstimator):
    """The arguments that both estimators have; the final classes list and document them, with their defaults."""

    _codec: type[AbstractCodec]
    _couplings: Mapping[str, Any]
    _decisions: tuple[str, ...]

    objective: Any
    loss: Any
    coupling: Any
    network: Any
    tau: Any
    reference: Any
    proposal: Any
    decision: Any
    random_state: Any
    verbose: int
    train: Any
    ensemble_size: int
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

    # Types only: `names` checks the names of methods, so that its errors list its tables in their order.
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "objective": [str, AbstractObjective],
        "loss": [str, AbstractDivergence],
        "coupling": [str, AbstractCoupling],
        "network": [str, callable],
        "tau": [str, AbstractTau],
        "reference": [str, AbstractMeasure, HasMethods("fit")],
        "proposal": [str, SurrogateProposal, AbstractMeasure],
        "decision": [str, AbstractRule],
        "train": [str, AbstractTraining],
        "ensemble_size": [AT_LEAST_ONE],
        "steps": [AT_LEAST_ONE, None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "penalty": [Interval(Real, 0, None, closed="left"), "array-like", None],
        "batch_size": [AT_LEAST_ONE],
        "num_samples": [AT_LEAST_ONE],
        "width": [AT_LEAST_ONE],
        "depth": [AT_LEAST_ONE],
        "patience": [AT_LEAST_ONE, None],
        "refit": ["boolean"],
        "standardize": ["boolean"],
        "classes": ["array-like", str, None],
        "warm_start": ["boolean"],
        "dtype": [StrOptions({"float32", "float64"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    # Set by scikit-learn's validation.
    n_features_in_: int
    feature_names_in_: np.ndarray

    def _family(self) -> dict[str, str]:
        """The argument `family` of `fit_reference`, where there is one."""
        return {}

    def _choose(self, triplets: AbstractTriplets | None, method: str) -> Any:
        """The objective, a name or an object, for triplets or for observed outputs."""
        if triplets is not None:
            return triplets.choose(self.objective, triplets.values)
        check_observed(self.objective, method)
        return self.objective

    def _check_arguments(self, objective: Any, has_energy: bool) -> None:
        """Raise for arguments that suit no data; `has_energy` says whether an energy was learned before."""
        self._validate_params()
        for name, constraints in self._parameter_constraints.items():
            # True is an integer to Python, and to scikit-learn.
            if isinstance(getattr(self, name), bool) and any(isinstance(item, Interval) for item in constraints):
                raise ValueError(f"{name} must be a number; got {getattr(self, name)!r}.")
        self._check_penalties()
        names.named("objective", self.objective, names.OBJECTIVES, AbstractObjective)
        names.named("loss", self.loss, names.LOSSES, AbstractDivergence)
        names.named("coupling", self.coupling, self._couplings, AbstractCoupling)
        names.named("tau", self.tau, names.LOG_PARTITIONS, AbstractTau)
        names.named("proposal", self.proposal, names.PROPOSALS, SurrogateProposal, AbstractMeasure)
        names.named("decision", self.decision, self._decisions, AbstractRule)
        if isinstance(self.network, str):
            names.named("network", self.network, tuple(names.NETWORKS), eqx.Module)
        check_reference(self.reference, "predict" if self._family() else "predict_proba", **self._family())
        self._check_training(objective, has_energy)

    def _check_penalties(self) -> None:
        """Raise for penalties that are not finite numbers of at least 0."""
        if self.penalty is None or isinstance(self.penalty, Real):
            return
        penalties = np.asarray(self.penalty)
        if penalties.ndim != 1 or not penalties.size or penalties.dtype.kind not in "iuf":
            raise ValueError(f"penalty must be a number, several in a list, or None; got {self.penalty!r}.")
        if not (np.isfinite(penalties) & (penalties >= 0)).all():
            raise ValueError(f"penalty must be finite numbers of at least 0; got {self.penalty!r}.")

    def _check_training(self, objective: Any, has_energy: bool) -> AbstractTraining:
        """Which parts are trained; an error where only tau is and no energy was learned, so that p would stay q."""
        train = names.training(self.train, objective)
        if not (has_energy or any(parts.g for parts in train.phases())) and isinstance(self.network, str):
            raise ValueError(
                f"train={self.train!r} needs a trained energy, but g starts at zero. Fit with train='g' or 'both' "
                "first and then with warm_start=True (same coupling, network and tau), or pass a trained module as "
                "network."
            )
        return train

    def _check_triplets(self, keyword: str) -> None:
        """Raise for settings that need observed outputs."""
        if not isinstance(self.reference, str | AbstractMeasure):
            raise ValueError(
                f"A {type(self.reference).__name__} as reference is fitted on observed outputs; with {keyword}= use "
                "reference='uniform' or a measure."
            )

    def _row_weights(self, weight: Any, x: Any, y: np.ndarray, codec: AbstractCodec) -> np.ndarray | None:
        """The checked weights of the rows; None for equal weights."""
        if weight is None:
            return None
        weight = _check_sample_weight(weight, x, dtype=np.float64, ensure_non_negative=True)
        if not weight.any():
            raise ValueError("sample_weight is zero in every row: there is nothing to learn from.")
        return weight

    def _settings(self) -> dict[str, Any]:
        """The arguments that change the result of a fit."""
        return {name: value for name, value in self.get_params().items() if name not in ("verbose", "random_state")}

    def _context(self) -> Any:
        """The precision of the fit, with compiled programs that are kept from process to process."""
        enable_cache()
        return jax.enable_x64(True) if self.dtype == "float64" else contextlib.nullcontext()
