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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import rfho2 as rf
from experiments.averaged_seeds import problem
from experiments.averaged_seeds.problem import Data, Seeds
from experiments.common.config import setting
from experiments.common.figures import slug
from rfho2.core.types import Hypers

RATE, SCHEDULE = KINDS = ("one learning rate", "a learning rate per step")
ONE = "one seed"
GUESSING = float(np.log(10))
ROLES = ("tuning", "fresh")

Row = dict[str, Any]


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
    def settings(self) -> dict[str, Any]:
        """What a single run depends on, apart from the repetition, which its directory is named after."""
        omitted = ("repetitions", "first_repetition", "fresh_seeds")
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in omitted}

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of each layer."""
        return (problem.HALVED, self.hidden, 10)


PRESETS = {"full": Config(), "quick": Config(repetitions=2, hyper_iterations=15)}


class Tuning(NamedTuple):
    """How hypers are tuned.

    Attributes:
      seeds: seeds in each hypergradient.
      fresh: whether each hyper-iteration has seeds of its own.
      lengths: hyper-iterations by the name of the result.
    """

    seeds: int
    fresh: bool
    lengths: dict[str, int]


def tunings(config: Config) -> list[Tuning]:
    """One seed; the average; and what takes as many trainings as the average."""
    n, few = config.seeds, config.hyper_iterations
    return [
        Tuning(1, False, {ONE: few, f"one seed, {n} times as long": n * few}),
        Tuning(n, False, {average_name(config): few}),
        Tuning(1, True, {f"a fresh seed each time, {n} times as long": n * few}),
    ]


def average_name(config: Config) -> str:
    """The tuning that the others are compared with."""
    return f"{config.seeds} seeds"


def initial_hypers(config: Config, kind: str) -> Hypers:
    """Where every tuning starts."""
    rates = np.full((config.steps,) if kind == SCHEDULE else (), config.learning_rate, np.float32)
    return {"learning rate": rates, "momentum": config.momentum, "l2 0": config.l2, "l2 1": config.l2}


def tune(
    config: Config,
    data: Data,
    kind: str,
    tuning: Tuning,
    repetition: int,
    directory: Path | None = None,
    resume: bool = True,
) -> dict[str, rf.Result]:
    """The result of each length of a tuning: the hypers, and the validation error on its own seeds."""
    seeds = Seeds(_stream(repetition, "tuning"), None if tuning.fresh else tuning.seeds)
    engine = rf.reverse(problem.problem(data, seeds, config.batch_size, config.steps), jit_compile=False)
    if tuning.seeds > 1:
        engine = rf.average(engine, tuning.seeds, together=True)
    start = initial_hypers(config, kind)
    rates = {name: config.momentum_rate if name == "momentum" else config.relative_rate for name in start}
    by_factors = [name for name in start if name != "momentum"]
    optimizer = rf.projected_adam(rates, {"momentum": rf.Box(0.0, 0.99)}, log_scale=by_factors)
    tuner = rf.HyperOptimizer(engine, optimizer, on_divergence="backtrack", clip=config.clip)
    weights, results = seeds.weights(config.sizes), {}
    for name, iterations in tuning.lengths.items():
        place = directory and directory / slug(name)  # not one for all: a longer run has lost where the shorter one ended
        results[name] = tuner.run(weights, start, iterations, place, resume, checkpoint_every=20)
    return results


def _stream(repetition: int, role: str) -> int:
    return len(ROLES) * repetition + ROLES.index(role)


def run(config: Config, output: Path | None = None, resume: bool = True) -> list[Row]:
    """A row for each repetition, kind of hypers and tuning, and one for the hypers before any tuning."""
    rows = []
    with tqdm(total=config.repetitions * len(KINDS) * len(tunings(config)), unit="tuning") as bar:
        for repetition in range(config.first_repetition, config.first_repetition + config.repetitions):
            data = problem.halved(problem.digits(config.train, config.validation, config.test, repetition))
            fresh = Seeds(_stream(repetition, "fresh"))
            errors = problem.errors(data, fresh, config.batch_size, config.steps, config.sizes, config.fresh_seeds)
            for kind in KINDS:
                about = {"repetition": repetition, "hypers": kind}
                rows.append({**about, "tuned_on": "nothing", **judged(errors(initial_hypers(config, kind)))})
                for tuning in tunings(config):
                    directory = output and output / "runs" / _directory(repetition, kind, tuning)
                    results = tune(config, data, kind, tuning, repetition, directory, resume)
                    rows += [{**about, **_own(tuning, r, results[r]), **judged(errors(results[r].hypers))} for r in results]
                    bar.update()
    return rows


def _directory(repetition: int, kind: str, tuning: Tuning) -> str:
    return slug(f"{repetition}-{kind}-{tuning.seeds}-{'fresh' if tuning.fresh else 'fixed'}")


def _own(tuning: Tuning, name: str, result: rf.Result) -> Row:
    """What a tuning knows: its trainings, the validation error on its own seeds, and the scalar hypers."""
    scalars = {name: float(value) for name, value in result.hypers.items() if value.shape.rank == 0}
    trainings = tuning.seeds * tuning.lengths[name]
    return {"tuned_on": name, "trainings": trainings, "own_seeds": result.history[-1]["value"], "tuned": scalars}


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


def columns(rows: list[Row], kind: str, key: str) -> Iterator[tuple[str, np.ndarray]]:
    """The values of a key over the repetitions, for each tuning of a kind of hypers."""
    chosen = [row for row in rows if row["hypers"] == kind]
    for name in dict.fromkeys(row["tuned_on"] for row in chosen):
        yield name, np.array([row.get(key, np.nan) for row in chosen if row["tuned_on"] == name])
