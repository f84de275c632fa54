"""All benchmarks, or those named, one process after the other: python -m benchmarks [subset_dp ...]."""

import os
import subprocess
import sys

# Shortest first; the last three take more than ten minutes each.
BENCHMARKS = (
    "subset_dp",
    "steps",
    "samplers",
    "normalization",
    "log_partition",
    "decisions",
    "reach",
    "alternating",
    "objectives",
    "proposals",
    "recovery",
    "ising",
    "rankings",
    "stability",
    "grid",
    "fit_time",
    "label_sets",
    "label_rankings",
    "large",
)
# The others are pinned to one core.
ON_ALL_CORES = ("grid",)


def main() -> int:
    """Run them in turn; the number of those that failed."""
    names = sys.argv[1:] or BENCHMARKS
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"Unknown benchmarks {sorted(unknown)}; there are {', '.join(BENCHMARKS)}.")
    failed = 0
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    for name in names:
        if cores is not None:
            os.sched_setaffinity(0, cores if name in ON_ALL_CORES else {min(cores)})
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
