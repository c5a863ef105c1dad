"""Task interactions at the paper's level of difficulty: weaker features, other numbers of examples, and what C means.

python -m experiments.task_difficulty --preset=quick
python -m experiments.task_difficulty --workers=16   # CIFAR-100 needs the variable RFHO2_CIFAR100_FEATURES
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from absl import flags

from experiments.common import pool
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import write_results
from experiments.task_difficulty import report
from experiments.task_difficulty.experiment import PRESETS, Config, run

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    if not FLAGS.resume:
        pool.afresh(output)
    outcome = run(config, output, FLAGS.workers)
    write_results(
        output / "results.json", "task_difficulty", config, list(itertools.chain.from_iterable(outcome.rows.values())), {}
    )
    print(report.write(output, outcome))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="paper: everything; quick: two splits, ten hyper-iterations.",
        output_dir="results/task_difficulty",
        resume=True,
        workers=os.cpu_count() or 1,
    )
    run_main(main)
