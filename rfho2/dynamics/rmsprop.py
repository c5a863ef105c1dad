"""RMSProp."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.ops import inert_at_zero
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, Loss, Setting, check_settings, gradient, resolve, with_gradient


class RMSPropState(NamedTuple):
    """s_t = (w_t, v_t), v the running mean of squared gradients."""

    params: Nest
    mean_square: Nest


def rmsprop(loss: Loss, learning_rate: Setting, rho: Setting = 0.9, epsilon: Setting = 1e-7) -> Dynamics:
    """RMSProp, in Keras's form: epsilon is added inside the root.

    v_t = rho v_{t-1} + (1 - rho) g_t^2
    w_t = w_{t-1} - eta g_t / sqrt(v_t + epsilon)

    Where a gradient has always been 0, the derivative of the step is taken to be 0, as in `rf.adam`.

    Args:
      loss: (params, hypers, batch) -> scalar, J_t; g_t is its gradient.
      learning_rate: eta.
      rho: decay rate of the mean.
      epsilon: keeps the root away from 0.

    >>> dynamics = rmsprop(lambda w, hypers, batch: w**2, learning_rate=0.1, rho=0.0)
    >>> round(dynamics.step(dynamics.init(tf.constant(1.0), {}), {}, None, tf.constant(0)).params.numpy().item(), 4)
    0.9
    """
    check_settings(loss, learning_rate=learning_rate, rho=rho, epsilon=epsilon)

    def step(state: RMSPropState, hypers: Hypers, batch: Nest, t: tf.Tensor) -> RMSPropState:
        w, v = state
        g = gradient(loss, w, hypers, batch)
        eta = resolve("learning_rate", learning_rate, w, hypers, t)
        decay = resolve("rho", rho, w, hypers, t)
        eps = resolve("epsilon", epsilon, w, hypers, t)
        v = nest.map(lambda v, g, rho: rho * v + (1 - rho) * tf.square(g), v, g, decay)
        pull = nest.map(inert_at_zero, g, v)
        w = nest.map(lambda w, v, pull, eta, eps: w - eta * pull / tf.sqrt(v + eps), w, v, pull, eta, eps)
        return RMSPropState(w, v)

    return Dynamics(
        init=lambda params, hypers: RMSPropState(params, nest.zeros_like(params)),
        step=with_gradient(step, loss),
        params=lambda state: state.params,
    )
