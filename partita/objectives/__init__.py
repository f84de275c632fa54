"""Objectives: the losses that are minimized over g and tau, one class each, with the methods `init` and `loss`."""

from .base import AbstractEnergyObjective, AbstractObjective
from .contrastive import NCE, ConcreteScoreMatching, PseudoLikelihood, RatioMatching
from .fenchel_young import GeneralizedFenchelYoung, Perceptron
from .likelihood import MCMC, ExactMLE
from .min_max import Generator, MinMax
from .min_min import MinMin
from .proposals import SurrogateProposal
from .supervision import Preferences, Scores

__all__ = [
    "MCMC",
    "NCE",
    "AbstractEnergyObjective",
    "AbstractObjective",
    "ConcreteScoreMatching",
    "ExactMLE",
    "GeneralizedFenchelYoung",
    "Generator",
    "MinMax",
    "MinMin",
    "Perceptron",
    "Preferences",
    "PseudoLikelihood",
    "RatioMatching",
    "Scores",
    "SurrogateProposal",
]
