"""Learning task interactions (paper, 5.2 and Appendix B): which classes help each other. Tables 2 and 4, Figure 3.

python -m experiments.task_interactions --preset=quick
python -m experiments.task_interactions --preset=paper --output_dir=results/task_interactions_paper
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from pathlib import Path

from absl import flags

import rfho2 as rf
from data import cifar_features
from experiments.common import meshes
from experiments.common.binary import run_main
from experiments.common.config import define_flags, given_settings
from experiments.common.figures import slug
from experiments.common.results import keep_settings, write_results
from experiments.task_interactions import report
from experiments.task_interactions.experiment import FULL, PRESETS, Config, choose_configs, find_features, run

FLAGS = flags.FLAGS


def callbacks(method: str, seed: int, directory: Path | None) -> Sequence[rf.Callback]:
    """Progress bar and logs."""
    assert directory is not None
    bar = rf.ProgressBar(("validation accuracy",), f"{directory.parts[-3]}: {method}, split {seed}")
    log = [rf.TensorBoard(directory / "tensorboard", every=10)] if FLAGS.tensorboard else []
    return [bar, rf.CSVLogger(directory / "history.csv"), *log]


def run_and_report(config: Config, features: cifar_features.Features, output: Path) -> None:
    """One data set."""
    split = functools.partial(cifar_features.split, features, per_class=config.per_class)
    keep_settings(output / "settings.json", config.settings, FLAGS.resume)
    began = time.perf_counter()
    outcome = run(config, split, callbacks, output, FLAGS.resume)
    if meshes.writes():
        pace = {f"hyper-iteration of {name}": seconds for name, seconds in outcome.pace.items()}
        timing = {**outcome.timing, **pace, "whole run": time.perf_counter() - began}
        write_results(output / "results.json", "task_interactions", config, outcome.results, timing)
        print(report.write(output, outcome.results, outcome.interactions, features.class_names))
        print(report.speed(outcome.pace))


def main() -> None:
    """Flags to configs; each is run and reported."""
    configs = choose_configs(PRESETS[FLAGS.preset], (FULL if FLAGS.full else {}) | given_settings(Config))
    features = [find_features(config) for config in configs]  # all of them first: a bad file must not end hours of work
    for config, data in zip(configs, features, strict=True):
        run_and_report(config, data, Path(FLAGS.output_dir) / slug(config.name))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="quick: CIFAR-10, two splits; paper: everything; totals: several R, five splits.",
        output_dir="results/task_interactions",
        resume=True,
        tensorboard=True,
        mesh=True,
    )
    flags.DEFINE_bool("full", False, "The original's T = 3000 at rate 0.01 and 250 hyper-iterations.")
    run_main(main)
