"""`python -m experiments.phone_benchmark`: see `experiments/benchmarks/phones.py`."""

from experiments.benchmarks.phones import command_line

if __name__ == "__main__":
    command_line()
