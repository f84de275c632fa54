"""The arguments of both estimators, and what can be said of them before the data are seen."""

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

from ..couplings import AbstractCoupling
from ..decisions import AbstractRule
from ..divergences import AbstractDivergence
from ..model import AbstractTau
from ..objectives import AbstractObjective, SurrogateProposal
from ..structures import AbstractMeasure
from ..training import AbstractTraining
from . import names
from .codecs import LabelSets, Rankings
from .references import check_reference
from .triplets import AbstractTriplets, check_observed

Codec = LabelSets | Rankings
AT_LEAST_ONE = Interval(Integral, 1, None, closed="left")


class AbstractArguments(BaseEstimator):
    """The arguments that both estimators have; the final classes list them, with their defaults."""

    _codec: type[Codec]
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

    # Types; which names there are is said by `names`, in the order of its tables.
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
        self._validate_params()
        for name, constraints in self._parameter_constraints.items():
            # True is an integer to Python, and to scikit-learn.
            if isinstance(getattr(self, name), bool) and any(isinstance(one, Interval) for one in constraints):
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
        """Each of several penalties must be what a single one must be."""
        if self.penalty is None or isinstance(self.penalty, Real):
            return
        penalties = np.asarray(self.penalty)
        if penalties.ndim != 1 or not penalties.size or penalties.dtype.kind not in "iuf":
            raise ValueError(f"penalty must be a number, several in a list, or None; got {self.penalty!r}.")
        if not (np.isfinite(penalties) & (penalties >= 0)).all():
            raise ValueError(f"penalty must be finite numbers of at least 0; got {self.penalty!r}.")

    def _check_training(self, objective: Any, has_energy: bool) -> AbstractTraining:
        """What is trained; refused where tau alone is and g would stay at its start, where p is q."""
        train = names.training(self.train, objective)
        if not (has_energy or any(parts.g for parts in train.phases())) and isinstance(self.network, str):
            raise ValueError(
                f"train={self.train!r} needs an energy that is there, but g starts at zero. Fit with train='g' or "
                "'both' first and then with warm_start=True (same coupling, network and tau), or give a trained "
                "module as network."
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
