"""A network whose learning rate, momentum and L2 weight are tuned in real time, while it learns digits.

It starts from the null teacher: all three hyperparameters are 0, so that nothing is known about the task.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist
from experiments.common import networks
from experiments.common.config import setting
from rfho2.core.types import Hypers, Nest

NULL_TEACHER = {"lr": 0.0, "mu": 0.0, "l2": 0.0}
ACCURACIES = ("training accuracy", "validation accuracy", "test accuracy")


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the run depends on."""

    hidden: int = setting(100, "Hidden units.", at_least=1)
    batch_size: int = setting(100, "Digits in a training batch.", at_least=1)
    hyper_batch: int = setting(20, "Training steps between two updates of the hypers.", at_least=1)
    hyper_iterations: int = setting(150, "Updates of the hypers.", at_least=1)
    hyper_rate_lr: float = setting(0.005, "Learning rate of projected Adam on the learning rate.", at_least=0.0)
    hyper_rate_mu: float = setting(0.005, "Learning rate of projected Adam on the momentum factor.", at_least=0.0)
    hyper_rate_l2: float = setting(1e-5, "Learning rate of projected Adam on the L2 weight.", at_least=0.0)
    seed: int = setting(0, "Seed of the split, the weights and the batches.", at_least=0)
    accuracies: bool = setting(True, "Whether to compute accuracies at every update; if not, many updates share one call.")
    checkpoint_every: int = setting(1, "Updates of the hypers between two checkpoints.", at_least=1)
    iterations_per_call: int = setting(0, "Updates in one compiled call, if there are no accuracies; 0 chooses.", at_least=0)


def error(p: networks.Params, hypers: Hypers, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """Mean cross-entropy."""
    x, y = batch
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, networks.tanh_logits(p, x)))


def loss(p: networks.Params, hypers: Hypers, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """What training minimises: the error, plus the squared weights times the L2 weight."""
    return error(p, hypers, batch) + hypers["l2"] * tf.reduce_sum([tf.reduce_sum(tf.square(p[w])) for w in ("w0", "w1")])


def run(config: Config, data: mnist.NoisySplit, callbacks: Sequence[rf.Callback], checkpoint_dir: Path | None) -> rf.Result:
    """Trains and tunes at the same time."""
    train, validation, test = (tuple(map(tf.constant, part)) for part in (data.train, data.validation, data.test))
    problem = rf.Problem(
        rf.momentum(loss, learning_rate="lr", momentum="mu"),
        error,
        steps=None,
        batches=rf.batches.shuffled(train, config.batch_size, config.seed),
        validation=rf.batches.shuffled(validation, 500, config.seed + 1),
    )

    @tf.function(autograph=False)
    def accuracies(p: networks.Params) -> list[tf.Tensor]:
        hits = [tf.argmax(networks.tanh_logits(p, x), 1, tf.int32) == y for x, y in (train, validation, test)]
        return [tf.reduce_mean(tf.cast(h, tf.float32)) for h in hits]

    def metrics(state: Nest, hypers: Hypers, k: int) -> dict[str, Any]:
        return dict(zip(ACCURACIES, map(float, accuracies(problem.dynamics.params(state))), strict=True))

    rates = {"lr": config.hyper_rate_lr, "mu": config.hyper_rate_mu, "l2": config.hyper_rate_l2}
    constraints = {"lr": rf.NonNegative(), "mu": rf.Box(0.0, 0.99), "l2": rf.NonNegative()}
    tuner = rf.HyperOptimizer(
        rf.real_time(problem, config.hyper_batch),
        rf.projected_adam(rates, constraints),
        callbacks,
        metrics if config.accuracies else None,
        iterations_per_call=config.iterations_per_call or None,
    )
    params = networks.layers((784, config.hidden, 10), np.random.default_rng(config.seed))
    every = config.checkpoint_every
    return tuner.run(params, NULL_TEACHER, config.hyper_iterations, checkpoint_dir, checkpoint_every=every)


def clean_split(seed: int) -> mnist.NoisySplit:
    """The digits with their true labels."""
    data = mnist.noisy_split(mnist.load(), seed)
    return data._replace(train=data.train._replace(labels=data.true_labels))
