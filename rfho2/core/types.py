"""Names for the things the library passes around, and the results it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

Nest = Any
"""A dict, list, tuple or NamedTuple of tensors, nested at will, or one tensor."""

Hypers = Mapping[str, tf.Tensor]
"""lambda: the hyperparameters by name."""

Batches = Callable[[tf.Tensor], Nest]
"""index -> batch, a pure function, because reverse mode replays it."""

Value: TypeAlias = tf.Tensor | dict[str, tf.Tensor]
"""One objective's value, or one per objective by name."""


class HyperGradient(NamedTuple):
    """What an engine returns: E, its total derivative by hyper, and the last state s_T."""

    value: Value
    grads: dict[str, tf.Tensor]
    state: Nest


class Best(NamedTuple):
    """The hyper-iteration with the lowest score: its hypers, s_T, score and index."""

    hypers: dict[str, tf.Tensor]
    state: Nest
    value: float
    iteration: int


class Result(NamedTuple):
    """What `HyperOptimizer.run` returns; `history` has one flat dict per hyper-iteration."""

    hypers: dict[str, tf.Tensor]
    state: Nest
    history: list[dict[str, float]]
    best: Best | None


class Run(NamedTuple):
    """What a callback is told at the start: the next hyper-iteration, their total, and what is run."""

    first: int
    iterations: int
    hypers: dict[str, tf.Tensor]
    config: dict[str, Any]
