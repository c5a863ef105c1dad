"""Stand-ins for the error rate: what they are near, and the temperature that minimises the cross-entropy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from experiments.keras_tasks.stand_ins import STAND_INS, calibrated, for_loss, log_temperature

RNG = np.random.default_rng(0)
LABELS = tf.constant(RNG.integers(3, size=[200, 1]))
LOGITS = tf.constant(RNG.normal(size=[200, 3]) + 1.5 * np.eye(3)[LABELS[:, 0]])
WRONG = np.argmax(LOGITS, 1) != LABELS[:, 0]


@pytest.mark.parametrize("name", ["error", "margin"])
def test_for_confident_answers_it_is_the_error(name):
    np.testing.assert_allclose(STAND_INS[name](LABELS, 1e6 * LOGITS), WRONG, atol=1e-6)


@pytest.mark.parametrize("name", STAND_INS)
def test_two_classes_may_have_a_single_logit(name):
    labels, difference = tf.cast(LABELS > 0, tf.float64), LOGITS[:, 1:2] - LOGITS[:, 0:1]
    single = for_loss(STAND_INS[name], keras.losses.BinaryCrossentropy(from_logits=True))
    np.testing.assert_allclose(single(labels, difference), STAND_INS[name](labels, LOGITS[:, :2]), rtol=1e-6)


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.0])
def test_the_temperature_is_the_best_one_and_too_much_confidence_does_not_count(scale):
    cross_entropy = lambda log_c: tf.reduce_mean(  # noqa: E731
        tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS[:, 0], scale * LOGITS * tf.exp(-log_c))
    )
    best = log_temperature(LABELS, scale * LOGITS)
    assert float(cross_entropy(best)) < min(float(cross_entropy(best + d)) for d in (-0.01, 0.01))
    np.testing.assert_allclose(calibrated(LABELS, scale * LOGITS), calibrated(LABELS, LOGITS), rtol=1e-5)


@pytest.mark.parametrize("name", STAND_INS)
def test_derivatives_agree_with_differences(name):
    mean = lambda z: tf.reduce_mean(STAND_INS[name](LABELS, z))  # noqa: E731
    direction = tf.constant(RNG.normal(size=[200, 3]))
    with tf.GradientTape() as tape:
        tape.watch(LOGITS)
        value = mean(LOGITS)
    derivative = float(tf.reduce_sum(tape.gradient(value, LOGITS) * direction))
    difference = float(mean(LOGITS + 1e-5 * direction) - mean(LOGITS - 1e-5 * direction)) / 2e-5
    assert derivative == pytest.approx(difference, rel=1e-6)
