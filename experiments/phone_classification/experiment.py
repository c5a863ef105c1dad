"""Phone classification with real-time hyperparameter optimisation (paper, 5.3 and Appendix B).

    python -m experiments.phone_classification --preset=quick
    python -m experiments.phone_classification --preset=sample --corpus=/path/to/timit_sample
    python -m experiments.phone_classification --preset=paper --corpus=/path/to/TIMIT

A network with a shared part and two outputs learns the class of each frame of speech (61 phones in 3 states each) and,
weighted by rho, the embedding of the phone in its context. Learning rate eta, momentum factor mu and rho are tuned while it
trains: RTHO starts from good values, RTHO-NT ("null teacher") from zeros. Vanilla keeps fixed ones; RS and SMBO search.

Without a corpus, synthetic speech is written once, as .wav and .phn files, and read as a real corpus would be.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from tqdm import tqdm

import rfho2 as rf
from data.errors import DataError
from data.speech import features as speech_features
from data.speech import synthetic as synthetic_speech
from data.speech import timit
from experiments.common import binary as common
from experiments.common import meshes
from experiments.phone_classification import methods as phone_methods
from experiments.phone_classification import network as phone_network
from experiments.phone_classification import report
from experiments.phone_classification import search as phone_search
from experiments.phone_classification.methods import Bench, Outcome, Training
from experiments.phone_classification.network import Speech
from rfho2.core.types import Hypers

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Config(Training):
    """Everything that results depend on.

    Attributes:
      corpus: a directory in the layout of TIMIT; None writes synthetic speech.
      speakers, sentences: of the synthetic corpus; sentences of each speaker.
      include_sa: keep the sentences that every speaker reads.
      features: "bands" or "cepstra"; the paper says cepstra, with which networks of this size find fewer frames.
      skip_bad_files: leave out files that cannot be used, instead of ending.
      methods, folds, seeds: each method runs on each fold of the speakers with each seed.
    """

    corpus: str | None = None
    speakers: int = 16
    sentences: int = 8
    include_sa: bool = False
    features: str = "bands"
    skip_bad_files: bool = False
    methods: tuple[str, ...] = ("Vanilla", "RTHO", "RTHO-NT")
    folds: tuple[int, ...] = (0,)
    seeds: tuple[int, ...] = (0,)


ALL = ("Vanilla", "Vanilla, no stopping", "RS", "SMBO", "RTHO", "RTHO-NT")
DIVIDED = ("RTHO", "RTHO-NT")  # what `--mesh` can run
RUNS = ("methods", "folds", "seeds", "checkpoint_every")  # fields that no single run depends on
PRESETS = {
    "quick": Config(),
    "sample": Config(methods=ALL, folds=(0, 1, 2, 3, 4), seeds=(0, 1, 2)),
    "paper": Config(
        methods=ALL,
        width=2000,
        hyper_batch=200,
        hyper_rate=0.005,
        carry=True,
        minutes=300.0,
        checkpoint_every=2,
        features="cepstra",
        speakers=64,
    ),
}

Watch = Callable[[str | None, Path], Sequence[rf.Callback]]
"""(title, directory of a training) -> callbacks for it; those of a search have no title, because the search has a bar."""


def run_method(name: str, bench: Bench, watch: Watch, title: str, directory: Path) -> Outcome:
    """One method."""
    if name in phone_search.PROPOSALS:
        return phone_search.search(
            bench, phone_search.PROPOSALS[name](bench.seed), title, directory, lambda d: watch(None, d)
        )
    callbacks = watch(title, directory)
    if name.startswith("Vanilla"):
        return phone_methods.fixed_hypers(bench, phone_methods.ALONE, callbacks, directory, early=name == "Vanilla")
    start = phone_methods.NULL_TEACHER if name == "RTHO-NT" else phone_methods.TAUGHT
    return phone_methods.real_time(bench, start, callbacks, directory)


def tested(data: Speech, outcome: Outcome) -> dict[str, Any]:
    """The accuracies of what a method kept and of where it ended: the only look at the test speakers."""
    accuracy = phone_network.accuracy_on(data)
    right = {"accuracy": float(accuracy(outcome.kept, data.test)), "last_accuracy": float(accuracy(outcome.last, data.test))}
    rows = outcome.curve or [{"validation accuracy": 0.0, "steps": 0}]
    best, last = max(row["validation accuracy"] for row in rows), rows[-1]
    found = {"validation_accuracy": best, "last_validation_accuracy": last["validation accuracy"], "steps": last["steps"]}
    return {**right, **found, **outcome.hypers}


def run(config: Config, speech: Callable[[int], Speech], watch: Watch, output: Path) -> list[dict[str, Any]]:
    """Every method on every fold with every seed; finished ones are read from `output`."""
    records, mesh = [], meshes.mesh() if meshes.asked() else None
    for fold in config.folds:
        data = speech(fold)
        for seed in config.seeds:
            bench = functools.cache(lambda seed=seed, data=data: Bench(config, data, seed, mesh=mesh))
            for method in config.methods:
                title = f"{method}, fold {fold}, seed {seed}"
                directory = output / "runs" / common.slug(title)
                path = directory / "outcome.json"
                if path.exists():
                    text = path.read_text()
                else:
                    outcome = run_method(method, bench(), watch, title, directory)
                    record = {"method": method, "fold": fold, "seed": seed, **tested(data, outcome), "curve": outcome.curve}
                    text = json.dumps(record) + "\n"
                    if meshes.writes():
                        common.write_text(path, text)
                records.append(json.loads(text))
    return records


def find_corpus(config: Config, cache_dir: Path) -> timit.Corpus:
    """The corpus, from files or written first."""
    root = Path(config.corpus) if config.corpus else None
    if root is None:
        root = synthetic_speech.find_or_write(cache_dir, config.speakers, config.sentences)
    corpus = timit.load(root, config.include_sa, cache_dir, config.skip_bad_files, kind=config.features)
    for message in corpus.skipped:
        print(f"left out: {message}")
    print(f"{len(corpus.utterances)} sentences, {len(corpus.features)} frames from {root}; {len(corpus.skipped)} left out.")
    return corpus


def config_from_flags() -> Config:
    """The preset, with every flag that was given in its place."""
    config = dataclasses.replace(PRESETS[FLAGS.preset], **common.given(Config))
    if FLAGS.preset == "sample" and config.corpus is None:
        raise DataError("--preset=sample needs a corpus: --corpus=DIRECTORY, such as the sample of TIMIT that NLTK has.")
    if FLAGS.steps is not None:  # steps that were asked for count, also where the preset has minutes
        config = dataclasses.replace(config, minutes=FLAGS.minutes)
    return config


class TimeBar(rf.Callback):
    """A bar over the minutes of the budget, from where this process began."""

    def __init__(self, show: Sequence[str], title: str, minutes: float):
        self._show, self._title, self._seconds = show, title, 60 * minutes

    def on_start(self, run: rf.Run) -> None:
        """Opens it."""
        self._began = time.perf_counter()
        self._bar = tqdm(total=round(self._seconds), desc=self._title, unit="s")

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: rf.HyperGradient, extra: dict[str, Any]) -> None:
        """Moves it to now."""
        known = {**hypers, **extra}
        self._bar.set_postfix({name: f"{float(known[name]):.4g}" for name in self._show if name in known}, refresh=False)
        self._bar.update(min(round(time.perf_counter() - self._began), self._bar.total) - self._bar.n)

    def on_end(self, result: rf.Result) -> None:
        """Leaves it standing."""
        self._bar.close()


def check(config: Config, corpus: timit.Corpus) -> None:
    """Refuses what would fail later, after hours."""
    if "SMBO" in config.methods:
        phone_search.check_package()
    if meshes.asked() and (config.minutes is not None or not set(config.methods) <= set(DIVIDED)):
        wanted = " ".join(f"--methods={name}" for name in DIVIDED)
        raise DataError(f"--mesh divides training in real time, for a number of steps: give --steps and {wanted}.")
    if config.minutes is not None and config.minutes <= 0:
        raise DataError(f"--minutes is {config.minutes:g}; give a budget above 0, or --steps.")
    for fold in config.folds:
        frames = len(timit.frames_of(corpus, timit.split(corpus.utterances, fold).train))
        if config.batch_size > frames:
            raise DataError(f"--batch_size is {config.batch_size}, but fold {fold} has {frames} frames to train on.")


def settings_of(config: Config, corpus: timit.Corpus) -> dict[str, Any]:
    """What a run depends on, the contents of the corpus included, but not which runs there are."""
    kept = {name: value for name, value in dataclasses.asdict(config).items() if name not in RUNS}
    arrays = corpus.features, corpus.states, corpus.phones
    return {**kept, "frames": len(corpus.features), "checksums": [zlib.crc32(np.ascontiguousarray(a).data) for a in arrays]}


def main() -> None:
    """Flags to config, run, report."""
    config, output = config_from_flags(), Path(FLAGS.output_dir)
    corpus = find_corpus(config, Path(FLAGS.cache_dir))
    check(config, corpus)
    if not FLAGS.resume and (output / "runs").exists():
        shutil.rmtree(output / "runs")
    common.keep_settings(output / "settings.json", settings_of(config, corpus), FLAGS.resume)

    def watch(title: str | None, directory: Path) -> Sequence[rf.Callback]:
        shown = ("validation accuracy", "eta", "mu", "rho")
        watching: list[rf.Callback] = [rf.CSVLogger(directory / "history.csv")]
        if FLAGS.tensorboard:
            watching.append(rf.TensorBoard(directory / "tensorboard"))
        if title is not None:
            watching.append(TimeBar(shown, title, config.minutes) if config.minutes else rf.ProgressBar(shown, title))
        return watching

    began = time.perf_counter()
    utterances = corpus.utterances
    records = run(config, lambda fold: phone_network.speech(corpus, timit.split(utterances, fold)), watch, output)
    if not meshes.writes():
        return
    timing = {f"{r['method']} fold {r['fold']} seed {r['seed']}": r["curve"][-1]["seconds"] for r in records if r["curve"]}
    rows = [{name: value for name, value in record.items() if name != "curve"} for record in records]
    common.write_results(output / "results.json", config, rows, {**timing, "whole run": time.perf_counter() - began})
    print(report.write(output, records, config))


def define_flags() -> None:
    """Every field of the config is a flag; those not given come from the preset."""
    flags.DEFINE_enum(
        "preset", "quick", sorted(PRESETS), "quick: synthetic speech; sample: 5 folds x 3 seeds; paper: its sizes."
    )
    flags.DEFINE_string("output_dir", "results/phone_classification", "Where results go; a stopped run goes on from here.")
    flags.DEFINE_string("cache_dir", "results/speech", "Where features and the synthetic corpus are kept.")
    flags.DEFINE_bool("resume", True, "Go on where a stopped run in output_dir was; --noresume starts afresh.")
    flags.DEFINE_bool("tensorboard", True, "Write TensorBoard logs to output_dir/runs/*/tensorboard while training.")
    meshes.define_flag()
    flags.DEFINE_string("corpus", None, "A directory in the layout of TIMIT; without it speech is synthesised.")
    flags.DEFINE_integer("speakers", None, "Speakers of the synthetic corpus.", lower_bound=3)
    flags.DEFINE_integer("sentences", None, "Sentences of each of them.", lower_bound=1)
    flags.DEFINE_bool("include_sa", None, "Keep the sentences SA1 and SA2, which every speaker reads.")
    flags.DEFINE_enum("features", None, speech_features.KINDS, "Logarithms of mel bands, or their cosine transform.")
    flags.DEFINE_bool("skip_bad_files", None, "Leave out and count files that cannot be used.")
    flags.DEFINE_multi_enum("methods", None, ALL, "Give the flag again for each.")
    flags.DEFINE_list("folds", None, "Which speakers are held out; 0 to 4 for 16 speakers.")
    flags.DEFINE_list("seeds", None, "Seeds of weights and minibatches.")
    flags.DEFINE_integer("width", None, "Units of each shared layer.", lower_bound=1)
    flags.DEFINE_integer("layers", None, "Shared layers.", lower_bound=1)
    flags.DEFINE_integer("batch_size", None, "Frames in a minibatch.", lower_bound=1)
    flags.DEFINE_integer("hyper_batch", None, "Delta: training steps between two hypergradients.", lower_bound=1)
    flags.DEFINE_float("hyper_rate", None, "Learning rate of projected Adam on the hypers.", lower_bound=0.0)
    flags.DEFINE_integer("validation_size", None, "Frames that each hypergradient looks at.", lower_bound=1)
    flags.DEFINE_bool("carry", None, "Keep Z across updates of the hypers; --nocarry sets it to 0.")
    flags.DEFINE_integer("steps", None, "The budget: training steps in real time.", lower_bound=1)
    flags.DEFINE_integer(
        "plain_factor", None, "Plain training, also in a search, has so many times as many steps.", lower_bound=1
    )
    flags.DEFINE_float("minutes", None, "The budget of each method in minutes, instead of steps.", lower_bound=0.0)
    flags.DEFINE_integer("checkpoint_every", None, "Hyper-batches between checkpoints.", lower_bound=1)
    flags.DEFINE_integer("patience", None, "Early stopping: looks at the validation set without improvement.", lower_bound=1)
    flags.DEFINE_float("improvement", None, "Early stopping: what counts as one, relative.", lower_bound=0.0)


def command_line() -> None:
    """Defines the flags and runs."""
    define_flags()
    common.run_main(main)
