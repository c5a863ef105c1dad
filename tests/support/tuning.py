"""A toy problem with one engine per method, compiled once, and ways to drive and watch it."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf

TARGET = tf.constant([1.0, -2.0, 0.5])
PARAMS = tf.zeros(3)
HYPERS = {"lr": 0.1, "weights": [1.0, 1.0, 1.0]}
METHODS = ["reverse", pytest.param("forward", marks=pytest.mark.slow), "real_time"]  # to the driver, forward is like reverse
LONGEST = 12  # learning rates that a run can visit


def loss(w, hypers, batch):
    """Weighted squared distance from the target."""
    return 0.5 * tf.reduce_sum(hypers["weights"] * (w - tf.cast(TARGET, w.dtype)) ** 2)


def objective(w, hypers, shift):
    """Squared distance from the shifted target."""
    return 0.5 * tf.reduce_sum((w - tf.cast(TARGET, w.dtype) - tf.cast(shift, w.dtype)) ** 2)


def shift(k):
    """A validation batch that differs from one hyper-iteration to the next."""
    return 0.01 * tf.cast(k % 2, tf.float32)


@functools.cache
def engine(method="reverse"):
    """Compiled once for all tests, which is possible because engines are pure."""
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), objective, steps=4, validation=shift)
    if method == "real_time":
        return rf.real_time(problem, hyper_batch=2, jit_compile=False)
    return {"reverse": rf.reverse, "forward": rf.forward}[method](problem, jit_compile=False)


@functools.cache
def adam(rate=0.05):
    """An optimiser for the hypers."""
    return rf.projected_adam(rate, {"lr": rf.Box(0.0, 1.0), "weights": rf.NonNegative()})


def _visit(grads, state, hypers):
    visited, rates = state
    return {**hypers, "lr": rates[visited + 1]}, (visited + 1, rates)


def visiting(rates):
    """An "optimiser" that takes the learning rate through given values, at most LONGEST, whatever the hypergradient."""
    whole = tf.constant([*rates, *[0.1] * (LONGEST + 1 - len(rates))])  # of one shape, so that programs are shared
    return rf.HyperUpdate(lambda hypers: (tf.constant(0), whole), _visit)


def run(
    optimizer, iterations, method="reverse", hypers=None, checkpoint_dir=None, resume=True, checkpoint_every=1, **kwargs
):
    """A run of `engine(method)`."""
    tuner = rf.HyperOptimizer(engine(method), optimizer, **kwargs)
    return tuner.run(PARAMS, hypers or HYPERS, iterations, checkpoint_dir, resume, checkpoint_every)


def visit(rates, **kwargs):
    """A run through given learning rates."""
    return run(visiting(rates), len(rates), hypers={**HYPERS, "lr": rates[0]}, **kwargs)


def same_bits(a, b):
    """Whether two nests agree bit by bit."""
    tf.nest.assert_same_structure(a, b)
    pairs = zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True)
    return all(np.asarray(x).dtype == np.asarray(y).dtype and np.array_equal(x, y) for x, y in pairs)


class Recorder:
    """Records everything that a run tells its callbacks."""

    def __init__(self):
        self.events, self.reports = [], []

    def on_start(self, run):
        self.events.append("start")
        self.run = run

    def on_hyper_iteration(self, k, hypers, hypergradient, extra):
        self.events.append(k)
        self.reports.append((hypers, hypergradient, extra))

    def on_end(self, result):
        self.events.append("end")
        self.result = result
