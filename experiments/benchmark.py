"""`python -m experiments.benchmark`: see `experiments/benchmarks/costs.py`."""

from experiments.benchmarks.costs import command_line

if __name__ == "__main__":
    command_line()
