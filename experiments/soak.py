"""Endurance tests: a run that is killed many times loses nothing, and a long run does not grow.

python -m experiments.soak --part=kills --kills=200 --hyper_iterations=300
python -m experiments.soak --part=calls --kills=200 --hyper_iterations=1000
python -m experiments.soak --part=long --hyper_iterations=500

python -m experiments.soak --part=mixed --case=hyper_cleaning --kills=200 --output_dir=/mnt/small_disk/soak

The first three run `experiments.real_time_digits` (20 training steps per hyper-iteration) in a child process.

kills: the process receives SIGKILL at random moments, some of them during its start, and is started again each time. Its
results must be bit-identical to those of an uninterrupted run: the last checkpoint, results.json, and history.csv with each
hyper-iteration once. Values that TensorBoard has twice must be equal.

calls: the same without metrics, with a checkpoint at every 20th hyper-iteration and another number of hyper-iterations in a
compiled call at every start.

mixed: the same comparison, also for hyper-cleaning, with kills, SIGTERMs, full disks, processes that are stopped for seconds
and clocks that stand still. The output directory has to be on a small disk of its own, which is filled.

long: compares the last quarter of a run with the second in resident memory, open files, and the time of a hyper-iteration
including logs and checkpoints.
"""

from __future__ import annotations

import sys

from experiments.benchmarks import mixed_soak, soak
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags


def main() -> None:
    """Runs one part; exit code 1 if something was lost, or grew."""
    config = from_flags(soak.Config)
    parts = {"kills": soak.run_kills, "calls": soak.run_kills, "long": soak.run_long, "mixed": mixed_soak.run_mixed}
    sys.exit(not parts[config.part](config))


if __name__ == "__main__":
    define_flags(soak.Config)
    run_main(main)
