"""The network that several benchmarks train: 784-200-200-10 with tanh, batches of 100, momentum, three hypers.

The hypers are learning rate, momentum factor and L2 weight. The data are random: costs do not depend on what is learnt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.common import networks
from rfho2.core.types import Hypers, Nest

SIZES = (784, 200, 200, 10)
LAYERS = len(SIZES) - 1
HYPERS = {"lr": 0.01, "mu": 0.9, "l2": 1e-4}
EXAMPLES, BATCH_SIZE = 5000, 100
VALIDATION = slice(BATCH_SIZE)  # examples


def initial_params() -> networks.Params:
    """199,210 numbers."""
    return networks.layers(SIZES, np.random.default_rng(0))


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Images, [5000, 784], and labels, [5000]."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(EXAMPLES, SIZES[0])).astype(np.float32), rng.integers(0, SIZES[-1], EXAMPLES)


def error(p: Nest, hypers: Hypers, batch: Any) -> tf.Tensor:
    """Mean cross-entropy of the network."""
    x, y = batch
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, networks.tanh_logits(p, x)))


def loss(p: Nest, hypers: Hypers, batch: Any) -> tf.Tensor:
    """The error plus the L2 penalty of the weights."""
    squares = [tf.reduce_sum(tf.square(p[f"w{i}"])) for i in range(LAYERS)]
    return error(p, hypers, batch) + hypers["l2"] * tf.add_n(squares)


def problem(steps: int, rows: np.ndarray | None = None) -> rf.Problem:
    """`steps` steps of momentum; the first hundred examples are the validation set too.

    Args:
      rows: the examples of each step, [steps, 100]; None draws the same ones, step by step.
    """
    data = tuple(map(tf.constant, examples()))
    validation = rf.batches.full(tuple(part[VALIDATION] for part in data))
    batches = rf.batches.shuffled(data, BATCH_SIZE, 0) if rows is None else _batches_of(data, tf.constant(rows))
    return rf.Problem(rf.momentum(loss, "lr", "mu"), error, steps, batches, validation)


def _batches_of(data: Nest, rows: tf.Tensor) -> Callable[[tf.Tensor], Nest]:
    return lambda t: tf.nest.map_structure(lambda part: tf.gather(part, tf.gather(rows, t)), data)
