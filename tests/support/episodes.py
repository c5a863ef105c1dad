"""An episodic problem: batches, validation and initial params differ in each hyper-iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import rfho2 as rf

HYPERS = {"lr": 0.2, "mu": 0.6, "l2": 0.03}
STEPS = 5


def start(k: tf.Tensor) -> dict[str, tf.Tensor]:
    """Initial params of episode k."""
    k = tf.cast(k, tf.float64)
    return {"w": 0.4 * tf.cos(k + tf.range(3, dtype=tf.float64)), "b": 0.1 * k}


def problem(objective: Any = None, steps: int | None = STEPS, dynamics: Any = rf.momentum) -> rf.Problem:
    """Regression in float64; each episode has targets of its own and visits the examples in its own order."""
    rng = np.random.default_rng(5)
    x, noise = tf.constant(rng.normal(size=(20, 3))), tf.constant(rng.normal(size=20))

    def examples(first: tf.Tensor, k: tf.Tensor, number: int) -> tuple[tf.Tensor, tf.Tensor]:
        rows = (first + tf.range(number)) % 20
        shift = tf.sin(tf.cast(k, tf.float64))
        return tf.gather(x, rows), tf.gather(noise, rows) + shift

    def train(t: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return examples(3 * t + 5 * k, k, 4)

    def validation(k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return examples(7 * k, k, 6)

    return rf.Problem(dynamics(loss, "lr", "mu"), objective or error, steps, train, validation)


def error(params: Any, hypers: Any, batch: Any) -> tf.Tensor:
    """Mean of log cosh of the residuals."""
    x, y = batch
    return tf.reduce_mean(tf.math.log(tf.cosh(tf.linalg.matvec(x, params["w"]) + params["b"] - y)))


def loss(params: Any, hypers: Any, batch: Any) -> tf.Tensor:
    """The error with a penalty."""
    return error(params, hypers, batch) + hypers["l2"] * tf.reduce_sum(params["w"] ** 2)


def hypers() -> dict[str, tf.Tensor]:
    """The hypers as float64 tensors."""
    return {name: tf.constant(value, tf.float64) for name, value in HYPERS.items()}


def response(case: rf.Problem, params: Any, at: dict[str, tf.Tensor], k: int) -> tf.Tensor:
    """E(s_T) of episode k, by a plain Python loop."""
    state = case.dynamics.init(params, at)
    for t in range(case.steps):
        state = case.dynamics.step(state, at, case.batches(tf.constant(t), tf.constant(k)), tf.constant(t))
    return case.objective(case.dynamics.params(state), at, case.validation(tf.constant(k)))
