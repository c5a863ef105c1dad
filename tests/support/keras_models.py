"""Small Keras models of every kind, and data to train them on."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

import rfho2 as rf

SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def blobs(number=240, seed=0, noise=1.0):
    """(x, y): three clouds of points that a linear model can separate."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, number)
    centres = np.array([[2.0, 0.0, 0.0, 1.0], [0.0, 2.0, 0.0, -1.0], [0.0, 0.0, 2.0, 0.0]])
    return (centres[y] + noise * rng.normal(size=(number, 4))).astype("float32"), y.astype("int32")


TRAIN, VALID = blobs(), blobs(120, seed=1)


def network():
    """A network for the blobs, with the same initial weights at every call."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(8, "tanh", name="hidden"), keras.layers.Dense(3, name="last")]
    return keras.Sequential([keras.Input([4]), *layers], name="network")


def tuner(model=None, loss=SPARSE, hypers=("learning_rate",), **options):
    """A real-time tuner for the blobs, without XLA."""
    return rf.RealTimeTuner(model or network(), loss, hypers, **{"hyper_batch": 5, "jit_compile": False, **options})


def fit(tuner, *data, **options):
    """Fits a tuner to the blobs, by default for two epochs of four hyper-batches."""
    data = data or TRAIN
    return tuner.fit(*data, **{"validation_data": VALID, "epochs": 2, "batch_size": 12, "verbose": 0, **options})


def sequential(dtype="float32"):
    """Two dense layers, one of them with a regulariser."""
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input([4], dtype=dtype),
        keras.layers.Dense(5, "tanh", kernel_regularizer=keras.regularizers.L2(0.1), dtype=dtype),
        keras.layers.Dense(3, dtype=dtype),
    ]
    return keras.Sequential(layers)


def convolutional(dtype="float64"):
    """A convolution, batch norm, dropout and pooling."""
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
    """Layers in a list, dropout called without `training`, and a model inside the model."""

    def __init__(self, dtype="float64"):
        super().__init__(dtype=dtype)
        self.parts = [
            keras.layers.Dense(5, "tanh", kernel_regularizer="l2", dtype=dtype),
            keras.layers.Dropout(0.2, seed=1, dtype=dtype),
        ]
        self.inner = keras.Sequential([keras.layers.Dense(4, "tanh", dtype=dtype), keras.layers.Dense(3, dtype=dtype)])

    def call(self, x, training=None):
        for part in self.parts:
            x = part(x)
        return self.inner(x)


def subclassed(dtype="float64"):
    """A built instance of `Subclassed`."""
    keras.utils.set_random_seed(0)
    model = Subclassed(dtype)
    model(tf.zeros([1, 4], dtype))
    return model


def examples(shape=(4,), number=24, classes=3, dtype="float64", seed=0):
    """(x, y): random inputs with random labels."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(number, *shape)).astype(dtype), rng.integers(0, classes, number)


def consecutive(data, size):
    """Minibatches in the order of the data: index -> batch. Traces faster than `rf.batches.shuffled`."""
    tensors = [tf.constant(part) for part in data]
    number = len(tensors[0])
    return lambda t: tuple(tf.gather(part, (t * size + tf.range(size)) % number) for part in tensors)


def cross_entropy_problem(model, shape):
    """The wrapped model, and a problem with seeded minibatches; its hyper "decay" multiplies the model's own losses."""
    wrapped = rf.from_keras(model, check=False)
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits

    def loss(params, hypers, batch):
        (x, y), seed = batch
        out, losses = wrapped.apply(params, x, training=True, seed=seed, return_losses=True)
        return tf.reduce_mean(entropy(y, out)) + hypers["decay"] * losses

    def objective(params, hypers, batch):
        x, y = batch
        return tf.reduce_mean(entropy(y, wrapped.apply(params, x)))

    batches = rf.batches.seeded(consecutive(examples(shape), 2), 3)
    valid = rf.batches.full(examples(shape, seed=1))
    return wrapped, rf.Problem(rf.momentum(loss, 0.5, 0.5), objective, 6, batches, valid)
