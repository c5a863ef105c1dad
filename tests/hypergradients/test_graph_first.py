"""Real time that begins in graph mode and goes on under XLA: one training, whichever computes it."""

import math

import numpy as np
import tensorflow as tf

import rfho2 as rf


def advance(until, times):
    loss = lambda w, hypers, batch: tf.reduce_sum(tf.cosh(w - 1.0))  # noqa: E731
    engine = rf.real_time(rf.Problem(rf.momentum(loss, "lr", 0.5), loss, None), 2)
    engine.graph_until = until
    hypers, compiled, values = {"lr": tf.constant(0.1)}, [], []
    carry = engine.start(tf.zeros(3), hypers)
    for k in range(times):
        hypergradient, carry = engine.advance(carry, hypers, k)
        compiled.append(engine.jit_compiled)
        values.append(float(hypergradient.grads["lr"]))
    return compiled, values


def test_xla_takes_over_after_the_first_steps_and_the_training_goes_on():
    compiled, values = advance(4, 4)
    assert compiled == [False, False, True, True]
    compiled, expected = advance(math.inf, 4)
    assert compiled == [False] * 4
    np.testing.assert_allclose(values, expected, rtol=1e-5)
