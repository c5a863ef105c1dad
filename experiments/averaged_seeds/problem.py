"""A small network on few digits, whose training depends on a random seed: an episode is an initialisation and an order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist
from experiments.common import networks
from rfho2.core.types import Hypers, Nest

HALVED = 14 * 14  # pixels

Examples = tuple[tf.Tensor, tf.Tensor]


class Seeds(NamedTuple):
    """Episodes 0, 1, ...: pairs of initial weights and an order of the training digits.

    Attributes:
      stream: episodes of different streams are independent.
      period: the number of episodes after which they repeat; None never repeats one.
    """

    stream: int
    period: int | None = None

    def episode(self, k: tf.Tensor) -> tf.Tensor:
        """The number of the episode of hyper-iteration k."""
        return k if self.period is None else k % self.period

    def weights(self, sizes: Sequence[int]) -> Callable[[tf.Tensor], networks.Params]:
        """k -> uniform weights of variance 1 / inputs, and zero biases, for layers of these sizes."""
        return self.matrices(list(itertools.pairwise(sizes)))

    def matrices(self, shapes: Sequence[tuple[int, int]], gain: float = 1.0) -> Callable[[tf.Tensor], networks.Params]:
        """k -> uniform weights of these shapes, of variance gain / inputs, and zero biases."""

        def initial(k: tf.Tensor) -> networks.Params:
            key = tf.stack([tf.constant(self.stream), self.episode(k)])
            draws = tf.split(rf.batches.uniform(key, (sum(m * n for m, n in shapes),)), [m * n for m, n in shapes])
            weights = {
                f"w{i}": (12 * gain / m) ** 0.5 * (tf.reshape(draws[i], (m, n)) - 0.5) for i, (m, n) in enumerate(shapes)
            }
            return weights | {f"b{i}": tf.zeros(n) for i, (_, n) in enumerate(shapes)}

        return initial

    def batches(self, data: Examples, batch_size: int, steps: int) -> Callable[[tf.Tensor, tf.Tensor], Examples]:
        """(t, k) -> training batch: each episode has its own permutations."""
        shuffled = rf.batches.shuffled(data, batch_size, self.stream)
        per_epoch = len(data[1]) // batch_size
        stride = -(-steps // per_epoch) * per_epoch  # whole epochs
        return lambda t, k: shuffled(self.episode(k) * stride + t)


def error(p: networks.Params, hypers: Hypers, batch: Examples) -> tf.Tensor:
    """Mean cross-entropy."""
    x, y = batch
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, networks.tanh_logits(p, x)))


def loss(p: networks.Params, hypers: Hypers, batch: Examples) -> tf.Tensor:
    """The error plus the squared weights of each layer, times its L2 weight."""
    penalties = [hypers[f"l2 {i}"] * tf.reduce_sum(tf.square(p[f"w{i}"])) for i in range(len(p) // 2)]
    return error(p, hypers, batch) + tf.add_n(penalties)


def learning_rate(hypers: Hypers, t: tf.Tensor) -> tf.Tensor:
    """The learning rate of step t: the hyper itself, or its entry t if it is a schedule."""
    rate = hypers["learning rate"]
    return rate if rate.shape.rank == 0 else rate[t]


class Data(NamedTuple):
    """Digits with their true labels."""

    train: Examples
    validation: Examples
    test: Examples


def digits(train: int, validation: int, test: int, seed: int) -> Data:
    """Different digits for each seed."""
    split = mnist.noisy_split(mnist.load(), seed, train, validation)
    parts: list[Any] = [(split.train.images, split.true_labels), split.validation, [part[:test] for part in split.test]]
    return Data(*((tf.constant(images), tf.constant(np.asarray(labels))) for images, labels in parts))


def halved(data: Data) -> Data:
    """The digits with 14 x 14 pixels, each the mean of four."""

    def smaller(images: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.reduce_mean(tf.reshape(images, (-1, 14, 2, 14, 2)), (2, 4)), (-1, HALVED))

    return Data(*((smaller(images), labels) for images, labels in data))


def problem(data: Data, seeds: Seeds, batch_size: int, steps: int) -> rf.Problem:
    """`steps` steps of momentum on the training digits; the objective is the error on the validation digits."""
    dynamics = rf.momentum(loss, learning_rate, momentum="momentum")
    batches = seeds.batches(data.train, batch_size, steps)
    return rf.Problem(dynamics, error, steps, batches, rf.batches.full(data.validation))


def errors(
    data: Data, seeds: Seeds, batch_size: int, steps: int, sizes: Sequence[int], count: int
) -> Callable[[Nest], np.ndarray]:
    """Returns a function from hypers to validation error, test error and test accuracy of each episode, [count, 3]."""
    case, initial = problem(data, seeds, batch_size, steps), seeds.weights(sizes)

    @tf.function(autograph=False)
    def measured(hypers: Hypers) -> tf.Tensor:
        def one(k: tf.Tensor) -> tf.Tensor:
            p = case.dynamics.params(case.train(initial(k), hypers, k=k))
            images, labels = data.test
            hits = tf.argmax(networks.tanh_logits(p, images), 1, labels.dtype) == labels
            accuracy = tf.reduce_mean(tf.cast(hits, tf.float32))
            return tf.stack([error(p, hypers, data.validation), error(p, hypers, data.test), accuracy])

        return tf.map_fn(one, tf.range(count), fn_output_signature=tf.float32)

    return lambda hypers: measured({name: tf.convert_to_tensor(value, tf.float32) for name, value in hypers.items()}).numpy()
