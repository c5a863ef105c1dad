"""A weight for each of 5,000 training digits, half of them with a wrong label, learned in one training of a network.

Training takes minibatches of the loss mean_i lambda_i l_i. After every hyper-batch, `rf.real_time(mode="reverse")` gives the
derivative of the error on 5,000 clean validation digits with respect to all 5,000 weights, and projected Adam moves them in
[0, 1]. The other methods are the same training, from the same initial network and with the same minibatches, with weights
that are held.

The protocol, fixed before the run and carried out by `run`:

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist
from experiments.common import networks
from experiments.common.config import setting
from experiments.common.figures import slug
from experiments.common.plain_training import fixed, plain_training
from rfho2.core.types import Hypers, Nest

ONLINE, ONES, ORACLE = "learned online", "all 1", "oracle: 0 for wrong labels"
AGAIN = "those learned online, held"
INSTEAD = "all 1, on the validation digits"
KEPT, RIGHT = f"{INSTEAD} and those not doubted", f"{INSTEAD} and those with right labels"
DOUBTED = 0.5  # an example whose weight is below is taken to have a wrong label

Row = dict[str, Any]
History = list[dict[str, float]]
Load = Callable[[int], mnist.NoisySplit]


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


class Choice(NamedTuple):
    """The settings that calibration chooses."""

    learning_rate: float
    hyper_batch: int
    hyper_rate: float


class Outcome(NamedTuple):
    """Rows of the comparison; the validation errors of the calibration; histories by (method, seed); weights by seed."""

    choice: Choice
    calibration: list[Row]
    rows: list[Row]
    histories: dict[tuple[str, int], History]
    weights: dict[int, np.ndarray]


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

    def __init__(
        self,
        config: Config,
        data: mnist.NoisySplit,
        learning_rate: float,
        seed: int,
        output: Path | None = None,
        jit_compile: bool | None = None,
    ):
        self.config, self.data, self.output = config, data, output
        self.problem = training_problem(config, data, learning_rate, seed)
        self.params = networks.layers((784, config.hidden, mnist.CLASSES), np.random.default_rng(seed))
        self.epoch = len(data.train.labels) // config.batch_size
        self._plain = plain_training(self.problem, self.epoch, jit_compile)
        self._windows = functools.cache(lambda steps: rf.real_time(self.problem, steps, None, jit_compile, mode="reverse"))

    def held(self, weights: np.ndarray, name: str) -> rf.Result:
        """Training with these weights; its history has one row for each epoch."""
        return self._run(name, self._plain, fixed, weights, self.epoch, None)

    def online(self, hyper_batch: int, hyper_rate: float, name: str, detect: bool = True) -> rf.Result:
        """Training that moves the weights; `detect` adds to the history how well they detect the wrong labels."""
        engine = self._windows(hyper_batch)
        update = rf.projected_adam(hyper_rate, {"weights": rf.Box(0.0, 1.0)})
        weights = np.full(len(self.data.noisy), self.config.start, np.float32)
        return self._run(name, engine, update, weights, hyper_batch, self._detection if detect else None)

    def _run(
        self, name: str, engine: Any, update: rf.HyperUpdate, weights: np.ndarray, steps: int, metrics: Any
    ) -> rf.Result:
        tuner = rf.HyperOptimizer(engine, update, [rf.ProgressBar((), name)], metrics)
        hypers = {"weights": tf.cast(weights, tf.float32)}
        iterations = max(1, self.config.epochs * self.epoch // steps)
        directory = self.output and self.output / slug(name)
        return tuner.run(self.params, hypers, iterations, directory, checkpoint_every=iterations)

    def _detection(self, state: Nest, hypers: Hypers, k: int) -> Row:
        weights, noisy = hypers["weights"].numpy(), self.data.noisy
        means = {"mean weight, wrong": np.mean(weights[noisy]), "mean weight, right": np.mean(weights[~noisy])}
        return {name: float(mean) for name, mean in means.items()} | {"F1": f1(weights < DOUBTED, noisy)}

    def judge(self, result: rf.Result) -> Row:
        """Validation error and test accuracy of the last state, and of the one with the lowest validation error."""
        last, best = (self.problem.dynamics.params(state) for state in (result.state, _best(result).state))
        return {
            "validation error": result.history[-1]["value"],
            "best validation error": float(_best(result).value),
            "test accuracy": accuracy(last, self.data.test),
            "best test accuracy": accuracy(best, self.data.test),
            "seconds": result.history[-1]["seconds"],
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


def calibrate(
    config: Config, data: mnist.NoisySplit, output: Path | None, jit_compile: bool | None
) -> tuple[Choice, list[Row]]:
    """Steps 1 and 2 of the protocol: the settings chosen, and the validation error of each one tried.

    Where there is only one setting, nothing is tried.
    """
    rate, tried = config.learning_rates[0], []
    trainer = functools.cache(lambda rate: Trainer(config, data, rate, config.calibration_seed, output, jit_compile))
    if len(config.learning_rates) > 1:
        for r in config.learning_rates:
            best = _best(trainer(r).held(np.ones(len(data.noisy)), f"learning rate {r:g}"))
            tried.append({"learning rate": r, "validation error": float(best.value)})
        rate = _lowest(tried)["learning rate"]
    pairs = list(itertools.product(config.hyper_batches, config.hyper_rates))
    if len(pairs) == 1:
        return Choice(rate, *pairs[0]), tried
    online = []
    for steps, hyper_rate in pairs:
        result = trainer(rate).online(steps, hyper_rate, f"hyper-batch {steps}, hyper-rate {hyper_rate:g}", detect=False)
        value = result.history[-1]["value"]
        online.append({"hyper-batch": steps, "hyper-rate": hyper_rate, "validation error": value})
    chosen = _lowest(online)
    return Choice(rate, chosen["hyper-batch"], chosen["hyper-rate"]), tried + online


def _lowest(tried: list[Row]) -> Row:
    return min(tried, key=lambda row: row["validation error"])


def _best(result: rf.Result) -> rf.Best:
    assert result.best is not None
    return result.best


def run(config: Config, load: Load, output: Path | None = None, jit_compile: bool | None = None) -> Outcome:
    """Calibration, then every method on every seed; `load` maps a seed to its digits."""
    places = output and output / "runs"
    seed = config.calibration_seed
    choice, calibration = calibrate(config, load(seed), places and places / "calibration", jit_compile)
    outcome = Outcome(choice, calibration, [], {}, {})
    for seed in config.seeds:
        compare(config, load(seed), seed, outcome, places and places / f"seed-{seed}", jit_compile)
    return outcome


def compare(
    config: Config, data: mnist.NoisySplit, seed: int, outcome: Outcome, output: Path | None, jit_compile: bool | None
) -> None:
    """Adds the rows of one seed."""
    rate, hyper_batch, hyper_rate = outcome.choice

    def make(split: mnist.NoisySplit) -> Trainer:
        return Trainer(config, split, rate, seed, output, jit_compile)

    trainer = make(data)
    online = trainer.online(hyper_batch, hyper_rate, ONLINE)
    weights = online.hypers["weights"].numpy()
    held = {ONES: np.ones_like(weights), ORACLE: ~data.noisy, AGAIN: weights}
    results = {ONLINE: online} | {name: trainer.held(values, name) for name, values in held.items()}
    detected = {ONLINE: detection(weights, data.noisy)}
    for method, result in results.items():
        outcome.rows.append({"method": method, "seed": seed, **trainer.judge(result), **detected.get(method, {})})
        outcome.histories[method, seed] = result.history
    outcome.weights[seed] = weights
    outcome.rows.extend(
        {"method": method, "seed": seed, "test accuracy": test} for method, test in fits(make, data, weights)
    )


def fits(
    make: Callable[[mnist.NoisySplit], Trainer], data: mnist.NoisySplit, weights: np.ndarray
) -> Iterator[tuple[str, float]]:
    """Method and test accuracy of trainings on the validation digits too, which then cannot choose among states."""
    for method, kept in {INSTEAD: np.zeros_like(data.noisy), KEPT: weights >= DOUBTED, RIGHT: ~data.noisy}.items():
        both = zip(data.train, data.validation, strict=True)
        digits = mnist.Digits(*(np.concatenate([part[kept], clean]) for part, clean in both))
        fit = make(data._replace(train=digits))
        state = fit.held(np.ones(len(digits.labels)), method).state
        yield method, accuracy(fit.problem.dynamics.params(state), data.test)
