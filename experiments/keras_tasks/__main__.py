"""Ten small Keras tasks: a learning rate tuned in real time, compared with fixed, planned and searched rates.

python -m experiments.keras_tasks --preset=quick
python -m experiments.keras_tasks --preset=development --output_dir=results/keras_tasks/development
python -m experiments.keras_tasks --preset=frozen --output_dir=results/keras_tasks/frozen
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from absl import flags

from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import keep_settings, write_results
from experiments.keras_tasks import report
from experiments.keras_tasks.experiment import PRESETS, Config, run

FLAGS = flags.FLAGS
flags.DEFINE_bool("tuner", True, "Run the tuner too; --notuner runs the baselines, which a later run need not repeat.")


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    keep_settings(output / "settings.json", dataclasses.asdict(config), FLAGS.resume)
    records = run(config, output / "trainings.json", FLAGS.resume, FLAGS.tuner)
    if FLAGS.tuner:
        rows = [{name: value for name, value in record.items() if name != "way"} for record in records]
        write_results(output / "results.json", "keras_tasks", config, rows, {})
        print(report.write(output, records))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="development: five tasks; frozen: the other five; quick: two tasks for two epochs.",
        output_dir="results/keras_tasks",
        resume=True,
    )
    run_main(main)
