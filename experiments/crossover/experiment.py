"""Runs every method on every family for the time of 100 trainings, and reads off what it has found.

The protocol, fixed before the run, is in docs/experiments/crossover.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.common.config import described, setting
from experiments.common.pool import Row
from experiments.common.tables import where
from experiments.crossover import families, methods
from experiments.crossover.methods import CMA, LONGER, METHODS, SHARED, TPE, Settings, Trained

UNTUNED = "untuned"
NAMES = tuple(families.FAMILIES)
ON_N = ("source weights",)  # families whose training examples depend on the number of hypers


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    families: tuple[str, ...] = setting(NAMES, "Families of problems.", choices=NAMES)
    hypers: tuple[int, ...] = setting((1, 3, 10, 30, 100, 1_000), "Numbers of hypers.", at_least=1)
    methods: tuple[str, ...] = setting(METHODS, "Methods to choose them.", choices=METHODS)
    seeds: tuple[int, ...] = setting((0, 1, 2, 3, 4), "Splits of the examples.", at_least=0)
    budgets: tuple[int, ...] = setting((10, 30, 100), "When to read off, in trainings; the last ends a run.", at_least=2)
    rate: float = setting(1.0, "Relative change of a learning rate in an update by hypergradients.", at_least=0.0)
    windows: int = setting(5, "Updates of weights and penalties in a training.", at_least=1)
    window_rate: float = setting(0.3, "Change of a weight, or relative change of a penalty, in each.", at_least=0.0)
    development: bool = setting(False, "Whether to use the data on which the settings were chosen.")


PRESETS = {"full": Config(), "quick": Config(NAMES[:1], (1, 10, 100), seeds=(0,), budgets=(10,))}


class Unit(NamedTuple):
    """What a row depends on."""

    config: Config
    family: str
    n: int
    seed: int
    method: str

    @property
    def name(self) -> str:
        """Identifies the unit."""
        settings = described(self.config, "families", "hypers", "methods", "seeds")
        return f"{self.family}, {self.n} hypers, seed {self.seed}, {self.method}; {settings}"


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """All that differ: one shared hyper and longer training are the same for any number of hypers if the data are."""

    def differs(family: str, n: int, method: str) -> bool:
        if n == min(config.hypers):
            return method not in ((CMA, SHARED) if n == 1 else ())
        return method not in (SHARED, LONGER) or family in ON_N

    return [
        Unit(config, family, n, seed, method)
        for seed in config.seeds
        for family in config.families
        for n in config.hypers
        for method in config.methods
        if differs(family, n, method)
    ]


def compute(unit: Unit, output: Path) -> Row:
    """Runs a method until its time is over."""
    config = unit.config
    data = families.JUDGED[unit.family]
    if config.development:
        data = families.CIFAR if data == families.DIGITS else families.DIGITS
    task = families.FAMILIES[unit.family](data, unit.n, unit.seed)
    untuned = methods.plain(task, unit.n)
    plain = untuned.seconds
    settings = Settings(config.rate, config.windows, config.window_rate)
    trained = methods.run(unit.method, task, unit.n, unit.seed, max(config.budgets) * plain, settings)
    compiling = methods.compiling(trained)
    return {
        "unit": unit.name,
        "family": unit.family,
        "n": unit.n,
        "seed": unit.seed,
        "method": unit.method,
        "plain": plain,
        "compiling": compiling,
        "untuned": untuned._asdict(),
        "without compiling": {str(b): found(untuned, trained, b * plain + compiling) for b in config.budgets},
        "with compiling": {str(b): found(untuned, trained, b * plain) for b in config.budgets},
    }


def found(untuned: Trained, trained: Sequence[Trained], seconds: float) -> Row:
    """The training with the lowest validation loss that ended in time; the untuned one is always there."""
    in_time = [untuned, *(one for one in trained if one.seconds <= seconds)]
    losses = [one.validation if np.isfinite(one.validation) else np.inf for one in in_time]
    return in_time[int(np.argmin(losses))]._asdict() | {"trainings": len(in_time) - 1}


def results(config: Config, rows: Sequence[Row]) -> list[Row]:
    """A row for each family, number of hypers, method, seed, budget and reading."""
    made = []
    for row in rows:
        for reading in ("without compiling", "with compiling"):
            for budget, best in row[reading].items():
                key = {name: row[name] for name in ("family", "n", "seed", "method", "plain", "compiling")}
                made.append(key | best | {"reading": reading, "budget": int(budget)})
    made += [
        row | {"method": UNTUNED} | start["untuned"]
        for start in rows
        for row in where(made, family=start["family"], n=start["n"], seed=start["seed"], method=start["method"])
        if start["method"] == TPE
    ]
    return made + _shared(config, made)


def _shared(config: Config, rows: Sequence[Row]) -> list[Row]:
    """The rows of units that would be the same as others: see `units`."""
    least = min(config.hypers)
    same: list[Row] = []
    for family in config.families:
        alone = where(rows, family=family, n=least, method=TPE) if least == 1 else []
        same += [row | {"method": SHARED} for row in alone]
        if family not in ON_N:
            of_least = [row for row in [*rows, *same] if row["family"] == family and row["n"] == least]
            copied = [row for row in of_least if row["method"] in (SHARED, LONGER)]
            same += [row | {"n": n} for row in copied for n in config.hypers if n != least]
    return same
