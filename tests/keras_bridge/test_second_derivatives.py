"""The check of second derivatives: sound models pass in spite of their kinks, wrong derivatives never do."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.wrapping import patches

L = keras.layers
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))]


def cnn(size, seed, *extra):
    """Three convolutions with ReLU and max-pooling."""
    keras.utils.set_random_seed(seed)
    layers = [keras.Input([size, size, 3])]
    for filters in (8, 16, 16):
        layers += [L.Conv2D(filters, 3, activation="relu", padding="same"), L.MaxPooling2D(2)]
    return keras.Sequential([*layers, *extra, L.Flatten(), L.Dense(10)])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "size", [pytest.param(32, marks=pytest.mark.slow), 64, *(pytest.param(s, marks=pytest.mark.slow) for s in (96, 128))]
)
def test_kinks_are_no_reason_to_refuse_a_model(size, seed):
    x = np.random.default_rng(seed).normal(size=(8, size, size, 3)).astype("float32")
    rf.from_keras(cnn(size, seed), x)


def stopped(x):
    return x * tf.stop_gradient(tf.tanh(x))


def resized(x):
    """To a size that is not known in advance; to known ones, resizing is sound (`test_cases.py`)."""
    return tf.ensure_shape(tf.image.resize(x, tf.shape(x)[1:3] + 2), [None, 6, 6, 16])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_wrong_second_derivatives_are_caught(seed, monkeypatch):
    x = np.random.default_rng(seed).normal(size=(8, 32, 32, 3)).astype("float32")
    with pytest.raises(ValueError, match=r"wrong by .*StopGradient in '.*lambda"):
        rf.from_keras(cnn(32, seed, L.Lambda(stopped)), x)
    with pytest.raises(ValueError, match=r"ResizeBilinear in '.*lambda.*' has wrong second derivatives"):
        rf.from_keras(cnn(32, seed, L.Lambda(resized)), x)
    monkeypatch.setattr(patches, "moments", tf.nn.moments)
    with pytest.raises(ValueError, match=r"wrong by .*StopGradient in '.*batch_normalization"):
        rf.from_keras(cnn(32, seed, L.BatchNormalization()), x)


def test_resizing_the_inputs_is_sound():
    model = keras.Sequential([keras.Input([8, 8, 3]), L.Resizing(5, 5), L.Conv2D(2, 2), L.Flatten(), L.Dense(1)])
    rf.from_keras(model)


def test_the_check_can_be_left_out():
    model = keras.Sequential([keras.Input([4]), L.Dense(3), L.Lambda(stopped), L.Dense(1)])
    rf.from_keras(model, check=False)


def test_float32_inside_is_a_reason_to_warn(monkeypatch):
    """Rounded in between, differences say nothing; but no op is wrong."""
    single = L.Lambda(lambda x: tf.cast(tf.cast(x, tf.float32), x.dtype))
    model = keras.Sequential([keras.Input([4]), L.Dense(3, "tanh"), single, L.Dense(1)])
    with pytest.warns(UserWarning, match=r"could not be checked, because Cast in '.*lambda.*' computes in float32"):
        rf.from_keras(model)
