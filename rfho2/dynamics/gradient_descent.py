"""Gradient descent, full batch or stochastic."""

from __future__ import annotations

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, Loss, Setting, check_settings, gradient, resolve, with_gradient
from rfho2.dynamics.decay import with_decay


def gradient_descent(loss: Loss, learning_rate: Setting, weight_decay: Setting = 0.0) -> Dynamics:
    """Gradient descent, full batch or stochastic.

    w_t = w_{t-1} - eta grad J_t(w_{t-1})

    Args:
      loss: (params, hypers, batch) -> scalar, J_t.
      learning_rate: eta; a number, the name of the hyper to tune, or (hypers, t) -> tensor for a schedule.
      weight_decay: decoupled, as in `rf.adamw`; a penalty in the loss is the same for constant settings.

    >>> dynamics = gradient_descent(lambda w, hypers, batch: w**2, learning_rate="lr")
    >>> dynamics.step(tf.constant(1.0), {"lr": tf.constant(0.25)}, None, tf.constant(0)).numpy().item()
    0.5
    """
    check_settings(loss, learning_rate=learning_rate, weight_decay=weight_decay)

    def step(w: Nest, hypers: Hypers, batch: Nest, t: tf.Tensor) -> Nest:
        g = gradient(loss, w, hypers, batch, t)
        eta = resolve("learning_rate", learning_rate, w, hypers, t)
        return nest.map(lambda w, g, eta: w - eta * g, w, g, eta)

    dynamics = Dynamics(init=lambda params, hypers: params, step=with_gradient(step, loss), params=lambda state: state)
    return with_decay(dynamics, learning_rate, weight_decay)
