"""Codecs of y: outputs as users write them, as elements of the space, and back. Inputs are not modified."""

from .label_sets import LabelSets
from .rankings import Rankings, orderings, shared_ranks
from .tables import AbstractCodec, Encoded, to_frame

__all__ = ["AbstractCodec", "Encoded", "LabelSets", "Rankings", "orderings", "shared_ranks", "to_frame"]
