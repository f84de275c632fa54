"""Codecs of y: outputs as users write them, as elements of the space, and back. Inputs are not modified."""

from .label_sets import LabelSets
from .rankings import Rankings, orderings, shared_ranks
from .tables import Encoded, framed

__all__ = ["Encoded", "LabelSets", "Rankings", "framed", "orderings", "shared_ranks"]
