"""Are hypers tuned on the average over several random seeds better on fresh seeds than those tuned on one?

A small network learns 256 digits in 64 steps of momentum, so that initial weights and the order of the batches matter. Tuned
are momentum, an L2 weight per layer, and either one learning rate or one for each step (a schedule), which has more room to
fit what is peculiar to a seed. A *seed* is a pair of initial weights and an order.

The protocol, fixed before the run:

- Each repetition has digits of its own and seeds of its own. All tunings of a repetition start from the same hypers.
- The same number of hyper-iterations: one seed, and the average over eight (`rf.average`), both held fixed.
- The same number of trainings as in the average: one seed with eight times the hyper-iterations, and as many
  hyper-iterations with a fresh seed in each.
- The hypers after the last hyper-iteration are judged by the validation error of trainings with 30 fresh seeds, the same for
  all tunings of a repetition. A training that ends worse than guessing, or not at all, counts as guessing, ln 10.
- Intervals are Student's 95 % intervals of paired differences over the repetitions. Test digits are only reported.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import rfho2 as rf
from experiments.averaged_seeds import problem
from experiments.averaged_seeds.problem import Data, Seeds
from experiments.common import pool
from experiments.common.config import described, setting
from experiments.common.pool import Row
from rfho2.core.types import Hypers

RATE, SCHEDULE = KINDS = ("one learning rate", "a learning rate per step")
ONE, NOTHING = "one seed", "nothing"
GUESSING = float(np.log(10))
ROLES = ("tuning", "fresh")


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    train: int = setting(256, "Digits to train on.", at_least=1)
    validation: int = setting(1000, "Digits to tune the hypers on.", at_least=1)
    test: int = setting(2000, "Digits to test on.", at_least=1)
    hidden: int = setting(50, "Hidden units.", at_least=1)
    batch_size: int = setting(16, "Digits in a training batch.", at_least=1)
    steps: int = setting(64, "T: training steps.", at_least=1)
    hyper_iterations: int = setting(40, "Updates of the hypers.", at_least=1)
    relative_rate: float = setting(0.1, "Relative change of learning rates and L2 weights in one update.", at_least=0.0)
    momentum_rate: float = setting(0.02, "Change of the momentum factor in one update.", at_least=0.0)
    learning_rate: float = setting(0.05, "Where learning rates start.", at_least=0.0)
    momentum: float = setting(0.5, "Where the momentum factor starts.", at_least=0.0)
    l2: float = setting(1e-3, "Where the L2 weights start.", at_least=0.0)
    clip: float = setting(100.0, "Largest norm of a hypergradient.", at_least=0.0)
    seeds: int = setting(8, "Seeds in the average.", at_least=1)
    fresh_seeds: int = setting(30, "Seeds on which hypers are judged.", at_least=1)
    repetitions: int = setting(6, "Repetitions with other digits and other seeds.", at_least=1)
    first_repetition: int = setting(0, "Number of the first repetition.", at_least=0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of each layer."""
        return (problem.HALVED, self.hidden, 10)


PRESETS = {"full": Config(), "quick": Config(repetitions=2, hyper_iterations=15)}


class Tuning(NamedTuple):
    """How hypers are tuned.

    Attributes:
      name: what the table calls it.
      seeds: seeds in each hypergradient.
      iterations: hyper-iterations.
      fresh: whether each hyper-iteration has seeds of its own.
    """

    name: str
    seeds: int
    iterations: int
    fresh: bool = False


class Unit(NamedTuple):
    """What a row depends on."""

    config: Config
    repetition: int
    kind: str
    tuning: Tuning

    @property
    def name(self) -> str:
        """Identifies the unit."""
        settings = described(self.config, "repetitions", "first_repetition")
        return f"repetition {self.repetition}, {self.kind}, tuned on {self.tuning.name}; {settings}"


def tunings(config: Config) -> list[Tuning]:
    """None, for the hypers before any tuning; one seed; the average; and what takes as many trainings as the average."""
    n, few = config.seeds, config.hyper_iterations
    return [
        Tuning(NOTHING, 0, 0),
        Tuning(ONE, 1, few),
        Tuning(f"one seed, {n} times as long", 1, n * few),
        Tuning(average_name(config), n, few),
        Tuning(f"a fresh seed each time, {n} times as long", 1, n * few, fresh=True),
    ]


def average_name(config: Config) -> str:
    """The tuning that the others are compared with."""
    return f"{config.seeds} seeds"


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """Each repetition, kind of hypers and tuning."""
    repetitions = range(config.first_repetition, config.first_repetition + config.repetitions)
    return [Unit(config, *which) for which in itertools.product(repetitions, KINDS, tunings(config))]


def compute(unit: Unit, output: Path) -> Row:
    """The errors of the tuned hypers on fresh seeds; also what a tuning knows: the error on its seeds, and scalar hypers."""
    hypers, (data, errors) = initial_hypers(unit.config, unit.kind), _judge(unit.config, unit.repetition)
    row: Row = {"unit": unit.name, "repetition": unit.repetition, "hypers": unit.kind, "tuned_on": unit.tuning.name}
    if unit.tuning.iterations:
        result = tune(unit, data, pool.checkpoints(unit, output))
        hypers = result.hypers
        row |= {"trainings": unit.tuning.seeds * unit.tuning.iterations, "own_seeds": result.history[-1]["value"]}
        row["tuned"] = {name: float(value) for name, value in hypers.items() if value.shape.rank == 0}
    return row | judged(errors(hypers))


@functools.lru_cache(maxsize=1)
def _judge(config: Config, repetition: int) -> tuple[Data, Callable[[Hypers], np.ndarray]]:
    """The digits of a repetition, and the errors of hypers on its fresh seeds."""
    data = problem.halved(problem.digits(config.train, config.validation, config.test, repetition))
    fresh = Seeds(_stream(repetition, "fresh"))
    return data, problem.errors(data, fresh, config.batch_size, config.steps, config.sizes, config.fresh_seeds)


def initial_hypers(config: Config, kind: str) -> Hypers:
    """Where every tuning starts."""
    rates = np.full((config.steps,) if kind == SCHEDULE else (), config.learning_rate, np.float32)
    return {"learning rate": rates, "momentum": config.momentum, "l2 0": config.l2, "l2 1": config.l2}


def tune(unit: Unit, data: Data, directory: Path | None = None) -> rf.Result:
    """The hypers, and the validation error on the seeds that they are tuned on; a stopped tuning resumes."""
    config, tuning = unit.config, unit.tuning
    seeds = Seeds(_stream(unit.repetition, "tuning"), None if tuning.fresh else tuning.seeds)
    engine = rf.reverse(problem.problem(data, seeds, config.batch_size, config.steps), jit_compile=False)
    if tuning.seeds > 1:
        engine = rf.average(engine, tuning.seeds, together=True)
    start = initial_hypers(config, unit.kind)
    rates = {name: config.momentum_rate if name == "momentum" else config.relative_rate for name in start}
    by_factors = [name for name in start if name != "momentum"]
    optimizer = rf.projected_adam(rates, {"momentum": rf.Box(0.0, 0.99)}, log_scale=by_factors)
    tuner = rf.HyperOptimizer(engine, optimizer, on_divergence="backtrack", clip=config.clip)
    return tuner.run(seeds.weights(config.sizes), start, tuning.iterations, directory, checkpoint_every=20)


def _stream(repetition: int, role: str) -> int:
    return len(ROLES) * repetition + ROLES.index(role)


def judged(measured: np.ndarray) -> Row:
    """Means over the fresh seeds, and the worst of them; see the protocol for trainings that fail."""
    validation, test, accuracy = measured.T
    failed = ~(validation < GUESSING)
    validation, test = (np.where(np.isfinite(e), np.minimum(e, GUESSING), GUESSING) for e in (validation, test))
    return {
        "validation": float(validation.mean()),
        "worst": float(validation.max()),
        "test": float(test.mean()),
        "test_accuracy": float(accuracy.mean()),
        "failed": int(failed.sum()),
    }
