"""Adagrad."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, Loss, Setting, check_settings, gradient, resolve, with_gradient
from rfho2.dynamics.decay import with_decay


class AdagradState(NamedTuple):
    """s_t = (w_t, v_t), v the sum of squared gradients."""

    params: Nest
    accumulator: Nest


def adagrad(
    loss: Loss,
    learning_rate: Setting,
    initial_accumulator_value: Setting = 0.1,
    epsilon: Setting = 1e-7,
    weight_decay: Setting = 0.0,
) -> Dynamics:
    """Adagrad, in Keras's form: epsilon is added inside the root.

    v_0 = initial_accumulator_value,  v_t = v_{t-1} + g_t^2
    w_t = w_{t-1} - eta g_t / sqrt(v_t + epsilon)

    Args:
      loss: (params, hypers, batch) -> scalar, J_t; g_t is its gradient.
      learning_rate: eta.
      initial_accumulator_value: v_0, which damps the first steps; if it is a hyper, s_0 depends on the hypers.
      epsilon: keeps the root away from 0.
      weight_decay: decoupled, as in `rf.adamw`.

    >>> dynamics = adagrad(lambda w, hypers, batch: w**2, learning_rate=0.5, initial_accumulator_value=0.0)
    >>> round(dynamics.step(dynamics.init(tf.constant(1.0), {}), {}, None, tf.constant(0)).params.numpy().item(), 4)
    0.5
    """
    settings = {"learning_rate": learning_rate, "initial_accumulator_value": initial_accumulator_value, "epsilon": epsilon}
    check_settings(loss, weight_decay=weight_decay, **settings)

    def init(params: Nest, hypers: Hypers) -> AdagradState:
        start = resolve("initial_accumulator_value", initial_accumulator_value, params, hypers, tf.constant(0))
        return AdagradState(params, nest.map(lambda w, v: tf.zeros_like(w) + v, params, start))

    def step(state: AdagradState, hypers: Hypers, batch: Nest, t: tf.Tensor) -> AdagradState:
        w, v = state
        g = gradient(loss, w, hypers, batch, t)
        eta = resolve("learning_rate", learning_rate, w, hypers, t)
        eps = resolve("epsilon", epsilon, w, hypers, t)
        v = nest.map(lambda v, g: v + tf.square(g), v, g)
        return AdagradState(nest.map(lambda w, v, g, eta, eps: w - eta * g / tf.sqrt(v + eps), w, v, g, eta, eps), v)

    dynamics = Dynamics(init=init, step=with_gradient(step, loss), params=lambda state: state.params)
    return with_decay(dynamics, learning_rate, weight_decay)
