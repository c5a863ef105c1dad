"""Warnings point at the user's line."""

import pytest
import tensorflow as tf

import rfho2 as rf


def test_a_warning_from_deep_inside_points_at_the_line_that_called_the_library():
    loss = lambda w, hypers, batch: hypers["l2"] * tf.sqrt(w)  # noqa: E731
    engine = rf.implicit(rf.Problem(rf.gradient_descent(loss, 0.1), loss, 2), jit_compile=False)
    with pytest.warns(UserWarning, match="not finite") as caught:
        engine(tf.constant(-1.0), {"l2": 1.0})  # this line
    for warning in caught:
        with open(warning.filename) as file:
            assert file.readlines()[warning.lineno - 1].endswith("# this line\n")
