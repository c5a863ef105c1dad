"""Data hyper-cleaning: one weight per training example, tuned on clean examples, finds the wrong labels.

Half of 5,000 training digits carry a wrong label. Softmax regression is trained on all of them, with weight lambda_i in
[0, 1] for digit i. The weights minimise the error on 5,000 clean digits subject to sum lambda <= R, by Reverse-HG and
projected Adam. Digits whose weight ends at exactly 0 are discarded. A final model is fitted to the remaining digits and the
clean ones.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist
from experiments.common import meshes
from experiments.common.config import setting
from rfho2.core import loops
from rfho2.core.types import Hypers, Nest


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    radius: tuple[float, ...] = setting((1000.0,), "Bounds R on the sum of the weights, one run for each.", at_least=1e-6)
    seeds: tuple[int, ...] = setting((0,), "Seeds of the split and the corruption, one run for each.", at_least=0)
    steps: int = setting(50, "T: inner gradient-descent steps, from zero in every hyper-iteration.", at_least=1)
    inner_rate: float = setting(
        0.2, "The inner learning rate is inner_rate N / R, because the weights start at R / N.", at_least=0.0
    )
    hyper_rate: float = setting(0.02, "Learning rate of projected Adam.", at_least=0.0)
    hyper_iterations: int = setting(120, "Updates of the weights.", at_least=1)
    fit_steps: int = setting(600, "Gradient-descent steps from zero of all models whose accuracy is compared.", at_least=1)
    fit_rate: float = setting(0.5, "Learning rate of all models whose accuracy is compared.", at_least=0.0)
    source: str = setting("embedded", "Where the digits come from.", choices=("embedded", "tfds"))

    @property
    def settings(self) -> dict[str, Any]:
        """What a single run depends on, apart from R and the seed, which its directory is named after.

        `hyper_iterations` is not part of it, because a finished run can be extended.
        """
        omitted = ("radius", "seeds", "hyper_iterations")
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in omitted}


PRESETS = {"quick": Config(), "paper": Config(radius=(1000.0, 1500.0, 2000.0, 2500.0), seeds=(0, 1, 2))}

Row = dict[str, Any]
History = list[dict[str, float]]
Callbacks = Callable[[float, int, Path | None], Sequence[rf.Callback]]
"""(radius, seed, directory of the run) -> callbacks for the run."""


class Outcome(NamedTuple):
    """Rows of the results file; the history of each run by (radius, seed); the seconds that each run took."""

    results: list[Row]
    histories: dict[tuple[float, int], History]
    timing: dict[str, float]


def zeros() -> dict[str, tf.Tensor]:
    """The parameters that every training starts from."""
    return {"w": tf.zeros((784, mnist.CLASSES)), "b": tf.zeros(mnist.CLASSES)}


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The loss of each example."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def cleaning_problem(config: Config, data: mnist.NoisySplit, radius: float, l2: float = 0.0) -> rf.Problem:
    """min over lambda of E_val(w_T), where w_T comes from T steps on (1 / N) sum lambda_i l_i + l2 |w|^2."""
    parts = data.train, data.validation
    train, validation = (rf.fixed_product(meshes.divided(part.images)) for part in parts)
    train_labels, validation_labels = (meshes.divided(tf.constant(part.labels)) for part in parts)

    def loss(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        error = tf.reduce_mean(hypers["weights"] * cross_entropy(train(p["w"]) + p["b"], train_labels))
        return error + l2 * (tf.reduce_sum(p["w"] ** 2) + tf.reduce_sum(p["b"] ** 2)) if l2 else error

    def objective(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        return tf.reduce_mean(cross_entropy(validation(p["w"]) + p["b"], validation_labels))

    rate = config.inner_rate * len(data.train.labels) / radius
    return rf.Problem(rf.gradient_descent(loss, rate), objective, config.steps)


def detection(weights: np.ndarray, noisy: np.ndarray) -> dict[str, float]:
    """How well "the weight is exactly 0" detects the wrong labels; corrupted is the positive class."""
    discarded = weights == 0
    true, false = int(np.sum(discarded & noisy)), int(np.sum(discarded & ~noisy))
    f1 = 2 * true / (int(np.sum(noisy)) + true + false)
    return {"TP": true, "FP": false, "discarded": true + false, "F1": f1, "sum of weights": float(np.sum(weights))}


def clean(
    config: Config,
    data: mnist.NoisySplit,
    radius: float,
    callbacks: Sequence[rf.Callback],
    directory: Path | None,
    resume: bool,
) -> rf.Result:
    """One hyper-cleaning run: tunes the weights under one bound R."""
    problem = cleaning_problem(config, data, radius)
    test, validation = (tuple(map(tf.constant, part)) for part in (data.test, data.validation))

    @tf.function(autograph=False)
    def accuracies(p: Nest) -> list[tf.Tensor]:
        return [accuracy(p, *part) for part in (validation, test)]

    def metrics(state: Nest, hypers: Hypers, k: int) -> dict[str, Any]:
        weights = hypers["weights"].numpy()
        on_validation, on_test = map(float, accuracies(problem.dynamics.params(state)))
        return {
            "validation accuracy": on_validation,
            "test accuracy": on_test,
            "R": radius,
            **detection(weights, data.noisy),
            "weights/noisy": weights[data.noisy],
            "weights/clean": weights[~data.noisy],
        }

    optimizer = rf.projected_adam(config.hyper_rate, {"weights": rf.BoxL1Ball(radius)})
    tuner = rf.HyperOptimizer(meshes.on_mesh(rf.reverse(problem)), optimizer, callbacks, metrics)
    n = len(data.train.labels)
    start = {"weights": np.full(n, radius / n, np.float32)}
    return tuner.run(zeros(), start, config.hyper_iterations, directory and directory / "checkpoints", resume)


def accuracy(p: Nest, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The share of examples that a model classifies correctly."""
    return tf.reduce_mean(tf.cast(tf.argmax(images @ p["w"] + p["b"], 1, tf.int32) == labels, tf.float32))


def fitter(config: Config, data: mnist.NoisySplit) -> Callable[[np.ndarray], float]:
    """Returns a function from weights to test accuracy.

    It fits a model to the training digits with these weights and the validation digits with weight 1.
    """
    product = rf.fixed_product(np.concatenate([data.train.images, data.validation.images]))
    labels = tf.constant(np.concatenate([data.train.labels, data.validation.labels]))

    def loss(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        total = tf.reduce_sum(hypers["weights"] * cross_entropy(product(p["w"]) + p["b"], labels))
        return total / tf.reduce_sum(hypers["weights"])

    descent = rf.gradient_descent(loss, config.fit_rate)

    @tf.function(autograph=False, jit_compile=True)
    def fit(weights: tf.Tensor) -> Nest:
        return loops.fold(lambda p, t: descent.step(p, {"weights": weights}, None, t), zeros(), 0, config.fit_steps)

    def test_accuracy(weights: np.ndarray) -> float:
        all_weights = np.concatenate([weights, np.ones(len(data.validation.labels))]).astype(np.float32)
        return float(accuracy(fit(tf.constant(all_weights)), *map(tf.constant, data.test)))

    return test_accuracy


def run(
    config: Config,
    data: Callable[[int], mnist.NoisySplit],
    callbacks: Callbacks = lambda radius, seed, directory: (),
    output: Path | None = None,
    resume: bool = True,
) -> Outcome:
    """Runs all methods for all seeds; `data` maps a seed to its split."""
    outcome = Outcome([], {}, {})
    for seed in config.seeds:
        split = data(seed)
        fit = fitter(config, split)
        ones = np.ones(len(split.noisy))
        outcome.results.append(_row("oracle", seed, fit(~split.noisy * ones), f1=1.0))
        outcome.results.append(_row("baseline", seed, fit(ones)))
        for radius in config.radius:
            method = f"DH-{radius:g}"
            directory = output and output / "runs" / f"{method}-seed-{seed}"
            result = clean(config, split, radius, callbacks(radius, seed, directory), directory, resume)
            weights = result.hypers["weights"].numpy()
            detected = detection(weights, split.noisy)
            outcome.results.append(_row(method, seed, fit(weights > 0), fit(weights), detected.pop("F1")) | detected)
            outcome.histories[radius, seed] = [{n: v for n, v in r.items() if n != "seconds"} for r in result.history]
            outcome.timing[f"{method} seed {seed}"] = result.history[-1]["seconds"]
    return outcome


def _row(method: str, seed: int, accuracy: float, weighted: float | None = None, f1: float | None = None) -> Row:
    return {"method": method, "seed": seed, "accuracy": accuracy, "f1": f1, "accuracy_weighted": weighted}


@functools.cache
def load(source: str, seed: int) -> mnist.NoisySplit:
    """The digits of a source, split and corrupted with a seed."""
    return mnist.noisy_split(mnist.load(source, seed), seed)
