"""Data hyper-cleaning by warm implicit hypergradients, compared with reverse mode.

python -m experiments.warm_cleaning --preset=quick
python -m experiments.warm_cleaning --output_dir=results/warm_cleaning
"""

from __future__ import annotations

from pathlib import Path

from absl import flags

from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import keep_settings, write_results
from experiments.data_hyper_cleaning.experiment import load
from experiments.warm_cleaning import report
from experiments.warm_cleaning.experiment import PRESETS, Config, run

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    keep_settings(output / "settings.json", config.settings, FLAGS.resume)
    rows, histories = run(config, lambda seed: load("embedded", seed), output, FLAGS.resume)
    write_results(output / "results.json", "warm_cleaning", config, rows, {})
    print(report.write(output, rows, histories))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="full: with and without L2, two seeds; quick: with L2, one seed, short runs.",
        output_dir="results/warm_cleaning",
        resume=True,
    )
    run_main(main)
