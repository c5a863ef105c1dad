"""Other initial weights and other orders of the examples, over which hypergradients are averaged."""

from __future__ import annotations

import random
from typing import Any

import keras
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Batches
from rfho2.keras_bridge.wrapping.pure_model import Params


def initial_weights(model: keras.Model, params: Params, seeds: int, seed: int) -> list[Params]:
    """`seeds` sets of initial weights: those of copies of the model, and its own as the last.

    Args:
      model: is copied; an initialiser draws others in each copy, unless it has a seed of its own.
      params: the model's own weights.
      seeds: the number of sets.
      seed: determines them.
    """
    before = random.getstate()  # Keras draws the seeds of initialisers from Python's generator
    random.seed(seed)
    try:
        copies = [keras.models.clone_model(model).trainable_variables for _ in range(seeds - 1)]
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"seeds is {seeds}, but Keras cannot copy model '{model.name}' ({type(model).__name__}) to draw other initial "
            f"weights: {reason:.200} Build a functional model, or pass seeds=1."
        ) from error
    finally:
        random.setstate(before)
    if any(len(variables) != len(params) for variables in copies):
        raise ValueError(
            f"seeds is {seeds}, but a copy of model '{model.name}' ({type(model).__name__}) has no weights before it is "
            f"called. Build a functional model, or pass seeds=1."
        )
    drawn = [dict(zip(params, (tf.identity(v.value) for v in variables), strict=True)) for variables in copies]
    return [*drawn, params]


def of_episode(starts: list[Params], order: Batches, steps: int) -> tuple[Batches, Batches]:
    """The initial weights of episode k, and its batches (t, k); the last of the starts has those of `order`."""
    count, stacked = len(starts), nest.map(lambda *leaves: tf.stack(leaves), *starts)

    def params(k: tf.Tensor) -> Params:
        return nest.map(lambda leaf: leaf[k % count], stacked)

    def batch(t: tf.Tensor, k: tf.Tensor) -> nest.Nest:
        return order(t + (count - 1 - k % count) * steps)  # no step of one training is a step of another

    functions: list[Any] = [params, batch]
    for function in functions:
        function.period = count  # so that the driver can check its predictions
    return params, batch
