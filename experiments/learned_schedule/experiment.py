"""A learning rate for each of T steps, learned by hypergradients, and schedules tuned by random trials.

The protocol, fixed before the run, is in docs/experiments/learned_schedule.md.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.averaged_seeds.problem import Seeds
from experiments.common import pool
from experiments.common.config import described, setting
from experiments.common.pool import Row
from experiments.learned_schedule import problems, schedules
from experiments.learned_schedule.problems import Case
from rfho2.core import nest
from rfho2.hypergradients.together import Together
from rfho2.hypergradients.vectorise import stack

LEARNED, SMOOTHED, MANY = "learned", "learned, smoothed", "one-cycle, many trials"
METHODS = (*schedules.KINDS, MANY, LEARNED)
SIZES = {problems.DIGITS: (5_000, 2_500), problems.CIFAR: (3_000, 1_500)}  # for training and for validation


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    problems: tuple[str, ...] = setting(problems.NAMES, "Networks.", choices=problems.NAMES)
    methods: tuple[str, ...] = setting(METHODS, "Schedules.", choices=METHODS)
    splits: tuple[int, ...] = setting((0, 1, 2, 3, 4), "Splits of the examples.", at_least=0)
    steps: int = setting(2_000, "T: training steps.", at_least=2)
    batch_size: int = setting(50, "Examples in a training batch.", at_least=1)
    trials: int = setting(20, "Random trials of each schedule.", at_least=1)
    many: int = setting(200, "Random trials of one-cycle with a larger budget.", at_least=1)
    seeds: int = setting(8, "Seeds over which every trial and every hypergradient is averaged.", at_least=1)
    fresh_seeds: int = setting(20, "Seeds on which the schedules are judged.", at_least=1)
    hyper_iterations: int = setting(100, "Updates of the learned schedule.", at_least=1)
    hyper_rate: float = setting(0.05, "Relative change of a learning rate in one update.", at_least=0.0)
    checkpoints: int = setting(200, "States that reverse mode saves; the others are recomputed.", at_least=1)
    smoothing: int = setting(101, "Steps over which the learned schedule is smoothed.", at_least=1)
    train: int | None = setting(None, "Training examples, instead of 5,000 digits and 3,000 images.", at_least=1)


PRESETS = {
    "full": Config(),
    "quick": Config(
        (problems.CIFAR,), splits=(0,), steps=100, trials=4, many=6, seeds=2, fresh_seeds=4, hyper_iterations=10,
        checkpoints=20, smoothing=11,
    ),
}  # fmt: skip


class Unit(NamedTuple):
    """What a row depends on."""

    config: Config
    problem: str
    split: int
    method: str

    @property
    def name(self) -> str:
        """Identifies the unit."""
        settings = described(self.config, "problems", "methods", "splits")
        return f"{self.problem}, split {self.split}, {self.method}; {settings}"


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """All problems, splits and methods: those that take longest come first, so that no process waits for them at the end."""
    slow = [method for method in (LEARNED, MANY) if method in config.methods]
    order = [*slow, *(method for method in config.methods if method not in slow)]
    return [Unit(config, name, split, method) for method in order for split in config.splits for name in config.problems]


def results(config: Config, rows: Sequence[Row]) -> list[Row]:
    """A row for each problem, split and schedule, and one for the learned schedule, smoothed."""
    judged = [row | {"method": name, **scores} for row in rows for name, scores in row["judged"].items()]
    return sorted(judged, key=lambda row: ((*METHODS, SMOOTHED).index(row["method"]), row["split"]))


def compute(unit: Unit, output: Path) -> Row:
    """Tunes one schedule, and judges it on fresh seeds."""
    config, method = unit.config, unit.method
    train, validation = SIZES[unit.problem]
    case = problems.case(unit.problem, unit.split, config.train or train, validation)
    began = time.perf_counter()
    errors = judge(config, case, problems.TUNING, config.seeds)
    if method == LEARNED:
        start, _ = best_of(config.trials, schedules.constant, config.steps, errors, _rng(unit.split, "constant"))
        seconds = time.perf_counter() - began
        result = learn(config, case, start, pool.checkpoints(unit, output))
        schedule, history = result.hypers["schedule"].numpy(), [row["value"] for row in result.history]
        seconds += result.history[-1]["seconds"]  # also those before it was stopped
    else:
        trials = config.many if method == MANY else config.trials
        kind = schedules.KINDS["one-cycle" if method == MANY else method]
        schedule, history = best_of(trials, kind, config.steps, errors, _rng(unit.split, method))
        seconds = time.perf_counter() - began
    fresh = judge(config, case, problems.FRESH, config.fresh_seeds)
    shapes = {method: schedule} | ({SMOOTHED: schedules.smoothed(schedule, config.smoothing)} if method == LEARNED else {})
    judged = {name: {**fresh(shape), "schedule": shape.tolist()} for name, shape in shapes.items()}
    return {
        "unit": unit.name,
        "problem": unit.problem,
        "split": unit.split,
        "seconds": seconds,
        "history": history,
        "judged": judged,
    }


def _rng(split: int, method: str) -> np.random.Generator:
    return np.random.default_rng([split, METHODS.index(method)])


Judge = Callable[[np.ndarray], dict[str, list[float]]]
"""schedule -> validation loss, test loss and test accuracy of each seed."""


def best_of(
    trials: int, draw: Callable[[int, np.random.Generator], np.ndarray], steps: int, errors: Judge, rng: np.random.Generator
) -> tuple[np.ndarray, list[float]]:
    """The random schedule with the smallest mean validation loss, and the losses of all."""
    drawn = [draw(steps, rng) for _ in range(trials)]
    losses = [float(np.mean(errors(schedule)["validation"])) for schedule in drawn]
    finite = [loss if np.isfinite(loss) else np.inf for loss in losses]
    return drawn[int(np.argmin(finite))], losses


def learn(config: Config, case: Case, start: np.ndarray, checkpoint_dir: Path) -> rf.Result:
    """The schedule after the last hyper-iteration, each of which has seeds of its own; if it was stopped, it goes on."""
    seeds = Seeds(problems.TUNING)
    engine = rf.reverse(case.problem(seeds, config.steps, config.batch_size), checkpoints=config.checkpoints)
    optimizer = rf.projected_adam(config.hyper_rate, log_scale=["schedule"])
    tuner = rf.HyperOptimizer(rf.average(engine, config.seeds, together=True), optimizer, on_divergence="backtrack")
    return tuner.run(case.initial(seeds), {"schedule": start}, config.hyper_iterations, checkpoint_dir)


def judge(config: Config, case: Case, stream: int, count: int) -> Judge:
    """Trains with `count` seeds of a stream, all together, and measures."""
    seeds = Seeds(stream)
    problem = Together.of(case.problem(seeds, config.steps, config.batch_size), count)
    initial = case.initial(seeds)

    def one(p: nest.Nest) -> tf.Tensor:
        x, y = case.test
        hits = tf.reduce_mean(tf.cast(tf.argmax(case.logits(p, x), 1, tf.int32) == y, tf.float32))
        return tf.stack([case.loss(p, {}, case.validation), case.loss(p, {}, case.test), hits])

    @tf.function(autograph=False, jit_compile=True)
    def measured(schedule: tf.Tensor) -> tf.Tensor:
        state = problem.train(stack(initial, tf.constant(0), count), {"schedule": schedule})
        return tf.map_fn(one, problem.dynamics.params(state), fn_output_signature=tf.float32)

    def errors(schedule: np.ndarray) -> dict[str, list[float]]:
        columns = measured(tf.constant(schedule)).numpy().T.tolist()
        return dict(zip(("validation", "test_loss", "test"), columns, strict=True))

    return errors
