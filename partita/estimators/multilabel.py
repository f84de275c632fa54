"""Label sets."""

import warnings
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import StrOptions

from .. import decisions
from . import names
from .answers import unseen_marginals
from .codecs import Encoded, LabelSets
from .predictor import AbstractPredictor

# Labels that a warning names.
NAMED = 5


class MultilabelClassifier(ClassifierMixin, AbstractPredictor):
    """p(y|x) over label sets, with scikit-learn's manners.

    y: a 0/1 matrix (n, k), array, frame or sparse, with NaN where a label is missing; a list of sets of labels; or one
    class per row. Answers come in the same kind.

    Several `members` are trained at once, each without a fold of the rows, on which it is stopped; the model is their
    mean energy. Names can be objects of the library as well. `fit` learns from preferences and scores too.

    objective       "auto" (exact likelihood where it is cheap, min-min elsewhere), "min-min", "exact", "min-max",
                    "mcmc", "nce", "pseudo-likelihood", "ratio-matching", "concrete-score-matching",
                    "fenchel-young", "perceptron". With `fit(..., worse=)` or `fit(..., scores=)`: "auto", or an
                    objectives.Preferences or Scores
    loss            "logistic", "sparsemax", "tsallis", "jensen-shannon", "hellinger", "reverse-kl"
    coupling        "pairwise" (one U for all x; of low rank above 256 labels), "unary", "low-rank"; U as part of h(x):
                    "pairwise-of-x" (a number for each pair), "pairwise-full" (the paper's k x k matrix),
                    "pairwise-concave" (negative semi-definite)
    model           "mlp", "linear", "resnet", or your own Equinox module from x to logits
    log_partition   "residual" (the surrogate's bound, corrected; without a surrogate "logits"), "logits", or of x as in
                    the paper: "mlp", "resnet", "icnn", "linear", "constant" (one number per training row)
    reference       "uniform", a measure, or a classifier with predict_proba, which is fitted out of fold
    proposal        "surrogate", or "reference" (the paper's Algorithm 1)
    decision        "mode", "hamming", "f1", "micro_f1" (its threshold from held-out rows), or a rule of `decisions`
    train           "both", "g", "tau" (for the energy of the last fit, with `warm_start`, or of a trained `model`), or
                    "alternate" (5 steps of g, 5 of tau, and again; others by `solver.Alternating`). What is not trained
                    is not moved. Where steps train tau alone, objective "auto" is min-min
    members         how many models are trained and averaged
    steps           of training; None for 10 passes over the data, at least 600 and at most 3,000
    penalty         on the weights; of several, the one that suits held-out rows best. None: 0.03, and where there are
                    more pairs of labels than rows, of 0.03, 0.1 and 0.3
    patience        how many validations (of 30) without gain end a member's training; None for never
    refit           train the members again on all rows in the end
    class_weight    "balanced" or weights by label: a row counts by the mean weight of its labels
    classes         all labels, where y does not show them
    """

    _codec = LabelSets
    _couplings = names.SET_COUPLINGS
    _decisions = ("mode", "hamming", "f1", "micro_f1")

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **AbstractPredictor._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    class_weight: Any

    # scikit-learn's mixin, which must come first, has one that knows no sets and no missing labels.
    score = AbstractPredictor.score  # pyright: ignore[reportAssignmentType]

    def __init__(
        self,
        *,
        objective: Any = "auto",
        loss: Any = "logistic",
        coupling: Any = "pairwise",
        network: Any = "mlp",
        tau: Any = "residual",
        reference: Any = "uniform",
        proposal: Any = "surrogate",
        decision: Any = "mode",
        random_state: Any = None,
        verbose: int = 0,
        train: Any = "both",
        ensemble_size: int = 5,
        steps: int | None = None,
        learning_rate: float = 1e-2,
        penalty: Any = None,
        batch_size: int = 64,
        num_samples: int = 8,
        width: int = 128,
        depth: int = 1,
        patience: int | None = 8,
        refit: bool = False,
        standardize: bool = True,
        class_weight: Any = None,
        classes: Any = None,
        warm_start: bool = False,
        dtype: Literal["float32", "float64"] = "float32",
    ):
        self.objective = objective
        self.loss = loss
        self.coupling = coupling
        self.network = network
        self.tau = tau
        self.reference = reference
        self.proposal = proposal
        self.decision = decision
        self.random_state = random_state
        self.verbose = verbose
        self.train = train
        self.ensemble_size = ensemble_size
        self.steps = steps
        self.learning_rate = learning_rate
        self.penalty = penalty
        self.batch_size = batch_size
        self.num_samples = num_samples
        self.width = width
        self.depth = depth
        self.patience = patience
        self.refit = refit
        self.standardize = standardize
        self.class_weight = class_weight
        self.classes = classes
        self.warm_start = warm_start
        self.dtype = dtype

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _row_weights(self, weight, x, y, codec):
        weight = super()._row_weights(weight, x, y, codec)
        if self.class_weight is None:
            return weight
        by_label = self._label_weights(y, codec.classes)
        by_row = np.where(y.any(axis=1), (y @ by_label) / np.maximum(y.sum(axis=1), 1), by_label.mean())
        return by_row if weight is None else by_row * weight

    def _label_weights(self, y: np.ndarray, classes: tuple) -> np.ndarray:
        if isinstance(self.class_weight, str):
            return len(y) / (y.shape[1] * np.maximum(y.sum(axis=0), 1))
        if not set(self.class_weight) <= set(classes):
            raise ValueError(
                f"class_weight must be None, 'balanced', or weights by label; got {self.class_weight!r}, the labels "
                f"are {list(classes)[:10]}."
            )
        return np.array([float(self.class_weight.get(label, 1.0)) for label in classes])

    def _warn_of_unobserved(self, data, classes):
        super()._warn_of_unobserved(data, classes)
        never = [] if data.mask is None else np.flatnonzero((data.mask > 0).all(axis=0)).tolist()
        if 0 < len(never) < len(classes):
            shown = ", ".join(repr(classes[j]) for j in never[:NAMED])
            more = f" and {len(never) - NAMED} more" if len(never) > NAMED else ""
            warnings.warn(
                f"Labels that are missing in every row cannot be learned: {shown}{more}. Leave them out, or observe "
                "them in some rows.",
                stacklevel=4,
            )

    def _check_triplets(self, keyword):
        super()._check_triplets(keyword)
        if self.class_weight is not None:
            raise ValueError(
                f"class_weight weights rows by the labels of observed sets; with {keyword}= give sample_weight instead."
            )
        if self.decision == "micro_f1":
            raise ValueError(
                f"decision='micro_f1' needs a threshold that is fitted on observed sets; with {keyword}= use 'mode', "
                "'hamming' or 'f1', or decisions.MicroF1 with a threshold of your own."
            )

    def _usual_penalties(self, data):
        k = data.y.shape[1]
        return (0.03, 0.1, 0.3) if k * (k - 1) // 2 > len(data.y) else (0.03,)

    def _calibrate(self, trained, data, start, calibration, key):
        if self.decision != "micro_f1" or names.is_one_class(start.models.space):
            return calibration
        marginals, rows = unseen_marginals(trained, data, key)
        known = np.ones(data.y.shape, bool) if data.mask is None else data.mask == 0
        p, y = marginals[known[rows]], data.y[rows][known[rows]]
        threshold = decisions.MicroF1.fit(p[:, None], y[:, None]).threshold if y.any() else 0.5
        return calibration._replace(threshold=threshold)

    def _scores(self, truth: Encoded, answer: Encoded) -> np.ndarray:
        if truth.mask is not None:
            raise ValueError("Subset accuracy needs whole label sets; leave out the rows with missing labels.")
        return (truth.y == answer.y).all(axis=1)
