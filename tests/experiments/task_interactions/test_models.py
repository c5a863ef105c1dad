"""The models of the task-interaction experiment: the regulariser, and its hypergradients."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from data.cifar_features import Part
from experiments.task_interactions import models


def direct(w, c, rho):
    pairs = sum(c[j, k] * np.sum((w[:, j] - w[:, k]) ** 2) for j in range(w.shape[1]) for k in range(w.shape[1]))
    return pairs + np.sum(rho * np.sum(w**2, axis=0))


def test_the_regulariser_is_the_papers():
    rng = np.random.default_rng(0)
    w, c, rho = rng.normal(size=(7, 4)), rng.uniform(size=(4, 4)), rng.uniform(size=4)
    tensors = {"C": tf.constant(c), "rho": tf.constant(rho)}
    np.testing.assert_allclose(models.regulariser(tf.constant(w), tensors), direct(w, c, rho), rtol=1e-12)
    equal = {"a": tf.constant(0.3, tf.float64), "rho": tf.constant(0.2, tf.float64)}
    np.testing.assert_allclose(models.regulariser(tf.constant(w), equal), direct(w, np.full((4, 4), 0.3), 0.2), rtol=1e-12)


def test_the_regulariser_never_holds_all_differences():
    """100 tasks with 256 weights each: no tensor of its graph is larger than K^2 + K d."""
    spec = tf.TensorSpec([256, 100]), {"C": tf.TensorSpec([100, 100]), "rho": tf.TensorSpec([])}
    graph = tf.function(models.regulariser).get_concrete_function(*spec).graph
    largest = max(out.shape.num_elements() for op in graph.get_operations() for out in op.outputs)
    assert largest <= 100 * 256


@pytest.mark.parametrize(
    "methods",
    [("NMTL", "HMTL", "STL"), ("STL-1",)],
    ids=" ".join,
)
@pytest.mark.slow
def test_the_hypergradients_are_correct(methods):
    """The hypers of several methods at once: their terms of the regulariser add up. Those of HMTL-S are those of HMTL."""
    rng = np.random.default_rng(1)
    parts = [Part(rng.normal(size=(12, 5)), rng.permutation(np.arange(12) % 3)) for _ in range(2)]
    problem = models.problem(models.Training(4, 0.1, 0.9), *parts, ())
    shapes = {name: v.shape for method in methods for name, v in models.method(method, 3, 1e-3, 1.0).hypers.items()}
    hypers = {name: np.abs(rng.normal(size=shape)) * 0.01 for name, shape in shapes.items()}
    params = {"w": tf.constant(rng.normal(size=(5, 3))), "b": tf.constant(rng.normal(size=3))}
    check = rf.check_hypergradient(problem, params, hypers)
    assert check.ok, check


def test_the_methods_tune_what_the_paper_says():
    shapes = {
        "STL": {"rho": (3,)},
        "STL-1": {"rho": ()},
        "NMTL": {"rho": (), "a": ()},
        "HMTL": {"rho": (), "C": (3, 3)},
        "HMTL-S": {"rho": (), "C": (3, 3)},
    }
    for name in models.METHODS:
        method = models.method(name, 3, 1e-3, 1e-3)
        assert {hyper: value.shape for hyper, value in method.hypers.items()} == shapes[name], name
        assert all(np.all(value == 0) for value in method.hypers.values()), name
        assert set(method.constraints) == set(method.rates) == set(method.hypers), name
    with pytest.raises(ValueError, match="'MTL'; choose one of STL"):
        models.method("MTL", 10, 1e-3, 1e-3)
