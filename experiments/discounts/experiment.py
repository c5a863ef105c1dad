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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rfho2 as rf
from data.speech import timit
from experiments.common.config import setting
from experiments.keras_real_time import experiment as keras_real_time
from experiments.keras_real_time.experiment import LOSS, STARTS, Trainings
from experiments.phone_classification import config as phone_config
from experiments.phone_classification import methods, network
from experiments.phone_classification.experiment import find_corpus

DIGITS = tuple(f"digits, {start}" for start in STARTS)
PHONES = "phones"

Record = dict[str, Any]
Planned = tuple[str, int, "Setting", Callable[[], Record]]
"""Problem, seed, setting, and what trains."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    discounts: tuple[float, ...] = setting(
        (0.0, 0.9, 0.99, 1.0), "Discounts of Z; each but 0 runs with and without carry.", at_least=0.0
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


def settings(config: Config) -> list[Setting]:
    """All settings to compare."""
    carries = {discount: (False, True) if discount else (False,) for discount in config.discounts}
    return [Setting(discount, carry) for discount, both in carries.items() for carry in both]


def run(config: Config, path: Path, cache_dir: Path, resume: bool = True) -> list[Record]:
    """One record for each problem, seed and setting; finished trainings are kept in the file `path`."""
    planned = [*digit_trainings(config), *phone_trainings(config, cache_dir)]
    trainings = Trainings(path, resume, len(planned))
    return [
        {"problem": problem, "seed": seed, **choice._asdict(), **trainings(f"{problem}, seed {seed}, {choice}", train)}
        for problem, seed, choice, train in planned
    ]


def digit_trainings(config: Config) -> Iterator[Planned]:
    """The trainings on digits, none of which has begun."""
    for seed in config.seeds:
        digits = functools.cache(functools.partial(load_digits, config, seed))
        for problem, factor in zip(DIGITS, STARTS.values(), strict=True):
            for choice in settings(config):
                rate = factor * config.reference_rate
                yield problem, seed, choice, functools.partial(on_digits, config, digits, seed, rate, choice)


def phone_trainings(config: Config, cache_dir: Path) -> Iterator[Planned]:
    """The trainings on phones, none of which has begun."""
    speech = functools.cache(functools.partial(load_speech, config, cache_dir))
    for seed in config.phone_seeds:
        trainer = functools.cache(functools.partial(phone_trainer, config, speech, seed))
        for choice in settings(config):
            yield PHONES, seed, choice, functools.partial(on_phones, config, speech, trainer, choice)


def load_digits(config: Config, seed: int) -> keras_real_time.Digits:
    """The digits of a seed, as the CNN takes them."""
    return keras_real_time.load_digits(keras_real_time.Config(config.train, config.validation), seed)


def on_digits(config: Config, load: Callable[[], keras_real_time.Digits], seed: int, rate: float, choice: Setting) -> Record:
    """One training of the CNN from a learning rate, in graph mode: compilation would take longer than the training."""
    digits, model = load(), keras_real_time.cnn(seed)
    tuner = rf.RealTimeTuner(
        model,
        LOSS,
        {"learning_rate": rate},
        hyper_batch=config.hyper_batch,
        seed=seed,
        jit_compile=False,
        robust=False,
        **choice._asdict(),
    )
    history = tuner.fit(
        *digits.train, validation_data=digits.validation, epochs=config.epochs, batch_size=config.batch_size, verbose=0
    )
    values, rates = (history.trajectories[name].tolist() for name in ("value", "learning_rate"))
    best = float(model.evaluate(*digits.validation, batch_size=500, verbose=0))
    return _record(config, values, rates, best, keras_real_time.accuracy(model, digits.test))


def load_speech(config: Config, cache_dir: Path) -> network.Speech:
    """The synthetic speech, with the first split of its speakers."""
    corpus = find_corpus(_phone_config(config), cache_dir)
    return network.speech(corpus, timit.split(corpus.utterances, 0))


def _phone_config(config: Config) -> phone_config.Config:
    return phone_config.Config(
        speakers=config.speakers,
        sentences=config.sentences,
        width=config.width,
        steps=config.steps,
        batch_size=config.frames,
        hyper_batch=config.hyper_batch,
    )


def phone_trainer(config: Config, speech: Callable[[], network.Speech], seed: int) -> methods.Trainer:
    """What trains the phone network, whatever the setting."""
    return methods.Trainer(_phone_config(config), speech(), seed, jit_compile=False)


def on_phones(
    config: Config, speech: Callable[[], network.Speech], make: Callable[[], methods.Trainer], choice: Setting
) -> Record:
    """One training of the phone network from its usual hypers."""
    data, trainer = speech(), make()
    trainer.tuned = rf.real_time(trainer.problem, config.hyper_batch, choice.carry, False, discount=choice.discount)
    outcome = methods.real_time(trainer, methods.TAUGHT)
    values, rates = ([row[name] for row in outcome.curve] for name in ("value", "eta"))
    best = float(network.error(outcome.kept, {}, data.examples(data.validation)))
    return _record(config, values, rates, best, float(network.accuracy_on(data)(outcome.kept, data.test)))


def _record(config: Config, values: list[float], rates: list[float], best: float, test: float) -> Record:
    """What is kept of a training: validation loss at the end and of the state that is kept, test accuracy, trajectories."""
    return {"final": float(np.mean(values[-config.last :])), "best": best, "test": test, "values": values, "rates": rates}
