"""Vector arithmetic on nests."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from rfho2.core import nest


class Pair(NamedTuple):
    first: tf.Tensor
    second: tf.Tensor


def test_dots_are_the_products_of_every_column_with_the_vector():
    columns = {"a": np.arange(12.0).reshape(3, 2, 2), "b": np.arange(3.0)[:, None] + 1}
    vector = {"a": np.full((2, 2), 2.0), "b": np.array([10.0])}
    expected = [np.sum(columns["a"][j] * vector["a"]) + columns["b"][j, 0] * 10 for j in range(3)]
    constant = lambda tree: tf.nest.map_structure(tf.constant, tree)  # noqa: E731
    np.testing.assert_allclose(nest.dots(constant(columns), constant(vector)), expected)


def test_sparse_gradients_become_tensors():
    sparse = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([2, 0]), dense_shape=tf.constant([3, 1]))
    dense = nest.dense({"table": sparse, "bias": tf.constant(5.0)})
    np.testing.assert_array_equal(dense["table"], [[2.0], [0.0], [1.0]])
    assert dense["bias"] == 5.0


def test_signatures_name_the_leaves_of_every_kind_of_nest():
    tree = {"b": [tf.zeros(2), tf.zeros([])], "a": Pair(tf.zeros([1, 2], tf.float64), ())}
    assert nest.signature(tree) == [("a/first", (1, 2), "float64"), ("b/0", (2,), "float32"), ("b/1", (), "float32")]
    assert nest.signature(tf.zeros(3)) == [(".", (3,), "float32")]


def test_a_prefix_is_copied_to_the_leaves_below_it():
    tree = {"body": Pair(1, 2), "head": [3, (4, 5)]}
    assert nest.broadcast_prefix({"body": "x", "head": ["y", "z"]}, tree) == {
        "body": Pair("x", "x"),
        "head": ["y", ("z", "z")],
    }
    with pytest.raises(ValueError, match="zip"):
        nest.broadcast_prefix({"body": "x", "head": ["y"]}, tree)


def test_a_function_of_identical_leaves_is_evaluated_once():
    calls, shared = [], tf.constant(1.0)
    result = nest.map_once(lambda x: calls.append(1) or x + 1, {"a": shared, "b": [shared, tf.constant(2.0)]})
    assert [float(leaf) for leaf in nest.flatten(result)] == [2.0, 2.0, 3.0]
    assert len(calls) == 2
