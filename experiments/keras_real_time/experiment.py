"""A Keras CNN tuned in real time, compared with random search.

Random search trains the CNN `trials` times with Keras's own `fit`, with hypers drawn at random, and keeps the trial with the
best validation accuracy. `rf.RealTimeTuner` trains it once, for the same number of epochs, starting from a learning rate 100
times smaller, and from one 10 times larger, than the best one that the search found. Both see the same digits; neither sees
the test digits. The seconds cover everything: building, compiling, training and validation.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

import rfho2 as rf
from data import mnist
from data.errors import DataError
from experiments.common.config import described, setting
from experiments.common.pool import Row
from experiments.common.tables import groups, where

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
HYPERS = ("learning_rate", "momentum", "weight_decay")
STARTS = {"100 times too small": 0.01, "10 times too large": 10.0}
USUAL = {"momentum": 0.9, "weight_decay": 1e-4}
SEARCHED = {"learning_rate": (1e-4, 1.0), "momentum": (0.5, 0.99), "weight_decay": (1e-6, 1e-2)}

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


@functools.lru_cache(maxsize=1)
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


def accuracy(model: keras.Model, examples: Labelled) -> float:
    """The share of examples that a model classifies correctly; never part of a time."""
    images, labels = examples
    return float(np.mean(model.predict(images, batch_size=500, verbose=0).argmax(1) == labels))


class Unit(NamedTuple):
    """One training of the CNN: a trial of random search, or the tuner from a learning rate of `STARTS`."""

    config: Config
    seed: int
    run: str
    hypers: dict[str, float]

    @property
    def name(self) -> str:
        """Identifies the unit."""
        return f"seed {self.seed}, {self.run}, {self.hypers}; {described(self.config, 'seeds', 'trials')}"


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """Random search; when it is known, the tuner from learning rates that are wrong relative to the best one."""
    made = []
    for seed, names in itertools.product(config.seeds, (HYPERS[:1], HYPERS)):
        rng = np.random.default_rng(seed)
        made += [Unit(config, seed, f"trial {i}", draw_hypers(names, rng)) for i in range(config.trials)]
        if trials := trials_of(where(rows, seed=seed, number_of_hypers=len(names))):
            best = max(trials, key=lambda row: row["validation"])["learning_rate"]
            usual = {name: USUAL[name] for name in names[1:]}
            made += [Unit(config, seed, start, {"learning_rate": f * best, **usual}) for start, f in STARTS.items()]
    return made


def trials_of(rows: Sequence[Row]) -> list[Row]:
    """The rows of random search."""
    return [row for row in rows if row["run"] not in STARTS]


def compute(unit: Unit, output: Path) -> Row:
    """The row of one training."""
    about = {"unit": unit.name, "seed": unit.seed, "number_of_hypers": len(unit.hypers), "run": unit.run}
    return {**about, **unit.hypers, **train(unit)}


def train(unit: Unit) -> Row:
    """Accuracies and seconds; of the tuner also learning rate and validation loss at each update of the hypers, as `way`."""
    config, hypers, tuned = unit.config, unit.hypers, unit.run in STARTS
    digits = load_digits(config, unit.seed)
    began = time.perf_counter()
    model = cnn(unit.seed)
    if tuned:
        tuner = rf.RealTimeTuner(model, LOSS, hypers, metrics=["accuracy"], hyper_batch=config.hyper_batch, seed=unit.seed)
    else:
        rates = hypers["learning_rate"], hypers.get("momentum", 0.9)
        optimizer = keras.optimizers.SGD(*rates, weight_decay=hypers.get("weight_decay"))
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        model.compile(optimizer, LOSS, metrics=["accuracy"])
    history = (tuner if tuned else model).fit(
        *digits.train, validation_data=digits.validation, epochs=config.epochs, batch_size=config.batch_size, verbose=0
    )
    seconds, last = time.perf_counter() - began, history.history["val_accuracy"][-1]
    row = {"validation": last, "test": accuracy(model, digits.test), "seconds": seconds}
    if tuned:
        row["way"] = {name: history.trajectories[name].tolist() for name in ("learning_rate", "value")}
    return row


def results(config: Config, rows: Sequence[Row]) -> list[Row]:
    """A row for each method, seed and number of hypers: of random search the best trial, with the seconds of all."""
    made = []
    for group in groups(rows, "seed", "number_of_hypers"):
        trials = trials_of(group)
        best, total = max(trials, key=lambda row: row["validation"]), sum(row["seconds"] for row in trials)
        methods = {f"random search, {config.trials} trials": {**best, "seconds": total}}
        methods |= {f"real time, {row['run']}": row for row in group if row["run"] in STARTS}
        made += [{**row, "method": method, "ratio": row["seconds"] / total} for method, row in methods.items()]
    return made
