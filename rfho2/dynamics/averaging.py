"""An exponential moving average of the weights, which is evaluated and kept in their place."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, Setting, check_setting, resolve


class AveragedState(NamedTuple):
    """The state of the training, and the average of its weights."""

    state: Nest
    average: Nest


def averaged(dynamics: Dynamics, ema_momentum: Setting = 0.99, first: int = 1) -> Dynamics:
    """The same training, whose params are the moving average of its weights w_n.

    a_n = mu a_{n-1} + (1 - mu) w_n, and a_n = w_n for the first steps

    Args:
      dynamics: the training, which does not know the average.
      ema_momentum: mu, as in Keras's `use_ema`.
      first: the number of steps for which the average is the weights themselves.

    >>> from rfho2.dynamics.gradient_descent import gradient_descent
    >>> dynamics = averaged(gradient_descent(lambda w, hypers, batch: w**2, 0.25), ema_momentum=0.5)
    >>> state = dynamics.init(tf.constant(1.0), {})
    >>> for t in range(2):
    ...     state = dynamics.step(state, {}, None, tf.constant(t))
    >>> dynamics.params(state).numpy().item()  # the weights are 0.5 and 0.25
    0.375
    """
    check_setting("ema_momentum", ema_momentum)

    def init(params: Nest, hypers: Hypers) -> AveragedState:
        state = dynamics.init(params, hypers)
        return AveragedState(state, dynamics.params(state))

    def step(state: AveragedState, hypers: Hypers, batch: Nest, t: tf.Tensor) -> AveragedState:
        new = dynamics.step(state.state, hypers, batch, t)
        w = dynamics.params(new)
        mu = resolve("ema_momentum", ema_momentum, w, hypers, t)
        mu = nest.map(lambda mu: tf.where(t < first, tf.zeros_like(mu), mu), mu)
        return AveragedState(new, nest.map(lambda a, w, mu: mu * a + (1 - mu) * w, state.average, w, mu))

    return Dynamics(init, step, lambda state: state.average)
