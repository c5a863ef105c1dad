"""What is run: first what steps cost on each problem, and then each method within one and five times the time of real time.

The protocol, fixed before the frozen problems are run, is in docs/experiments/long_training.md.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.common.config import described, setting
from experiments.common.pool import Row
from experiments.common.tables import where
from experiments.keras_tasks.tasks import Parts
from experiments.long_training import methods, problems
from experiments.long_training.methods import METHODS, Costs, Trainer

NAMES = tuple(problems.PROBLEMS)
COSTS = "costs"
FIRST_SEED = 0  # on which costs are measured


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    problems: tuple[str, ...] = setting(NAMES, "Problems.", choices=NAMES)
    methods: tuple[str, ...] = setting(METHODS, "Ways to choose the learning rate.", choices=METHODS)
    seeds: tuple[int, ...] = setting((0, 1, 2), "Splits of the examples, and initial weights.", at_least=0)
    budgets: tuple[int, ...] = setting((1, 5), "Times the seconds of real time.", at_least=1)
    shorter: int = setting(1, "All runs are shorter by this factor.", at_least=1)
    cache_dir: str = setting("results/speech", "Where synthetic speech is kept; no result depends on it.")


PRESETS = {
    "full": Config(),
    "development": Config(problems=tuple(problems.DEVELOPMENT)),
    "quick": Config(
        ("digits, wrong labels",), (methods.COSINE, "Prodigy", "real time", methods.SHORT_KNOTS), (0,), (1,), 20
    ),
}


class Unit(NamedTuple):
    """What a row depends on; a budget of 0 measures costs."""

    config: Config
    problem: str
    seed: int
    method: str
    budget: int
    costs: Costs | None = None
    counted: str = methods.FIT

    @property
    def name(self) -> str:
        """Identifies the unit."""
        run = f"{self.problem}, seed {self.seed}, {self.method}, budget {self.budget}, {self.counted}"
        return f"{run}; {described(self.config, *NOT_NAMED)}"


NOT_NAMED = ("problems", "methods", "seeds", "budgets", "cache_dir")


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """The costs of each problem, and, once they are known, everything else: the shorter runs first, seed by seed."""
    wanted = [Unit(config, problem, FIRST_SEED, COSTS, 0) for problem in config.problems]
    costs = {p: Costs(**row["costs"]) for p in config.problems for row in where(rows, problem=p, method=COSTS)}
    return wanted + [
        Unit(config, problem, seed, method, budget, costs[problem], counted)
        for budget in config.budgets
        for seed in config.seeds
        for problem in costs
        for method in config.methods
        for counted in methods.counts(method)
    ]


@functools.lru_cache(maxsize=1)
def trainer(name: str, seed: int, cache_dir: str) -> Trainer:
    """Kept from one unit to the next: speech takes a while to load."""
    problem = problems.PROBLEMS[name]
    parts: Parts = problem.load(seed, Path(cache_dir))
    return Trainer(problem, parts, seed)


def compute(unit: Unit, output: Path) -> Row:
    """Measures costs, or runs a method."""
    config, problem = unit.config, problems.PROBLEMS[unit.problem]
    train = trainer(unit.problem, unit.seed, config.cache_dir)
    row = {"unit": unit.name, "problem": unit.problem, "seed": unit.seed, "method": unit.method, "budget": unit.budget}
    steps = problem.steps // config.shorter
    if unit.costs is None:
        return row | {"costs": train.costs(steps)._asdict()}
    real_time_steps = unit.budget * steps
    seconds = real_time_steps * unit.costs.real_time
    within = methods.steps_within(unit.method, seconds, unit.costs, real_time_steps, unit.counted)
    trained = train(unit.method, within)
    scores = {"validation": trained.validation, "test": train.score(trained.params)}
    return row | {"counted": unit.counted, "steps": within, **scores}


def results(config: Config, rows: Sequence[Row]) -> list[Row]:
    """The rows of the methods, for each way to count."""
    runs = [row for row in rows if row["method"] != COSTS]
    once = [row for row in runs if len(methods.counts(row["method"])) == 1]
    return [*runs, *(row | {"counted": counted} for row in once for counted in methods.COUNTS[1:])]
