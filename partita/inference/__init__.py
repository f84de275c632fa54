"""Answers of a model for a matrix of x: mode, marginals, samples, log-probabilities, log-partitions, normalization.

Each function checks a matrix of x, uses the exact method where there is one, and says so where there is none. Work is
done in chunks of fixed shapes, so that another number of rows does not recompile. `partita.exact` is the twin for one
row that can be traced by JAX: `log_partition`, `marginals`, `mean`, `before`, `log_prob`, `sample`, `mode` and `top_k`
have the same names there.
"""

from .answers import Chains, before, marginals, mean, sample, sample_chains
from .best import Mode, TopK, mode, mode_with_method, relaxed_mode, top_k
from .masses import Normalization, normalization, recalibrate
from .partitions import LogPartition, evidence, given, log_partition, log_partition_with_error, log_prob

__all__ = [
    "Chains",
    "LogPartition",
    "Mode",
    "Normalization",
    "TopK",
    "before",
    "evidence",
    "given",
    "log_partition",
    "log_partition_with_error",
    "log_prob",
    "marginals",
    "mean",
    "mode",
    "mode_with_method",
    "normalization",
    "recalibrate",
    "relaxed_mode",
    "sample",
    "sample_chains",
    "top_k",
]
