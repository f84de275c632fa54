"""Decision rules: from p(.|x) to the output with the smallest expected loss.

A rule takes a `Joint`, which represents p(.|x) without the model, or marginals where these suffice. It minimizes the
expected loss over all rankings, or over all label sets, whether in Y or not.

>>> from partita.structures import Hypercube
>>> p = Joint(Hypercube(2), [[0, 0], [1, 0], [1, 1]], [[0.4, 0.35, 0.25]], exact=True)
>>> Mode()(p).y.tolist(), F1()(p).y.tolist()
([[0, 0]], [[1, 0]])
"""

from .distribution import Joint, TopOutputs, joint, preferences, top_k
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
    "TopOutputs",
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
