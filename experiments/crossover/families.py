"""Four families of problems with any number of hypers: sources, penalties, a schedule, and rates for fine-tuning.

Each has a variant on digits and one on CIFAR-10 features: one for the table, the other to choose settings on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import cifar_features, mnist
from experiments.common.networks import Params, layers, tanh_logits
from rfho2.core.types import Batches, Hypers

DIGITS, CIFAR = "digits", "CIFAR features"
CLASSES = 10
HYPER = "h"
MOMENTUM = 0.9
Examples = tuple[np.ndarray, np.ndarray]


class Range(NamedTuple):
    """What a hyper may be.

    Attributes:
      low, high: the interval.
      log: whether searches and updates are on a logarithmic scale.
      untuned: the value to begin with.
      step: the grid of the searches, on which 0 and 1 lie: where the best value is an end of the interval, a search over all
        numbers would never try it.
    """

    low: float
    high: float
    log: bool
    untuned: float
    step: float | None = None


class Task(NamedTuple):
    """A problem with n hypers, and the data to judge it by.

    Attributes:
      problem: trains with the vector hypers["h"] of length n; its objective is the mean cross-entropy of validation.
      params: where each training starts.
      range: of each hyper.
      throughout: whether a hyper acts in the same way all through the training, so that a part of it tells what the whole
        would: a weight or a penalty, but not a learning rate.
    """

    problem: rf.Problem
    params: Params
    range: Range
    test: tuple[tf.Tensor, tf.Tensor]
    throughout: bool


class Parts(NamedTuple):
    """The examples, divided at random."""

    train: Examples
    validation: Examples
    test: Examples


class Sizes(NamedTuple):
    """Numbers that depend on the data; with those of the table, a training takes about half a second in one thread."""

    train: int
    validation: int
    hidden: int
    batch: int
    steps: int
    rate: float


def parts(data: str, seed: int, train: int, validation: int) -> Parts:
    """Training, validation and test examples; all that are left are for testing."""
    if data == DIGITS:
        digits = mnist.load()
        x, y = digits.images, digits.labels
    else:
        features = cifar_features.load()
        x, y = features.features / features.features.std(), features.labels
    order = np.random.default_rng([seed, 0]).permutation(len(y))
    cut = np.split(order, [train, train + validation])
    return Parts(*((x[rows].astype(np.float32), y[rows].astype(np.int32)) for rows in cut))


def cross_entropy(p: Params, hypers: Hypers, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """The mean over the examples of a batch: the objective of every family."""
    x, y = batch
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, tanh_logits(p, x)))


def wrong_labels(y: np.ndarray, share: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
    """The labels, each replaced by another class with a probability of `share`."""
    other = (y + rng.integers(1, CLASSES, len(y))) % CLASSES
    return np.where(rng.random(len(y)) < share, other, y).astype(np.int32)


def source_weights(data: str, n: int, seed: int) -> Task:
    """A weight in [0, 1] for each of n sources of training data.

    In every second source, beginning with the first, 80 % of the labels are wrong. Five per cent of the training examples
    are from a source that is known to be right, and has weight 1.
    """
    sizes = {DIGITS: Sizes(5_000, 5_000, 64, 250, 500, 0.1), CIFAR: Sizes(2_500, 2_000, 64, 250, 400, 0.1)}[data]
    split = parts(data, seed, sizes.train, sizes.validation)
    rng = np.random.default_rng([seed, 1])
    trusted = sizes.train // 20
    source = np.concatenate([np.full(trusted, n), rng.permutation(np.arange(sizes.train - trusted) % n)]).astype(np.int32)
    share = np.where((source < n) & (source % 2 == 0), 0.8, 0.0)
    x, y = split.train
    train = (x, wrong_labels(y, share, rng), source)

    def loss(p: Params, hypers: Hypers, batch: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tf.Tensor:
        x, y, s = batch
        weights = tf.gather(tf.concat([hypers[HYPER], [1.0]], 0), s)
        return tf.reduce_mean(weights * tf.nn.sparse_softmax_cross_entropy_with_logits(y, tanh_logits(p, x)))

    dynamics = rf.momentum(loss, sizes.rate, MOMENTUM)
    batches = rf.batches.shuffled(train, sizes.batch, seed)
    return _task(split, dynamics, Range(0.0, 1.0, False, 1.0, step=0.25), sizes, seed, batches, throughout=True)


def group_penalties(data: str, n: int, seed: int) -> Task:
    """A penalty on the squared weights for each of n groups of 1,000 features, most of which say nothing.

    The features that are left beside the data's own are those of other examples, drawn at random. A group consists of
    neighbours. The model is linear.
    """
    sizes = {CIFAR: Sizes(1_000, 3_000, 0, 1_000, 200, 0.05), DIGITS: Sizes(1_000, 5_000, 0, 1_000, 200, 0.05)}[data]
    split = parts(data, seed, sizes.train, sizes.validation)
    rng = np.random.default_rng([seed, 1])
    width, features = 1_000, split.train[0].shape[1]
    chosen = rng.integers(0, features, width - features)

    def widened(examples: Examples) -> Examples:
        x, y = examples
        shuffled = np.stack([x[rng.permutation(len(x)), column] for column in chosen], 1)
        return np.concatenate([x, shuffled], 1), y

    split = Parts(*map(widened, split))
    group = tf.constant(np.arange(width) * n // width, tf.int32)

    def loss(p: Params, hypers: Hypers, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        penalties = tf.gather(hypers[HYPER], group)
        return cross_entropy(p, hypers, batch) + tf.reduce_sum(penalties[:, None] * tf.square(p["w0"]))

    dynamics = rf.momentum(loss, sizes.rate, MOMENTUM)
    return _task(split, dynamics, Range(1e-5, 1.0, True, 1e-3), sizes, seed, rf.batches.full(split.train), throughout=True)


def schedule(data: str, n: int, seed: int) -> Task:
    """A learning rate for each of n pieces of the training, in which 20 % of the labels are wrong."""
    sizes = {DIGITS: Sizes(5_000, 5_000, 64, 100, 1_000, 0.01), CIFAR: Sizes(2_500, 2_000, 64, 50, 1_000, 0.01)}[data]
    split = parts(data, seed, sizes.train, sizes.validation)
    x, y = split.train
    train = (x, wrong_labels(y, 0.2, np.random.default_rng([seed, 1])))

    def rate(hypers: Hypers, t: tf.Tensor) -> tf.Tensor:
        return tf.gather(hypers[HYPER], tf.minimum(t * n // sizes.steps, n - 1))

    dynamics = rf.momentum(cross_entropy, rate, MOMENTUM)
    batches = rf.batches.shuffled(train, sizes.batch, seed)
    return _task(split, dynamics, Range(1e-4, 1.0, True, sizes.rate), sizes, seed, batches)


def fine_tuning_rates(data: str, n: int, seed: int) -> Task:
    """A learning rate for each of n groups of weights of a network that is fine-tuned on 200 examples of another kind.

    The network was trained on other examples as they are; the 200, and those for validation and testing, are negatives. The
    outgoing weights of a unit belong to one group, and so do those of neighbouring units; biases belong to the last group.
    """
    sizes = {DIGITS: Sizes(200, 5_000, 256, 200, 150, 0.01), CIFAR: Sizes(200, 2_500, 744, 200, 100, 0.01)}[data]
    before = {DIGITS: 5_000, CIFAR: 1_800}[data]
    split = parts(data, seed, before + sizes.train, sizes.validation)
    x, y = split.train
    inputs = x.shape[1]
    pretrained = _pretrained((x[:before], y[:before]), [inputs, sizes.hidden, CLASSES], seed)
    negative = Parts((x[before:], y[before:]), split.validation, split.test)
    split = Parts(*(({DIGITS: 1.0, CIFAR: 0.0}[data] - x, y) for x, y in negative))
    units = inputs + sizes.hidden
    group = np.arange(units) * n // units

    def rates(hypers: Hypers) -> Params:
        rate = hypers[HYPER]
        each = tf.gather(rate, group)[:, None]
        return {"w0": each[:inputs], "w1": each[inputs:], "b0": rate[-1], "b1": rate[-1]}

    dynamics = rf.momentum(cross_entropy, lambda hypers, t: rates(hypers), MOMENTUM)
    task = _task(split, dynamics, Range(1e-4, 1.0, True, sizes.rate), sizes, seed, rf.batches.full(split.train))
    return task._replace(params=pretrained)


Make = Callable[[str, int, int], Task]
FAMILIES: Mapping[str, Make] = {
    "source weights": source_weights,
    "group penalties": group_penalties,
    "schedule": schedule,
    "fine-tuning rates": fine_tuning_rates,
}
JUDGED = {"source weights": DIGITS, "group penalties": CIFAR, "schedule": DIGITS, "fine-tuning rates": DIGITS}
"""The data of the table; settings were chosen on the other data."""


def _pretrained(train: Examples, sizes: list[int], seed: int) -> Params:
    """A network trained for 300 steps."""
    dynamics = rf.momentum(cross_entropy, 0.05, MOMENTUM)
    problem = rf.Problem(dynamics, cross_entropy, 300, rf.batches.shuffled(train, 250, seed))
    initial = layers(sizes, np.random.default_rng([seed, 3]))
    return dynamics.params(tf.function(lambda p: problem.train(p, {}), autograph=False, jit_compile=True)(initial))


def _task(
    split: Parts,
    dynamics: rf.Dynamics,
    hypers: Range,
    sizes: Sizes,
    seed: int,
    batches: Batches,
    throughout: bool = False,
) -> Task:
    shape = [split.train[0].shape[1], *([sizes.hidden] if sizes.hidden else []), CLASSES]
    problem = rf.Problem(dynamics, cross_entropy, sizes.steps, batches, rf.batches.full(split.validation))
    params = layers(shape, np.random.default_rng([seed, 2]))
    return Task(problem, params, hypers, tuple(map(tf.constant, split.test)), throughout)
