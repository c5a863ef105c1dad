"""Real time that begins in graph mode and goes on under XLA: one training, whichever computes it."""

import numpy as np
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge import graph_first
from rfho2.keras_bridge.graph_first import GraphFirst


def engine(steps):
    loss = lambda w, hypers, batch: tf.reduce_sum(tf.cosh(w - 1.0))  # noqa: E731
    problem = rf.Problem(rf.momentum(loss, "lr", 0.5), loss, None)
    return GraphFirst(rf.real_time(problem, 2), steps)


def advance(engine, times):
    hypers, compiled, values = {"lr": tf.constant(0.1)}, [], []
    carry = engine.start(tf.zeros(3), hypers)
    for k in range(times):
        hypergradient, carry = engine.advance(carry, hypers, k)
        compiled.append(engine.jit_compiled)
        values.append(float(hypergradient.grads["lr"]))
        assert float(hypergradient.norms["sensitivity"]) > 0
    return compiled, values


def test_xla_takes_over_after_the_first_steps_and_the_training_goes_on(monkeypatch):
    monkeypatch.setattr(graph_first, "GRAPH_STEPS", 4)
    monkeypatch.setattr(graph_first, "WORTH_COMPILING", 4)
    compiled, values = advance(engine(steps=8), 4)
    assert compiled == [False, False, True, True]
    compiled, expected = advance(engine(steps=7), 4)
    assert compiled == [False] * 4
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_it_is_the_same_engine_for_a_checkpoint_however_many_steps_there_are():
    assert engine(steps=10).settings == engine(steps=10_000).settings
