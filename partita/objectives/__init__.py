"""Objectives: what is minimized over g and tau. Each is a small class with the same two methods."""

from .base import AbstractObjective
from .likelihood import ExactMLE
from .min_min import MinMin, Neighboring

__all__ = ["AbstractObjective", "ExactMLE", "MinMin", "Neighboring"]
