"""scikit-learn estimators: `MultilabelClassifier` and `LabelRanker`; the codecs of y that they use."""

from . import codecs
from .learning import InterruptedFitWarning
from .multilabel import MultilabelClassifier
from .ranker import LabelRanker

__all__ = ["InterruptedFitWarning", "LabelRanker", "MultilabelClassifier", "codecs"]
