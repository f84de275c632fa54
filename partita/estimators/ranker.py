"""The estimator of rankings."""

from typing import Any, ClassVar, Literal

import numpy as np

from .. import budget, inference, metrics, training
from ..model import EBM
from . import cross_fitting, names
from .codecs import Encoded, Rankings, shared_ranks
from .predictor import AbstractPredictor


class LabelRanker(AbstractPredictor):
    """A joint probability p(y|x) over rankings of labels, as a scikit-learn estimator.

    An ensemble of models is trained at once, each without a fold of the rows. Their mean energy is calibrated on the
    folds. `fit` learns from observed outputs, preferences or scores.

    Parameters
    ----------
    objective : str or AbstractObjective, default="auto"
        What training minimizes, as in `MultilabelClassifier`.
    loss : str or AbstractDivergence, default="logistic"
        The loss, as in `MultilabelClassifier`.
    coupling : str or AbstractCoupling, default="permutahedron"
        The energy as a function of logits and ranks: "permutahedron" (one logit per label) or "birkhoff" (one per label
        and rank).
    network : str or callable, default="mlp"
        h, from x to logits: "mlp", "linear", "resnet", or an Equinox module.
    tau : str or AbstractTau, default="residual"
        The learned log-partition, as in `MultilabelClassifier`.
    reference : str, AbstractMeasure or regressor, default="uniform"
        q, which the energy reweights: "uniform", a measure, or a regressor of rank vectors, whose predictions for
        the training rows are cross-fitted.
    proposal : str, SurrogateProposal or AbstractMeasure, default="surrogate"
        Where "min-min" and "nce" draw outputs from; "reference" is the paper's Algorithm 1.
    decision : str or AbstractRule, default="mode"
        The criterion that `predict` is best for: "mode" (the most probable ranking), "borda" (Spearman's rho), "kemeny"
        (Kendall's tau).
    random_state : int, RandomState or None, default=None
        Seeds all random numbers.
    verbose : int, default=0
        1 for a progress bar.
    train : str or AbstractTraining, default="both"
        Which parts are trained, as in `MultilabelClassifier`.
    ensemble_size : int, default=5
        How many models are trained and averaged.
    steps : int or None, default=None
        Training steps. None: 10 passes over the rows, at least 600 steps and at most 3,000.
    learning_rate : float, default=0.01
        The learning rate of Adam.
    penalty : float, array-like or None, default=None
        The weight of the squared weights of g in the loss. Of several, the one with the best Kendall's tau on the folds
        is chosen. None: of 0.003 and 0.03.
    batch_size : int, default=64
        Rows of a step.
    num_samples : int, default=8
        Outputs drawn for each row of a step.
    width, depth : int, default=128 and 2
        The size and number of the hidden layers of `network`.
    patience : int or None, default=None
        After how many validations (of 30) without improvement a model is stopped; None for never.
    refit : bool, default=True
        Whether the models are trained again on all rows at the end.
    standardize : bool, default=True
        Whether features are scaled to mean 0 and variance 1.
    classes : array-like or None, default=None
        All labels, where not all of them occur in y.
    reference_family : {"plackett-luce", "mallows"}, default="plackett-luce"
        The family of q around the ranks that a regressor predicts; its spread is fitted.
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
        The fitted model: the mean energy of the ensemble times `scale_`, with its reference and tau.
    ensemble_ : EBM
        The models of the ensemble, stacked.
    objective_ : AbstractObjective
        What was minimized.
    penalty_ : float
        The chosen penalty.
    scale_ : float
        The factor on the energy under which the folds are most probable; 1 where it was not fitted.
    threshold_ : None
        The threshold of label sets, which rankings do not have.
    reference_ : Reference
        The fitted reference, from X to measures q.
    codec_ : Rankings
        The encoding of y.
    scaler_ : Scaler or None
        The scales of X; None without `standardize`.
    completion_ : {"exact", "bound"} or None
        How ties and missing ranks were summed over; None where there were none.
    history_ : History
        The loss of each step and the scores of the validations.
    n_iter_ : int
        The number of steps.
    seed_ : int
        The seed from `random_state`.

    See Also
    --------
    MultilabelClassifier : The same for label sets.

    Examples
    --------
    >>> import numpy as np
    >>> from partita import LabelRanker
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> y = ["tea>milk>water" if x > 0 else "water>milk>tea" for x in X[:, 0]]
    >>> ranker = LabelRanker(steps=50, random_state=0).fit(X, y)
    >>> str(ranker.predict([[2.0, 0.0]])[0])
    'tea>milk>water'
    >>> ranker.predict_proba(X).shape
    (100, 3, 3)
    """

    _codec = Rankings
    _couplings = names.RANKING_COUPLINGS
    _decisions = ("mode", "borda", "kemeny")

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **AbstractPredictor._parameter_constraints,
        "reference_family": [str],
    }

    reference_family: str

    def __init__(
        self,
        *,
        objective: Any = "auto",
        loss: Any = "logistic",
        coupling: Any = "permutahedron",
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
        depth: int = 2,
        patience: int | None = None,
        refit: bool = True,
        standardize: bool = True,
        classes: Any = None,
        reference_family: str = "plackett-luce",
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
        self.classes = classes
        self.reference_family = reference_family
        self.warm_start = warm_start
        self.dtype = dtype

    def _family(self):
        return {"family": self.reference_family}

    def _usual_penalties(self, data):
        return (3e-3, 3e-2)

    def _choice_score(self, key):
        def kendall(model: EBM, rows: cross_fitting.Data) -> float:
            answer = np.asarray(inference.mode(model, rows.x, key=key, reference=rows.reference))
            return float(self._scores(Encoded(rows.y, rows.mask), Encoded(answer, None)).mean())

        return kendall

    def _calibrate(self, trained, data, start, calibration, key):
        def likelihood(model: EBM, rows: cross_fitting.Data) -> float:
            log_p = inference.log_prob(model, rows.x, rows.y, reference=rows.reference, mask=rows.mask)
            return float(np.mean(np.asarray(log_p)))

        score = likelihood if data.target is None else cross_fitting.score_by_loss(start.objective, key)
        first = training.take(trained.models, 0)
        if trained.unseen and budget.serves_fit(first):
            return calibration._replace(scale=cross_fitting.calibrate_scale(trained, data, score))
        return calibration

    def _scores(self, truth: Encoded, answer: Encoded) -> np.ndarray:
        """Kendall's tau-b of each row; tied labels share a rank."""
        return metrics.kendalls(shared_ranks(truth), shared_ranks(answer))
