"""Endurance tests: a run that is killed many times loses nothing, and a long run does not grow.

python -m experiments.soak --part=kills --kills=200 --hyper_iterations=300
python -m experiments.soak --part=long --hyper_iterations=500

Both run `experiments.real_time_digits` (20 training steps per hyper-iteration) in a child process.

kills: the process receives SIGKILL at random moments, some of them during its start, and is started again each time. Its
results must be bit-identical to those of an uninterrupted run: the last checkpoint, results.json, and history.csv with each
hyper-iteration once. Values that TensorBoard has twice must be equal.

long: compares the last quarter of a run with the second in resident memory, open files, and the time of a hyper-iteration
including logs and checkpoints.
"""

from __future__ import annotations

import sys

from experiments.benchmarks import soak
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags


def main() -> None:
    """Runs one part; exit code 1 if something was lost, or grew."""
    config = from_flags(soak.Config)
    passed = soak.run_long(config) if config.part == "long" else soak.run_kills(config)
    sys.exit(not passed)


if __name__ == "__main__":
    define_flags(soak.Config)
    run_main(main)
