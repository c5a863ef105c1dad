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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags

import rfho2 as rf
from data import speech_features, synthetic_speech, timit
from data.errors import DataError
from experiments import common, phone_methods, phone_network, phone_search
from experiments import phone_report as report
from experiments.phone_methods import Bench, Outcome, Training
from experiments.phone_network import Speech

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
PRESETS = {
    "quick": Config(),
    "sample": Config(methods=ALL, folds=(0, 1, 2, 3, 4), seeds=(0, 1, 2)),
    "paper": Config(methods=ALL, width=2000, hyper_batch=200, hyper_rate=0.005, carry=True, minutes=300.0, speakers=64),
}

Callbacks = Callable[[str, Path], Sequence[rf.Callback]]
"""(title, directory of the run) -> callbacks for it."""


def run_method(name: str, bench: Bench, callbacks: Sequence[rf.Callback], title: str, directory: Path) -> Outcome:
    """One method."""
    if name in ("RS", "SMBO"):
        proposals = (phone_search.random_search if name == "RS" else phone_search.model_based)(bench.seed)
        return phone_search.search(bench, proposals, title, directory / "trials")
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


def run(config: Config, speech: Callable[[int], Speech], callbacks: Callbacks, output: Path) -> list[dict[str, Any]]:
    """Every method on every fold with every seed; finished ones are read from `output`."""
    records = []
    for fold in config.folds:
        data = speech(fold)
        for seed in config.seeds:
            bench = functools.cache(lambda seed=seed, data=data: Bench(config, data, seed))
            for method in config.methods:
                title = f"{method}, fold {fold}, seed {seed}"
                directory = output / "runs" / common.slug(title)
                path = directory / "outcome.json"
                if not path.exists():
                    outcome = run_method(method, bench(), callbacks(title, directory), title, directory)
                    record = {"method": method, "fold": fold, "seed": seed, **tested(data, outcome), "curve": outcome.curve}
                    common.write_text(path, json.dumps(record) + "\n")
                records.append(json.loads(path.read_text()))
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
    return config if FLAGS.steps is None else dataclasses.replace(config, minutes=FLAGS.minutes)


def main() -> None:
    """Flags to config, run, report."""
    config, output = config_from_flags(), Path(FLAGS.output_dir)
    corpus = find_corpus(config, Path(FLAGS.cache_dir))
    settings = {
        name: value for name, value in dataclasses.asdict(config).items() if name not in ("methods", "folds", "seeds")
    }
    common.keep_settings(output / "settings.json", settings, FLAGS.resume)
    if not FLAGS.resume:
        shutil.rmtree(output / "runs", ignore_errors=True)

    def callbacks(title: str, directory: Path) -> Sequence[rf.Callback]:
        bar = rf.ProgressBar(("validation accuracy", "eta", "mu", "rho"), title)
        log = [rf.TensorBoard(directory / "tensorboard")] if FLAGS.tensorboard else []
        return [bar, rf.CSVLogger(directory / "history.csv"), *log]

    began = time.perf_counter()
    utterances = corpus.utterances
    records = run(config, lambda fold: phone_network.speech(corpus, timit.split(utterances, fold)), callbacks, output)
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
    flags.DEFINE_integer("steps", None, "The budget of one training, in steps.", lower_bound=1)
    flags.DEFINE_integer(
        "plain_factor", None, "Plain training, also in a search, has so many times as many steps.", lower_bound=1
    )
    flags.DEFINE_float("minutes", None, "The budget of each method in minutes, instead of steps.", lower_bound=0.0)
    flags.DEFINE_integer("patience", None, "Early stopping: looks at the validation set without improvement.", lower_bound=1)
    flags.DEFINE_float("improvement", None, "Early stopping: what counts as one, relative.", lower_bound=0.0)


if __name__ == "__main__":
    define_flags()
    common.run_main(main)
