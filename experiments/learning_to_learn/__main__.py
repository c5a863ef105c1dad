"""Learning to learn: initialisation and learning rates from which five steps on a few points fit a sinusoid.

python -m experiments.learning_to_learn
python -m experiments.learning_to_learn --preset=quick --output_dir=results/learning_to_learn_quick
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from absl import flags

import rfho2 as rf
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import keep_settings, write_results
from experiments.learning_to_learn import report
from experiments.learning_to_learn.experiment import PRESETS, Config, run

FLAGS = flags.FLAGS


def callbacks(title: str, directory: Path | None) -> Sequence[rf.Callback]:
    """A progress bar, and the history as a table."""
    assert directory is not None
    return [rf.ProgressBar(description=title), rf.CSVLogger(directory / "history.csv")]


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    keep_settings(output / "settings.json", config.settings, FLAGS.resume)
    began = time.perf_counter()
    outcome = run(config, callbacks, output, FLAGS.resume)
    timing = {**outcome.timing, "whole run": time.perf_counter() - began}
    write_results(output / "results.json", "learning_to_learn", config, outcome.results, timing)
    print(report.write(output, config, outcome))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="full: 8,000 hyper-iterations for each number of points; quick: 800.",
        output_dir="results/learning_to_learn",
        resume=True,
    )
    run_main(main)
