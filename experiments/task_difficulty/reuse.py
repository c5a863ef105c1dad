"""Faster trainings for many splits: one compiled training for all of a size, and no more features than examples.

The examples are variables, which the next split overwrites: compiling takes longer than most of these trainings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data.cifar_features import Part, Split
from experiments.task_interactions import models
from rfho2.core.compiled import graph_function
from rfho2.core.types import Hypers, Nest


class Held(NamedTuple):
    """Examples that can be overwritten."""

    features: tf.Variable
    labels: tf.Variable

    @classmethod
    def like(cls, part: Part) -> Held:
        """Variables that hold these examples."""
        return cls(tf.Variable(part.features), tf.Variable(part.labels))

    def assign(self, part: Part) -> None:
        """Overwrites the examples."""
        self.features.assign(part.features)
        self.labels.assign(part.labels)

    def error(self, p: Nest) -> tf.Tensor:
        """The mean cross-entropy."""
        logits = self.features @ p["w"] + p["b"]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(self.labels, logits))


def problem(training: models.Training, train: Held, validation: Held) -> rf.Problem:
    """`models.problem` of examples that can be overwritten."""

    def loss(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        return train.error(p) + models.regulariser(p["w"], hypers)

    def objective(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        return validation.error(p)

    return rf.Problem(rf.momentum(loss, training.learning_rate, training.momentum), objective, training.steps)


def compact(split: Split) -> Split:
    """The split in an orthonormal basis of its training examples, if they have more features than there are examples.

    Gradient descent from 0 never leaves the span of the training examples, and neither errors nor the regulariser depend on
    the basis: the trainings are the same, with as many numbers as examples for each.
    """
    n, d = split.train.features.shape
    if d <= n:
        return split
    basis, _ = np.linalg.qr(split.train.features.T.astype(np.float64))
    return Split(*(part._replace(features=(part.features @ basis).astype(np.float32)) for part in split))


def engine(training: models.Training, split: Split, hypers: Hypers) -> rf.Engine:
    """Reverse mode for this split; the next split of the same size takes it over."""
    made, train, validation = _engine(training, _sizes(split), _shapes(hypers))
    train.assign(split.train)
    validation.assign(split.validation)
    return made


def refit(training: models.Training, split: Split, hypers: Hypers) -> Nest:
    """`models.refit`: the training with these hypers on training and validation examples together."""
    fit, both = _fit(training, _sizes(split), _shapes(hypers))
    both.assign(_together(split))
    return fit({name: tf.convert_to_tensor(value) for name, value in hypers.items()})


Sizes = tuple[int, int, int, int]
"""Training and validation examples, features, classes."""
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@functools.lru_cache(maxsize=20)
def _engine(training: models.Training, sizes: Sizes, shapes: Shapes) -> tuple[rf.Engine, Held, Held]:
    n, m, d, _ = sizes
    train, validation = Held.like(_nothing(n, d)), Held.like(_nothing(m, d))
    return rf.reverse(problem(training, train, validation)), train, validation


@functools.lru_cache(maxsize=20)
def _fit(training: models.Training, sizes: Sizes, shapes: Shapes) -> tuple[Callable[[Hypers], Nest], Held]:
    n, m, d, tasks = sizes
    both = Held.like(_nothing(n + m, d))
    case = problem(training, both, both)

    def fit(hypers: Hypers) -> Nest:
        return case.dynamics.params(case.train(models.zeros(_nothing(1, d), tasks), hypers))

    return graph_function(fit, jit_compile=True), both


def _sizes(split: Split) -> Sizes:
    return len(split.train.labels), len(split.validation.labels), split.train.features.shape[1], models.classes(split)


def _shapes(hypers: Hypers) -> Shapes:
    return tuple((name, tuple(np.shape(value))) for name, value in sorted(hypers.items()))


def _nothing(n: int, d: int) -> Part:
    return Part(np.zeros((n, d), np.float32), np.zeros(n, np.int32))


def _together(split: Split) -> Part:
    return Part(*(np.concatenate(pair) for pair in zip(split.train, split.validation, strict=True)))
