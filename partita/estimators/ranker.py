"""Rankings."""

from typing import Any

import numpy as np

from .. import budget, inference, members, metrics
from ..model import EBM
from . import names, training
from .answers import AbstractAnswers
from .codecs import Encoded, Rankings


class LabelRanker(AbstractAnswers):
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

    reference_family: str

    def __init__(
        self,
        objective: Any = "auto",
        loss: Any = "logistic",
        coupling: Any = "permutahedron",
        model: Any = "mlp",
        log_partition: Any = "residual",
        reference: Any = "uniform",
        proposal: Any = "surrogate",
        decision: Any = "mode",
        random_state: Any = None,
        verbose: int = 0,
        *,
        train: Any = "both",
        members: int = 5,
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
        dtype: str = "float32",
    ):
        self._hold(locals())

    def _family(self):
        return {"family": self.reference_family}

    def _usual_penalties(self, data):
        return (3e-3, 3e-2)

    def _worth(self):
        def kendall(model: EBM, rows: training.Data) -> float:
            answer = np.asarray(inference.mode(model, rows.x, key=self._key(), reference=rows.reference))
            return float(self._scores(Encoded(rows.y, rows.free), Encoded(answer, None)).mean())

        return kendall

    def _calibrate(self, trained: training.Trained, data: training.Data) -> None:
        def likelihood(model: EBM, rows: training.Data) -> float:
            found = inference.log_prob(model, rows.x, rows.y, reference=rows.reference, free=rows.free)
            return float(found.mean())

        score = likelihood if data.target is None else training.worth_by_loss(self.objective_, self._key())
        first = members.member(trained.models, 0)
        if trained.unseen and budget.serves_fit(first):
            self.scale_ = training.calibrated(trained, data, score)

    def _scores(self, truth: Encoded, answer: Encoded) -> np.ndarray:
        """Kendall's tau-b of each row; tied labels share a rank."""
        return metrics.kendalls(shared_ranks(truth), shared_ranks(answer))


def shared_ranks(found: Encoded) -> np.ndarray:
    """Ranks, where labels whose order is not known have the least of theirs."""
    if found.free is None:
        return found.y
    same = (found.free[:, :, None] == found.free[:, None, :]) & (found.free[:, :, None] > 0)
    return np.where(found.free > 0, np.where(same, found.y[:, None, :], found.y.shape[1]).min(axis=2), found.y)
