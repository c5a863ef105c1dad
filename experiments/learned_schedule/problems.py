"""The two networks: a CNN on digits, and a hidden layer on CIFAR-10 features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import cifar_features, mnist
from experiments.averaged_seeds.problem import Examples, Seeds
from experiments.common.networks import Params
from rfho2.core.types import Hypers

DIGITS, CIFAR = "digits, CNN", "CIFAR features, MLP"
NAMES = (DIGITS, CIFAR)
TUNING, FRESH = 0, 1  # streams of seeds

Logits = Callable[[Params, tf.Tensor], tf.Tensor]


class Case(NamedTuple):
    """Data and a network.

    Attributes:
      logits: (params, x) -> class scores.
      shapes: of its matrices.
    """

    train: Examples
    validation: Examples
    test: Examples
    logits: Logits
    shapes: list[tuple[int, int]]

    def initial(self, seeds: Seeds) -> Callable[[tf.Tensor], Params]:
        """k -> weights for rectified units."""
        return seeds.matrices(self.shapes, gain=2.0)

    def loss(self, p: Params, hypers: Hypers, batch: Examples) -> tf.Tensor:
        """Mean cross-entropy."""
        x, y = batch
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, self.logits(p, x)))

    def problem(self, seeds: Seeds, steps: int, batch_size: int) -> rf.Problem:
        """`steps` steps with momentum 0.9; the hyper "schedule" has a learning rate for each."""
        dynamics = rf.momentum(self.loss, lambda hypers, t: hypers["schedule"][t], 0.9)
        batches = seeds.batches(self.train, batch_size, steps)
        return rf.Problem(dynamics, self.loss, steps, batches, rf.batches.full(self.validation))


def case(name: str, split: int, train: int, validation: int) -> Case:
    """The examples of a split; those that are left are for testing."""
    if name == DIGITS:
        digits = mnist.noisy_split(mnist.load(), split, train, validation)
        parts = [(digits.train.images, digits.true_labels), digits.validation, digits.test]
        # The patches of the first layer, computed once: a step takes less than half as long.
        seen = [(patches(tf.reshape(x, (-1, 28, 28, 1)), 5).numpy(), y) for x, y in parts]
        return _case(seen, cnn, [(25, 8), (72, 16), (400, 10)])
    features = cifar_features.load()
    order = np.random.default_rng(split).permutation(len(features.labels))
    cut = np.split(order, [train, train + validation])
    scale = features.features[cut[0]].std()
    pieces = [(features.features[rows] / scale, features.labels[rows]) for rows in cut]
    return _case(pieces, hidden_layer, [(features.features.shape[1], 64), (64, 10)])


def cnn(p: Params, x: tf.Tensor) -> tf.Tensor:
    """5 x 5 and 3 x 3 convolutions with stride 2, and a linear layer: 5,386 weights.

    Args:
      x: the 5 x 5 patches of digits, [n, 144, 25].
    """
    x = tf.nn.relu(x @ p["w0"] + p["b0"])
    x = tf.nn.relu(patches(tf.reshape(x, (-1, 12, 12, 8)), 3) @ p["w1"] + p["b1"])
    return tf.reshape(x, (-1, 400)) @ p["w2"] + p["b2"]


def patches(x: tf.Tensor, size: int, stride: int = 2) -> tf.Tensor:
    """The size x size patches of images [n, height, width, c], [n, places, size^2 c]: a convolution is then one product.

    Products can be vectorised over episodes, each with its own weights; convolutions cannot. All places of an image lie
    along one axis, because products of many small matrices are slow.
    """
    end = x.shape[1] - size + 1
    rows = [x[:, i : i + end : stride, j : j + end : stride] for i in range(size) for j in range(size)]
    joined = tf.concat(rows, axis=-1)
    return tf.reshape(joined, (-1, joined.shape[1] * joined.shape[2], joined.shape[3]))


def hidden_layer(p: Params, x: tf.Tensor) -> tf.Tensor:
    """A layer of rectified units, and a linear one."""
    return tf.nn.relu(x @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"]


def _case(parts: Sequence[tuple[np.ndarray, np.ndarray]], logits: Logits, shapes: list[tuple[int, int]]) -> Case:
    train, validation, test = ((tf.constant(x, tf.float32), tf.constant(y, tf.int32)) for x, y in parts)
    return Case(train, validation, test, logits, shapes)
