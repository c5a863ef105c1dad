"""The precision of hypergradients whose matrix products are rounded: relative errors, compared with float64.

python -m experiments.precision_benchmark

Reverse mode through the training of a 784-200-200-10 tanh network on batches of 100 digits. TF32 is what NVIDIA's GPUs do by
default with float32 products, from Ampere on; a CPU has no such column.
"""

from __future__ import annotations

from experiments.benchmarks import precision
from experiments.common.binary import environment, run_main
from experiments.common.config import define_flags, from_flags


def main() -> None:
    """Prints the table."""
    print(", ".join(f"{name} {version}" for name, version in environment().items()))
    for row in precision.table(from_flags(precision.Config)):
        print(row, flush=True)


if __name__ == "__main__":
    define_flags(precision.Config)
    run_main(main)
