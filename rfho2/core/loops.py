"""The loops over time: the only while loops and TensorArrays of the algorithms.

Each is one graph node, whatever the number of steps, and runs under XLA and over DTensor inputs; see `dtensors.renewed` for
loops inside loops.

On a GPU, XLA launches the kernels of an iteration as one CUDA graph, but each access to a TensorArray separately. There,
small states are therefore saved flat, and `record` and `fold_back` take several steps per iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias, cast

import tensorflow as tf

from rfho2.core import devices, nest
from rfho2.core.dtensors import sharded
from rfho2.core.types import Nest

Time: TypeAlias = int | tf.Tensor

# Reverse mode of a 784-200-200-10 network, T = 200, on an H200 in TF32, without Python overhead, and seconds to compile:
# plain 47.7 ms, 15 s; flat 39.5 ms, 11 s; flat with 4, 5 or 8 steps per iteration 35.4, 34.5, 33.9 ms, 20, 20, 33 s.
TOGETHER = 5  # steps per iteration of `record` and `fold_back` on a GPU
SMALL = 2**25  # bytes of a state: copying a larger one takes longer than the launches that a flat one saves


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
    """The same values, in a form that XLA cannot treat as constants.

    XLA must know an index such as k in table[k] when it compiles, and compiles again for each of its values. If a step
    contains a loop, as a recurrent layer does, XLA also decides that it must know everything from which the loop's inputs
    are computed, and compiles again whenever a batch or its index changes. It does not try to evaluate the result of a loop
    that starts from a constant.
    """

    def once(i: tf.Tensor, _: Nest) -> tuple[tf.Tensor, Nest]:
        return i + 1, values

    zeros = nest.map(lambda leaf: tf.zeros(leaf.shape, leaf.dtype), values)
    return _while(1, once, zeros)


Slots: TypeAlias = tuple[tf.TensorArray, ...]
"""A fixed number of rewritable places for states: one TensorArray for each leaf, or for each dtype of flat states."""


def slots_for(example: Nest, size: int) -> Slots:
    """Empty slots for nests with the structure of the example."""
    leaves = nest.flatten(example)
    shapes = [(leaf.dtype, leaf.shape) for leaf in leaves]
    if _flat(leaves):
        each = [[leaves[i] for i in places] for places in _by_dtype(leaves)]
        shapes = [(same[0].dtype, [sum(leaf.shape.num_elements() for leaf in same)]) for same in each]
    return tuple(tf.TensorArray(dtype, size=size, element_shape=shape, clear_after_read=False) for dtype, shape in shapes)


def read_slot(slots: Slots, index: tf.Tensor, example: Nest) -> Nest:
    """The value written last at `index`, with the structure of the example."""
    return _restored([array.read(index) for array in slots], example)


def write_slot(slots: Slots, index: tf.Tensor, value: Nest) -> Slots:
    """The slots with `value` at `index`."""
    return tuple(array.write(index, leaf) for array, leaf in zip(slots, _saved(value), strict=True))


def stack_slots(slots: Slots, example: Nest) -> Nest:
    """The contents of all slots along a new first axis; zeros for slots that were never written."""
    return _restored([array.stack() for array in slots], example)


def _saved(value: Nest) -> list[tf.Tensor]:
    """The form in which a nest is saved: its leaves, or one vector for each dtype."""
    leaves = nest.flatten(value)
    if not _flat(leaves):
        return leaves
    return [tf.concat([tf.reshape(leaves[i], [-1]) for i in places], 0) for places in _by_dtype(leaves)]


def _restored(saved: list[tf.Tensor], example: Nest) -> Nest:
    """The inverse of `_saved`; a further first axis of the saved tensors is kept."""
    leaves = nest.flatten(example)
    if not _flat(leaves):
        return nest.pack(example, saved)
    restored: dict[int, tf.Tensor] = {}
    for places, vector in zip(_by_dtype(leaves), saved, strict=True):
        parts = tf.split(vector, [leaves[i].shape.num_elements() for i in places], axis=-1)
        first = vector.shape[:-1]
        restored |= {i: tf.reshape(part, first + leaves[i].shape) for i, part in zip(places, parts, strict=True)}
    return nest.pack(example, [restored[i] for i in range(len(leaves))])


def _flat(leaves: list[tf.Tensor]) -> bool:
    known = all(leaf.shape.is_fully_defined() for leaf in leaves)
    return devices.gpu() and not sharded() and known and _bytes(leaves) <= SMALL


def _bytes(leaves: list[tf.Tensor]) -> int:
    return sum(leaf.dtype.size * leaf.shape.num_elements() for leaf in leaves)


def _by_dtype(leaves: list[tf.Tensor]) -> list[list[int]]:
    """The indices of the leaves of each dtype."""
    names = [leaf.dtype.name for leaf in leaves]
    return [[i for i, name in enumerate(names) if name == one] for one in dict.fromkeys(names)]


class Trajectory(NamedTuple):
    """s_start, ..., s_{start + steps - 1}."""

    slots: Slots
    structure: Nest

    def read(self, index: tf.Tensor) -> Nest:
        """The state at `index`, counted from the first saved state."""
        return read_slot(self.slots, index, self.structure)


def record(
    body: Callable[[Nest, tf.Tensor], Nest], state: Nest, start: Time, steps: Time, most: int | None = None
) -> tuple[Trajectory, Nest]:
    """Like `fold`, but also saves the state *before* each step; returns (trajectory, last state).

    Args:
      most: the largest number of steps, if `steps` is a tensor.
    """

    def advance(i: tf.Tensor, carry: Nest) -> tuple[tf.Tensor, Nest]:
        slots, state = carry
        return i + 1, (write_slot(slots, i, state), body(state, start + i))

    size = steps if most is None else most
    slots, last = _while(steps, advance, (slots_for(state, cast(int, size)), state), _together(state))
    return Trajectory(slots, state), last


def fold_back(
    body: Callable[[Nest, Nest, tf.Tensor], Nest], carry: Nest, trajectory: Trajectory, start: Time, steps: Time
) -> Nest:
    """carry <- body(carry, s_t, t) for t = start + steps - 1, ..., start."""

    def advance(i: tf.Tensor, carry: Nest) -> tuple[tf.Tensor, Nest]:
        index = steps - 1 - i
        return i + 1, body(carry, trajectory.read(index), start + index)

    return _while(steps, advance, carry, _together(trajectory.structure))


def _together(state: Nest) -> int:
    """Steps per iteration: several if launches take a noticeable part of the time, which makes programs larger."""
    return TOGETHER if _flat(nest.flatten(state)) else 1


def _while(
    steps: Time, advance: Callable[[tf.Tensor, Nest], tuple[tf.Tensor, Nest]], carry: Nest, together: int = 1
) -> Nest:
    """Calls `advance` `steps` times: `together` times per iteration if `steps` is known, and the remainder one by one."""
    whole = steps // together * together if isinstance(steps, int) else 0
    i = tf.constant(0)
    if together > 1 and whole > together:

        def several(i: tf.Tensor, carry: Nest) -> tuple[tf.Tensor, Nest]:
            for _ in range(together):
                i, carry = advance(i, carry)
            return i, carry

        i, carry = _repeated(whole, several, i, carry, whole // together)
        if whole == steps:
            return carry
    return _repeated(steps, advance, i, carry, steps)[1]


def _repeated(
    end: Time, advance: Callable[[tf.Tensor, Nest], tuple[tf.Tensor, Nest]], i: tf.Tensor, carry: Nest, most: Time
) -> tuple[tf.Tensor, Nest]:
    # One iteration at a time: each step depends on the last, and overlapping them would keep more states alive.
    return tf.while_loop(lambda i, _: i < end, advance, (i, carry), parallel_iterations=1, maximum_iterations=most)
