"""`python -m experiments.plan_benchmark`: see `experiments/benchmarks/plans.py`."""

from experiments.benchmarks.plans import command_line

if __name__ == "__main__":
    command_line()
