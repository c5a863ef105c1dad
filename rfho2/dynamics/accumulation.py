"""Gradient accumulation: one step of the optimiser for the mean gradient of several batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from rfho2.core import errors, nest
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, Loss, OwnGradient, gradient


class AccumulatedState(NamedTuple):
    """The state of the optimiser, and the sum of the gradients since its last step."""

    state: Nest
    total: Nest


def accumulated(make: Callable[[Loss], Dynamics], loss: Loss, gradient_accumulation_steps: int) -> Dynamics:
    """The optimiser `make(loss)`, which takes a step only after every k-th batch, with the mean of their gradients.

    Args:
      make: loss -> dynamics, such as `lambda loss: rf.adam(rf.clipped(loss, clipnorm=1.0), "lr")`; the mean is clipped.
        The time t of its settings counts its own steps.
      loss: (params, hypers, batch) -> scalar.
      gradient_accumulation_steps: k.

    >>> from rfho2.dynamics.gradient_descent import gradient_descent
    >>> dynamics = accumulated(lambda loss: gradient_descent(loss, 0.5), lambda w, hypers, batch: batch * w, 2)
    >>> state = dynamics.init(tf.constant(1.0), {})
    >>> for t, batch in enumerate([1.0, 3.0]):
    ...     state = dynamics.step(state, {}, batch, tf.constant(t))
    >>> dynamics.params(state).numpy().item()  # 1 - 0.5 * 2
    0.0
    """
    k = errors.check_count("gradient_accumulation_steps", gradient_accumulation_steps)
    errors.check_callable("loss", loss, "(params, hypers, batch) -> scalar")
    inner = make(OwnGradient(loss, lambda params, hypers, mean, t: mean))  # the mean gradient is passed as the batch

    def init(params: Nest, hypers: Hypers) -> AccumulatedState:
        return AccumulatedState(inner.init(params, hypers), nest.zeros_like(params))

    def step(state: AccumulatedState, hypers: Hypers, batch: Nest, t: tf.Tensor) -> AccumulatedState:
        total = nest.add(state.total, gradient(loss, inner.params(state.state), hypers, batch, t))
        stepped = inner.step(state.state, hypers, nest.map(lambda g: g / k, total), t // k)
        due = (t + 1) % k == 0
        # Both are computed, and one is chosen: accumulators cannot follow tf.cond, and a step without its gradient is cheap.
        new = nest.map(lambda after, before: tf.where(due, after, before), stepped, state.state)
        return AccumulatedState(new, nest.map(lambda g: tf.where(due, tf.zeros_like(g), g), total))

    return Dynamics(init, step, lambda state: inner.params(state.state))
