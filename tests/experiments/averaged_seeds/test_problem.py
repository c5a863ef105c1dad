"""Episodes that differ in initial weights and in the order of the digits."""

import numpy as np
import pytest
import tensorflow as tf

from data import mnist
from experiments.averaged_seeds import problem
from experiments.averaged_seeds.problem import Seeds

DATA = tf.range(12), tf.range(12)


def order(seeds, k, steps=6):
    """The examples that episode k sees in each of its steps."""
    batches = seeds.batches(DATA, batch_size=4, steps=steps)
    return np.stack([batches(tf.constant(t), tf.constant(k))[0] for t in range(steps)])


def test_each_episode_visits_all_examples_in_an_order_of_its_own():
    orders = [order(Seeds(5), k) for k in range(3)]
    for each in orders:
        assert sorted(each[:3].ravel()) == sorted(each[3:].ravel()) == list(range(12))
    assert len({each.tobytes() for each in orders}) == 3


def test_an_episode_of_incomplete_epochs_does_not_run_into_the_next_one():
    first, second = (order(Seeds(5), k, steps=4) for k in (0, 1))
    assert sorted(second[:3].ravel()) == list(range(12))
    assert not np.array_equal(first[3], second[0])


def test_episodes_return_after_a_period():
    fixed = Seeds(5, period=2)
    np.testing.assert_array_equal(order(fixed, 0), order(fixed, 4))
    assert not np.array_equal(order(fixed, 0), order(fixed, 1))
    weights = fixed.weights((3, 2))
    np.testing.assert_array_equal(weights(tf.constant(1))["w0"], weights(tf.constant(3))["w0"])
    assert not np.array_equal(weights(tf.constant(0))["w0"], Seeds(6).weights((3, 2))(tf.constant(0))["w0"])


def test_weights_keep_the_variance_of_a_layers_input():
    weights = Seeds(0).weights((50, 40, 30))(tf.constant(0))
    shapes = {name: tuple(w.shape) for name, w in weights.items()}
    assert shapes == {"w0": (50, 40), "w1": (40, 30), "b0": (40,), "b1": (30,)}
    for name, inputs in (("w0", 50), ("w1", 40)):
        assert np.var(weights[name]) == pytest.approx(1 / inputs, rel=0.1)
        assert np.mean(weights[name]) == pytest.approx(0, abs=0.02)
    assert not np.array_equal(np.ravel(weights["w0"])[:1200], np.ravel(weights["w1"])), "one draw for each layer"


def test_a_learning_rate_for_each_step():
    rates = tf.constant([0.1, 0.2, 0.3])
    assert float(problem.learning_rate({"learning rate": rates}, tf.constant(1))) == pytest.approx(0.2)
    assert float(problem.learning_rate({"learning rate": rates[2]}, tf.constant(1))) == pytest.approx(0.3)


def test_digits_have_their_true_labels():
    data = problem.digits(train=50, validation=20, test=30, seed=1)
    assert [len(labels) for _, labels in data] == [50, 20, 30]
    embedded = mnist.load()
    label = {image.tobytes(): int(y) for image, y in zip(embedded.images, embedded.labels, strict=True)}
    for images, labels in data:
        assert [label[image.tobytes()] for image in images.numpy()] == labels.numpy().tolist()


def test_halved_digits_have_means_of_four_pixels():
    images = np.arange(2 * 784, dtype=np.float32).reshape(2, 28, 28)
    part = tf.constant(images.reshape(2, 784)), tf.constant([1, 2])
    smaller = problem.halved(problem.Data(part, part, part)).test[0].numpy().reshape(2, 14, 14)
    assert smaller[1, 3, 5] == pytest.approx(images[1, 6:8, 10:12].mean())
