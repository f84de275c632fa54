"""All benchmarks, or those named, each in a process of its own on one core: python -m benchmarks [subset_dp ...]."""

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
    "figure1",
    "fit_time",
    "label_sets",
    "label_rankings",
    "large",
)


def main() -> int:
    """Run them in turn; the number of those that failed."""
    names = sys.argv[1:] or BENCHMARKS
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"Unknown benchmarks {sorted(unknown)}; there are {', '.join(BENCHMARKS)}.")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return sum(subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode != 0 for name in names)


if __name__ == "__main__":
    sys.exit(main())
