"""The arguments of both estimators, and what can be said of them before the data are seen."""

import contextlib
from collections.abc import Mapping
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight

from ..couplings import AbstractCoupling
from ..decisions import AbstractRule
from ..divergences import AbstractDivergence
from ..measures import AbstractMeasure
from ..objectives import AbstractObjective, Neighboring
from ..partition import AbstractTau
from ..solver import AbstractTraining
from . import names
from .codecs import LabelSets, Rankings
from .references import check_reference
from .triplets import AbstractTriplets, check_observed

Codec = LabelSets | Rankings


class AbstractArguments(BaseEstimator):
    """The arguments that both estimators have; the final classes list them, with their defaults."""

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

    # Set by scikit-learn's validation.
    n_features_in_: int
    feature_names_in_: np.ndarray

    def _family(self) -> dict[str, str]:
        """How a reference is read, where there is a choice."""
        return {}

    def _choose(self, triplets: AbstractTriplets | None, method: str) -> Any:
        """The objective for what is given besides X and y, if anything: a name, or an object."""
        if triplets is not None:
            return triplets.choose(self.objective, triplets.values)
        check_observed(self.objective, method)
        return self.objective

    def _check_arguments(self, objective: Any, has_energy: bool) -> None:
        """Raise for arguments that serve no data; `has_energy` says whether an energy was learned before."""
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
        names.named("objective", self.objective, names.OBJECTIVES, AbstractObjective)
        names.named("loss", self.loss, names.LOSSES, AbstractDivergence)
        names.named("coupling", self.coupling, self._couplings, AbstractCoupling)
        names.named("log_partition", self.__dict__["log_partition"], names.LOG_PARTITIONS, AbstractTau)
        names.named("proposal", self.proposal, names.PROPOSALS, Neighboring, AbstractMeasure)
        names.named("decision", self.decision, self._decisions, AbstractRule)
        if not callable(self.model):
            names.named("model", self.model, tuple(names.NETWORKS), eqx.Module)
        check_reference(self.reference, "predict" if self._family() else "predict_proba", **self._family())
        self._check_training(objective, has_energy)

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

    def _check_triplets(self, keyword: str) -> None:
        """Refuse settings that need observed outputs."""
        if not isinstance(self.reference, str | AbstractMeasure):
            raise ValueError(
                f"A {type(self.reference).__name__} as reference is fitted on observed outputs; with {keyword}= use "
                "reference='uniform' or a measure."
            )

    def _row_weights(self, weight: Any, x: Any, y: np.ndarray, codec: Codec) -> np.ndarray | None:
        """The weights of the rows, if they have any."""
        if weight is None:
            return None
        weight = _check_sample_weight(weight, x, dtype=np.float64, ensure_non_negative=True)
        if not weight.any():
            raise ValueError("sample_weight is zero in every row: there is nothing to learn from.")
        return weight

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
