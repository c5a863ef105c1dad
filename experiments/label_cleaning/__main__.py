"""Finding wrong labels: learned weights and refits, compared with what users do otherwise.

python -m experiments.label_cleaning --preset=quick
python -m experiments.label_cleaning
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from absl import flags

from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import keep_settings, write_results
from experiments.label_cleaning import report
from experiments.label_cleaning.experiment import PRESETS, Config, run

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    keep_settings(output / "settings.json", dataclasses.asdict(config), FLAGS.resume)
    records = run(config, output / "trainings.json", FLAGS.resume)
    write_results(output / "results.json", "label_cleaning", config, records, {})
    print(report.write(output, records))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="full: two data sets, two models each; quick: few examples of one data set.",
        output_dir="results/label_cleaning",
        resume=True,
    )
    run_main(main)
