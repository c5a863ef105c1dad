"""Data hyper-cleaning (paper, 5.1): one weight per training example finds the wrong labels. Table 1, Figure 2.

python -m experiments.data_hyper_cleaning --preset=quick
python -m experiments.data_hyper_cleaning --preset=paper --output_dir=results/data_hyper_cleaning_paper
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from pathlib import Path

from absl import flags

import rfho2 as rf
from experiments.common import meshes
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import keep_settings, write_results
from experiments.data_hyper_cleaning import report
from experiments.data_hyper_cleaning.experiment import PRESETS, Config, load, run

FLAGS = flags.FLAGS


def callbacks(radius: float, seed: int, directory: Path | None) -> Sequence[rf.Callback]:
    """Progress bar, logs, and when each example was discarded."""
    assert directory is not None
    bar = rf.ProgressBar(("F1", "test accuracy"), f"DH-{radius:g} seed {seed}")
    log = [rf.TensorBoard(directory / "tensorboard", every=5)] if FLAGS.tensorboard else []
    discarded = report.FirstDiscarded(directory / "first_discarded.npy")
    return [bar, rf.CSVLogger(directory / "history.csv"), discarded, *log]


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    keep_settings(output / "settings.json", config.settings, FLAGS.resume)
    began = time.perf_counter()
    outcome = run(config, functools.partial(load, config.source), callbacks, output, FLAGS.resume)
    if meshes.writes():
        timing = {**outcome.timing, "whole run": time.perf_counter() - began}
        write_results(output / "results.json", "data_hyper_cleaning", config, outcome.results, timing)
        print(report.write(output, config, outcome, load(config.source, config.seeds[0])))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="quick: R = 1000, one seed; paper: four R, three seeds.",
        output_dir="results/data_hyper_cleaning",
        resume=True,
        tensorboard=True,
        mesh=True,
    )
    run_main(main)
