"""The loops over time: the only while loops and TensorArrays of the algorithms.

Each is one graph node, whatever the number of steps, and runs under XLA and over DTensor inputs; see `dtensors.renewed` for
loops inside loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias, cast

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Nest

Time: TypeAlias = int | tf.Tensor


def fold(body: Callable[[Nest, tf.Tensor], Nest], carry: Nest, start: Time, steps: Time) -> Nest:
    """carry <- body(carry, t) for t = start, ..., start + steps - 1."""
    start = tf.convert_to_tensor(start, tf.int32)

    def advance(i: tf.Tensor, carry: Nest) -> tuple[tf.Tensor, Nest]:
        return i + 1, body(carry, start + i)

    return _while(steps, advance, carry)


def repeat(condition: Callable[[Nest], tf.Tensor], body: Callable[[Nest], Nest], carry: Nest) -> Nest:
    """carry <- body(carry) while the condition holds."""
    return tf.while_loop(lambda *c: condition(c), lambda *c: body(c), carry, parallel_iterations=1)


def unknown(values: Nest) -> Nest:
    """The same values, which XLA cannot take for constants.

    XLA must know an index such as k in table[k] when it compiles, and compiles again for each of its values. Also if a step
    has a loop of its own, as a recurrent layer has, XLA decides that it must know everything from which the loop's inputs
    are computed, and compiles again whenever a batch or its index changes. It does not look for the value of a result of a
    loop that starts as a constant.
    """

    def once(i: tf.Tensor, _: Nest) -> tuple[tf.Tensor, Nest]:
        return i + 1, values

    zeros = nest.map(lambda leaf: tf.zeros(leaf.shape, leaf.dtype), values)
    return _while(1, once, zeros)


Slots: TypeAlias = tuple[tf.TensorArray, ...]
"""A fixed number of rewritable places for states: one TensorArray per leaf."""


def slots_for(example: Nest, size: int) -> Slots:
    """Empty slots for nests with the structure of the example."""
    return tuple(
        tf.TensorArray(leaf.dtype, size=size, element_shape=leaf.shape, clear_after_read=False)
        for leaf in nest.flatten(example)
    )


def read_slot(slots: Slots, index: tf.Tensor, structure: Nest) -> Nest:
    """The value written last at `index`, in the given structure."""
    return nest.pack(structure, [array.read(index) for array in slots])


def write_slot(slots: Slots, index: tf.Tensor, value: Nest) -> Slots:
    """The slots with `value` at `index`."""
    return tuple(array.write(index, leaf) for array, leaf in zip(slots, nest.flatten(value), strict=True))


def stack_slots(slots: Slots, structure: Nest) -> Nest:
    """What all slots hold, along a new first axis; zeros in those that were never written."""
    return nest.pack(structure, [array.stack() for array in slots])


class Trajectory(NamedTuple):
    """s_start, ..., s_{start + steps - 1}: one TensorArray per leaf of the state."""

    slots: Slots
    structure: Nest

    def read(self, index: tf.Tensor) -> Nest:
        """The state at `index`, counted from the first saved state."""
        return read_slot(self.slots, index, self.structure)


def record(
    body: Callable[[Nest, tf.Tensor], Nest], state: Nest, start: Time, steps: Time, most: int | None = None
) -> tuple[Trajectory, Nest]:
    """As `fold`, but also saves the state *before* each step; returns (trajectory, last state).

    Args:
      most: the largest number of steps, if `steps` is a tensor.
    """

    def advance(i: tf.Tensor, carry: Nest) -> tuple[tf.Tensor, Nest]:
        slots, state = carry
        return i + 1, (write_slot(slots, i, state), body(state, start + i))

    size = steps if most is None else most
    slots, last = _while(steps, advance, (slots_for(state, cast(int, size)), state))
    return Trajectory(slots, state), last


def fold_back(
    body: Callable[[Nest, Nest, tf.Tensor], Nest], carry: Nest, trajectory: Trajectory, start: Time, steps: Time
) -> Nest:
    """carry <- body(carry, s_t, t) for t = start + steps - 1, ..., start."""

    def advance(i: tf.Tensor, carry: Nest) -> tuple[tf.Tensor, Nest]:
        index = steps - 1 - i
        return i + 1, body(carry, trajectory.read(index), start + index)

    return _while(steps, advance, carry)


def _while(steps: Time, advance: Callable[[tf.Tensor, Nest], tuple[tf.Tensor, Nest]], carry: Nest) -> Nest:
    # One iteration at a time: each step depends on the last, and overlapping them would keep more states alive.
    return tf.while_loop(
        lambda i, _: i < steps, advance, (tf.constant(0), carry), parallel_iterations=1, maximum_iterations=steps
    )[1]
