"""Finding wrong labels with few or many trusted examples: learned weights, refitting, and what users do otherwise.

The protocol, fixed before the runs of its table: every method gets the same training examples, some labels of which are
wrong, the same trusted examples and the same model, untrained. It returns which labels it suspects, and is judged by F1. No
setting is chosen by F1 here: learned weights and refits have the defaults of `rf.per_example_weights` (which were chosen on
digits with a network, by F1, with another kind of noise), and models that Keras fits train for 20 epochs with its Adam. The
one exception: that refits begin twice was decided after a first table of the CIFAR features.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.common.config import setting
from experiments.common.pool import Row
from experiments.label_cleaning import methods
from experiments.label_cleaning.problems import MODELS, NOISES, build, load

KINDS = ("linear", "CNN", "MLP")
WAYS: dict[str, Callable[..., methods.Suspected]] = {
    "disagreement": methods.disagreement,
    "cleanlab": methods.cleanlab,
    "refits_alone": methods.refits_alone,
    "learned_weights": methods.learned_weights,
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    data: tuple[str, ...] = setting(tuple(MODELS), "Data sets.", choices=tuple(MODELS))
    models: tuple[str, ...] = setting(KINDS, "Models; a data set has two of them.", choices=KINDS)
    train: int = setting(4_000, "Training examples.", at_least=10)
    trusted: tuple[int, ...] = setting(
        (50, 200, 1_000, 5_000), "Trusted examples; fewer where a data set has no more.", at_least=1
    )
    noises: tuple[str, ...] = setting(NOISES, "Kinds of noise.", choices=NOISES)
    shares: tuple[float, ...] = setting((0.2, 0.5), "Shares of wrong labels.", at_least=0.0)
    seeds: tuple[int, ...] = setting((0,), "Seeds of examples, noise and models.", at_least=0)
    iterations: int = setting(20, "Trainings from which weights are learned.", at_least=1)


PRESETS = {
    "full": Config(),
    "quick": Config(data=("CIFAR features",), train=500, trusted=(50, 200), shares=(0.2,), iterations=3),
}


SIZES = {"digits": 20_000, "CIFAR features": 6_000}


class Unit(NamedTuple):
    """One problem, and a way to find its wrong labels."""

    data: str
    model: str
    noise: str
    share: float
    trusted: int
    seed: int
    way: str
    train: int
    iterations: int

    @property
    def name(self) -> str:
        """Identifies the unit."""
        return ", ".join(f"{key} {value}" for key, value in self._asdict().items())


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """All problems that the data suffice for, with every way; cleanlab only where it is installed."""
    ways = [way for way in WAYS if way != "cleanlab" or importlib.util.find_spec("cleanlab")]
    return [
        Unit(data, model, *case, config.train, config.iterations)
        for data in config.data
        for model in MODELS[data]
        for case in itertools.product(config.noises, config.shares, config.trusted, config.seeds, ways)
        if model in config.models and config.train + case[2] <= SIZES[data]
    ]


def compute(unit: Unit, output: Path) -> Row:
    """The F1 scores of what a way suspects, one for each of its variants, and its seconds."""
    labels = load(unit.data, unit.train, unit.trusted, unit.noise, unit.share, unit.seed)
    began = time.perf_counter()
    suspected = WAYS[unit.way](
        functools.partial(build, unit.data, unit.model, unit.seed), labels, unit.seed, unit.iterations
    )
    seconds = time.perf_counter() - began
    scores = {name: methods.f1(which, labels.wrong) for name, which in suspected.items()}
    return {"unit": unit.name, **unit._asdict(), "scores": scores, "seconds": seconds}


def results(config: Config, rows: Sequence[Row]) -> list[Row]:
    """A row {data, model, noise, share, trusted, seed, seconds, method, f1} for each variant of a way."""
    about = ("data", "model", "noise", "share", "trusted", "seed", "seconds")
    return [
        {key: row[key] for key in about} | {"method": name, "f1": f1} for row in rows for name, f1 in row["scores"].items()
    ]
