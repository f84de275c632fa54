"""Objectives: what is minimized over g and tau. Each is a small class with the same two methods."""

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
