"""Predicted and measured cost of three problems, to check the planner; and a very long training.

python -m experiments.plan_benchmark
python -m experiments.plan_benchmark --long

network: 784-200-200-10, batches of 100, momentum, 3 hypers, T = 500. hyper_cleaning: softmax regression, one weight for each
of 5,000 digits, T = 200. tasks: 100 tasks with 300 examples of 256 numbers, their 100 x 100 interactions, T = 200.
Each measurement runs in a fresh process. Memory is the resident memory at the peak of a call above that after the first
call: states and working memory, not graph and code.
--long: T = 20,000 steps of the network with 2 sqrt(T) states, compared with plain reverse mode of 300 steps.
"""

from __future__ import annotations

import json

from experiments.benchmarks import plans
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags


def main() -> None:
    """Compares all cases, or measures the long one."""
    config = from_flags(plans.Config)
    if config.child:
        arguments = json.loads(config.child)
        return print(json.dumps((plans.measure if "method" in arguments else plans.predict)(**arguments)))
    if config.long:
        return print(plans.measure_long())
    for name in config.cases:
        print(plans.compare(name), plans.compare_compilers(name), sep="\n", flush=True)


if __name__ == "__main__":
    define_flags(plans.Config)
    run_main(main)
