"""Answers of a model about given x: mode, marginals, samples, log-probabilities, log-partitions, and how far the
learned log-partition can be trusted.

Each takes a matrix of x, uses the exact method where there is one, and says so where there is none. Work is done in
chunks of fixed shapes, so that another number of rows does not recompile.
"""

from .answers import Chains, before, log_prob, marginals, mean, sample, sample_chains
from .best import TopK, mode, relaxed_mode, top_k
from .given import evidence, given
from .masses import Normalization, normalization, recalibrate
from .partitions import log_partition

__all__ = [
    "Chains",
    "Normalization",
    "TopK",
    "before",
    "evidence",
    "given",
    "log_partition",
    "log_prob",
    "marginals",
    "mean",
    "mode",
    "normalization",
    "recalibrate",
    "relaxed_mode",
    "sample",
    "sample_chains",
    "top_k",
]
