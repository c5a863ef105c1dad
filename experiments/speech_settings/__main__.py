"""Real time on speech: its settings, the amount of speech, and other ways to train.

python -m experiments.speech_settings --preset=quick --workers=2
python -m experiments.speech_settings --corpus=timit_sample --workers=4   # on a GPU
"""

from __future__ import annotations

import itertools
from pathlib import Path

from absl import flags

from experiments.common import pool
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import write_results
from experiments.speech_settings import report
from experiments.speech_settings.experiment import PRESETS, Config, run

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    if not FLAGS.resume:
        pool.afresh(output)
    outcome = run(config, output, FLAGS.workers)
    write_results(
        output / "results.json", "speech_settings", config, list(itertools.chain.from_iterable(outcome.rows.values())), {}
    )
    print(report.write(output, outcome))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="full: the tables; quick: four speakers and 40 steps.",
        output_dir="results/speech_settings",
        resume=True,
        workers=1,
    )
    run_main(main)
