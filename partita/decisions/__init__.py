"""From a distribution to an answer: p(.|x) comes first, and the best answer follows from it and the loss.

A rule reads a `Joint`, which describes p(.|x) and knows no model, or marginals where these suffice. It minimizes the
expected loss over all rankings, or over all label sets, whether in Y or not.

>>> from partita.structures import Hypercube
>>> p = Joint(Hypercube(2), [[0, 0], [1, 0], [1, 1]], [[0.4, 0.35, 0.25]], exact=True)
>>> Mode()(p).y.tolist(), F1()(p).y.tolist()
([[0, 0]], [[1, 0]])
"""

from .distribution import Joint, joint, preferences, top_k
from .rules import F1, AbstractRule, Answer, Borda, Hamming, Kemeny, MicroF1, Mode

__all__ = [
    "F1",
    "RULES",
    "AbstractRule",
    "Answer",
    "Borda",
    "Hamming",
    "Joint",
    "Kemeny",
    "MicroF1",
    "Mode",
    "joint",
    "preferences",
    "top_k",
]

RULES: dict[str, AbstractRule] = {
    "mode": Mode(),
    "hamming": Hamming(),
    "f1": F1(),
    "micro_f1": MicroF1(),
    "borda": Borda(),
    "kemeny": Kemeny(),
}
