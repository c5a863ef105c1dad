"""The models of the task-interaction experiment: linear classifiers whose classes are tasks, and what each method tunes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data.cifar_features import Part, Split
from rfho2.core.compiled import graph_function
from rfho2.core.types import Hypers, Nest


class Method(NamedTuple):
    """What a method tunes: the initial hypers, their constraints, and their learning rates."""

    hypers: dict[str, np.ndarray]
    constraints: dict[str, rf.Constraint]
    rates: dict[str, float]


class Training(NamedTuple):
    """The inner training: T full-batch steps with momentum, from zero weights.

    Attributes:
      tune_optimizer: whether the learning rate and the momentum are hypers too, which minimise the *training* error.
    """

    steps: int
    learning_rate: float
    momentum: float
    tune_optimizer: bool = False


Place = Callable[[Nest], Nest]
"""Places examples on a mesh."""

METHODS = ("STL", "STL-1", "NMTL", "HMTL", "HMTL-S")


def method(name: str, tasks: int, rate: float, total: float) -> Method:
    """The hypers of a method; all start at 0.

    STL: one rho per task. STL-1: one rho. NMTL: rho, and C = a everywhere. HMTL: rho and C. HMTL-S: also sum C <= total.

    Args:
      name: one of `METHODS`.
      tasks: K.
      rate: the learning rate of rho. That of an entry of C is K times smaller, because K entries act on each task. If the
        sum is bounded, it is at most total / K^2, the value of every entry when they are equal and the bound is reached.
      total: the bound on the sum of C.
    """
    scalar, matrix = np.zeros((), np.float32), np.zeros((tasks, tasks), np.float32)
    non_negative = rf.NonNegative()
    sets: dict[str, rf.Constraint]
    if name in ("STL", "STL-1"):
        rho = np.zeros(tasks, np.float32) if name == "STL" else scalar
        return Method({"rho": rho}, {"rho": non_negative}, {"rho": rate})
    if name == "NMTL":
        sets = {"rho": non_negative, "a": non_negative}
        return Method({"rho": scalar, "a": scalar}, sets, {"rho": rate, "a": rate / tasks})
    if name == "HMTL":
        sets = {"rho": non_negative, "C": rf.SymmetricNonNegative()}
        return Method({"rho": scalar, "C": matrix}, sets, {"rho": rate, "C": rate / tasks})
    if name == "HMTL-S":
        sets = {"rho": non_negative, "C": rf.SymmetricNonNegative(total)}
        return Method({"rho": scalar, "C": matrix}, sets, {"rho": rate, "C": min(rate / tasks, total / tasks**2)})
    raise ValueError(f"method is '{name}'; choose one of {', '.join(METHODS)}.")


def with_optimizer(m: Method, training: Training, rate: float) -> Method:
    """The method, which then tunes the learning rate and the momentum as well."""
    start = {"eta": np.array(training.learning_rate, np.float32), "mu": np.array(training.momentum, np.float32)}
    sets = {"eta": rf.NonNegative(), "mu": rf.Box(0.0, 1.0)}
    return Method({**m.hypers, **start}, {**m.constraints, **sets}, {**m.rates, "eta": rate, "mu": rate})


def regulariser(w: tf.Tensor, hypers: Hypers) -> tf.Tensor:
    """sum_jk C_jk |w_j - w_k|^2 + sum_k rho_k |w_k|^2, for w [d, K], whose columns w_k are the tasks.

    The first sum is 2 tr(W L W^T), where L = diag(C 1) - C and C is made symmetric: time O(K^2 d), memory O(K^2 + K d). If
    C = a everywhere, it is 2 a (K sum |w_k|^2 - |sum w_k|^2): O(K d).
    """
    squares = tf.reduce_sum(tf.square(w), axis=0)
    omega = tf.reduce_sum(hypers["rho"] * squares)
    if "a" in hypers:
        tasks = w.shape[1]
        square_of_sum = tf.reduce_sum(tf.square(tf.reduce_sum(w, axis=1)))
        omega += 2 * hypers["a"] * (tasks * tf.reduce_sum(squares) - square_of_sum)
    if "C" in hypers:
        symmetric = (hypers["C"] + tf.transpose(hypers["C"])) / 2
        degrees = tf.eye(w.shape[1], dtype=w.dtype) * tf.reduce_sum(symmetric, axis=1)  # DTensor has no tf.linalg.diag
        laplacian = degrees - symmetric
        omega += 2 * tf.reduce_sum(w * (w @ laplacian))
    return omega


def classes(split: Split) -> int:
    """K, the number of classes."""
    return int(split.train.labels.max()) + 1


def zeros(part: Part, tasks: int) -> dict[str, tf.Tensor]:
    """The parameters that every training starts from."""
    return {"w": tf.zeros((part.features.shape[1], tasks)), "b": tf.zeros(tasks)}


def error(part: Part, place: Place) -> Callable[[Nest], tf.Tensor]:
    """Returns a function from parameters to the mean cross-entropy on the examples."""
    product, labels = rf.fixed_product(place(part.features)), place(tf.constant(part.labels))

    def mean(p: Nest) -> tf.Tensor:
        logits = product(p["w"]) + p["b"]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    return mean


def problem(
    training: Training, train: Part, validation: Part, tuned: tuple[str, ...], place: Place = lambda examples: examples
) -> rf.Problem:
    """min E_val(w_T) over the hypers `tuned`, where w_T is the result of T steps on E_tr + regulariser."""
    on_train, on_validation = error(train, place), error(validation, place)

    def loss(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        return on_train(p) + regulariser(p["w"], hypers)

    def objective(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        return on_validation(p)

    if not training.tune_optimizer:
        return rf.Problem(rf.momentum(loss, training.learning_rate, training.momentum), objective, training.steps)
    objectives = {
        "validation": rf.Objective(objective, tuned),
        "training": rf.Objective(lambda p, hypers, batch: on_train(p), ("eta", "mu")),
    }
    return rf.Problem(rf.momentum(loss, "eta", "mu"), objectives, training.steps)


def accuracy(p: Nest, part: Part) -> float:
    """The share of examples that a model classifies correctly."""
    logits = part.features @ np.asarray(p["w"]) + np.asarray(p["b"])
    return float(np.mean(np.argmax(logits, axis=1) == part.labels))


def refit(training: Training, split: Split, hypers: Hypers) -> Nest:
    """The parameters after the same training with the same hypers, on training and validation examples together."""
    both = Part(*(np.concatenate(pair) for pair in zip(split.train, split.validation, strict=True)))
    p = problem(training, both, split.validation, tuple(n for n in hypers if n not in ("eta", "mu")))

    def fit(hypers: Hypers) -> Nest:
        return p.dynamics.params(p.train(zeros(both, classes(split)), hypers))

    hypers = {name: tf.convert_to_tensor(value, tf.float32) for name, value in hypers.items()}
    return graph_function(fit, jit_compile=True)(hypers)
