"""Central differences: how exact they are, and how they are compared with hypergradients."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from rfho2.hypergradients import differences


def test_a_difference_is_taken_where_neither_curvature_nor_rounding_matters():
    steep = differences.difference(lambda hypers: np.exp(50 * hypers["h"]), {"h": np.float64(1.0)}, {"h": np.float64(1.0)})
    assert steep == pytest.approx(50 * np.exp(50.0), rel=1e-9)  # at the second-largest step, curvature costs 2e-7


def test_errors_are_relative_to_the_largest_derivative():
    problem = SimpleNamespace(terms=lambda hypers: [SimpleNamespace(name="", hypers=["h"])])
    grads = [{"h": np.float64(200.0)}, {"h": np.float64(201.0)}]
    hypers = {"h": tf.constant(1.0, tf.float64)}
    (row,) = differences.compare(
        problem, lambda h: {"": 200 * float(h["h"])}, hypers, grads, np.random.default_rng(0)
    ).values()
    assert row.error == pytest.approx(1 / 201)
    assert row.numbers == pytest.approx([200, 201, 200])
