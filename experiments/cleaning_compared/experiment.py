"""Data hyper-cleaning, and what users do instead, judged by F1 and by the accuracy of a model of what is kept.

The protocol, fixed before the run, is in docs/experiments/cleaning_compared.md.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data.mnist import NoisySplit
from experiments.cleaning_compared.scenarios import SCENARIOS, left, split
from experiments.common.config import setting
from experiments.common.pool import Row
from experiments.data_hyper_cleaning import experiment as hyper_cleaning
from experiments.label_cleaning import methods
from experiments.label_cleaning.problems import Labels, build

RADIUS = 0.2  # R / N: R = 1000 for the paper's 5,000 digits
PAPER = hyper_cleaning.Config()
DH = "data hyper-cleaning"
BOUNDS = ("oracle", "everything", "trusted alone")
BUDGET = "budget"
FLAGGING = (DH, "disagreement", "cleanlab", "refits_alone", "learned_weights")
KEEPING = (DH, "most probable", "random")  # ways to keep as many as a budget allows


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    scenarios: tuple[str, ...] = setting((*SCENARIOS, BUDGET), "Which problems.", choices=(*SCENARIOS, BUDGET))
    ways: tuple[str, ...] = setting(FLAGGING, "Ways to find wrong labels.", choices=FLAGGING)
    train: int = setting(5_000, "Training digits.", at_least=100)
    trusted: tuple[int, ...] = setting((50, 200, 1_000, 5_000), "Trusted digits.", at_least=20)
    budgets: tuple[int, ...] = setting((100, 300, 1_000), "How many digits may be kept.", at_least=10)
    budget_trusted: int = setting(200, "Trusted digits where a budget is given.", at_least=20)
    seeds: tuple[int, ...] = setting((0, 1, 2), "Seeds of digits and noise.", at_least=0)
    hyper_iterations: int = setting(PAPER.hyper_iterations, "Updates of the weights.", at_least=1)
    iterations: int = setting(20, "Trainings from which `rf.per_example_weights` learns.", at_least=1)


PRESETS = {
    "full": Config(),
    "quick": Config(
        ("half wrong", "trusted shifted", BUDGET), train=500, trusted=(50,), budgets=(100,), seeds=(0,), hyper_iterations=15,
        iterations=3,
    ),
}  # fmt: skip


class Unit(NamedTuple):
    """What some rows depend on."""

    scenario: str
    train: int
    trusted: int
    seed: int
    way: str
    iterations: int
    budget: int = 0

    @property
    def name(self) -> str:
        """Identifies the unit."""
        return ", ".join(f"{key} {value}" for key, value in self._asdict().items())


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """All problems for which there are enough digits, with every way; the first seed comes first."""
    ways = [way for way in config.ways if way != "cleanlab" or importlib.util.find_spec("cleanlab")]
    made = []
    for seed in config.seeds:
        for scenario in config.scenarios:
            if scenario == BUDGET:
                cases = [(config.budget_trusted, way, budget) for budget in config.budgets for way in KEEPING]
            else:
                sizes = [n for n in config.trusted if left(SCENARIOS[scenario], config.train, n) > 0]
                cases = [(trusted, way, 0) for trusted in sizes for way in (*BOUNDS, *ways)]
            for trusted, way, budget in cases:
                iterations = {DH: config.hyper_iterations, "learned_weights": config.iterations}.get(way, 0)
                made.append(Unit(scenario, config.train, trusted, seed, way, iterations, budget))
    return made


def results(config: Config, rows: Sequence[Row]) -> list[Row]:
    """A row {scenario, trusted, budget, seed, seconds, method, f1, correct, accuracy} for each variant of a way."""
    about = ("scenario", "trusted", "budget", "seed", "seconds")
    return [{key: row[key] for key in about} | scores for row in rows for scores in row["found"]]


def compute(unit: Unit, output: Path) -> Row:
    """What one way finds, and how good a model of the rest is."""
    scenario = SCENARIOS["half wrong" if unit.scenario == BUDGET else unit.scenario]
    data = split(scenario, unit.train, unit.trusted, unit.seed)
    began = time.perf_counter()
    kept = keep(unit, data) if unit.budget else {name: ~which for name, which in suspected(unit, data).items()}
    seconds = time.perf_counter() - began
    fit = hyper_cleaning.fitter(PAPER, data)
    scores = [
        {
            "method": name,
            "f1": methods.f1(~which, data.noisy) if not unit.budget and unit.way not in BOUNDS else None,
            "correct": float(np.mean(~data.noisy[which])) if which.any() else None,
            "accuracy": fit(which.astype(np.float32)),
        }
        for name, which in kept.items()
    ]
    return {"unit": unit.name, **unit._asdict(), "seconds": seconds, "found": scores}


def suspected(unit: Unit, data: NoisySplit) -> dict[str, np.ndarray]:
    """Which labels a way suspects, under the names of its variants."""
    every = np.ones(len(data.noisy), bool)
    bounds = {"oracle": data.noisy, "everything": ~every, "trusted alone": every}
    if unit.way in bounds:
        return {unit.way: bounds[unit.way]}
    if unit.way == DH:
        return {DH: learned(unit, data, RADIUS * len(every)) == 0}
    way: Callable[..., methods.Suspected] = getattr(methods, unit.way)
    return way(functools.partial(build, "digits", "linear", unit.seed), labels(data), unit.seed, unit.iterations)


def keep(unit: Unit, data: NoisySplit) -> dict[str, np.ndarray]:
    """Which digits to keep, if only `unit.budget` may be."""
    if unit.way == DH:
        scores = learned(unit, data, float(unit.budget))
    elif unit.way == "random":
        scores = np.random.default_rng(unit.seed).random(len(data.noisy))
    else:
        model = functools.partial(build, "digits", "linear", unit.seed)
        predicted = methods.probabilities(model, labels(data).trusted, labels(data).train[0])
        scores = predicted[np.arange(len(predicted)), data.train.labels]
    chosen = np.zeros(len(data.noisy), bool)
    chosen[np.argsort(-scores, kind="stable")[: unit.budget]] = True
    return {unit.way: chosen}


def learned(unit: Unit, data: NoisySplit, radius: float) -> np.ndarray:
    """The weights after the last hyper-iteration of the paper's method."""
    config = dataclasses.replace(PAPER, hyper_iterations=unit.iterations)
    return hyper_cleaning.clean(config, data, radius, (), None, False).hypers["weights"].numpy()


def labels(data: NoisySplit) -> Labels:
    """The digits as images, as the Keras models take them."""
    train, trusted = ((part.images.reshape(-1, 28, 28, 1), part.labels) for part in (data.train, data.validation))
    return Labels(train, trusted, data.noisy)
