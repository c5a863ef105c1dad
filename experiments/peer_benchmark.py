"""`python -m experiments.peer_benchmark`: see `experiments/benchmarks/peers.py`."""

from experiments.benchmarks.peers import command_line

if __name__ == "__main__":
    command_line()
