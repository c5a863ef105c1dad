"""Adadelta."""

from __future__ import annotations

import tensorflow as tf

from rfho2.dynamics.base import Dynamics, Loss, Setting
from rfho2.dynamics.leafwise import Slots, Values, blend, leafwise, zeros


def adadelta(
    loss: Loss, learning_rate: Setting, rho: Setting = 0.95, epsilon: Setting = 1e-7, weight_decay: Setting = 0.0
) -> Dynamics:
    """Adadelta, in Keras's form.

    v_n = rho v_{n-1} + (1 - rho) g_n^2
    d_n = g_n sqrt(x_{n-1} + epsilon) / sqrt(v_n + epsilon),  x_n = rho x_{n-1} + (1 - rho) d_n^2
    w_n = w_{n-1} - eta d_n

    Args:
      loss: (params, hypers, batch) -> scalar, J_n; g_n is its gradient.
      learning_rate: eta; 1 in the paper.
      rho: decay rate of the means.
      epsilon: sets the size of the first steps.
      weight_decay: decoupled, as in `rf.adamw`.

    >>> dynamics = adadelta(lambda w, hypers, batch: w**2, learning_rate=1.0, rho=0.0, epsilon=0.01)
    >>> round(dynamics.step(dynamics.init(tf.constant(1.0), {}), {}, None, tf.constant(0)).params.numpy().item(), 4)
    0.9001

    Reference: Zeiler, ADADELTA: an adaptive learning rate method, 2012.
    """
    settings = {"learning_rate": learning_rate, "rho": rho, "epsilon": epsilon}
    return leafwise(loss, _rule, zeros("mean_square", "mean_square_step"), settings, weight_decay)


def _rule(w: tf.Tensor, g: tf.Tensor, slots: Slots, values: Values, n: tf.Tensor) -> tuple[tf.Tensor, Slots]:
    rho, epsilon = values["rho"], values["epsilon"]
    v = blend(slots["mean_square"], tf.square(g), rho)
    d = g * tf.sqrt(slots["mean_square_step"] + epsilon) / tf.sqrt(v + epsilon)
    x = blend(slots["mean_square_step"], tf.square(d), rho)
    return w - values["learning_rate"] * d, {"mean_square": v, "mean_square_step": x}
