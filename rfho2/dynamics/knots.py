"""Hypers that change in the course of the training: a few knots each, with straight lines between them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, gradient_of, replay_of, with_replay


def interpolated(knots: tf.Tensor, t: tf.Tensor, steps: int) -> tf.Tensor:
    """The value at step t: the first knot at step 0, the last one at step `steps - 1` and later.

    value = sum over j of max(0, 1 - |p - j|) knots[j], where p = (K - 1) t / (steps - 1)

    Args:
      knots: K values along the first axis.
      t: the step.
      steps: the length of the training.

    >>> [interpolated(tf.constant([0.0, 1.0, 4.0]), tf.constant(t), 5).numpy().item() for t in (0, 1, 2, 3, 4, 9)]
    [0.0, 0.5, 1.0, 2.5, 4.0, 4.0]
    """
    last = knots.shape[0] - 1
    position = tf.minimum(last * tf.cast(t, knots.dtype) / max(steps - 1, 1), last)
    weights = tf.nn.relu(1 - tf.abs(position - tf.range(last + 1, dtype=knots.dtype)))
    return tf.tensordot(weights, knots, 1)


def with_knots(dynamics: Dynamics, names: Collection[str], steps: int) -> Dynamics:
    """The same training, in which some hypers have knots; each step sees their values at its time.

    Args:
      dynamics: whose step takes one value of each hyper.
      names: the hypers that have knots.
      steps: the length of the training.

    >>> from rfho2.dynamics.gradient_descent import gradient_descent
    >>> descent = with_knots(gradient_descent(lambda w, hypers, batch: w, "rate"), ["rate"], steps=3)
    >>> state, hypers = tf.constant(0.0), {"rate": tf.constant([1.0, 3.0])}
    >>> for t in range(3):
    ...     state = descent.step(state, hypers, None, tf.constant(t))
    >>> state.numpy().item()  # minus the rates 1, 2 and 3
    -6.0
    """

    def at(hypers: Hypers, t: tf.Tensor) -> Hypers:
        return {name: interpolated(value, t, steps) if name in names else value for name, value in hypers.items()}

    def step(state: Nest, hypers: Hypers, batch: Nest, t: tf.Tensor) -> Nest:
        return dynamics.step(state, at(hypers, t), batch, t)

    made: Any = step
    replay, gradient = replay_of(dynamics), gradient_of(dynamics)
    if replay is not None:
        with_replay(made, lambda state, hypers, batch, t, new: replay(state, at(hypers, t), batch, t, new))
    if gradient is not None:
        made.gradient = lambda params, hypers, batch, t: gradient(params, at(hypers, t), batch, t)
    return Dynamics(lambda params, hypers: dynamics.init(params, at(hypers, tf.constant(0))), made, dynamics.params)
