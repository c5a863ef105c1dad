"""Smooth stand-ins for the error rate, as objectives of the hypers: losses of logits that need only a first derivative."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

StandIn = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(labels, logits) -> one number per example."""

NEWTON_STEPS = 10
MOST = 3.0  # of the absolute value of the temperature's logarithm


def for_loss(stand_in: StandIn, loss: keras.losses.Loss) -> StandIn:
    """The stand-in for a classifier with this loss of logits: a single logit z of two classes becomes (0, z)."""
    if not isinstance(loss, keras.losses.BinaryCrossentropy):
        return stand_in
    return lambda labels, z: stand_in(labels, tf.concat([tf.zeros_like(z), z], -1))


def expected_error(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """1 - p_y: the error of a classifier that draws its answers from the probabilities p."""
    return 1 - tf.exp(-_cross_entropy(labels, logits))


def smooth_margin(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """sigmoid(max_{k != y} z_k - z_y): about 0 for an answer that is right by a margin, and about 1 for a wrong one."""
    of_label = tf.one_hot(_numbers(labels), logits.shape[-1], dtype=logits.dtype)
    others = tf.reduce_max(logits - 1e9 * of_label, -1)
    return tf.sigmoid(others - tf.reduce_sum(of_label * logits, -1))


def calibrated(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """The cross-entropy of z / c, with the temperature c that minimises its mean: too much confidence does not count.

    Because of that minimum, the derivative with respect to the logits is that for a constant c.
    """
    return _cross_entropy(labels, logits * tf.stop_gradient(tf.exp(-log_temperature(labels, logits))))


def log_temperature(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """The logarithm of the best temperature, by Newton's method for its inverse b, in which the cross-entropy is convex.

    The mean cross-entropy has the derivative mean(E z - z_y) and the second derivative mean(Var z), under softmax(b z).
    Steps are at most a factor of e.
    """
    of_label = tf.reduce_sum(tf.one_hot(_numbers(labels), logits.shape[-1], dtype=logits.dtype) * logits, -1)
    log_b = tf.zeros([], logits.dtype)
    for _ in range(NEWTON_STEPS):
        b = tf.exp(log_b)
        p = tf.nn.softmax(b * logits)
        mean = tf.reduce_sum(p * logits, -1)
        slope = tf.reduce_mean(mean - of_label)
        curvature = tf.reduce_mean(tf.reduce_sum(p * tf.square(logits - mean[:, None]), -1))
        step = tf.math.divide_no_nan(slope, curvature * b)  # of log b: a step of b, divided by b
        log_b = tf.clip_by_value(log_b - tf.clip_by_value(step, -1.0, 1.0), -MOST, MOST)
    return -log_b


def _numbers(labels: tf.Tensor) -> tf.Tensor:
    """Labels of shape (N,) or (N, 1) as integers."""
    return tf.cast(tf.reshape(labels, [-1]), tf.int32)


def _cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(_numbers(labels), logits)


STAND_INS: dict[str, StandIn] = {"error": expected_error, "margin": smooth_margin, "calibrated": calibrated}
