"""Finding wrong labels with few or many trusted examples: learned weights, refitting, and what users do otherwise.

The protocol, fixed before the runs of its table: every method gets the same training examples, some labels of which are
wrong, the same trusted examples and the same model, untrained. It returns which labels it suspects, and is judged by F1. No
setting is chosen by F1 here: learned weights and refits have the defaults of `rf.per_example_weights` (which were chosen on
digits with a network, by F1, with another kind of noise), and models that Keras fits train for 20 epochs with its Adam.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.common.config import setting
from experiments.keras_real_time.experiment import Trainings
from experiments.label_cleaning import methods
from experiments.label_cleaning.problems import MODELS, NOISES, build, load

Record = dict[str, Any]
METHODS: dict[str, Callable[..., np.ndarray]] = {
    "disagreement with a model of the trusted": methods.disagreement,
    "cleanlab, out of fold": methods.cleanlab,
    "refits from the trusted": methods.refits_alone,
    "learned weights": methods.learned_weights,
    "learned weights, then refits": functools.partial(methods.learned_weights, refits=3),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    data: tuple[str, ...] = setting(tuple(MODELS), "Data sets.", choices=tuple(MODELS))
    train: int = setting(4_000, "Training examples.", at_least=10)
    trusted: tuple[int, ...] = setting((50, 200, 1_000, 5_000), "Trusted examples; fewer where a data set has no more.")
    noises: tuple[str, ...] = setting(NOISES, "Kinds of noise.", choices=NOISES)
    shares: tuple[float, ...] = setting((0.2, 0.5), "Shares of wrong labels.")
    seeds: tuple[int, ...] = setting((0,), "Seeds of examples, noise and models.")
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
        for model in MODELS[data]:
            for noise in config.noises:
                for share in config.shares:
                    for trusted in config.trusted:
                        if config.train + trusted <= SIZES[data]:
                            for seed in config.seeds:
                                yield Cell(data, model, noise, share, trusted, seed)


def run(config: Config, path: Path, resume: bool = True) -> list[Record]:
    """One record for each problem and method; finished ones are kept in the file `path`."""
    have = {name: method for name, method in METHODS.items() if "cleanlab" not in name or installed()}
    planned = [(cell, name, method) for cell in cells(config) for name, method in have.items()]
    trainings = Trainings(path, resume, len(planned))
    return [
        {**cell._asdict(), "method": name, **trainings(f"{cell}: {name}", functools.partial(judge, config, cell, method))}
        for cell, name, method in planned
    ]


def installed() -> bool:
    """Whether cleanlab is there to compare with."""
    return importlib.util.find_spec("cleanlab") is not None


def judge(config: Config, cell: Cell, method: Callable[..., np.ndarray]) -> Record:
    """The F1 score and the seconds of a method."""
    labels = load(cell.data, config.train, cell.trusted, cell.noise, cell.share, cell.seed)
    began = time.perf_counter()
    suspected = method(functools.partial(build, cell.data, cell.model, cell.seed), labels, cell.seed, config.iterations)
    return {"f1": methods.f1(suspected, labels.wrong), "seconds": time.perf_counter() - began}
