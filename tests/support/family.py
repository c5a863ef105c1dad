"""Trainings that have a solution, with numbers computed independently: NumPy in float64, derivatives written by hand.

`GOLDEN` holds the numbers; each was checked against differences of the problem solved again with other hypers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf

GOLDEN = {
    case: {name: np.array(value) for name, value in numbers.items()}
    for case, numbers in json.loads(Path(__file__).with_name("golden_family.json").read_text()).items()
}


class Solvable(NamedTuple):
    """A loss, an objective, and where params and hypers start."""

    loss: Callable[..., tf.Tensor]
    objective: Callable[..., tf.Tensor]
    params: Any
    hypers: dict[str, Any]


def regression_data(seed: int, n: int, m: int, d: int) -> tuple[np.ndarray, ...]:
    """Training inputs and outputs, validation inputs and outputs of a noisy linear model."""
    r = np.random.RandomState(seed)
    x, w, xv = r.randn(n, d), r.randn(d), r.randn(m, d)
    return x, x @ w + 0.5 * r.randn(n), xv, xv @ w + 0.5 * r.randn(m)


def ridge(dtype: tf.DType = tf.float64, scale: float = 1.0) -> Solvable:
    """Ridge regression with one log-strength per weight; `scale` multiplies the objective."""
    x, y, xv, yv = (tf.constant(a, dtype) for a in regression_data(10, 12, 8, 5))

    def loss(w, hypers, batch):
        return tf.reduce_mean((tf.linalg.matvec(x, w) - y) ** 2) + tf.reduce_sum(tf.exp(hypers["rho"]) * w**2)

    def objective(w, hypers, batch):
        return scale * tf.reduce_mean((tf.linalg.matvec(xv, w) - yv) ** 2)

    return Solvable(loss, objective, tf.zeros(5, dtype), {"rho": np.linspace(-3, 1, 5)})


def logistic() -> Solvable:
    """Logistic regression with one L2 strength, as sums over the examples."""
    r = np.random.RandomState(30)
    x, w, xv = r.randn(20, 4), r.randn(4), r.randn(15, 4)
    y = np.sign(x @ w + 0.8 * r.randn(20))
    yv = np.sign(xv @ w + 0.8 * r.randn(15))

    def error(w, x, y):
        return tf.reduce_sum(tf.math.softplus(-y * tf.linalg.matvec(x, w)))

    def loss(w, hypers, batch):
        return error(w, x, y) + tf.exp(hypers["alpha"]) / 2 * tf.reduce_sum(w**2)

    return Solvable(loss, lambda w, hypers, batch: error(w, xv, yv), tf.zeros(4, tf.float64), {"alpha": -0.5})


def cleaning() -> Solvable:
    """Softmax regression with a weight per example and an L2 term."""
    r = np.random.RandomState(60)
    x, xv, y, yv = r.randn(10, 4), r.randn(6, 4), r.randint(0, 3, 10), r.randint(0, 3, 6)

    def errors(w, x, y):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.constant(y), tf.matmul(x, w))

    def loss(w, hypers, batch):
        return tf.reduce_sum(hypers["weights"] * errors(w, x, y)) / 10 + 0.1 * tf.reduce_sum(w**2)

    def objective(w, hypers, batch):
        return tf.reduce_mean(errors(w, xv, yv))

    return Solvable(loss, objective, tf.zeros((4, 3), tf.float64), {"weights": np.linspace(0.1, 1, 10)})


def equilibrium() -> tuple[rf.Dynamics, Solvable]:
    """z <- tanh(M z + U x + b): a map whose Jacobian is not symmetric, and no loss behind it."""
    r = np.random.RandomState(40)
    matrix = r.randn(4, 4)
    matrix = 0.95 * matrix / np.linalg.norm(matrix, 2)
    u, x = 0.2 * r.randn(4, 3), r.randn(3)
    b, y = 0.1 * r.randn(4), r.randn(4)

    def step(z, hypers, batch, t):
        return tf.tanh(tf.linalg.matvec(hypers["M"], z) + u @ x + hypers["b"])

    def objective(z, hypers, batch):
        return 0.5 * tf.reduce_sum((z - y) ** 2) + 0.05 * tf.reduce_sum(hypers["b"] ** 2)

    dynamics = rf.Dynamics(lambda z, hypers: z, step, lambda z: z)
    return dynamics, Solvable(lambda *_: None, objective, tf.zeros(4, tf.float64), {"M": matrix, "b": b})


def lasso() -> tuple[rf.Dynamics, Solvable]:
    """L1-regularised regression by iterated soft thresholding, with one log-strength per weight."""
    x, y, xv, yv = regression_data(80, 14, 9, 6)

    def step(w, hypers, batch, t):
        q = w - 0.2 * tf.linalg.matvec(x, tf.linalg.matvec(x, w) - y, transpose_a=True) / 14
        return tf.sign(q) * tf.maximum(tf.abs(q) - 0.2 * tf.exp(hypers["a"]), 0)

    def objective(w, hypers, batch):
        return tf.reduce_mean((tf.linalg.matvec(xv, w) - yv) ** 2)

    hypers = {"a": np.array([-3, -0.5, -2, -0.3, -1, -2.5])}
    dynamics = rf.Dynamics(lambda w, hypers: w, step, lambda w: w)
    return dynamics, Solvable(lambda *_: None, objective, tf.zeros(6, tf.float64), hypers)
