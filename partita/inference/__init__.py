"""Answers of a model for a matrix of x: mode, marginals, samples, log-probabilities, log-partitions, normalization.

Each function checks x and uses an exact method by default; it raises `budget.TooLargeError` where none is affordable,
and the message names the alternatives. Rows are computed in chunks of fixed shapes, so that another number of rows does
not recompile. `partita.exact` is the twin for one row that JAX can trace: `log_partition`, `marginals`, `mean`,
`before`, `log_prob`, `sample`, `mode` and `top_k` have the same names there.
"""

from ..partial import ConditionalModel
from .answers import Chains, before, marginals, mean, sample, sample_chains
from .best import Mode, TopK, mode, mode_with_method, relaxed_mode, top_k
from .masses import Normalization, normalization, recalibrate
from .partitions import LogPartition, evidence, given, log_partition, log_partition_with_error, log_prob

__all__ = [
    "Chains",
    "ConditionalModel",
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
