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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from experiments.common.config import setting
from experiments.keras_real_time.experiment import Trainings
from experiments.label_cleaning import methods
from experiments.label_cleaning.problems import MODELS, NOISES, build, load

Record = dict[str, Any]
KINDS = ("linear", "CNN", "MLP")
METHODS: tuple[Callable[..., methods.Suspected], ...] = (
    methods.disagreement,
    methods.cleanlab,
    methods.refits_alone,
    methods.learned_weights,
)


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


class Cell(NamedTuple):
    """One problem."""

    data: str
    model: str
    noise: str
    share: float
    trusted: int
    seed: int

    def __str__(self) -> str:
        return f"{self.data}, {self.model}, {self.noise}, {self.share:g}, {self.trusted} trusted, seed {self.seed}"


SIZES = {"digits": 20_000, "CIFAR features": 6_000}


def cells(config: Config) -> Iterator[Cell]:
    """All problems that the data suffice for."""
    for data in config.data:
        for model in (kind for kind in MODELS[data] if kind in config.models):
            for noise in config.noises:
                for share in config.shares:
                    for trusted in config.trusted:
                        if config.train + trusted <= SIZES[data]:
                            for seed in config.seeds:
                                yield Cell(data, model, noise, share, trusted, seed)


def run(config: Config, path: Path, resume: bool = True) -> list[Record]:
    """One record for each problem and method; finished ones are kept in the file `path`."""
    have = [method for method in METHODS if method is not methods.cleanlab or installed()]
    planned = [(cell, method) for cell in cells(config) for method in have]
    trainings = Trainings(path, resume, len(planned))
    records = list[Record]()
    for cell, method in planned:
        found = trainings(f"{cell}: {method.__name__}", functools.partial(judge, config, cell, method))
        scores = found["f1"].items()
        records += [{**cell._asdict(), "method": name, "f1": f1, "seconds": found["seconds"]} for name, f1 in scores]
    return records


def installed() -> bool:
    """Whether cleanlab is there to compare with."""
    return importlib.util.find_spec("cleanlab") is not None


def judge(config: Config, cell: Cell, method: Callable[..., methods.Suspected]) -> Record:
    """The F1 scores of what a method suspects, and its seconds."""
    labels = load(cell.data, config.train, cell.trusted, cell.noise, cell.share, cell.seed)
    began = time.perf_counter()
    suspected = method(functools.partial(build, cell.data, cell.model, cell.seed), labels, cell.seed, config.iterations)
    seconds = time.perf_counter() - began
    return {"f1": {name: methods.f1(which, labels.wrong) for name, which in suspected.items()}, "seconds": seconds}
