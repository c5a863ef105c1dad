"""A Keras CNN tuned in real time, compared with random search.

Random search trains the CNN `trials` times with Keras's own `fit`, with hypers drawn at random, and keeps the trial with the
best validation accuracy. `rf.RealTimeTuner` trains it once, for the same number of epochs, starting from a learning rate 100
times smaller, and from one 10 times larger, than the best one that the search found. Both see the same digits; neither sees
the test digits. The seconds cover everything: building, compiling, training and validation.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from tqdm import tqdm

import rfho2 as rf
from data import mnist
from data.errors import DataError
from experiments.common.config import setting
from experiments.common.results import write_text

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
HYPERS = ("learning_rate", "momentum", "weight_decay")
STARTS = {"100 times too small": 0.01, "10 times too large": 10.0}
SEARCHED = {"learning_rate": (1e-4, 1.0), "momentum": (0.5, 0.99), "weight_decay": (1e-6, 1e-2)}

Record = dict[str, Any]
Labelled = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    train: int = setting(10_000, "Digits to train on.", at_least=1)
    validation: int = setting(2_500, "Digits to validate on.", at_least=1)
    epochs: int = setting(5, "Epochs of each training.", at_least=1)
    batch_size: int = setting(50, "Digits in a training batch.", at_least=1)
    trials: int = setting(20, "Trials of random search.", at_least=1)
    hyper_batch: int = setting(20, "Steps between two updates of the hypers.", at_least=1)
    seeds: tuple[int, ...] = setting((0,), "Seeds of digits, weights and trials.", at_least=0)


PRESETS = {"quick": Config(train=2_000, validation=1_000, epochs=2, trials=4), "full": Config(seeds=(0, 1))}


class Digits(NamedTuple):
    """Images and true labels."""

    train: Labelled
    validation: Labelled
    test: Labelled


def check(config: Config) -> None:
    """Refuses settings that leave no test digits."""
    if config.train + config.validation >= 10 * mnist.PER_CLASS:
        raise DataError(f"--train={config.train} and --validation={config.validation} leave no digits to test on.")


def load_digits(config: Config, seed: int) -> Digits:
    """The digits of a seed, as the CNN takes them."""
    split = mnist.noisy_split(mnist.load(), seed, config.train, config.validation)
    parts = (split.train.images, split.true_labels), split.validation, split.test
    return Digits(*((images.reshape(-1, 28, 28, 1), labels) for images, labels in parts))


def cnn(seed: int) -> keras.Model:
    """Two convolutions and a linear layer: 5,386 weights."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input([28, 28, 1]),
            layers.Conv2D(8, 5, strides=2, activation="relu"),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def draw_hypers(names: Sequence[str], rng: np.random.Generator) -> dict[str, float]:
    """Draws the learning rate, 1 - momentum and the weight decay, each uniformly on a logarithmic scale."""
    drawn = {}
    for name in names:
        low, high = (1 - end if name == "momentum" else end for end in SEARCHED[name])
        value = float(np.exp(rng.uniform(*np.log(sorted((low, high))))))
        drawn[name] = 1 - value if name == "momentum" else value
    return drawn


def train_with_keras(config: Config, seed: int, digits: Digits, hypers: Mapping[str, float]) -> Record:
    """One trial: Keras trains the CNN with fixed hypers."""
    began = time.perf_counter()
    optimizer = keras.optimizers.SGD(
        hypers["learning_rate"], hypers.get("momentum", 0.9), weight_decay=hypers.get("weight_decay")
    )
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model = cnn(seed)
    model.compile(optimizer, LOSS, metrics=["accuracy"])
    history = model.fit(
        *digits.train, validation_data=digits.validation, epochs=config.epochs, batch_size=config.batch_size, verbose=0
    ).history
    seconds = time.perf_counter() - began
    return {**hypers, "validation": history["val_accuracy"][-1], "test": accuracy(model, digits.test), "seconds": seconds}


def train_in_real_time(config: Config, seed: int, digits: Digits, hypers: Mapping[str, float]) -> Record:
    """One training that tunes its hypers; `way` holds learning rate and validation loss at every update of the hypers."""
    began = time.perf_counter()
    model = cnn(seed)
    tuner = rf.RealTimeTuner(model, LOSS, hypers, metrics=["accuracy"], hyper_batch=config.hyper_batch, seed=seed)
    history = tuner.fit(
        *digits.train, validation_data=digits.validation, epochs=config.epochs, batch_size=config.batch_size, verbose=0
    )
    seconds = time.perf_counter() - began
    trajectory = {name: history.trajectories[name].tolist() for name in ("learning_rate", "value")}
    last = history.history["val_accuracy"][-1]
    return {**hypers, "validation": last, "test": accuracy(model, digits.test), "seconds": seconds, "way": trajectory}


def accuracy(model: keras.Model, examples: Labelled) -> float:
    """The share of examples that a model classifies correctly; never part of a time."""
    images, labels = examples
    return float(np.mean(model.predict(images, batch_size=500, verbose=0).argmax(1) == labels))


class Trainings:
    """Records of trainings by name, in a file: a stopped run resumes after the last finished training."""

    def __init__(self, path: Path, resume: bool, total: int):
        self._path = path
        self._finished: dict[str, Record] = json.loads(path.read_text()) if resume and path.exists() else {}
        self._bar = tqdm(total=total, unit="training")

    def __call__(self, name: str, train: Callable[[], Record]) -> Record:
        """The record of a training, which runs now unless it has finished before."""
        if name not in self._finished:
            self._finished[name] = train()
            write_text(self._path, json.dumps(self._finished, indent=1) + "\n")
        self._bar.update()
        return self._finished[name]


def run(config: Config, path: Path, resume: bool = True) -> list[Record]:
    """One record per method, seed and number of hypers; finished trainings are kept in the file `path`."""
    trainings = Trainings(path, resume, len(config.seeds) * 2 * (config.trials + len(STARTS)))
    return [
        record
        for seed in config.seeds
        for names in (HYPERS[:1], HYPERS)
        for record in compare(config, seed, load_digits(config, seed), names, trainings)
    ]


def compare(config: Config, seed: int, digits: Digits, names: Sequence[str], trainings: Trainings) -> list[Record]:
    """Random search, then the tuner from learning rates that are wrong relative to the one that the search found."""
    rng = np.random.default_rng(seed)
    title = f"seed {seed}, {len(names)} hypers"
    trials = []
    for i in range(config.trials):
        train = functools.partial(train_with_keras, config, seed, digits, draw_hypers(names, rng))
        trials.append(trainings(f"{title}, trial {i}", train))
    best = max(trials, key=lambda record: record["validation"])
    total = sum(record["seconds"] for record in trials)
    records = [{**best, "method": f"random search, {config.trials} trials", "seconds": total}]
    usual = {"momentum": 0.9, "weight_decay": 1e-4}
    for name, factor in STARTS.items():
        start = {"learning_rate": factor * best["learning_rate"], **{n: usual[n] for n in names[1:]}}
        record = trainings(f"{title}, {name}", functools.partial(train_in_real_time, config, seed, digits, start))
        records.append({**record, "method": f"real time, {name}"})
    return [{"seed": seed, "number_of_hypers": len(names), **r, "ratio": r["seconds"] / total} for r in records]
