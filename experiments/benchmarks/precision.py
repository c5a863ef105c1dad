"""The precision of hypergradients whose matrix products are rounded: float32, TF32 and bfloat16, compared with float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist
from experiments.benchmarks import mlp_problem
from experiments.benchmarks.gpt_numbers import EPSILON, SIZES
from experiments.common import networks
from experiments.common.config import setting
from rfho2.core.types import Hypers, Nest

HYPERS = {"lr": 0.05, "mu": 0.9, "l2": 1e-4}


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured."""

    steps: tuple[int, ...] = setting((100, 400, 1600), "Lengths of training.", at_least=1)
    transformer: str | None = setting(None, "Measure the transformer of this size instead.", choices=tuple(SIZES))
    windows: tuple[int, ...] = setting((4, 16, 64), "Lengths of its windows.", at_least=1)
    epsilon: float = setting(EPSILON, "AdamW's epsilon for it.", at_least=1e-12)
    reference: str = setting("float64", "What its hypergradients are compared with.", choices=("float64", "float32"))


class Arithmetic(NamedTuple):
    """How a hypergradient is computed.

    Attributes:
      name: as the table has it.
      dtype: of params, hypers and data.
      tf32: whether a GPU may round the factors of float32 products to TF32.
      compute: what the layers of the network cast their inputs and weights to.
    """

    name: str
    dtype: tf.DType
    tf32: bool = False
    compute: tf.DType | None = None


EXACT = Arithmetic("float64", tf.float64)
FLOAT32 = Arithmetic("float32", tf.float32)
ROUNDED = [
    FLOAT32,
    Arithmetic("TF32", tf.float32, tf32=True),
    Arithmetic("bfloat16 layers", tf.float32, compute=tf.bfloat16),
]


def rounded() -> list[Arithmetic]:
    """What the device at hand can do; only GPUs have TF32."""
    return [one for one in ROUNDED if not one.tf32 or tf.config.list_physical_devices("GPU")]


def network(steps: int, arithmetic: Arithmetic) -> rf.Problem:
    """784-200-200-10, tanh, momentum, batches of 100 of 5,000 digits; validated on 5,000 others."""
    data = mnist.noisy_split(mnist.load(), seed=0)
    compute = arithmetic.compute or arithmetic.dtype

    def error(p: Nest, hypers: Hypers, batch: Any) -> tf.Tensor:
        x, y = batch
        logits = networks.tanh_logits({name: tf.cast(w, compute) for name, w in p.items()}, tf.cast(x, compute))
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.cast(logits, arithmetic.dtype)))

    def loss(p: Nest, hypers: Hypers, batch: Any) -> tf.Tensor:
        squares = [tf.reduce_sum(tf.square(p[f"w{i}"])) for i in range(mlp_problem.LAYERS)]
        return error(p, hypers, batch) + hypers["l2"] * tf.add_n(squares)

    train, validation = (
        (tf.constant(images, arithmetic.dtype), tf.constant(labels))
        for images, labels in ((data.train.images, data.true_labels), data.validation)
    )
    batches = rf.batches.shuffled(train, mlp_problem.BATCH_SIZE, 0)
    return rf.Problem(rf.momentum(loss, "lr", "mu"), error, steps, batches, rf.batches.full(validation))


def hypergradient(steps: int, arithmetic: Arithmetic) -> dict[str, float]:
    """By reverse mode; each call traces and compiles anew, because the precision of products is compiled in."""
    tf.config.experimental.enable_tensor_float_32_execution(arithmetic.tf32)
    start = networks.layers(mlp_problem.SIZES, np.random.default_rng(0))
    params = {name: tf.cast(w, arithmetic.dtype) for name, w in start.items()}
    return {name: float(g) for name, g in rf.reverse(network(steps, arithmetic))(params, HYPERS).grads.items()}


def relative_errors(steps: int) -> dict[str, dict[str, float]]:
    """|g - g_float64| / |g_float64| of each hyper, by arithmetic."""
    exact = hypergradient(steps, EXACT)
    hypergradients = {way.name: hypergradient(steps, way) for way in rounded()}
    return {way: {name: abs(g[name] / exact[name] - 1) for name in exact} for way, g in hypergradients.items()}


def table(config: Config) -> Iterator[str]:
    """The rows of a Markdown table, as they are measured."""
    names = [one.name for one in rounded()]
    yield f"| $T$ | hyper | {' | '.join(names)} |"
    yield "|---|---|" + "---|" * len(names)
    for steps in config.steps:
        errors = relative_errors(steps)
        for hyper in HYPERS:
            yield f"| {steps} | {hyper} | {' | '.join(f'{errors[name][hyper]:.1e}' for name in names)} |"
