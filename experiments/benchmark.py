"""What hypergradients cost, as ratios to plain training in the same run: `make bench`.

A 784-200-200-10 tanh network on batches of 100, momentum, three hypers (learning rate, momentum, L2 weight).

python -m experiments.benchmark
"""

from __future__ import annotations

from experiments.benchmarks import costs
from experiments.common import processes
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags


def main() -> None:
    """Measures everything; memory in a fresh process."""
    config = from_flags(costs.Config)
    if config.memory:
        return costs.peak_memory_of_reverse()
    costs.cost_of_methods(config.steps)
    costs.cost_of_projections()
    processes.run("benchmark", "--memory")


if __name__ == "__main__":
    define_flags(costs.Config)
    run_main(main)
