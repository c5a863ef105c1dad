"""Short runs with callbacks, and callbacks called by hand."""

import functools

import numpy as np
import tensorflow as tf

import rfho2 as rf

HYPERS = {"lr": 0.1, "weights": [1.0, 1.0, 1.0], "mixing": [[1.0, 0.0], [0.25, 0.5]]}
TARGET = tf.constant([1.0, -2.0, 0.5])
START = rf.Run(0, 3, {"lr": tf.constant(0.1)}, {"engine": {"method": "reverse"}, "optimizer": {}})


def loss(w, hypers, batch):
    mixed = tf.linalg.matvec(hypers["mixing"], w[:2])
    return tf.reduce_sum(hypers["weights"] * (w - TARGET) ** 2) + tf.reduce_sum(mixed**2)


def objective(w, hypers, batch):
    return tf.reduce_sum((w - TARGET) ** 2)


@functools.cache
def engine():
    """Two steps with a scalar, a vector and a matrix as hypers."""
    return rf.reverse(rf.Problem(rf.gradient_descent(loss, "lr"), objective, steps=2), jit_compile=False)


@functools.cache
def optimizer():
    return rf.projected_adam(0.02, {"lr": rf.Box(0.0, 0.5)})


def run(callbacks, iterations=3, directory=None, metrics=None, **settings):
    """A real run with these callbacks."""
    driver = rf.HyperOptimizer(engine(), optimizer(), callbacks, metrics)
    return driver.run(tf.zeros(3), HYPERS, iterations, directory, **settings)


def metrics(state, hypers, k):
    """A scalar, a vector, a matrix and a string."""
    return {"accuracy": 0.5 + k, "errors": np.array([1.0, 2.0, 4.0]), "confusion": np.eye(3), "phase": "training"}


class Interrupt:
    """Interrupts a run at hyper-iteration `at`, after the callbacks that precede it."""

    def __init__(self, at):
        self.at = at

    def on_hyper_iteration(self, k, *_):
        if k == self.at:
            raise KeyboardInterrupt


def hypergradient(value=1.0, **grads):
    """A made-up hypergradient."""
    value = value if isinstance(value, dict) else tf.constant(value)
    return rf.HyperGradient(value, {name: tf.constant(grad) for name, grad in grads.items()}, tf.zeros(2))


def two_objectives(train, test):
    """A made-up hypergradient of two objectives."""
    return hypergradient({"train": tf.constant(train), "test": tf.constant(test)}, lr=0.5)


def play(callback, hypers=None, reported=None, iterations=1):
    """Calls a callback as a whole run would, without an engine."""
    hypers = {name: tf.constant(value) for name, value in (hypers or {"lr": 0.1}).items()}
    callback.on_start(START)
    for k in range(iterations):
        callback.on_hyper_iteration(k, hypers, reported or hypergradient(lr=0.5), {})
    callback.on_end(rf.Result(hypers, tf.zeros(2), [{}] * iterations, rf.Best(hypers, tf.zeros(2), 1.0, 0)))
