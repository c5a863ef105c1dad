"""Data hyper-cleaning by implicit hypergradients that continue one training, compared with reverse mode from the start.

With an L2 term the inner training has a solution, and the hypers are judged there: they are kept, the model is trained again
from zero until it stands still, and its validation error and the F1 of the discarded digits are compared. A control run
trains exactly as the warm one does, but its hypers do not move: what it reaches is due to longer training alone.

Without the L2 term there is no solution; the same runs show what the comparison would then be worth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
import tensorflow as tf

import rfho2 as rf
from data import mnist
from experiments.common.config import setting
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

    @property
    def settings(self) -> dict[str, Any]:
        """What a single run depends on, apart from L2 weight and seed, which its directory is named after.

        `hyper_iterations` is not part of it, because a finished run can be extended.
        """
        omitted = ("l2", "seeds", "hyper_iterations")
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in omitted}


PRESETS = {
    "full": Config(),
    "quick": Config(l2=(1e-3,), seeds=(0,), steps=50, hyper_iterations=30),
}

LONG = 2000  # steps of a training that has no end
EVERY = 10  # hyper-iterations between checkpoints, and between judgements of a run that ends when it is as good

Row = dict[str, Any]


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


Histories = dict[str, list[dict[str, float]]]


def run(
    config: Config, data: Callable[[int], mnist.NoisySplit], output: Path, resume: bool = True
) -> tuple[list[Row], Histories]:
    """All methods for every L2 weight and every seed; `data` maps a seed to its split.

    Returns the rows, and the histories of the first seed and L2 weight by method.
    """
    rows: list[Row] = []
    histories: Histories = {}
    for l2 in config.l2:
        for seed in config.seeds:
            split = data(seed)
            for name, method in METHODS.items():
                if method.until and not l2:  # there is no solution to be as good at
                    continue
                directory = output / "runs" / f"{name.replace(', ', '-').replace(' ', '_')}-l2-{l2:g}-seed-{seed}"
                runs = tune(config, split, l2, method, directory, resume)
                if method.until:
                    wanted = next(row for row in rows if (row["method"], row["l2"], row["seed"]) == ("reverse", l2, seed))
                    judged = until(config, split, l2, runs, wanted["E trained again"])
                else:
                    result = list(runs)[-1]
                    judged = judge(config, split, l2, result)
                    histories.setdefault(name, result.history)
                rows.append({"method": name, "l2": l2, "seed": seed, **judged})
    return rows, histories


def until(config: Config, data: mnist.NoisySplit, l2: float, runs: Iterable[rf.Result], wanted: float) -> Row:
    """The first of the longer and longer runs whose hypers are as good as wanted, or the last."""
    for result in runs:
        judged = judge(config, data, l2, result)
        if judged["E trained again"] <= wanted:
            break
    return judged


def tune(
    config: Config, data: mnist.NoisySplit, l2: float, method: Method, directory: Path, resume: bool
) -> Iterator[rf.Result]:
    """A run of one method, after every `EVERY` of its hyper-iterations and at its end; each continues the last."""
    inner = cleaning.Config(steps=config.warm_steps if method.warm else config.steps, inner_rate=config.inner_rate)
    problem = cleaning.cleaning_problem(inner, data, config.radius, l2)
    rate = config.hyper_rate if method.moves else 0.0
    optimizer = rf.projected_adam(rate, {"weights": rf.BoxL1Ball(config.radius)})
    n = len(data.train.labels)
    start = {"weights": np.full(n, config.radius / n, np.float32)}
    tuner = rf.HyperOptimizer(method.make(config, problem), optimizer, [rf.ProgressBar((), directory.name)])
    last = method.times * config.hyper_iterations
    for iterations in [*range(EVERY, last, EVERY), last] if method.until else [last]:
        yield tuner.run(cleaning.zeros(), start, iterations, directory / "checkpoints", resume, checkpoint_every=EVERY)
        resume = True  # where this part ended


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
    found = scipy.optimize.minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(-1, mnist.CLASSES)


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
