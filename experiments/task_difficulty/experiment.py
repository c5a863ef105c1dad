"""Which units there are: calibration first, then everything at the level of difficulty that it chooses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.common import pool
from experiments.common.config import setting
from experiments.common.pool import Row
from experiments.task_difficulty import units
from experiments.task_difficulty.units import CHOSEN, Unit
from experiments.task_difficulty.weaker import levels
from experiments.task_interactions import models
from experiments.task_interactions.experiment import COMPARED

PAPER = {"cifar10": 0.6747, "cifar100": 0.1899}  # the paper's accuracy of STL
PER_CLASS = {"cifar10": 5, "cifar100": 3}
ITERATIONS = {"cifar10": 150, "cifar100": 100}
FIGURE = ("STL", "STL-1", "HMTL", "HMTL-S")  # methods of the figure
SIZES = (1, 2, 3, 10)  # examples per class, beside the paper's 5
PARTS = ("calibration", "matched", "gains", "sizes", "full", "cifar100")


@dataclasses.dataclass(frozen=True)
class Config:
    """What is run."""

    parts: tuple[str, ...] = setting(PARTS, "Which parts; repeat the flag for several.", choices=PARTS)
    calibration_seeds: int = setting(20, "Calibration splits, with seeds from 1000; 5 of them for CIFAR-100.", at_least=1)
    seeds: int = setting(20, "Splits of the tables, with seeds from 0; 5 of them for CIFAR-100 and --full.", at_least=1)
    kinds: tuple[str, ...] = setting(
        ("components", "projection", "noise"), "How features are made weaker.", choices=("components", "projection", "noise")
    )
    iterations: int | None = setting(None, "Hyper-iterations, instead of 150 and, for CIFAR-100, 100.", at_least=1)
    totals: bool = setting(True, "Whether HMTL-S also runs with a chosen R, which takes eleven runs.")


class Level(NamedTuple):
    """Weaker features, and STL's accuracy on the calibration splits."""

    kind: str
    strength: float
    accuracy: float


class Outcome(NamedTuple):
    """The rows of every part, and the levels of difficulty by data set."""

    rows: dict[str, list[Row]]
    levels: dict[str, list[Level]]


def run(config: Config, output: Path, workers: int) -> Outcome:
    """Runs all parts that are asked for; each data set is calibrated before it is used."""
    if "cifar100" in config.parts:  # first of all: a missing file must not end hours of work
        units.original("cifar100")
    rows: dict[str, list[Row]] = {}
    found: dict[str, list[Level]] = {}

    def do(part: str, wanted: Iterable[Unit]) -> None:
        rows[part] = pool.run(wanted, units.compute, output, workers)

    for dataset in needed(config):
        part = f"calibration {dataset}"
        do(part, calibration(config, dataset))
        found[dataset] = calibrated(rows[part])
    ten = found.get("cifar10", [])
    for part, wanted in {
        "matched": lambda: [
            unit for kind in config.kinds for unit in matched(config, "cifar10", closest(ten, kind, "cifar10"))
        ],
        "gains": lambda: gains(config, ten),
        "sizes": lambda: sizes(config, closest(ten, config.kinds[0], "cifar10")),
        "full": lambda: full(config, closest(ten, config.kinds[0], "cifar10")),
        "cifar100": lambda: matched(config, "cifar100", closest(found["cifar100"], config.kinds[0], "cifar100")),
    }.items():
        if part in config.parts:
            do(part, wanted())
    return Outcome(rows, found)


def needed(config: Config) -> list[str]:
    """The data sets that the parts use."""
    one_hundred = "cifar100" in config.parts
    return [*(["cifar10"] if len(config.parts) > one_hundred else []), *(["cifar100"] if one_hundred else [])]


def calibration(config: Config, dataset: str) -> list[Unit]:
    """STL on splits that no table uses."""
    chosen = [level for level in levels(dataset) if level[0] in ("original", *config.kinds)]
    seeds = range(1000, 1000 + (config.calibration_seeds if dataset == "cifar10" else min(5, config.calibration_seeds)))
    return [_unit(config, dataset, kind, strength, seed, "STL") for kind, strength in chosen for seed in seeds]


def calibrated(rows: Sequence[Row]) -> list[Level]:
    """STL's mean accuracy, without re-fit, of each level."""
    keys = dict.fromkeys((row["kind"], row["strength"]) for row in rows)
    means = {key: np.mean([row["accuracy"] for row in rows if (row["kind"], row["strength"]) == key]) for key in keys}
    return [Level(kind, strength, float(mean)) for (kind, strength), mean in means.items()]


def closest(found: Sequence[Level], kind: str, dataset: str) -> Level:
    """The level of a kind at which STL is closest to the paper's accuracy."""
    return min((level for level in found if level.kind == kind), key=lambda level: abs(level.accuracy - PAPER[dataset]))


def matched(config: Config, dataset: str, level: Level) -> list[Unit]:
    """All methods at the paper's level of difficulty; the compared ones on CIFAR-10 only, as in the paper."""
    methods = [*models.METHODS, *([CHOSEN] if config.totals else []), *(COMPARED if dataset == "cifar10" else ())]
    seeds = range(config.seeds if dataset == "cifar10" else min(5, config.seeds))
    return [_unit(config, dataset, level.kind, level.strength, seed, method) for seed in seeds for method in methods]


def gains(config: Config, found: Sequence[Level]) -> list[Unit]:
    """The methods of the figure at every level."""
    return [
        _unit(config, "cifar10", level.kind, level.strength, seed, method)
        for level in found
        for seed in range(config.seeds)
        for method in FIGURE
    ]


def sizes(config: Config, level: Level) -> list[Unit]:
    """Other numbers of examples."""
    methods = [*models.METHODS, *([CHOSEN] if config.totals else [])]
    return [
        _unit(config, "cifar10", level.kind, level.strength, seed, method)._replace(per_class=per_class)
        for per_class in SIZES
        for seed in range(config.seeds)
        for method in methods
    ]


def full(config: Config, level: Level) -> list[Unit]:
    """The original's settings of the training, at the paper's level and with the original features."""
    return [
        Unit("cifar10", kind, strength, PER_CLASS["cifar10"], seed, method, full=config.iterations is None)
        for kind, strength in ((level.kind, level.strength), ("original", 0.0))
        for seed in range(min(5, config.seeds))
        for method in models.METHODS
    ]


def _unit(config: Config, dataset: str, kind: str, strength: float, seed: int, method: str) -> Unit:
    iterations = config.iterations or ITERATIONS[dataset]
    return Unit(dataset, kind, strength, PER_CLASS[dataset], seed, method, iterations=iterations)


PRESETS = {
    "paper": Config(),
    "quick": Config(("calibration", "matched"), 1, 2, ("components",), iterations=10, totals=False),
}
