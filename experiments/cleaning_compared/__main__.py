"""Data hyper-cleaning beside what users do instead, where trusted digits are few, different or unbalanced.

python -m experiments.cleaning_compared --preset=quick
python -m experiments.cleaning_compared --workers=16
"""

from __future__ import annotations

import os
from pathlib import Path

from absl import flags

from experiments.cleaning_compared import report
from experiments.cleaning_compared.experiment import PRESETS, Config, run
from experiments.common import pool
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import write_results

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    if not FLAGS.resume:
        pool.afresh(output)
    rows = run(config, output, FLAGS.workers)
    write_results(output / "results.json", config, rows, {})
    print(report.write(output, rows))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="full: three seeds; quick: 500 digits and few iterations.",
        output_dir="results/cleaning_compared",
        resume=True,
        workers=os.cpu_count() or 1,
    )
    run_main(main)
