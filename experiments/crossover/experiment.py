"""Runs every method on every family for the time of 100 trainings, and reads off what it has found.

The protocol, fixed before the run, is in docs/experiments/crossover.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data.errors import DataError
from experiments.common.config import described, setting
from experiments.common.pool import Row
from experiments.common.tables import groups
from experiments.crossover import families, methods
from experiments.crossover.methods import CMA, LONGER, METHODS, RANDOM, SHARED, STEPPING_BACK, TPE, Judge, Settings, Trained

UNTUNED = "untuned"
READINGS = WITHOUT, WITH = "without compiling", "with compiling"
NAMES = tuple(families.FAMILIES)
OF_RATES = ("schedule", "fine-tuning rates")  # families that can diverge, for which stepping back is a method
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


def check(config: Config) -> None:
    """Refuses to start without the packages that the searches need."""
    if set(config.methods) & {TPE, CMA, RANDOM, SHARED} and not (find_spec("optuna") and find_spec("cmaes")):
        raise DataError("the searches need the packages optuna and cmaes: pip install 'rfho2[search]'.")


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """All that differ: one shared hyper and longer training are the same for any number of hypers if the data are."""
    return [
        Unit(config, family, n, seed, method)
        for seed in config.seeds
        for family in config.families
        for n in config.hypers
        for method in config.methods
        if (method != CMA or n > 1)
        and (method != STEPPING_BACK or family in OF_RATES)
        and (not _is_same(family, method) or n == min(config.hypers))
    ]


def _is_same(family: str, method: str) -> bool:
    """Whether a method gives the same for any number of hypers."""
    return method in (SHARED, LONGER) and family not in ON_N


def compute(unit: Unit, output: Path) -> Row:
    """Runs a method until its time is over."""
    config = unit.config
    data = families.JUDGED[unit.family]
    if config.development:
        data = families.CIFAR if data == families.DIGITS else families.DIGITS
    task = families.FAMILIES[unit.family](data, unit.n, unit.seed)
    settings = Settings(config.rate, config.windows, config.window_rate)
    judge = Judge(task, unit.n)
    trained = methods.run(unit.method, task, unit.n, unit.seed, max(config.budgets), settings, judge)
    compiling = methods.compiling(trained)
    plain = float(np.median(judge.seconds))
    return {
        "unit": unit.name,
        "family": unit.family,
        "n": unit.n,
        "seed": unit.seed,
        "method": unit.method,
        "plain": plain,
        "compiling": compiling * plain,
        "untuned": judge.untuned._asdict(),
        WITHOUT: {str(b): found(judge.untuned, trained, b + compiling) for b in config.budgets},
        WITH: {str(b): found(judge.untuned, trained, b) for b in config.budgets},
    }


def found(untuned: Trained, trained: Sequence[Trained], time: float) -> Row:
    """The training with the lowest validation loss that ended in time; the untuned one is always there."""
    in_time = [untuned, *(one for one in trained if one.time <= time)]
    losses = [one.validation if np.isfinite(one.validation) else np.inf for one in in_time]
    return in_time[int(np.argmin(losses))]._asdict() | {"trainings": len(in_time) - 1}


def results(config: Config, rows: Sequence[Row]) -> list[Row]:
    """A row for each family, number of hypers, method, seed, budget and reading."""
    first = [same[0] for same in groups(rows, "family", "n", "seed")]
    untuned = [row | {"method": UNTUNED} | {r: dict.fromkeys(row[r], row["untuned"]) for r in READINGS} for row in first]
    copied = [row | {"n": n} for row in rows if _is_same(row["family"], row["method"]) for n in config.hypers]
    own = [row for row in rows if not _is_same(row["family"], row["method"])]
    return [
        {name: row[name] for name in ("family", "n", "seed", "method", "plain", "compiling")}
        | {"trainings": 1, **best, "reading": reading, "budget": int(budget)}
        for row in sorted([*own, *copied, *untuned], key=lambda row: (NAMES.index(row["family"]), row["n"]))
        for reading in READINGS
        for budget, best in row[reading].items()
    ]
