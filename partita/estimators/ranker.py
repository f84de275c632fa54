"""Rankings."""

from typing import Any, ClassVar, Literal

import numpy as np

from .. import budget, inference, metrics, training
from ..model import EBM
from . import cross_fitting, names
from .codecs import Encoded, Rankings, shared_ranks
from .predictor import AbstractPredictor


class LabelRanker(AbstractPredictor):
    """A joint probability p(y|x) over rankings of labels, with scikit-learn's manners.

    Several models are trained at once, each without a fold of the rows. Their mean energy is calibrated on the rows
    that they have not seen. `fit` says what it learns from: outputs, preferences or scores.

    Parameters
    ----------
    objective, loss, network, tau, proposal : str or object
        As in `MultilabelClassifier`.
    coupling : str or AbstractCoupling, default="permutahedron"
        How scores and ranks make an energy: "permutahedron" (one score per label) or "birkhoff" (one per label and
        rank).
    reference : str, AbstractMeasure or regressor, default="uniform"
        q, which the energy reweights: "uniform", a measure, or a regressor of rank vectors, whose predictions for
        training rows are made out of fold.
    decision : str or AbstractRule, default="mode"
        What `predict` is best for: "mode" (the most probable ranking), "borda" (Spearman's rho), "kemeny" (Kendall's
        tau).
    random_state : int, RandomState or None, default=None
        Decides all random numbers.
    verbose : int, default=0
        1 for a progress bar.
    train : str or AbstractTraining, default="both"
        Which parts move, as in `MultilabelClassifier`.
    ensemble_size : int, default=5
        How many models are trained and averaged.
    steps : int or None, default=None
        Steps of training. None: 10 passes over the rows, at least 600 steps and at most 3,000.
    learning_rate : float, default=0.01
        Of Adam.
    penalty : float, array-like or None, default=None
        On the squared weights of g. Of several, the one that ranks held-out rows best. None: of 0.003 and 0.03.
    batch_size : int, default=64
        Rows of a step.
    num_samples : int, default=8
        Outputs drawn for each row of a step.
    width, depth : int, default=128 and 2
        Of the hidden layers of `network`.
    patience : int or None, default=None
        How many validations (of 30) without gain end the training of a model; None for never.
    refit : bool, default=True
        Whether the models are trained again on all rows in the end.
    standardize : bool, default=True
        Whether features are scaled to mean 0 and variance 1.
    classes : array-like or None, default=None
        All labels, where y does not show them.
    reference_family : {"plackett-luce", "mallows"}, default="plackett-luce"
        What the ranks that a regressor predicts are the center of, with a fitted spread.
    warm_start : bool, default=False
        Whether `fit` starts from the models of the last fit.
    dtype : {"float32", "float64"}, default="float32"
        The precision of all numbers.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, ebm_, ensemble_, objective_, penalty_, scale_, reference_, codec_, \
    scaler_, completion_, history_, n_iter_, seed_
        As in `MultilabelClassifier`.

    See Also
    --------
    MultilabelClassifier : Label sets in place of rankings.

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
            return float(log_p.mean())

        score = likelihood if data.target is None else cross_fitting.score_by_loss(start.objective, key)
        first = training.take(trained.models, 0)
        if trained.unseen and budget.serves_fit(first):
            return calibration._replace(scale=cross_fitting.calibrate_scale(trained, data, score))
        return calibration

    def _scores(self, truth: Encoded, answer: Encoded) -> np.ndarray:
        """Kendall's tau-b of each row; tied labels share a rank."""
        return metrics.kendalls(shared_ranks(truth), shared_ranks(answer))
