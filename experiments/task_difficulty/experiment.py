"""Which units there are: calibration first, then everything at the level of difficulty that it chooses."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from experiments.common.config import setting
from experiments.common.pool import Row
from experiments.common.tables import groups, mean
from experiments.task_difficulty.units import CHOSEN, Unit, original
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


def check(config: Config) -> None:
    """A missing file must not end hours of work."""
    if "cifar100" in config.parts:
        original("cifar100")


def parts(config: Config, rows: Sequence[Row]) -> dict[str, list[Unit]]:
    """The units of each part; each data set is calibrated before it is used."""
    made = {f"calibration {dataset}": calibration(config, dataset) for dataset in needed(config)}
    known = {row["unit"]: row for row in rows}
    if not all(unit.name in known for every in made.values() for unit in every):
        return made
    found = {dataset: calibrated([known[u.name] for u in made[f"calibration {dataset}"]]) for dataset in needed(config)}
    ten = found.get("cifar10", [])
    afterwards: dict[str, Callable[[], list[Unit]]] = {
        "matched": lambda: [
            unit for kind in config.kinds for unit in matched(config, "cifar10", closest(ten, kind, "cifar10"))
        ],
        "gains": lambda: gains(config, ten),
        "sizes": lambda: sizes(config, closest(ten, config.kinds[0], "cifar10")),
        "full": lambda: full(config, closest(ten, config.kinds[0], "cifar10")),
        "cifar100": lambda: matched(config, "cifar100", closest(found["cifar100"], config.kinds[0], "cifar100")),
    }
    return made | {part: wanted() for part, wanted in afterwards.items() if part in config.parts}


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """Those of all parts."""
    return list(itertools.chain.from_iterable(parts(config, rows).values()))


def results(config: Config, rows: Sequence[Row]) -> list[Row]:
    """The rows of each part; several parts may share a row."""
    known = {row["unit"]: row for row in rows}
    return [{**known[unit.name], "part": part} for part, made in parts(config, rows).items() for unit in made]


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
    return [Level(of[0]["kind"], of[0]["strength"], mean(of, "accuracy")) for of in groups(rows, "kind", "strength")]


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
