"""The precision of hypergradients whose matrix products are rounded: relative errors, compared with float64.

python -m experiments.precision_benchmark
python -m experiments.precision_benchmark --transformer=1M                       # compared with float64
python -m experiments.precision_benchmark --transformer=1M --epsilon=1e-5        # of AdamW
python -m experiments.precision_benchmark --transformer=10M --reference=float32

Reverse mode through the training of a 784-200-200-10 tanh network on batches of 100 digits. TF32 is what NVIDIA's GPUs do by
default with float32 products, from Ampere on; a CPU has no such column.
"""

from __future__ import annotations

from experiments.benchmarks import gpt_precision, precision
from experiments.common.binary import environment, run_main
from experiments.common.config import define_flags, from_flags


def main() -> None:
    """Prints the table."""
    print(", ".join(f"{name} {version}" for name, version in environment().items()))
    config = from_flags(precision.Config)
    rows = precision.table(config)
    if config.transformer is not None:
        reference = precision.EXACT if config.reference == "float64" else precision.FLOAT32
        rows = gpt_precision.table(config.transformer, config.windows, reference, config.epsilon)
    for row in rows:
        print(row, flush=True)


if __name__ == "__main__":
    define_flags(precision.Config)
    run_main(main)
