"""The optimisers without a rate take the steps of their authors' packages."""

import json

import numpy as np
import pytest
import tensorflow as tf

from experiments.long_training.rate_free import RATE_FREE
from tests.experiments.long_training.golden import STORED, problem


@pytest.mark.parametrize("name", RATE_FREE)
def test_ten_steps_are_those_of_the_authors(name):
    initial, matrices, vectors = problem()

    def loss(w, hypers, batch):
        a, b = batch
        return tf.reduce_mean(tf.math.log(tf.cosh(tf.linalg.matvec(a, tf.concat(w, 0)) - b)))

    dynamics = RATE_FREE[name](loss)
    state = dynamics.init([tf.constant(p) for p in initial], {})
    for t, expected in enumerate(json.loads(STORED.read_text())[name]):
        state = dynamics.step(state, {}, (tf.constant(matrices[t]), tf.constant(vectors[t])), tf.constant(t))
        ours, theirs = (np.subtract(w, np.concatenate(initial)) for w in (tf.concat(dynamics.params(state), 0), expected))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6 * np.abs(theirs).max())
