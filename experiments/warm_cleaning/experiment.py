"""Data hyper-cleaning by implicit hypergradients that continue one training, compared with reverse mode from the start.

With an L2 term the inner training has a solution, and the hypers are judged there: they are kept, the model is trained again
from zero until it stands still, and its validation error and the F1 of the discarded digits are compared. A control run
trains exactly as the warm one does, but its hypers do not move: what it reaches is due to longer training alone.

Without the L2 term there is no solution; the same runs show what the comparison would then be worth.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
import tensorflow as tf

import rfho2 as rf
from data import mnist
from experiments.common import pool
from experiments.common.config import described, setting
from experiments.common.pool import Row
from experiments.common.tables import where
from experiments.data_hyper_cleaning import experiment as cleaning


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    l2: tuple[float, ...] = setting(
        (1e-3, 0.0), "Weights of the L2 term in the inner loss, one comparison for each.", at_least=0.0
    )
    seeds: tuple[int, ...] = setting((0, 1), "Seeds of the split and the corruption, one comparison for each.", at_least=0)
    radius: float = setting(1000.0, "R: the bound on the sum of the weights.", at_least=1.0)
    steps: int = setting(
        100, "T: inner steps from zero, in each hyper-iteration of reverse and of cold implicit.", at_least=1
    )
    warm_steps: int = setting(10, "Inner steps in each hyper-iteration of a warm run.", at_least=1)
    iterations: int = setting(5, "Iterations of CG in each hyper-iteration of a warm run.", at_least=1)
    hyper_iterations: int = setting(60, "Updates of the weights; one method makes twice as many.", at_least=1)
    inner_rate: float = setting(0.2, "The inner learning rate is inner_rate N / R.", at_least=0.0)
    hyper_rate: float = setting(0.02, "Learning rate of projected Adam.", at_least=0.0)


PRESETS = {
    "full": Config(),
    "quick": Config(l2=(1e-3,), seeds=(0,), steps=50, hyper_iterations=30),
}

LONG = 2000  # steps of a training that has no end
EVERY = 10  # hyper-iterations between checkpoints, and between judgements of a run that ends when it is as good


class Method(NamedTuple):
    """One row of the table.

    Attributes:
      make: its engine.
      warm: whether it continues one training.
      times: how many hyper-iterations it gets, compared with the others.
      moves: whether the hypers move.
      until: whether it ends as soon as its hypers, trained again, are as good as those of reverse mode.
    """

    make: Callable[[Config, rf.Problem], rf.Engine]
    warm: bool
    times: int = 1
    moves: bool = True
    until: bool = False


METHODS = {
    "reverse": Method(lambda config, problem: rf.reverse(problem), False),
    "implicit": Method(lambda config, problem: rf.implicit(problem, tolerance=1e-2), False),
    "implicit, warm": Method(lambda config, problem: _warm(config, problem), True),
    "implicit, warm, until as good": Method(lambda config, problem: _warm(config, problem), True, until=True),
    "implicit, warm, twice the updates": Method(lambda config, problem: _warm(config, problem), True, times=2),
    "warm, hypers held": Method(lambda config, problem: _warm(config, problem), True, moves=False),
}


def _warm(config: Config, problem: rf.Problem) -> rf.Engine:
    return rf.implicit(problem, iterations=config.iterations, warm_start=True)


class Unit(NamedTuple):
    """What a row depends on.

    Attributes:
      wanted: the validation error, trained again, at which a run ends that ends as soon as it is as good as reverse mode.
    """

    config: Config
    l2: float
    seed: int
    method: str
    wanted: float | None = None

    @property
    def name(self) -> str:
        """Identifies the unit."""
        wanted = "" if self.wanted is None else f", as good as {self.wanted}"
        return f"{self.method}, L2 {self.l2:g}, seed {self.seed}; {described(self.config, 'l2', 'seeds')}{wanted}"


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """All methods for every L2 weight and seed; a run that ends when it is as good as reverse mode waits for its row.

    Without L2 there is no solution to be as good at.
    """
    wanted = {(row["l2"], row["seed"]): row["E trained again"] for row in where(rows, method="reverse") if row["l2"]}
    return [
        Unit(config, l2, seed, name, wanted[l2, seed] if method.until else None)
        for l2, seed, (name, method) in itertools.product(config.l2, config.seeds, METHODS.items())
        if not method.until or (l2, seed) in wanted
    ]


def compute(unit: Unit, output: Path) -> Row:
    """Tunes the weights, and judges them; the history has the validation error in the run after each update."""
    data = cleaning.load("embedded", unit.seed)
    for result in tune(unit, data, pool.checkpoints(unit, output)):
        judged = judge(unit.config, data, unit.l2, result)
        if unit.wanted is not None and judged["E trained again"] <= unit.wanted:
            break
    history = [row["value"] for row in result.history]
    return {"unit": unit.name, "method": unit.method, "l2": unit.l2, "seed": unit.seed, **judged, "history": history}


def tune(unit: Unit, data: mnist.NoisySplit, directory: Path) -> Iterator[rf.Result]:
    """A run of one method, after every `EVERY` of its hyper-iterations if it may end early, and at its end."""
    config, method = unit.config, METHODS[unit.method]
    inner = cleaning.Config(steps=config.warm_steps if method.warm else config.steps, inner_rate=config.inner_rate)
    problem = cleaning.cleaning_problem(inner, data, config.radius, unit.l2)
    rate = config.hyper_rate if method.moves else 0.0
    optimizer = rf.projected_adam(rate, {"weights": rf.BoxL1Ball(config.radius)})
    n = len(data.train.labels)
    start = {"weights": np.full(n, config.radius / n, np.float32)}
    tuner = rf.HyperOptimizer(method.make(config, problem), optimizer, [rf.ProgressBar((), unit.method)])
    last = method.times * config.hyper_iterations
    for iterations in [*range(EVERY, last, EVERY), last] if method.until else [last]:
        yield tuner.run(cleaning.zeros(), start, iterations, directory, checkpoint_every=EVERY)


def judge(config: Config, data: mnist.NoisySplit, l2: float, result: rf.Result) -> Row:
    """How good the last hypers are, once the model is trained again from zero, and what the run cost."""
    weights = result.hypers["weights"].numpy()
    last = result.history[-1]
    params = solution(data, weights, l2) if l2 else trained_long(config, data, weights)
    return {
        "E in the run": last["value"],
        "unsettled": last.get("unsettled"),
        "E trained again": error(params, data.validation),
        "F1": cleaning.detection(weights, data.noisy)["F1"],
        "test accuracy": float(np.mean(np.argmax(data.test.images @ params[:-1] + params[-1], 1) == data.test.labels)),
        "seconds": last["seconds"],
    }


def solution(data: mnist.NoisySplit, weights: np.ndarray, l2: float) -> np.ndarray:
    """The solution of the inner problem, [785, 10] with the biases as its last row, by L-BFGS in float64."""
    x = np.concatenate([data.train.images, np.ones((len(weights), 1))], 1).astype(np.float64)
    targets = np.eye(mnist.CLASSES)[data.train.labels]

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(-1, mnist.CLASSES)
        logs = scipy.special.log_softmax(x @ w, axis=1)
        value = -np.mean(weights * np.sum(targets * logs, 1)) + l2 * np.sum(w**2)
        residual = weights[:, None] * (np.exp(logs) - targets) / len(weights)
        return value, (x.T @ residual + 2 * l2 * w).ravel()

    start = np.zeros(x.shape[1] * mnist.CLASSES)
    options = {"maxiter": 2000, "ftol": 1e-13, "gtol": 1e-7}
    result = scipy.optimize.minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    return result.x.reshape(-1, mnist.CLASSES)


def trained_long(config: Config, data: mnist.NoisySplit, weights: np.ndarray) -> np.ndarray:
    """Without L2 there is no solution: `LONG` steps from zero, as the same form as `solution`."""
    inner = cleaning.Config(steps=LONG, inner_rate=config.inner_rate)
    problem = cleaning.cleaning_problem(inner, data, config.radius)
    train = tf.function(problem.train, autograph=False, jit_compile=True)
    p = train(cleaning.zeros(), {"weights": tf.constant(weights)})
    return np.concatenate([p["w"].numpy(), p["b"].numpy()[None]]).astype(np.float64)


def error(params: np.ndarray, digits: Any) -> float:
    """The mean cross-entropy of a model on digits."""
    logs = scipy.special.log_softmax(digits.images @ params[:-1] + params[-1], axis=1)
    return -float(np.mean(logs[np.arange(len(digits.labels)), digits.labels]))
