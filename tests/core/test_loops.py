"""The loops over time, on plain numbers."""

import numpy as np
import pytest
import tensorflow as tf

from rfho2.core import loops


def digits(carry, t):
    """Appends t to a number."""
    return 10 * carry + t


def test_fold_counts_from_the_start():
    assert int(loops.fold(digits, tf.constant(0), 3, 4)) == 3456
    assert int(loops.fold(digits, tf.constant(7), 3, 0)) == 7


def test_repeat_stops_when_the_condition_fails():
    (end,) = loops.repeat(lambda carry: carry[0] < 20, lambda carry: (3 * carry[0],), (tf.constant(1),))
    assert int(end) == 27


def test_the_states_before_each_step_are_recorded_and_visited_backwards():
    trajectory, last = loops.record(lambda state, t: {"x": state["x"] + t}, {"x": tf.constant(1)}, 2, 3)
    assert int(last["x"]) == 1 + 2 + 3 + 4
    assert [int(trajectory.read(tf.constant(i))["x"]) for i in range(3)] == [1, 3, 6]

    def body(carry, state, t):
        return 100 * carry + 10 * state["x"] + t

    assert int(loops.fold_back(body, tf.constant(0), trajectory, 2, 3)) == (64 * 100 + 33) * 100 + 12


def test_slots_keep_what_was_written_last():
    example = (tf.constant(0.0), tf.zeros(2))
    slots = loops.slots_for(example, 3)
    for index, value in ((0, 1.0), (2, 5.0), (0, 2.0)):
        slots = loops.write_slot(slots, tf.constant(index), (tf.constant(value), tf.fill([2], value)))
    assert [float(loops.read_slot(slots, tf.constant(i), example)[1][1]) for i in (0, 2)] == [2.0, 5.0]


def test_xla_cannot_take_an_unknown_for_a_constant():
    values = {"n": tf.constant(2), "x": tf.range(6.0)}
    shaped = lambda v: tf.reshape(v["x"], [v["n"], -1])  # noqa: E731
    assert tf.function(shaped, jit_compile=True)(values).shape == [2, 3]
    hidden = tf.function(lambda v: shaped(loops.unknown(v)), jit_compile=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="constant"):
        hidden(values)
    tf.nest.map_structure(np.testing.assert_array_equal, loops.unknown(values), values)
