"""Which states to keep when there is room for few: the binomial schedule, which recomputes least.

c kept states and at most r runs through each step reach beta(c, r) = (c + r)! / (c! r!) steps (Griewank, 1992). So 2 sqrt(T)
states cost less than one more training, and tens of states do for a hundred thousand steps with three or four.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.core import loops, nest
from rfho2.core.types import Nest

Step = Callable[[Nest, tf.Tensor], Nest]
"""(s_t, t) -> s_{t+1}."""


class Kept(NamedTuple):
    """The slots with their states and times, and where the training ended: its slot is one past the last that is full."""

    slots: loops.Slots
    end: Place


class Place(NamedTuple):
    """A state, its time, and the slot to keep it in: those below hold earlier states."""

    state: Nest
    t: tf.Tensor
    slot: tf.Tensor


def reach(slots: int, steps: int) -> np.ndarray:
    """beta(s, r), cut off above `steps`, for s = 0..slots and r from 0 to the first that does for all of the steps."""
    columns = [np.ones(slots + 1, np.int64)]
    while columns[-1][slots] < steps:  # beta(s, r) is the sum of beta(i, r - 1) for i <= s
        columns.append(np.minimum(np.cumsum(columns[-1]), steps))
    return np.stack(columns, axis=1).astype(np.int32)


def steps_run(steps: int, slots: int) -> int:
    """How many steps `record` and `fold_back` run forwards: r (T + 1) - beta(c + 1, r - 1), with the least r that does."""
    runs = next(r for r in itertools.count(1) if math.comb(slots + r, r) > steps)
    return runs * (steps + 1) - math.comb(slots + runs, runs - 1)


def fewest_slots(steps: int, runs: int) -> int:
    """The slots that suffice to go through each step at most so many times."""
    return next(c for c in itertools.count(1) if math.comb(c + runs, runs) > steps)


def distance(table: tf.Tensor, length: tf.Tensor, slots: tf.Tensor) -> tf.Tensor:
    """From a kept state to the next to keep, when `length` states are still to be visited backwards, this one included.

    With r the least number of runs that does, the states up to the next leave beta(s, r - 1) or fewer to come back to, and
    those from it on beta(s - 1, r) or fewer.

    Args:
      table: `reach` of all the slots.
      length: at least 2.
      slots: s, those free, that of this state included.
    """
    row = tf.gather(table, slots)
    runs = tf.reduce_sum(tf.cast(row < length, tf.int32))
    below = tf.gather(table, slots - 1)
    return tf.minimum(tf.gather(row, runs - 1), length - tf.gather(below, runs - 1))


def record(step: Step, state: Nest, start: int, steps: int, slots: int) -> tuple[Kept, Nest]:
    """All the steps, keeping states on the way; returns (kept, last state)."""
    first = Place(state, tf.constant(start), tf.constant(0))
    empty = loops.slots_for(first[:2], slots)
    kept = Kept(*_walk(step, empty, first, tf.constant(start + steps), _table(steps, slots), slots))
    return kept, kept.end.state


def fold_back(
    step: Step,
    body: Callable[[Nest, Nest, tf.Tensor], Nest],
    carry: Nest,
    kept: Kept,
    start: int,
    steps: int,
    slots: int,
) -> Nest:
    """carry <- body(carry, s_t, t) for t = start + steps - 1, ..., start, each s_t computed again from the last one kept."""
    table = _table(steps, slots)

    def turn(everything: tuple[Nest, loops.Slots, tf.Tensor], i: tf.Tensor) -> tuple[Nest, loops.Slots, tf.Tensor]:
        carry, full, slot = everything
        t = start + steps - 1 - i
        state, time = loops.read_slot(full, slot - 1, kept.end[:2])
        full, here = _walk(step, full, Place(state, time, slot - 1), t, table, slots)
        return body(carry, here.state, t), full, here.slot

    return loops.fold(turn, (carry, kept.slots, kept.end.slot), 0, steps)[0]


def _walk(
    step: Step, kept: loops.Slots, place: Place, end: tf.Tensor, table: tf.Tensor, slots: int
) -> tuple[loops.Slots, Place]:
    """From a place to the time `end`, keeping what the schedule says; to leave a place is to keep it (again)."""

    def on(everything: tuple[loops.Slots, Place]) -> tuple[loops.Slots, Place]:
        kept, (state, t, slot) = everything
        kept = loops.write_slot(kept, slot, (state, t))
        steps = distance(table, end - t + 1, slots - slot)
        return kept, Place(loops.fold(step, _fresh(state), t, steps), t + steps, slot + 1)

    slots_now = tuple(array.identity() for array in kept)
    return loops.repeat(lambda everything: everything[1].t < end, on, (slots_now, _fresh(place)))


def _fresh(place: Nest) -> Nest:
    """The same, from ops of its own: over DTensors a loop inside another cannot start from what the outer one carries."""
    return nest.map(tf.identity, place)


def _table(steps: int, slots: int) -> tf.Tensor:
    return tf.constant(reach(slots, steps + 1))
