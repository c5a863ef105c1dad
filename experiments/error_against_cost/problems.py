"""The problems: training losses that have one minimum, and the hypergradient there in float64.

Params are one matrix w, and the training loss is that of a linear model:

    cleaning   J = 1/n sum_i h_i error_i(w) + l2 |w|^2             one weight h_i per example
    logistic   J = 1/n sum_i error_i(w) + 1/2 sum_j exp(h_j) w_j^2   one log-strength h_j per feature

The objective E is the mean error on other examples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist
from rfho2.core import linear
from rfho2.core.types import Hypers

MOMENTUM = 0.9
L2 = 1e-3  # so that there is a solution: otherwise weights grow for ever on separable examples
NEWTON_STEPS = 50
EXACT = 1e-13  # relative linear residual of the reference


class Case(NamedTuple):
    """The data and settings of a problem, as NumPy arrays in float64, so that every framework can build it.

    Attributes:
      name: of the problem.
      train, validation: inputs [n, d] and targets [n]: classes from 0 to 9, or -1 and 1.
      classes: the columns of w: 10, or 1 for logistic regression.
      hypers: the weights or log-strengths at which the hypergradient is computed.
      rate: the learning rate of the training, which has momentum.
    """

    name: str
    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    classes: int
    hypers: np.ndarray
    rate: float

    @property
    def per_example(self) -> bool:
        """Whether the hypers are weights of examples."""
        return self.classes > 1

    @property
    def shape(self) -> tuple[int, int]:
        """That of w."""
        return self.train[0].shape[1], self.classes


class Reference(NamedTuple):
    """The solution w of the training in float64, the hypergradient there, and the largest eigenvalue of the Hessian."""

    w: np.ndarray
    gradient: np.ndarray
    curvature: float

    def error(self, gradient: np.ndarray) -> float:
        """The relative error of a hypergradient."""
        return float(np.linalg.norm(gradient - self.gradient) / np.linalg.norm(self.gradient))


def cleaning(digits: int, seed: int) -> Case:
    """Noisy digits with random weights; a constant input stands for the biases."""
    split = mnist.noisy_split(mnist.load(), seed, digits, digits)
    parts = [(np.hstack([part.images, np.ones((digits, 1))]), part.labels) for part in (split.train, split.validation)]
    weights = np.random.default_rng(seed).uniform(0, 1, digits)
    return Case("cleaning", parts[0], parts[1], mnist.CLASSES, weights, rate=1.0)


def logistic(examples: int, features: int, seed: int) -> Case:
    """The data of hypertorch's notebook: half of the examples to train on, labels of a noisy linear model.

    The notebook starts with strengths of 1, which leave little to learn; ours are between e^-6 and e^-2.
    """
    rng = np.random.default_rng(seed)
    oracle, x = rng.normal(size=features), rng.normal(size=(examples, features))
    y = np.where(x @ oracle + 0.1 * rng.normal(size=examples) > 0, 1.0, -1.0)
    half = examples // 2
    strengths = np.linspace(-6, -2, features)
    return Case(f"logistic {features}", (x[:half], y[:half]), (x[half:], y[half:]), 1, strengths, rate=1.0)


class Functions(NamedTuple):
    """Loss and objective of a case in TensorFlow, as functions of (w, hypers, batch)."""

    loss: Callable[..., tf.Tensor]
    objective: Callable[..., tf.Tensor]


def functions(case: Case, dtype: tf.DType) -> Functions:
    """Loss and objective, which keep the inputs and their transposes."""
    (train, targets), (validation, validation_targets) = (
        (rf.fixed_product(tf.constant(x, dtype)), tf.constant(y, tf.int32 if case.per_example else dtype))
        for x, y in (case.train, case.validation)
    )

    def errors(logits: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        if case.per_example:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        return tf.math.softplus(-y * logits[:, 0])

    def loss(w: tf.Tensor, hypers: Hypers, batch: None) -> tf.Tensor:
        each = errors(train(w), targets)
        if case.per_example:
            return tf.reduce_mean(hypers["h"] * each) + L2 * tf.reduce_sum(w**2)
        return tf.reduce_mean(each) + 0.5 * tf.reduce_sum(tf.exp(hypers["h"]) * w[:, 0] ** 2)

    def objective(w: tf.Tensor, hypers: Hypers, batch: None) -> tf.Tensor:
        return tf.reduce_mean(errors(validation(w), validation_targets))

    return Functions(loss, objective)


def problem(case: Case, made: Functions, steps: int) -> rf.Problem:
    """T steps with momentum on the whole training set."""
    return rf.Problem(rf.momentum(made.loss, case.rate, MOMENTUM), made.objective, steps)


def start(case: Case, dtype: tf.DType = tf.float32) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """w = 0, and the hypers."""
    return tf.zeros(case.shape, dtype), {"h": tf.constant(case.hypers, dtype)}


def reference(case: Case, jit_compile: bool = True) -> Reference:
    """Trains to the end by Newton's method, and solves the linear system to rounding, in float64."""
    made = functions(case, tf.float64)
    w, hypers = start(case, tf.float64)
    descent = rf.gradient_descent(made.loss, 0.0)  # a rate of 0 leaves the params unchanged
    newton = tf.function(functools.partial(_newton_step, made, hypers), autograph=False, jit_compile=jit_compile)
    for _ in range(NEWTON_STEPS):
        w, residual, curvature = newton(w)
        if float(residual) < EXACT:
            break
    else:
        raise RuntimeError(f"{case.name}: |grad J| is {float(residual):.1e} after {NEWTON_STEPS} Newton steps.")
    stay = rf.Problem(descent, made.objective, 1)
    engine = rf.implicit(stay, iterations=1000, tolerance=EXACT, jit_compile=jit_compile)
    gradient = engine(w, hypers).grads["h"].numpy()
    return Reference(w.numpy(), gradient, float(curvature))


def _newton_step(made: Functions, hypers: Hypers, w: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """w - H^-1 grad J by CG; |grad J| and the largest eigenvalue of H before the step."""
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(w)
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = made.loss(w, hypers, None)
        gradient = tape.gradient(loss, w)

    def product(v: tf.Tensor) -> tf.Tensor:
        return outer.gradient(gradient, w, v)

    step = linear.cg(product, gradient, None, 300, tf.constant(1e-2, w.dtype)).v
    return w - step, tf.norm(gradient), linear.largest_eigenvalue(product, w)
