"""A Keras CNN tuned in real time, compared with random search: accuracy and time.

python -m experiments.keras_real_time --preset=quick
python -m experiments.keras_real_time --preset=full
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from absl import flags

from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import keep_settings, write_results
from experiments.keras_real_time import report
from experiments.keras_real_time.experiment import PRESETS, Config, check, run

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    check(config)
    keep_settings(output / "settings.json", dataclasses.asdict(config), FLAGS.resume)
    records = run(config, output / "trainings.json", FLAGS.resume)
    text = report.write(output, records, config)
    omitted = ("seconds", "ratio", "way")  # times are kept apart, and trainings.json has the trajectories
    rows = [{name: value for name, value in record.items() if name not in omitted} for record in records]
    timing = {name: [record[name] for record in records] for name in ("seconds", "ratio")}
    write_results(output / "results.json", "keras_real_time", config, rows, timing)
    print(text)


if __name__ == "__main__":
    define_flags(Config, PRESETS, output_dir="results/keras_real_time", resume=True)
    run_main(main)
