"""Small Keras models of every kind, and data for them."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

import rfho2 as rf


def sequential(dtype="float32", activation="tanh"):
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input([4], dtype=dtype),
        keras.layers.Dense(5, activation, kernel_regularizer=keras.regularizers.L2(0.1), dtype=dtype),
        keras.layers.Dense(3, dtype=dtype),
    ]
    return keras.Sequential(layers)


def convolutional(dtype="float64"):
    """Batch norm, dropout, pooling."""
    keras.utils.set_random_seed(0)
    make = keras.layers
    layers = [
        keras.Input([6, 6, 1], dtype=dtype),
        make.Conv2D(3, 3, kernel_regularizer=keras.regularizers.L2(0.01), dtype=dtype),
        make.BatchNormalization(dtype=dtype),
        make.Activation("softplus", dtype=dtype),
        make.AveragePooling2D(2, dtype=dtype),
        make.Flatten(dtype=dtype),
        make.Dropout(0.3, dtype=dtype),
        make.Dense(3, dtype=dtype),
    ]
    return keras.Sequential(layers)


def two_headed(dtype="float64"):
    """A functional model with two inputs and two outputs."""
    keras.utils.set_random_seed(0)
    left, right = (keras.Input([4], dtype=dtype, name=name) for name in ("left", "right"))
    both = keras.layers.Concatenate(dtype=dtype)([left, right])
    hidden = keras.layers.Dense(5, "tanh", dtype=dtype)(both)
    outs = [keras.layers.Dense(n, dtype=dtype, name=f"head{n}")(hidden) for n in (3, 1)]
    return keras.Model([left, right], outs)


class Subclassed(keras.Model):
    """Layers in a list, dropout without an explicit `training`, a layer inside a layer."""

    def __init__(self, dtype="float64"):
        super().__init__(dtype=dtype)
        self.parts = [
            keras.layers.Dense(5, "tanh", kernel_regularizer="l2", dtype=dtype),
            keras.layers.Dropout(0.2, seed=1, dtype=dtype),
        ]
        self.inner = keras.Sequential([keras.layers.Dense(4, "tanh", dtype=dtype), keras.layers.Dense(3, dtype=dtype)])

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return self.inner(x)


def subclassed(dtype="float64"):
    keras.utils.set_random_seed(0)
    model = Subclassed(dtype)
    model(tf.zeros([1, 4], dtype))
    return model


def examples(shape=(4,), number=24, classes=3, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(number, *shape)).astype(dtype), rng.integers(0, classes, number)


def cross_entropy_problem(model, shape, steps=4, size=12, **options):
    """Minibatches with seeds, sparse cross-entropy with the model's own losses."""
    wrapped = rf.from_keras(model, **options)
    train, valid = examples(shape), examples(shape, seed=1)
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits

    def loss(params, hypers, batch):
        (x, y), seed = batch
        out, losses = wrapped.apply(params, x, training=True, seed=seed, return_losses=True)
        return tf.reduce_mean(entropy(y, out)) + hypers["decay"] * losses

    def objective(params, hypers, batch):
        x, y = batch
        return tf.reduce_mean(entropy(y, wrapped.apply(params, x)))

    batches = rf.batches.seeded(rf.batches.shuffled(train, size, 0), 3)
    problem = rf.Problem(rf.momentum(loss, "lr", "mu"), objective, steps, batches, rf.batches.full(valid))
    return wrapped, problem
