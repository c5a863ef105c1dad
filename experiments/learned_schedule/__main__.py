"""A learning rate for each of 2,000 steps, learned by hypergradients, beside schedules tuned by random trials.

python -m experiments.learned_schedule --preset=quick
python -m experiments.learned_schedule --workers=4   # on a GPU
"""

from __future__ import annotations

from pathlib import Path

from absl import flags

from experiments.common import pool
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import write_results
from experiments.learned_schedule import report
from experiments.learned_schedule.experiment import PRESETS, Config, run

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    if not FLAGS.resume:
        pool.afresh(output)
    rows = run(config, output, FLAGS.workers)
    write_results(output / "results.json", "learned_schedule", config, rows, {})
    print(report.write(output, rows))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="full: 2,000 steps; quick: 100.",
        output_dir="results/learned_schedule",
        resume=True,
        workers=1,
    )
    run_main(main)
