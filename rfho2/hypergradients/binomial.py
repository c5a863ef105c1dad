"""Which states to save when memory holds only a few: the binomial schedule, which recomputes the least.

With c saved states, and each step run at most r times, beta(c, r) = (c + r)! / (c! r!) steps can be reversed (Griewank,
1992). So 2 sqrt(T) states cost less than one more training, and a few dozen states suffice for a hundred thousand steps at
the cost of three or four.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import tensorflow as tf

from rfho2.core import loops
from rfho2.core.dtensors import renewed
from rfho2.core.types import Nest

Step = Callable[[Nest, tf.Tensor], Nest]
"""(s_t, t) -> s_{t+1}."""


class SavedStates(NamedTuple):
    """The slots with their states and times, and the end of the training, whose slot is one past the last full one."""

    slots: loops.Slots
    end: Place


class Place(NamedTuple):
    """A state, its time, and the slot to save it in; lower slots hold earlier states."""

    state: Nest
    t: tf.Tensor
    slot: tf.Tensor


def reach(slots: int, steps: int) -> np.ndarray:
    """beta(s, r), capped at `steps`, for s = 0..slots and r from 0 to the first that reaches all the steps."""
    columns = [np.ones(slots + 1, np.int64)]
    while columns[-1][slots] < steps:  # beta(s, r) is the sum of beta(i, r - 1) for i <= s
        columns.append(np.minimum(np.cumsum(columns[-1]), steps))
    return np.stack(columns, axis=1).astype(np.int32)


def steps_run(steps: int, slots: int) -> int:
    """Forward steps in `record` and `fold_back` together: r (T + 1) - beta(c + 1, r - 1), with the least sufficient r."""
    runs = next(r for r in itertools.count(1) if math.comb(slots + r, r) > steps)
    return runs * (steps + 1) - math.comb(slots + runs, runs - 1)


def fewest_slots(steps: int, runs: int) -> int:
    """The least number of slots with which no step is run more than `runs` times."""
    return next(c for c in itertools.count(1) if math.comb(c + runs, runs) > steps)


def distance(table: tf.Tensor, length: tf.Tensor, slots: tf.Tensor) -> tf.Tensor:
    """Steps from a saved state to the next state to save.

    With r the least sufficient number of runs, at most beta(s, r - 1) states before the next saved one remain to be
    revisited, and at most beta(s - 1, r) from it on.

    Args:
      table: `reach` of all the slots.
      length: states still to be visited backwards, this one included; at least 2.
      slots: s, the free slots, that of this state included.
    """
    row = tf.gather(table, slots)
    runs = tf.reduce_sum(tf.cast(row < length, tf.int32))
    below = tf.gather(table, slots - 1)
    return tf.minimum(tf.gather(row, runs - 1), length - tf.gather(below, runs - 1))


def record(
    step: Step, state: Nest, start: loops.Time, steps: loops.Time, slots: int, most: int | None = None
) -> tuple[SavedStates, Nest]:
    """Runs all the steps and saves states along the way; returns (saved states, last state).

    Args:
      most: the largest number of steps, if `steps` is a tensor.
    """
    start = tf.convert_to_tensor(start, tf.int32)
    first = Place(state, start, tf.constant(0))
    empty = loops.slots_for(first[:2], slots)
    saved = SavedStates(*_walk(step, empty, first, start + steps, _table(steps, slots, most), slots))
    return saved, saved.end.state


def fold_back(
    step: Step,
    body: Callable[[Nest, Nest, tf.Tensor], Nest],
    carry: Nest,
    saved: SavedStates,
    start: loops.Time,
    steps: loops.Time,
    slots: int,
    most: int | None = None,
) -> Nest:
    """carry <- body(carry, s_t, t) for t = start + steps - 1, ..., start, each s_t recomputed from the last saved state."""
    table = _table(steps, slots, most)

    def back(everything: tuple[Nest, loops.Slots, tf.Tensor], i: tf.Tensor) -> tuple[Nest, loops.Slots, tf.Tensor]:
        carry, full, slot = everything
        t = start + steps - 1 - i
        state, time = loops.read_slot(full, slot - 1, saved.end[:2])
        full, place = _walk(step, full, Place(state, time, slot - 1), t, table, slots)
        return body(carry, place.state, t), full, place.slot

    return loops.fold(back, (carry, saved.slots, saved.end.slot), 0, steps)[0]


def _walk(
    step: Step, full: loops.Slots, place: Place, end: tf.Tensor, table: tf.Tensor, slots: int
) -> tuple[loops.Slots, Place]:
    """Runs from a place to time `end` and saves the states that the schedule demands; a place is saved when it is left."""

    def onward(everything: tuple[loops.Slots, Place]) -> tuple[loops.Slots, Place]:
        full, (state, t, slot) = everything
        full = loops.write_slot(full, slot, (state, t))
        steps = distance(table, end - t + 1, slots - slot)
        return full, Place(loops.fold(step, renewed(state), t, steps), t + steps, slot + 1)

    slots_now = tuple(array.identity() for array in full)
    return loops.repeat(lambda everything: everything[1].t < end, onward, (slots_now, renewed(place)))


def _table(steps: loops.Time, slots: int, most: int | None) -> tf.Tensor:
    return tf.constant(reach(slots, cast(int, steps if most is None else most) + 1))
