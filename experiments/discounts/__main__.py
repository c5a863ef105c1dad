"""How far a hypergradient in real time should look back: discounts, with and without carry, on digits and on phones.

python -m experiments.discounts --preset=quick
python -m experiments.discounts
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from absl import flags

from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import keep_settings, write_results
from experiments.discounts import report
from experiments.discounts.experiment import PRESETS, Config, run
from experiments.phone_classification.config import Places

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    keep_settings(output / "settings.json", dataclasses.asdict(config), FLAGS.resume)
    records = run(config, output / "trainings.json", Path(FLAGS.cache_dir), FLAGS.resume)
    rows = [{name: value for name, value in record.items() if name not in ("values", "rates")} for record in records]
    write_results(output / "results.json", "discounts", config, rows, {})
    print(report.write(output, config, records))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="full: four discounts, three seeds on digits, two on phones; quick: carry or not, short.",
        output_dir="results/discounts",
        resume=True,
    )
    define_flags(Places)
    run_main(main)
