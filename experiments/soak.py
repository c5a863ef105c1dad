"""`python -m experiments.soak`: see `experiments/benchmarks/soak.py`."""

from experiments.benchmarks.soak import command_line

if __name__ == "__main__":
    command_line()
