"""The training alone, on batches of a stream that were read beforehand, is that of the engines."""

from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf


def problem(streamed):
    """Gradient descent on sum cosh(w - b), where b = 0, 1, 2, ... in turn."""
    loss = lambda w, hypers, batch: tf.reduce_sum(tf.cosh(w - 0.1 * batch))  # noqa: E731
    batches = rf.batches.stream(tf.data.Dataset.range(100).map(lambda i: tf.cast(i, tf.float64)))
    indexed = lambda t: tf.cast(t, tf.float64)  # noqa: E731
    validation = lambda k: tf.zeros([], tf.float64)  # noqa: E731
    return rf.Problem(rf.momentum(loss, "lr", 0.5), loss, None, batches if streamed else indexed, validation)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("settings", [{}, {"mode": "reverse"}, {"discount": 0.0}], ids=["forward", "reverse", "one step"])
def test_params_after_some_windows(settings, streamed):
    params, hypers = tf.constant([1.0, -2.0], tf.float64), {"lr": tf.constant(0.1, tf.float64)}
    engine = rf.real_time(problem(streamed), Fraction(5, 2), jit_compile=False, **settings)
    carry = engine.start(params, hypers)
    for k in range(3):
        _, carry = engine.advance(carry, hypers, k)
    again, steps = problem(streamed), int(carry.t)
    state = again.reading(again.batches.take(steps) if streamed else (), 0).train(params, hypers, steps)
    np.testing.assert_allclose(state.params, carry.state.params, rtol=1e-14)
