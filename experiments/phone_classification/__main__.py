"""Phone classification with real-time hyperparameter optimisation (paper, 5.3 and Appendix B).

python -m experiments.phone_classification --preset=quick
python -m experiments.phone_classification --preset=sample --corpus=/path/to/timit_sample
python -m experiments.phone_classification --preset=paper --corpus=/path/to/TIMIT

A network with a shared part and two outputs learns the class of each frame of speech (61 phones in 3 states each) and,
weighted by rho, the embedding of the phone in its context. The learning rate eta, the momentum factor mu and rho are tuned
while it trains: RTHO starts from good values, RTHO-NT ("null teacher") from zeros. Vanilla keeps them fixed; RS and SMBO
search for them.

Without a corpus, synthetic speech is written once, as .wav and .phn files, and read like a real corpus.
"""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

import rfho2 as rf
from data.speech import timit
from experiments.common import meshes
from experiments.common.binary import run_main
from experiments.common.config import define_flags
from experiments.common.results import keep_settings, write_results
from experiments.phone_classification import network, report, search
from experiments.phone_classification.config import PRESETS, Config, Places, check, config_from_flags
from experiments.phone_classification.experiment import find_corpus, run, settings_of
from experiments.phone_classification.progress import TimeBar

FLAGS = flags.FLAGS
SHOWN = ("validation accuracy", "eta", "mu", "rho")


def callbacks(minutes: float | None, title: str | None, directory: Path) -> Sequence[rf.Callback]:
    """Logs, and a progress bar for a training with a title."""
    bars: list[rf.Callback] = []
    if title is not None:
        bars = [TimeBar(SHOWN, title, minutes) if minutes else rf.ProgressBar(SHOWN, title)]
    tensorboard = [rf.TensorBoard(directory / "tensorboard")] if FLAGS.tensorboard else []
    return [rf.CSVLogger(directory / "history.csv"), *tensorboard, *bars]


def prepare(config: Config, corpus: timit.Corpus, output: Path) -> None:
    """Refuses what would fail later; removes earlier runs with --noresume."""
    if "SMBO" in config.methods:
        search.check_package()
    check(config, corpus)
    if not FLAGS.resume and (output / "runs").exists():
        shutil.rmtree(output / "runs")
    keep_settings(output / "settings.json", settings_of(config, corpus), FLAGS.resume)


def write(output: Path, config: Config, records: list[dict[str, Any]], seconds: float) -> None:
    """Writes results and report."""
    timing = {f"{r['method']} fold {r['fold']} seed {r['seed']}": r["curve"][-1]["seconds"] for r in records if r["curve"]}
    rows = [{name: value for name, value in record.items() if name != "curve"} for record in records]
    write_results(output / "results.json", "phone_classification", config, rows, {**timing, "whole run": seconds})
    print(report.write(output, records, config))


def main() -> None:
    """Flags to config, run, report."""
    config, output = config_from_flags(), Path(FLAGS.output_dir)
    corpus = find_corpus(config, Path(FLAGS.cache_dir))
    prepare(config, corpus, output)
    began = time.perf_counter()
    watch = functools.partial(callbacks, config.minutes)
    records = run(config, lambda fold: network.speech(corpus, timit.split(corpus.utterances, fold)), watch, output)
    if meshes.writes():
        write(output, config, records, time.perf_counter() - began)


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="quick: synthetic speech; sample: 5 folds x 3 seeds; paper: its sizes.",
        output_dir="results/phone_classification",
        resume=True,
        tensorboard=True,
        mesh=True,
    )
    define_flags(Places)
    run_main(main)
