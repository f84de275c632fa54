"""Rankings."""

from typing import Any, ClassVar, Literal

import numpy as np

from .. import budget, inference, members, metrics
from ..model import EBM
from . import names, training
from .codecs import Encoded, Rankings
from .predictor import AbstractPredictor


class LabelRanker(AbstractPredictor):
    """p(y|x) over rankings of labels, with scikit-learn's manners.

    y: rank vectors (n, k), entry j the rank of label j, 0 is best, ties and NaN allowed; strings such as "b>a>c", ties
    as in "e>f>abcdg"; or the best label of each row alone. `predict` returns rank vectors, or strings for strings.

    The arguments are those of `MultilabelClassifier`, but for:

    coupling           "permutahedron" (one score per label) or "birkhoff" (one per label and rank)
    decision           "mode", "borda", "kemeny", or a rule of `decisions`
    reference          "uniform", a measure, or a regressor of rank vectors, which is fitted out of fold
    reference_family   "plackett-luce" or "mallows": what a regressor's ranks are the center of, with a fitted spread
    penalty            of several, the one that ranks held-out rows best; None: of 3e-3 and 3e-2
    patience           None: members are trained to the end, and their mean is calibrated on held-out rows
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

    def _worth(self, key):
        def kendall(model: EBM, rows: training.Data) -> float:
            answer = np.asarray(inference.mode(model, rows.x, key=key, reference=rows.reference))
            return float(self._scores(Encoded(rows.y, rows.mask), Encoded(answer, None)).mean())

        return kendall

    def _calibrate(self, trained, data, start, calibration, key):
        def likelihood(model: EBM, rows: training.Data) -> float:
            log_p = inference.log_prob(model, rows.x, rows.y, reference=rows.reference, mask=rows.mask)
            return float(log_p.mean())

        score = likelihood if data.target is None else training.worth_by_loss(start.objective, key)
        first = members.member(trained.models, 0)
        if trained.unseen and budget.serves_fit(first):
            return calibration._replace(scale=training.calibrated(trained, data, score))
        return calibration

    def _scores(self, truth: Encoded, answer: Encoded) -> np.ndarray:
        """Kendall's tau-b of each row; tied labels share a rank."""
        return metrics.kendalls(shared_ranks(truth), shared_ranks(answer))


def shared_ranks(found: Encoded) -> np.ndarray:
    """Ranks, where labels whose order is not known have the least of theirs."""
    if found.mask is None:
        return found.y
    same = (found.mask[:, :, None] == found.mask[:, None, :]) & (found.mask[:, :, None] > 0)
    return np.where(found.mask > 0, np.where(same, found.y[:, None, :], found.y.shape[1]).min(axis=2), found.y)
