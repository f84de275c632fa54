"""What both estimators share: fit, and what a fit leaves behind."""

import abc
import warnings
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from sklearn.utils import check_random_state

from ..model import EBM, Table
from ..objectives import AbstractObjective
from ..structures import AbstractMeasure
from ..training import History, TrainState, average, scale
from . import cross_fitting
from .arguments import check_observed, read_triplets
from .checkpoints import Checkpoint, fingerprint
from .codecs import AbstractCodec, Encoded
from .learning import AbstractLearner, Calibration, Callbacks, Learned
from .references import Reference, fit_reference
from .rows import RowReader, Scaler, read_first

if TYPE_CHECKING:
    from typing import Self
else:
    # Tests check types at run time by beartype, which knows no Self in methods that jaxtyping decorates.
    Self = Any


class AbstractEstimator(AbstractLearner):
    """A scikit-learn estimator over the library's objects."""

    codec_: AbstractCodec
    classes_: np.ndarray
    scaler_: Scaler | None
    reference_: Reference
    seed_: int
    ensemble_: EBM
    ebm_: EBM
    objective_: AbstractObjective
    completion_: str | None
    penalty_: float
    scale_: float
    threshold_: float | None
    history_: History
    n_iter_: int
    _state: TrainState | None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    @abc.abstractmethod
    def _scores(self, truth: Encoded, answer: Encoded) -> np.ndarray:
        """How good each answer is."""

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
    ) -> Self:
        """Learn p(y|x).

        With `worse` or `scores` the rows are triplets: they say which outputs are better, not how often they occur.
        Triplets determine g, by `objectives.Preferences` or `objectives.Scores`, and p = q exp(g) / Z only as far as g:
        the unit of the scores is the temperature of p, and what no triplet compares is left to the penalty. Where
        training would not sum over all outputs, tau is trained afterwards, with g fixed.

        Interrupted from the keyboard after the first validation, a first fit warns and keeps the best model until then.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features.
        y : {array-like, sparse matrix, frame, list}
            Outputs, one per row. Label sets: 0/1 of shape (n_rows, n_labels), with NaN where a label is not known; a
            list of sets of labels; or one class per row. Rankings: ranks of shape (n_rows, n_labels), where entry j is
            the rank of label j and 0 is best, ties and NaN allowed; strings such as "b>a>c"; or the best label of each
            row. Answers come in the same kind.
        sample_weight : array-like of shape (n_rows,), default=None
            How much each row counts.
        worse : {array-like, sparse matrix, frame, list}, default=None
            Outputs, written as y is, to which those of y are preferred.
        scores : array-like of shape (n_rows,), default=None
            How good each output is: all 0 or 1 (logistic loss), or any numbers (squared loss, their standard deviation
            is the unit).
        eval_set : tuple, default=None
            Rows (X, y), of triplets (X, y, worse) or (X, y, scores), to stop on in place of held-out folds.
        callbacks : sequence of callables, default=()
            Called with `Progress` between chunks of steps; one that returns True ends the training.
        checkpoint : str or path-like, default=None
            A folder. A fit that was killed goes on where it stood when it is called again, to the same end bit for bit.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with self._context():
            triplets = read_triplets(worse, scores)
            objective = self._choose(triplets, "fit(X, y)")
            last = getattr(self, "ensemble_", None) if self.warm_start else None
            self._check_arguments(objective, has_energy=last is not None)
            if triplets is not None:
                self._check_triplets(triplets.keyword)
            reader, (data, raw) = read_first(self, X, y, sample_weight, self.classes, triplets)
            if triplets is not None:
                objective = triplets.choose(self.objective, data.target)
            validation, raw_validation = (None, None) if eval_set is None else reader.validation(eval_set, triplets)
            seed, files = self._new_seed(), None
            if checkpoint is not None:
                rows = (raw, data[1:], raw_validation, validation and validation[1:])
                files = Checkpoint(checkpoint, fingerprint(self._settings(), *rows, last))
                seed = files.seed(seed, fixed=self.random_state is not None)
            rng, key, space = np.random.RandomState(seed), jax.random.key(seed), reader.codec.space
            folds = cross_fitting.folds_of(len(data.y), self.ensemble_size if self.ensemble_size > 1 else 5, rng)
            options = {"mask": data.mask, "folds": folds, "weight": data.weight, "rng": rng, **self._family()}
            reference, measures = fit_reference(self.reference, raw, data.y, space, **options)
            data = data._replace(reference=measures)
            if validation is not None:
                validation = validation._replace(reference=reference(raw_validation))
            self._warn_of_unobserved(data, reader.codec.classes)
            start = self._begin(data, space, reference.q, last, objective, key)
            learned = self._train(
                start, data, folds=folds, validation=validation, callbacks=callbacks, checkpoint=files, key=key
            )
            return self._set_fitted(reader, reference, seed, learned)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from some more rows: one pass over them, at a constant rate, without held-out rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features; the first call learns their scales.
        y : {array-like, sparse matrix, frame, list}
            Outputs, as in `fit`; the first call must show all labels, or name them in `classes`.
        classes : array-like, default=None
            All labels.
        sample_weight : array-like of shape (n_rows,), default=None
            How much each row counts.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with self._context():
            objective = self._choose(None, "partial_fit")
            if hasattr(self, "ebm_"):
                check_observed(self.objective_, "partial_fit")
                reader, reference, seed = RowReader(self, self.codec_, self.scaler_), self.reference_, self.seed_
                data, raw = reader.rows(X, y, sample_weight)
                data = data._replace(reference=reference(raw))
                last = Learned(
                    self.ensemble_,
                    self.objective_,
                    self.completion_,
                    self.penalty_,
                    Calibration(self.scale_, self.threshold_),
                    self.history_,
                    self._state,
                )
            else:
                self._check_first_pass(objective)
                classes = self.classes if classes is None else classes
                reader, (data, raw) = read_first(self, X, y, sample_weight, classes)
                seed, space = self._new_seed(), reader.codec.space
                reference, _ = fit_reference(self.reference, raw, data.y, space)
                start = self._begin(data, space, reference.q, None, objective, jax.random.key(seed))
                history = History({"loss": np.zeros(0)}, [])
                last = Learned(start.models, start.objective, start.completion, 0.0, Calibration(), history)
            learned = self._pass_over(last, data, jax.random.key(seed))
            return self._set_fitted(reader, reference, seed, learned)

    def _check_first_pass(self, objective: Any) -> None:
        """Raise for arguments that `partial_fit` cannot serve."""
        self._check_arguments(objective, has_energy=False)
        if not isinstance(self.reference, str | AbstractMeasure):
            raise ValueError("partial_fit cannot fit a reference out of fold: use reference='uniform', or fit.")
        if isinstance(tau := self.tau, Table) or tau == "constant":
            raise ValueError("tau='constant' has a number for each training row: use fit.")

    def _new_seed(self) -> int:
        return check_random_state(self.random_state).randint(2**31 - 1)

    def _set_fitted(self, reader: RowReader, reference: Reference, seed: int, learned: Learned) -> Self:
        """The only place that changes a fitted attribute: all of them at once, when everything has succeeded."""
        factor, threshold = learned.calibration
        fitted = {
            "n_features_in_": reader.columns.n_features_in_,
            "codec_": reader.codec,
            "classes_": _array_of(reader.codec.classes),
            "scaler_": reader.scaler,
            "reference_": reference,
            "seed_": seed,
            "ensemble_": learned.ensemble,
            "ebm_": scale(average(learned.ensemble), factor),
            "objective_": learned.objective,
            "completion_": learned.completion,
            "penalty_": learned.penalty,
            "scale_": factor,
            "threshold_": threshold,
            "history_": learned.history,
            "n_iter_": len(learned.history.loss),
            "_state": learned.state,
        }
        if hasattr(reader.columns, "feature_names_in_"):
            fitted["feature_names_in_"] = reader.columns.feature_names_in_
        self.__dict__ = {name: value for name, value in vars(self).items() if name != "feature_names_in_"} | fitted
        return self

    def _warn_of_unobserved(self, data: cross_fitting.Data, classes: tuple) -> None:
        """Say so where nothing can be learned from any row."""
        if data.mask is not None and ((data.mask[:, :1] > 0) & (data.mask == data.mask[:, :1])).all():
            warnings.warn("Nothing of y is observed in any row: the model is the reference itself.", stacklevel=4)


def _array_of(labels: tuple) -> np.ndarray:
    """Labels as an array; of objects where they are of several kinds."""
    if len({type(label) for label in labels}) == 1 and not isinstance(labels[0], tuple):
        return np.array(labels)
    result = np.empty(len(labels), object)
    result[:] = labels
    return result
