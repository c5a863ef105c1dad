"""A weight for each of 5,000 training digits, half of them with a wrong label, learned in one training of a network.

python -m experiments.online_weights --preset=quick
python -m experiments.online_weights
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from absl import flags

from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import keep_settings, write_results
from experiments.data_hyper_cleaning.experiment import load
from experiments.online_weights import report
from experiments.online_weights.experiment import PRESETS, Config, run

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    if not FLAGS.resume and (output / "runs").exists():
        shutil.rmtree(output / "runs")
    keep_settings(output / "settings.json", dataclasses.asdict(config), FLAGS.resume)
    outcome = run(config, lambda seed: load("embedded", seed), output)
    timing = {f"{row['method']} seed {row['seed']}": row.pop("seconds") for row in outcome.rows if "seconds" in row}
    write_results(output / "results.json", "online_weights", config, outcome.rows, timing)
    print(report.write(output, config, outcome, load("embedded", config.seeds[0])))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="full: settings chosen on a calibration seed, three seeds; quick: one seed, six epochs.",
        output_dir="results/online_weights",
        resume=True,
    )
    run_main(main)
