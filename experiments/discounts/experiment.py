"""How far should a hypergradient in real time look back? Discounts, with and without carrying Z over updates of the hypers.

Digits: `rf.RealTimeTuner` trains the CNN of `keras_real_time` and tunes its learning rate, which starts 100 times too small
or 10 times too large. Phones: the network of `phone_classification` learns synthetic speech and tunes eta, mu and rho, which
start at their usual values.

The rule, fixed before the run: settings are compared by their validation loss, averaged over the last hyper-batches, as
ratios to discount 1 with carry, the tuner's default of the time, on the same problem with the same seed. The default should
change to the setting with the lowest mean if that is lower on the digits and on the phones, and if on the digits the 95 %
interval of the mean excludes no change. The validation loss of the state that is kept (the best one) must not contradict it.
Test accuracies are for information.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import rfho2 as rf
from data.speech import timit
from experiments.common.config import described, setting
from experiments.common.pool import Row
from experiments.keras_real_time import experiment as keras_real_time
from experiments.keras_real_time.experiment import LOSS, STARTS
from experiments.phone_classification import config as phone_config
from experiments.phone_classification import methods, network
from experiments.phone_classification.experiment import find_corpus

DIGITS = {f"digits, {start}": factor for start, factor in STARTS.items()}
PHONES = "phones"


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    discounts: tuple[float, ...] = setting(
        (0.0, 0.9, 0.99, 0.999, 1.0), "Discounts of Z; each but 0 runs with and without carry.", at_least=0.0
    )
    hyper_batch: int = setting(20, "Steps between two updates of the hypers.", at_least=1)
    last: int = setting(5, "Hyper-batches at the end, over which the validation loss is averaged.", at_least=1)
    train: int = setting(5_000, "Digits to train on.", at_least=1)
    validation: int = setting(2_500, "Digits to validate on.", at_least=1)
    epochs: int = setting(5, "Epochs of each training on digits.", at_least=1)
    batch_size: int = setting(50, "Digits in a training batch.", at_least=1)
    reference_rate: float = setting(
        0.05, "About the best fixed learning rate on digits; the starts are wrong by factors of it.", at_least=0.0
    )
    seeds: tuple[int, ...] = setting((0, 1, 2), "Seeds on digits.", at_least=0)
    speakers: int = setting(8, "Speakers of the synthetic speech.", at_least=3)
    sentences: int = setting(8, "Sentences of each of them.", at_least=1)
    width: int = setting(32, "Units of each layer of the phone network.", at_least=1)
    frames: int = setting(200, "Frames in a training batch.", at_least=1)
    steps: int = setting(1000, "Training steps on phones.", at_least=1)
    phone_seeds: tuple[int, ...] = setting((0, 1), "Seeds on phones.", at_least=0)
    cache_dir: str = setting("results/speech", "Where features and synthetic speech are kept; no result depends on it.")


PRESETS = {
    "full": Config(),
    "quick": Config(
        discounts=(1.0,), hyper_batch=5, train=500, validation=500, seeds=(0,), sentences=2, steps=50, phone_seeds=(0,)
    ),
}


class Setting(NamedTuple):
    """How far a hypergradient looks back; `carry` means nothing if the discount is 0."""

    discount: float
    carry: bool

    def __str__(self) -> str:
        return f"discount {self.discount:g}" + ("" if self.discount == 0 else ", carry" if self.carry else ", no carry")


DEFAULT = Setting(1.0, True)  # of the tuner when the rule was written; it has changed by that rule
FIRST, LATER = Setting(0.99, True), Setting(0.999, True)  # what it changed to, and what long training runs chose later


def settings(config: Config) -> list[Setting]:
    """All settings to compare."""
    carries = {discount: (False, True) if discount else (False,) for discount in config.discounts}
    return [Setting(discount, carry) for discount, both in carries.items() for carry in both]


class Unit(NamedTuple):
    """One training on a problem with a setting."""

    config: Config
    problem: str
    seed: int
    choice: Setting

    @property
    def name(self) -> str:
        """Identifies the unit."""
        further = described(self.config, "discounts", "seeds", "phone_seeds", "cache_dir")
        return f"{self.problem}, seed {self.seed}, {self.choice}; {further}"


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """Every setting on every problem with every seed."""
    cases = [(problem, seed) for seed in config.seeds for problem in DIGITS] + [
        (PHONES, seed) for seed in config.phone_seeds
    ]
    return [Unit(config, *case, choice) for case in cases for choice in settings(config)]


def compute(unit: Unit, output: Path) -> Row:
    """Validation loss at the end and of the state that is kept, test accuracy, trajectories."""
    values, rates, best, test = on_phones(unit) if unit.problem == PHONES else on_digits(unit)
    about = {"unit": unit.name, "problem": unit.problem, "seed": unit.seed, **unit.choice._asdict()}
    final = float(np.mean(values[-unit.config.last :]))
    return {**about, "final": final, "best": best, "test": test, "values": values, "rates": rates}


Outcome = tuple[list[float], list[float], float, float]
"""Validation losses and learning rates along a training; validation loss and test accuracy of the state that is kept."""


def on_digits(unit: Unit) -> Outcome:
    """One training of the CNN, in graph mode: compilation would take longer than the training."""
    config = unit.config
    digits = keras_real_time.load_digits(keras_real_time.Config(config.train, config.validation), unit.seed)
    model = keras_real_time.cnn(unit.seed)
    tuner = rf.RealTimeTuner(
        model,
        LOSS,
        {"learning_rate": DIGITS[unit.problem] * config.reference_rate},
        hyper_batch=config.hyper_batch,
        seed=unit.seed,
        jit_compile=False,
        robust=False,
        **unit.choice._asdict(),
    )
    history = tuner.fit(
        *digits.train, validation_data=digits.validation, epochs=config.epochs, batch_size=config.batch_size, verbose=0
    )
    values, rates = (history.trajectories[name].tolist() for name in ("value", "learning_rate"))
    best = float(model.evaluate(*digits.validation, batch_size=500, verbose=0))
    return values, rates, best, keras_real_time.accuracy(model, digits.test)


def on_phones(unit: Unit) -> Outcome:
    """One training of the phone network from its usual hypers."""
    config, choice = unit.config, unit.choice
    data, trainer = load_speech(config), phone_trainer(config, unit.seed)
    trainer.tuned = rf.real_time(trainer.problem, config.hyper_batch, choice.carry, False, discount=choice.discount)
    outcome = methods.real_time(trainer, methods.TAUGHT)
    values, rates = ([row[name] for row in outcome.curve] for name in ("value", "eta"))
    best = float(network.error(outcome.kept, {}, data.examples(data.validation)))
    return values, rates, best, float(network.accuracy_on(data)(outcome.kept, data.test))


@functools.lru_cache(maxsize=1)
def load_speech(config: Config) -> network.Speech:
    """The synthetic speech, with the first split of its speakers."""
    corpus = find_corpus(_phone_config(config), Path(config.cache_dir))
    return network.speech(corpus, timit.split(corpus.utterances, 0))


@functools.lru_cache(maxsize=1)
def phone_trainer(config: Config, seed: int) -> methods.Trainer:
    """What trains the phone network, whatever the setting."""
    return methods.Trainer(_phone_config(config), load_speech(config), seed, jit_compile=False)


def _phone_config(config: Config) -> phone_config.Config:
    return phone_config.Config(
        speakers=config.speakers,
        sentences=config.sentences,
        width=config.width,
        steps=config.steps,
        batch_size=config.frames,
        hyper_batch=config.hyper_batch,
    )
