"""Real time that begins in graph mode and goes on under XLA: one training, whichever computes it."""

import math

import numpy as np
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.tuners import modes


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


def test_a_short_training_stays_in_graph_mode(monkeypatch):
    monkeypatch.setattr(modes, "GRAPH_STEPS", 4)
    monkeypatch.setattr(modes, "WORTH_COMPILING", 4)
    assert [modes.graph_steps(steps) for steps in (7, 8)] == [math.inf, 4]


def test_it_is_the_same_engine_for_a_checkpoint_however_many_steps_there_are():
    loss = lambda w, hypers, batch: hypers["lr"] * w**2  # noqa: E731
    first, second = (rf.real_time(rf.Problem(rf.gradient_descent(loss, "lr"), loss, None), 2) for _ in range(2))
    first.graph_until, second.graph_until = 4, math.inf
    assert first.settings == second.settings
