"""scikit-learn estimators: `MultilabelClassifier` and `LabelRanker`."""

from .multilabel import MultilabelClassifier
from .ranker import LabelRanker

__all__ = ["LabelRanker", "MultilabelClassifier"]
