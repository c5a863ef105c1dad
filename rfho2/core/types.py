"""Names for the values that the library passes around, and the results that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

Nest = Any
"""A dict, list, tuple or NamedTuple of tensors, nested to any depth, or a single tensor."""

Hypers = Mapping[str, tf.Tensor]
"""lambda: the hyperparameters by name."""

Batches = Callable[..., Nest]
"""index -> batch, a pure function, because reverse mode replays it; training batches may also be (t, k) -> batch."""

Value: TypeAlias = tf.Tensor | dict[str, tf.Tensor]
"""The value of the objective, or of several objectives by name."""

Norms = Mapping[str, tf.Tensor]
"""By name: the norm of the adjoint or of the sensitivity, and other numbers that an engine reports."""

Signal = Callable[[], int | None]
"""Returns the number of the signal that asks the run to end, or None."""


class HyperGradient(NamedTuple):
    """The result of an engine: E, its total derivative with respect to each hyper, and the last state s_T.

    `norms` has the norm of the "adjoint" or the "sensitivity", whose growth is a sign of divergence. The norms of
    `rf.implicit` say how close the training was to its solution.
    """

    value: Value
    grads: dict[str, tf.Tensor]
    state: Nest
    norms: Mapping[str, tf.Tensor] = {}


class Best(NamedTuple):
    """The hyper-iteration with the lowest score: its hypers, s_T, score and index."""

    hypers: dict[str, tf.Tensor]
    state: Nest
    value: float
    iteration: int


class Result(NamedTuple):
    """The result of `HyperOptimizer.run`; `history` has one flat dict per hyper-iteration."""

    hypers: dict[str, tf.Tensor]
    state: Nest
    history: list[dict[str, float]]
    best: Best | None


class Run(NamedTuple):
    """What a callback receives at the start: the next hyper-iteration, the total, the hypers and the configuration."""

    first: int
    iterations: int
    hypers: dict[str, tf.Tensor]
    config: dict[str, Any]
