"""Settings of the phone classification experiment, and checks that refuse those that would fail after hours."""

from __future__ import annotations

import dataclasses

from absl import flags

from data.errors import DataError
from data.speech import timit
from data.speech.features import KINDS
from experiments.common import meshes
from experiments.common.config import from_flags, setting

FLAGS = flags.FLAGS
METHODS = ("Vanilla", "Vanilla, no stopping", "RS", "SMBO", "RTHO", "RTHO-NT")
MESH_METHODS = ("RTHO", "RTHO-NT")  # the methods that --mesh can run


@dataclasses.dataclass(frozen=True)
class PhoneTraining:
    """The settings of a training that all methods share."""

    width: int = setting(64, "Units of each shared layer.", at_least=1)
    layers: int = setting(4, "Shared layers.", at_least=1)
    batch_size: int = setting(500, "Frames in a minibatch.", at_least=1)
    hyper_batch: int = setting(
        20,
        "Delta: training steps between two hypergradients, and between two evaluations on the validation set.",
        at_least=1,
    )
    hyper_rate: float = setting(0.01, "Learning rate of projected Adam on the hypers.", at_least=0.0)
    validation_size: int = setting(1000, "Frames of the random subset that each hypergradient uses.", at_least=1)
    carry: bool = setting(
        False, "Keep the sensitivity Z across updates of the hypers, as the paper's code does; --nocarry sets it to 0."
    )
    steps: int = setting(1000, "The budget: training steps in real time.", at_least=1)
    plain_factor: int = setting(
        6, "Steps of plain training, also in a search, per step in real time, which takes about as long.", at_least=1
    )
    minutes: float | None = setting(None, "The budget of each method in minutes, instead of steps.", at_least=0.0)
    patience: int = setting(
        10, "Early stopping: evaluations without improvement after which plain training ends.", at_least=1
    )
    improvement: float = setting(
        0.01, "Early stopping: the relative increase of the validation accuracy that counts as improvement.", at_least=0.0
    )
    checkpoint_every: int = setting(10, "Hyper-batches between checkpoints; no result depends on it.", at_least=1)


@dataclasses.dataclass(frozen=True)
class Config(PhoneTraining):
    """Everything that results depend on. Each method runs on each fold of the speakers with each seed.

    The paper uses cepstra, with which networks of the default size classify fewer frames correctly.
    """

    corpus: str | None = setting(None, "A directory in the layout of TIMIT; without it speech is synthesised.")
    speakers: int = setting(16, "Speakers of the synthetic corpus.", at_least=3)
    sentences: int = setting(8, "Sentences of each of them.", at_least=1)
    include_sa: bool = setting(False, "Keep the sentences SA1 and SA2, which every speaker reads.")
    features: str = setting("bands", "Logarithms of mel bands, or their cosine transform.", choices=KINDS)
    skip_bad_files: bool = setting(False, "Leave out and count files that cannot be used, instead of ending.")
    methods: tuple[str, ...] = setting(
        ("Vanilla", "RTHO", "RTHO-NT"), "Repeat the flag to run several methods.", choices=METHODS
    )
    folds: tuple[int, ...] = setting((0,), "Which speakers are held out; 0 to 4 for 16 speakers.", at_least=0)
    seeds: tuple[int, ...] = setting((0,), "Seeds of weights and minibatches.", at_least=0)


@dataclasses.dataclass(frozen=True)
class Places:
    """Directories that no result depends on."""

    cache_dir: str = setting("results/speech", "Where features and the synthetic corpus are kept.")


PRESETS = {
    "quick": Config(),
    "sample": Config(methods=METHODS, folds=(0, 1, 2, 3, 4), seeds=(0, 1, 2)),
    "paper": Config(
        methods=METHODS,
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


def config_from_flags() -> Config:
    """The preset with the values of all flags that were given."""
    config = from_flags(Config, PRESETS)
    if FLAGS.preset == "sample" and config.corpus is None:
        raise DataError("--preset=sample needs a corpus: --corpus=DIRECTORY, for example the sample of TIMIT in NLTK.")
    if FLAGS.steps is not None:  # steps that were asked for count, even if the preset has minutes
        config = dataclasses.replace(config, minutes=FLAGS.minutes)
    return config


def check(config: Config, corpus: timit.Corpus) -> None:
    """Refuses settings that would fail later, after hours."""
    if meshes.enabled() and (config.minutes is not None or not set(config.methods) <= set(MESH_METHODS)):
        methods = " ".join(f"--methods={name}" for name in MESH_METHODS)
        raise DataError(f"--mesh divides training in real time, for a number of steps: give --steps and {methods}.")
    if config.minutes is not None and config.minutes <= 0:
        raise DataError(f"--minutes is {config.minutes:g}; give a budget above 0, or --steps.")
    for fold in config.folds:
        frames = len(timit.frames_of(corpus, timit.split(corpus.utterances, fold).train))
        if config.batch_size > frames:
            raise DataError(f"--batch_size is {config.batch_size}, but fold {fold} has {frames} frames to train on.")
