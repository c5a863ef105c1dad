"""Learning to learn: initialisation and learning rates of a network, tuned so that a few steps on a few points suffice.

Task k is to fit y = a sin(x + p) from 5 or 10 points, by five steps of gradient descent. The hypers are all weights and
biases of the network before the first step, and one learning rate per layer, on the log scale. Each hyper-iteration has
tasks of its own: the hypergradient is the mean over them (`rf.average`), in reverse mode, clipped.

The protocol, fixed before the run:

- Training, calibration and test tasks are drawn independently; no test task is used for any choice.
- *Pretrained* is the same network, from the same random weights, trained by Adam on the same tasks, all of their points in
  one batch: one step for each hyper-iteration, so that it sees the same examples. Its learning rate for the five steps is
  the best of five on the calibration tasks. So is that of the random weights.
- *Pretrained, learned rates* has the pretrained weights and a rate per layer, tuned by hypergradients from the best of the
  five: what is gained by rates alone.
- Each method takes the five steps on the points of each test task. Reported are the mean squared errors on other points of
  the task, before and after them, as means over the tasks with Student's 95 % intervals.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.common import pool, statistics
from experiments.common.config import described, setting
from experiments.common.plain_training import fixed, plain_training
from experiments.common.pool import Row
from experiments.learning_to_learn import model
from experiments.learning_to_learn.model import Params
from experiments.learning_to_learn.tasks import INPUTS, Family, Task
from rfho2.core.types import Hypers

LEARNED, RATES_ONLY, PRETRAINED, RANDOM = METHODS = (
    "learned initialisation and rates",
    "pretrained, learned rates",
    "pretrained, best of five rates",
    "random weights, best of five rates",
)
CHECKPOINT_EVERY = 500  # hyper-iterations, each of which takes milliseconds
BLOCK = 100  # steps of pretraining between two rows of its history, at most
SHOWN_AMPLITUDE = 2.0  # the figure shows the first test task whose amplitude is at least this
SHOWN_INPUTS = np.linspace(*INPUTS, 200, dtype=np.float32)


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    shots: tuple[int, ...] = setting((5, 10), "Points to learn a task from, one run for each.", at_least=1)
    queries: int = setting(10, "Other points of a training task, on which the hypers are tuned.", at_least=1)
    hidden: int = setting(40, "Units of each of the two hidden layers.", at_least=1)
    steps: int = setting(5, "Gradient steps on a task.", at_least=1)
    tasks: int = setting(16, "Tasks in a hyper-iteration.", at_least=1)
    hyper_iterations: int = setting(8000, "Updates of initialisation and rates; steps of pretraining.", at_least=1)
    rate_iterations: int = setting(1000, "Updates of the rates for the pretrained weights.", at_least=1)
    hyper_rate: float = setting(2e-3, "Learning rate of projected Adam on the initialisation.", at_least=0.0)
    relative_rate: float = setting(
        3e-3, "The same on the learning rates: their relative change in one update.", at_least=0.0
    )
    first_rate: float = setting(0.01, "Where the learning rates start.", at_least=0.0)
    clip: float = setting(10.0, "Largest norm of a hypergradient.", at_least=0.0)
    pretraining_rate: float = setting(1e-3, "Learning rate of Adam in the pretraining.", at_least=0.0)
    rates: tuple[float, ...] = setting(
        (0.0003, 0.001, 0.002, 0.005, 0.01), "Rates to choose from for five steps.", at_least=0.0
    )
    calibration_tasks: int = setting(300, "Tasks on which the rate is chosen.", at_least=1)
    test_tasks: int = setting(1000, "Tasks on which the errors are measured.", at_least=2)
    test_queries: int = setting(100, "Points on which an error is measured.", at_least=1)
    shown_steps: int = setting(10, "Steps on the test tasks that the figure shows.", at_least=1)
    seed: int = setting(0, "Seed of tasks and weights.", at_least=0)

    def family(self, part: str, shots: int) -> Family:
        """The tasks of a part."""
        return Family(part, self.seed, shots, self.queries if part == "training" else self.test_queries)


PRESETS = {"full": Config(), "quick": Config(hyper_iterations=800, rate_iterations=200, test_tasks=300)}


class Unit(NamedTuple):
    """What some rows depend on."""

    config: Config
    shots: int

    @property
    def name(self) -> str:
        """Identifies the unit."""
        return f"{self.shots} points; {described(self.config, 'shots')}"


class Method(NamedTuple):
    """What a method starts each task with."""

    weights: Params
    rates: Hypers


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """One for each number of points."""
    return [Unit(config, shots) for shots in config.shots]


def compute(unit: Unit, output: Path) -> Row:
    """A row for each method, all on the same test tasks; two of them with the curves that the figure shows."""
    config, shots = unit
    errors = errors_by_step(config.family("test", shots), config.test_tasks, config.shown_steps)
    methods = methods_for(config, shots, pool.checkpoints(unit, output))
    measured = {name: errors(*method) for name, method in methods.items()}
    rows = [_row(config, shots, name, methods[name], measured[name], measured[PRETRAINED]) for name in methods]
    family, k = shown_task(config, shots)
    for row in rows:
        if row["adapted_by"] in (LEARNED, PRETRAINED):
            curves = predictions(methods[row["adapted_by"]], family.task(k), config.steps, SHOWN_INPUTS)
            row["curves"] = [curve.tolist() for curve in curves]
    return {"unit": unit.name, "methods": rows}


def methods_for(config: Config, shots: int, directory: Path) -> dict[str, Method]:
    """Trains everything that learns from a number of points; a stopped training resumes."""
    weights = model.random_weights(config.hidden, config.seed)
    pretrained = calibrated(config, shots, pretrain(config, shots, weights, directory / "pretraining"))
    start = Method(weights, model.layer_rates(weights, config.first_rate))
    return {
        LEARNED: learn(config, shots, start, True, directory / "learning_to_learn"),
        RATES_ONLY: learn(config, shots, pretrained, False, directory / "learning_rates"),
        PRETRAINED: pretrained,
        RANDOM: calibrated(config, shots, weights),
    }


def learn(config: Config, shots: int, start: Method, learned_initialisation: bool, directory: Path) -> Method:
    """Tunes the rates, and the initialisation too if it is learned, from where `start` has them."""
    problem = model.adaptation(config.family("training", shots), config.steps, learned_initialisation)
    hypers = {**start.weights, **start.rates} if learned_initialisation else dict(start.rates)
    hyper_rates = {name: config.relative_rate if name in start.rates else config.hyper_rate for name in hypers}
    optimizer = rf.projected_adam(hyper_rates, log_scale=list(start.rates))
    engine = rf.average(rf.reverse(problem), config.tasks, together=True)
    callbacks = _callbacks(shots, directory)
    tuner = rf.HyperOptimizer(engine, optimizer, callbacks, on_divergence="backtrack", clip=config.clip)
    iterations = config.hyper_iterations if learned_initialisation else config.rate_iterations
    result = tuner.run(start.weights, hypers, iterations, directory, checkpoint_every=CHECKPOINT_EVERY)
    tuned = {**start.weights, **result.hypers}
    return Method({name: tuned[name] for name in start.weights}, {name: tuned[name] for name in start.rates})


def pretrain(config: Config, shots: int, weights: Params, directory: Path) -> Params:
    """Trains the weights on the tasks of `learn`, a step for each of its hyper-iterations."""
    problem = model.joint_training(config.family("training", shots), config.tasks)
    block = math.gcd(BLOCK, config.hyper_iterations)
    tuner = rf.HyperOptimizer(plain_training(problem, block, jit_compile=False), fixed, _callbacks(shots, directory))
    blocks = config.hyper_iterations // block
    result = tuner.run(weights, {"rate": config.pretraining_rate}, blocks, directory)
    return problem.dynamics.params(result.state)


def _callbacks(shots: int, directory: Path) -> list[rf.Callback]:
    """A progress bar, and the history as a table."""
    title = directory.name.replace("_", " ")
    return [rf.ProgressBar(description=f"{title}, {shots} points"), rf.CSVLogger(directory / "history.csv")]


def errors_by_step(family: Family, tasks: int, steps: int) -> Callable[[Params, Hypers], np.ndarray]:
    """Returns a function from initial weights and rates to the errors on the queries, [tasks, steps + 1]."""
    problem = model.adaptation(family, steps, learned_initialisation=False)

    @tf.function(autograph=False)
    def errors(weights: Params, rates: Hypers) -> tf.Tensor:
        def one(k: tf.Tensor) -> tf.Tensor:
            states = [weights]
            for t in range(steps):
                states.append(problem.dynamics.step(states[-1], rates, problem.batch(tf.constant(t), k), tf.constant(t)))
            return tf.stack([model.error(state, {}, family.task(k).queries) for state in states])

        return tf.map_fn(one, tf.range(tasks), fn_output_signature=weights["w0"].dtype)

    return lambda weights, rates: errors(weights, rates).numpy()


def calibrated(config: Config, shots: int, weights: Params) -> Method:
    """The weights with the best of the rates after the steps on the calibration tasks."""
    errors = errors_by_step(config.family("calibration", shots), config.calibration_tasks, config.steps)
    candidates = [model.layer_rates(weights, rate) for rate in config.rates]
    means = [float(np.mean(errors(weights, rates)[:, -1])) for rates in candidates]
    return Method(weights, candidates[int(np.argmin(np.nan_to_num(means, nan=np.inf)))])


def _row(config: Config, shots: int, name: str, method: Method, errors: np.ndarray, pretrained: np.ndarray) -> Row:
    """Means over the test tasks, and how they compare with the pretrained network's after the steps."""
    intervals = [statistics.interval(column) for column in errors.T]
    after, reference = errors[:, config.steps], pretrained[:, config.steps]
    return {
        "shots": shots,
        "adapted_by": name,
        "rates": [float(rate) for rate in method.rates.values()],
        "error": [i.mean for i in intervals],
        "half_interval": [i.half for i in intervals],
        "ratio_to_pretrained": float(np.mean(after) / np.mean(reference)),
        "less_than_pretrained": list(statistics.interval(reference - after)),
    }


def shown_task(config: Config, shots: int) -> tuple[Family, int]:
    """The first test task that is not too flat to see, by its amplitude alone."""
    family = config.family("test", shots)
    return family, next(k for k in itertools.count() if float(family.task(k).amplitude) >= SHOWN_AMPLITUDE)


def predictions(method: Method, task: Task, steps: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The outputs of the network at x before and after the steps on a task."""
    descent = model.descent()
    weights = method.weights
    for t in range(steps):
        weights = descent.step(weights, method.rates, task.support, tf.constant(t))
    before, after = (model.outputs(w, tf.constant(x[:, None]))[:, 0].numpy() for w in (method.weights, weights))
    return before, after
