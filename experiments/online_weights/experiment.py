"""A weight for each of 5,000 training digits, half of them with a wrong label, learned in one training of a network.

Training takes minibatches of the loss mean_i lambda_i l_i. After every hyper-batch, `rf.real_time(mode="reverse")` gives the
derivative of the error on 5,000 clean validation digits with respect to all 5,000 weights, and projected Adam moves them in
[0, 1]. The other methods are the same training, from the same initial network and with the same minibatches, with weights
that are held.

The protocol, fixed before the run and carried out by `units`:

1. On a calibration seed that no result is from, the learning rate is the one at which training with all weights 1, stopped
   early, reaches the lowest validation error. It is the baseline that it serves, and all methods use it.
2. On the same seed, hyper-batch and hyper-rate are the pair with which the weights learned online lead to the lowest
   validation error at the end of the training. Neither test digits nor the list of wrong labels are looked at.
3. The other seeds are run once, with these settings.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist
from experiments.common import networks, pool
from experiments.common.config import described, setting
from experiments.common.figures import slug
from experiments.common.plain_training import fixed, plain_training
from experiments.common.pool import Row
from experiments.data_hyper_cleaning import experiment as cleaning
from rfho2.core.types import Hypers, Nest

ONLINE, ONES, ORACLE = "learned online", "all 1", "oracle: 0 for wrong labels"
AGAIN = "those learned online, held"
INSTEAD = "all 1, on the validation digits"
KEPT, RIGHT = f"{INSTEAD} and those not doubted", f"{INSTEAD} and those with right labels"
DOUBTED = 0.5  # an example whose weight is below is taken to have a wrong label
BINS = np.linspace(0, 1, 21)  # of the histogram of the weights
COURSE = ("value", "mean weight, right", "mean weight, wrong", "F1")  # what the figure shows of a history


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    hidden: int = setting(100, "Hidden units.", at_least=1)
    batch_size: int = setting(100, "Digits in a training batch.", at_least=1)
    epochs: int = setting(30, "Epochs of each training.", at_least=1)
    momentum: float = setting(0.9, "Momentum factor.", at_least=0.0)
    start: float = setting(0.5, "Where all weights start.", at_least=0.0, at_most=1.0)
    learning_rates: tuple[float, ...] = setting((0.01, 0.03, 0.1), "Learning rates to choose from.", at_least=0.0)
    hyper_batches: tuple[int, ...] = setting(
        (10, 50, 100), "Steps between two updates of the weights, to choose from.", at_least=1
    )
    hyper_rates: tuple[float, ...] = setting(
        (0.1, 0.3, 1.0), "Learning rates of projected Adam, to choose from.", at_least=0.0
    )
    calibration_seed: int = setting(100, "Seed of the digits and weights on which these are chosen.", at_least=0)
    seeds: tuple[int, ...] = setting((0, 1, 2), "Seeds of the digits and weights that the results are from.", at_least=0)


PRESETS = {
    "full": Config(),
    "quick": Config(epochs=6, learning_rates=(0.03,), hyper_batches=(50,), hyper_rates=(0.3,), seeds=(0,)),
}


class Unit(NamedTuple):
    """What a row depends on.

    Attributes:
      step: of the protocol.
      hyper_batch, hyper_rate: None where the weights do not move.
    """

    config: Config
    step: int
    seed: int
    learning_rate: float
    hyper_batch: int | None = None
    hyper_rate: float | None = None

    @property
    def name(self) -> str:
        """Identifies the unit."""
        chosen = {"learning rate": self.learning_rate, "hyper-batch": self.hyper_batch, "hyper-rate": self.hyper_rate}
        tried = ", ".join(f"{key} {value}" for key, value in chosen.items() if value is not None)
        candidates = ("learning_rates", "hyper_batches", "hyper_rates", "calibration_seed", "seeds")
        return f"step {self.step}, seed {self.seed}, {tried}; {described(self.config, *candidates)}"


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """The protocol: each step waits for the rows of the steps before. Where there is only one setting, nothing is tried."""
    rates = [Unit(config, 1, config.calibration_seed, rate) for rate in config.learning_rates]
    rate = _chosen(rates, rows)
    if rate is None:
        return rates
    settings = itertools.product(config.hyper_batches, config.hyper_rates)
    pairs = [Unit(config, 2, config.calibration_seed, rate.learning_rate, *pair) for pair in settings]
    pair = _chosen(pairs, rows)
    tried = [unit for candidates in (rates, pairs) if len(candidates) > 1 for unit in candidates]
    return tried if pair is None else [*tried, *(pair._replace(step=3, seed=seed) for seed in config.seeds)]


def _chosen(candidates: list[Unit], rows: Sequence[Row]) -> Unit | None:
    """The candidate with the lowest validation error, if they have been tried; the only one need not be."""
    if len(candidates) == 1:
        return candidates[0]
    errors = {row["unit"]: row["validation error"] for row in rows if row["step"] < 3}
    return min(candidates, key=lambda unit: errors[unit.name]) if candidates[0].name in errors else None


def compute(unit: Unit, output: Path) -> Row:
    """The validation error of a setting, or the rows of a comparison."""
    directory, training = pool.checkpoints(unit, output), trainer(unit.config, unit.learning_rate, unit.seed)
    row: Row = {"unit": unit.name, "step": unit.step, "learning rate": unit.learning_rate}
    row |= {"hyper-batch": unit.hyper_batch, "hyper-rate": unit.hyper_rate}
    if unit.step == 3:
        return row | {"compared": compare(unit, training, directory)}
    title = unit.name.split(";")[0]
    if unit.step == 2:
        result = training.online(unit, title, directory, detect=False)
        return row | {"validation error": result.history[-1]["value"]}
    held = training.held(np.ones(len(training.data.noisy)), title, directory)
    return row | {"validation error": float(_best(held).value)}


def cross_entropies(p: networks.Params, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The loss of each digit."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, networks.tanh_logits(p, images))


def loss(p: networks.Params, hypers: Hypers, batch: Nest) -> tf.Tensor:
    """mean_i lambda_i l_i; the batch carries the numbers i of its digits."""
    images, labels, numbers = batch
    return tf.reduce_mean(tf.gather(hypers["weights"], numbers) * cross_entropies(p, images, labels))


def error(p: networks.Params, hypers: Hypers, batch: Nest) -> tf.Tensor:
    """The mean loss of digits without weights."""
    return tf.reduce_mean(cross_entropies(p, *batch))


def training_problem(config: Config, data: mnist.NoisySplit, learning_rate: float, seed: int) -> rf.Problem:
    """Momentum on shuffled minibatches; every hypergradient is of the error on all validation digits."""
    numbered = (*data.train, np.arange(len(data.train.labels), dtype=np.int32))
    return rf.Problem(
        rf.momentum(loss, learning_rate, config.momentum),
        error,
        steps=None,
        batches=rf.batches.shuffled(numbered, config.batch_size, seed),
        validation=rf.batches.full(tuple(data.validation)),
    )


class Trainer:
    """Trains one network on one split with one learning rate: `held` with fixed weights, `online` with weights that move."""

    def __init__(self, config: Config, data: mnist.NoisySplit, learning_rate: float, seed: int):
        self.config, self.data = config, data
        self.problem = training_problem(config, data, learning_rate, seed)
        self.params = networks.layers((784, config.hidden, mnist.CLASSES), np.random.default_rng(seed))
        self.epoch = len(data.train.labels) // config.batch_size
        self._plain = plain_training(self.problem, self.epoch)
        self._windows = functools.cache(lambda steps: rf.real_time(self.problem, steps, mode="reverse"))

    def held(self, weights: np.ndarray, name: str, directory: Path) -> rf.Result:
        """Training with these weights; its history has one row for each epoch."""
        tuner = rf.HyperOptimizer(self._plain, fixed, [rf.ProgressBar((), name)])
        return self._run(tuner, weights, self.epoch, directory / slug(name))

    def online(self, unit: Unit, name: str, directory: Path, detect: bool = True) -> rf.Result:
        """Training that moves the weights; `detect` adds to the history how well they detect the wrong labels."""
        assert unit.hyper_batch is not None
        assert unit.hyper_rate is not None
        update = rf.projected_adam(unit.hyper_rate, {"weights": rf.Box(0.0, 1.0)})
        metrics = self._detection if detect else None
        tuner = rf.HyperOptimizer(self._windows(unit.hyper_batch), update, [rf.ProgressBar((), name)], metrics)
        weights = np.full(len(self.data.noisy), self.config.start)
        return self._run(tuner, weights, unit.hyper_batch, directory / slug(name))

    def _run(self, tuner: rf.HyperOptimizer, weights: np.ndarray, steps: int, directory: Path) -> rf.Result:
        hypers = {"weights": tf.cast(weights, tf.float32)}
        iterations = max(1, self.config.epochs * self.epoch // steps)
        return tuner.run(self.params, hypers, iterations, directory, checkpoint_every=iterations)

    def _detection(self, state: Nest, hypers: Hypers, k: int) -> Row:
        weights, noisy = hypers["weights"].numpy(), self.data.noisy
        means = {"mean weight, wrong": np.mean(weights[noisy]), "mean weight, right": np.mean(weights[~noisy])}
        return {name: float(mean) for name, mean in means.items()} | {"F1": f1(weights < DOUBTED, noisy)}

    def judge(self, result: rf.Result) -> Row:
        """Validation error and test accuracy of the last state, and of the one with the lowest validation error; history."""
        last, best = (self.problem.dynamics.params(state) for state in (result.state, _best(result).state))
        return {
            "validation error": result.history[-1]["value"],
            "best validation error": float(_best(result).value),
            "test accuracy": accuracy(last, self.data.test),
            "best test accuracy": accuracy(best, self.data.test),
            "seconds": result.history[-1]["seconds"],
            "history": {key: [row[key] for row in result.history] for key in COURSE if key in result.history[0]},
        }


def accuracy(p: networks.Params, digits: mnist.Digits) -> float:
    """The share of digits that a network classifies correctly."""
    return float(np.mean(np.argmax(networks.tanh_logits(p, tf.constant(digits.images)), 1) == digits.labels))


def detection(weights: np.ndarray, noisy: np.ndarray) -> Row:
    """How well low weights, and weights of exactly 0, detect the wrong labels."""
    doubted, zeros = weights < DOUBTED, weights == 0
    counts = {"doubted": int(np.sum(doubted)), "zeros": int(np.sum(zeros))}
    return {"F1": f1(doubted, noisy), "F1 of zeros": f1(zeros, noisy), **counts}


def f1(doubted: np.ndarray, noisy: np.ndarray) -> float:
    """How well the doubted examples match those with a wrong label, which are the positive class."""
    return float(2 * np.sum(doubted & noisy) / (np.sum(doubted) + np.sum(noisy)))


@functools.lru_cache(maxsize=1)
def trainer(config: Config, learning_rate: float, seed: int) -> Trainer:
    """The trainer of one seed: units in a row share what it has compiled."""
    return Trainer(config, cleaning.load("embedded", seed), learning_rate, seed)


def _best(result: rf.Result) -> rf.Best:
    assert result.best is not None
    return result.best


def compare(unit: Unit, training: Trainer, directory: Path) -> list[Row]:
    """The rows of one seed; that of the weights learned online has their histogram."""
    data = training.data
    online = training.online(unit, ONLINE, directory)
    weights = online.hypers["weights"].numpy()
    held = {ONES: np.ones_like(weights), ORACLE: ~data.noisy, AGAIN: weights}
    results = {ONLINE: online} | {name: training.held(values, name, directory) for name, values in held.items()}
    rows = [{"method": method, "seed": unit.seed, **training.judge(result)} for method, result in results.items()]
    rows[0] |= detection(weights, data.noisy)
    rows[0]["weights"] = [np.histogram(weights[which], BINS)[0].tolist() for which in (~data.noisy, data.noisy)]
    tests = fits(lambda split: Trainer(unit.config, split, unit.learning_rate, unit.seed), data, weights, directory)
    return rows + [{"method": method, "seed": unit.seed, "test accuracy": test} for method, test in tests]


def fits(
    make: Callable[[mnist.NoisySplit], Trainer], data: mnist.NoisySplit, weights: np.ndarray, directory: Path
) -> Iterator[tuple[str, float]]:
    """Method and test accuracy of trainings on the validation digits too, which then cannot choose among states."""
    for method, kept in {INSTEAD: np.zeros_like(data.noisy), KEPT: weights >= DOUBTED, RIGHT: ~data.noisy}.items():
        both = zip(data.train, data.validation, strict=True)
        digits = mnist.Digits(*(np.concatenate([part[kept], clean]) for part, clean in both))
        fit = make(data._replace(train=digits))
        state = fit.held(np.ones(len(digits.labels)), method, directory).state
        yield method, accuracy(fit.problem.dynamics.params(state), data.test)
