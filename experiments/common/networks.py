"""The fully connected networks of several experiments: initial weights, and tanh layers with a linear output."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

Params = dict[str, tf.Tensor]


def normal_weights(rng: np.random.Generator, inputs: int, outputs: int) -> tf.Tensor:
    """[inputs, outputs] normal numbers of variance 1 / inputs, which keep the variance of a layer's input."""
    return tf.constant(rng.normal(size=(inputs, outputs), scale=inputs**-0.5), tf.float32)


def layers(sizes: Sequence[int], rng: np.random.Generator) -> Params:
    """Weights "w0", "w1", ..., drawn in this order, and zero biases "b0", "b1", ... for layers of these sizes."""
    shapes = list(enumerate(itertools.pairwise(sizes)))
    weights = {f"w{i}": normal_weights(rng, m, n) for i, (m, n) in shapes}
    return weights | {f"b{i}": tf.zeros(n) for i, (_, n) in shapes}


def tanh_logits(params: Params, x: tf.Tensor) -> tf.Tensor:
    """The output of a network whose hidden layers are tanh(x W + b) and whose last layer is linear."""
    last = len(params) // 2 - 1
    for i in range(last):
        x = tf.tanh(x @ params[f"w{i}"] + params[f"b{i}"])
    return x @ params[f"w{last}"] + params[f"b{last}"]
