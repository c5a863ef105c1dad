"""Names for the values that the library passes around, and the results that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

SHOWN = 10  # entries: up to this number they are shown one by one, in the history and in print; more are summarised

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


def _described(hypers: Hypers) -> str:
    """A line for each hyper: a number, a few numbers, or the shape and the range of many."""
    return "\n".join(f"  {name}: {_summary(np.asarray(value))}" for name, value in hypers.items())


def _summary(array: np.ndarray) -> str:
    if array.size <= SHOWN:
        return " ".join(np.array2string(array, separator=", ", formatter={"float_kind": "{:.4g}".format}).split())
    return f"{array.dtype}{list(array.shape)} from {array.min():.4g} to {array.max():.4g}, mean {array.mean():.4g}"


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

    def __repr__(self) -> str:
        return f"Best: {self.value:.6g} at hyper-iteration {self.iteration}\n{_described(self.hypers)}"


class Result(NamedTuple):
    """The result of `HyperOptimizer.run`; `history` has one flat dict per hyper-iteration.

    `hypers` are those after the last update; printing the result shows those of `best`, with which a training was run.
    """

    hypers: dict[str, tf.Tensor]
    state: Nest
    history: list[dict[str, float]]
    best: Best | None

    def __repr__(self) -> str:
        if not self.history:
            return f"Result of 0 hyper-iterations\n{_described(self.hypers)}"
        first, last = (self.history[i]["value"] for i in (0, -1))
        number = f"{len(self.history)} hyper-iteration{'s' if len(self.history) > 1 else ''}"
        ends = f"Result of {number}: value {first:.6g} -> {last:.6g}"
        return f"{ends}\n{_described(self.hypers)}" if self.best is None else f"{ends}\n{self.best!r}"


class Run(NamedTuple):
    """What a callback receives at the start: the next hyper-iteration, the total, the hypers and the configuration."""

    first: int
    iterations: int
    hypers: dict[str, tf.Tensor]
    config: dict[str, Any]
