"""What users have, as what the library takes, and its answers back in kind. Nothing of the user's is changed."""

from .features import Scaler, features
from .label_sets import LabelSets
from .rankings import Rankings, orderings
from .tables import Encoded, framed

__all__ = ["Encoded", "LabelSets", "Rankings", "Scaler", "features", "framed", "orderings"]
