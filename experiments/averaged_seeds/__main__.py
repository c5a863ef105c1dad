"""Hypers tuned on one random seed and on the average over eight, judged on fresh seeds.

python -m experiments.averaged_seeds
python -m experiments.averaged_seeds --preset=quick --output_dir=results/averaged_seeds_quick
"""

from __future__ import annotations

import time
from pathlib import Path

from absl import flags

from experiments.averaged_seeds import report
from experiments.averaged_seeds.experiment import PRESETS, Config, run
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import keep_settings, write_results

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    keep_settings(output / "settings.json", config.settings, FLAGS.resume)
    began = time.perf_counter()
    rows = run(config, output, FLAGS.resume)
    write_results(output / "results.json", "averaged_seeds", config, rows, {"whole run": time.perf_counter() - began})
    print(report.write(output, config, rows))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="full: six repetitions; quick: two, with fewer hyper-iterations.",
        output_dir="results/averaged_seeds",
        resume=True,
    )
    run_main(main)
