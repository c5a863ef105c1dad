"""The loops over time: the only while loops and TensorArrays of the algorithms.

All of them become one graph node whatever the number of steps, run under XLA and over DTensor inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from rfho2 import nest
from rfho2.types import Nest

Time: TypeAlias = int | tf.Tensor


def fold(body: Callable[[Nest, tf.Tensor], Nest], carry: Nest, start: Time, steps: int) -> Nest:
    """carry <- body(carry, t) for t = start, ..., start + steps - 1."""
    start = tf.convert_to_tensor(start, tf.int32)

    def advance(i: tf.Tensor, carry: Nest) -> tuple[tf.Tensor, Nest]:
        return i + 1, body(carry, start + i)

    return _while(steps, advance, carry)


class Trajectory(NamedTuple):
    """s_start, ..., s_{start + steps - 1}: one TensorArray for each leaf of the state."""

    arrays: tuple[tf.TensorArray, ...]
    structure: Nest

    def read(self, index: tf.Tensor) -> Nest:
        """The state at `index`, counted from the first one saved."""
        return nest.pack(self.structure, [array.read(index) for array in self.arrays])


def record(body: Callable[[Nest, tf.Tensor], Nest], state: Nest, start: int, steps: int) -> tuple[Trajectory, Nest]:
    """As `fold`, and saves the state *before* each step; returns (trajectory, last state)."""

    def advance(i: tf.Tensor, carry: Nest) -> tuple[tf.Tensor, Nest]:
        arrays, state = carry
        arrays = tuple(array.write(i, leaf) for array, leaf in zip(arrays, nest.flatten(state), strict=True))
        return i + 1, (arrays, body(state, start + i))

    arrays = tuple(
        tf.TensorArray(leaf.dtype, size=steps, element_shape=leaf.shape, clear_after_read=False)
        for leaf in nest.flatten(state)
    )
    arrays, last = _while(steps, advance, (arrays, state))
    return Trajectory(arrays, state), last


def fold_back(
    body: Callable[[Nest, Nest, tf.Tensor], Nest], carry: Nest, trajectory: Trajectory, start: int, steps: int
) -> Nest:
    """carry <- body(carry, s_t, t) for t = start + steps - 1, ..., start."""

    def advance(i: tf.Tensor, carry: Nest) -> tuple[tf.Tensor, Nest]:
        index = steps - 1 - i
        return i + 1, body(carry, trajectory.read(index), start + index)

    return _while(steps, advance, carry)


def _while(steps: int, advance: Callable[[tf.Tensor, Nest], tuple[tf.Tensor, Nest]], carry: Nest) -> Nest:
    # One iteration at a time: steps depend on each other, and overlapping them would hold more states alive.
    return tf.while_loop(
        lambda i, _: i < steps, advance, (tf.constant(0), carry), parallel_iterations=1, maximum_iterations=steps
    )[1]
