"""The estimator of label sets."""

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

# How many labels a warning names.
NAMED = 5


class MultilabelClassifier(ClassifierMixin, AbstractPredictor):
    """A joint probability p(y|x) over label sets, as a scikit-learn classifier.

    An ensemble of models is trained at once, each without a fold of the rows, on which it is validated and stopped. The
    fitted model is their mean energy. `fit` learns from observed outputs, preferences or scores.

    Parameters
    ----------
    objective : str or AbstractObjective, default="auto"
        What training minimizes. "auto": the exact likelihood where it is cheap, "min-min" (the paper's objective)
        elsewhere. Others: "exact", "min-max", "mcmc", "nce", "pseudo-likelihood", "ratio-matching",
        "concrete-score-matching", "fenchel-young", "perceptron". With `fit(..., worse=)` or `fit(..., scores=)`:
        "auto", or an `objectives.Preferences` or `objectives.Scores`.
    loss : str or AbstractDivergence, default="logistic"
        The loss, by its divergence f: "logistic", "sparsemax", "tsallis", "jensen-shannon", "hellinger", "reverse-kl".
    coupling : str or AbstractCoupling, default="pairwise"
        The energy as a function of logits and labels. "pairwise": one matrix U for all x, of low rank above 256 labels;
        "unary": no interactions; "low-rank". U as a function of x: "pairwise-of-x" (a number for each pair),
        "pairwise-full" (the paper's k x k matrix), "pairwise-concave" (negative semi-definite).
    network : str or callable, default="mlp"
        h, from x to logits: "mlp", "linear", "resnet", or an Equinox module.
    tau : str or AbstractTau, default="residual"
        The learned log-partition. "residual": a bound of the surrogate plus a network (where there is no surrogate,
        "logits"); "logits": a network of h(x). Networks of x, as in the paper: "mlp", "resnet", "icnn", "linear",
        "constant" (one number per training row).
    reference : str, AbstractMeasure or classifier, default="uniform"
        q, which the energy reweights: "uniform", a measure, or a classifier with `predict_proba`, whose predictions for
        the training rows are cross-fitted.
    proposal : str, SurrogateProposal or AbstractMeasure, default="surrogate"
        Where "min-min" and "nce" draw outputs from; "reference" is the paper's Algorithm 1.
    decision : str or AbstractRule, default="mode"
        The criterion that `predict` is best for: "mode" (the most probable set), "hamming", "f1", "micro_f1" (with a
        threshold that is fitted on the folds).
    random_state : int, RandomState or None, default=None
        Seeds all random numbers.
    verbose : int, default=0
        1 for a progress bar.
    train : str or AbstractTraining, default="both"
        Which parts are trained: "both", "g", "tau" (for an energy that was trained before: with `warm_start`, or a
        trained `network`), or "alternate" (5 steps of g, then 5 of tau, and so on).
    ensemble_size : int, default=5
        How many models are trained and averaged.
    steps : int or None, default=None
        Training steps. None: 10 passes over the rows, at least 600 steps and at most 3,000.
    learning_rate : float, default=0.01
        The learning rate of Adam.
    penalty : float, array-like or None, default=None
        The weight of the squared weights of g in the loss. Of several, the best on the folds is chosen. None: 0.03, or
        where there are more pairs of labels than rows, the best of 0.03, 0.1 and 0.3.
    batch_size : int, default=64
        Rows of a step.
    num_samples : int, default=8
        Outputs drawn for each row of a step.
    width, depth : int, default=128 and 1
        The size and number of the hidden layers of `network`.
    patience : int or None, default=8
        After how many validations (of 30) without improvement a model is stopped; None for never.
    refit : bool, default=False
        Whether the models are trained again on all rows at the end.
    standardize : bool, default=True
        Whether features are scaled to mean 0 and variance 1.
    class_weight : dict, "balanced" or None, default=None
        Weights by label; a row counts by the mean weight of its labels.
    classes : array-like or None, default=None
        All labels, where not all of them occur in y.
    warm_start : bool, default=False
        Whether `fit` starts from the models of the last fit.
    dtype : {"float32", "float64"}, default="float32"
        The precision of training and predictions.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        The labels, in the order of columns.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X was a frame with strings as names.
    ebm_ : EBM
        The fitted model: the mean energy of the ensemble, with its reference and tau.
    ensemble_ : EBM
        The models of the ensemble, stacked.
    objective_ : AbstractObjective
        What was minimized.
    penalty_ : float
        The chosen penalty.
    scale_ : float
        The factor on the energy; 1 for label sets.
    threshold_ : float or None
        The threshold of the decision "micro_f1".
    reference_ : Reference
        The fitted reference, from X to measures q.
    codec_ : LabelSets
        The encoding of y.
    scaler_ : Scaler or None
        The scales of X; None without `standardize`.
    completion_ : {"exact", "bound"} or None
        How missing labels were summed over; None where there were none.
    history_ : History
        The loss of each step and the scores of the validations.
    n_iter_ : int
        The number of steps.
    seed_ : int
        The seed from `random_state`.

    See Also
    --------
    LabelRanker : The same for rankings.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from partita import MultilabelClassifier
    >>> X, Y = make_multilabel_classification(100, n_features=5, n_classes=3, random_state=0)
    >>> model = MultilabelClassifier(steps=50, random_state=0).fit(X, Y)
    >>> model.predict(X).shape, model.predict_proba(X).shape, model.log_prob(X, Y).shape
    ((100, 3), (100, 3), (100,))
    """

    _codec = LabelSets
    _couplings = names.SET_COUPLINGS
    _decisions = ("mode", "hamming", "f1", "micro_f1")

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **AbstractPredictor._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    class_weight: Any

    # ClassifierMixin, which must come first, has a score for arrays only.
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
