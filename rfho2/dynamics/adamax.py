"""Adamax: Adam with the largest gradient in place of the root mean square."""

from __future__ import annotations

import tensorflow as tf

from rfho2.core.ops import inert_at_zero
from rfho2.dynamics.base import Dynamics, Loss, Setting
from rfho2.dynamics.leafwise import Slots, Values, blend, leafwise, zeros


def adamax(
    loss: Loss,
    learning_rate: Setting,
    beta_1: Setting = 0.9,
    beta_2: Setting = 0.999,
    epsilon: Setting = 1e-7,
    weight_decay: Setting = 0.0,
) -> Dynamics:
    """Adamax, in Keras's form.

    m_n = b1 m_{n-1} + (1 - b1) g_n,  u_n = max(b2 u_{n-1}, |g_n|)
    w_n = w_{n-1} - eta / (1 - b1^n) m_n / (u_n + epsilon)

    Args:
      loss: (params, hypers, batch) -> scalar, J_n; g_n is its gradient.
      learning_rate: eta.
      beta_1, beta_2: decay rates of the moment and of the maximum.
      epsilon: bounds the step where the gradient is small.
      weight_decay: decoupled, as in `rf.adamw`.

    >>> dynamics = adamax(lambda w, hypers, batch: w**2, learning_rate=0.1)
    >>> round(dynamics.step(dynamics.init(tf.constant(1.0), {}), {}, None, tf.constant(0)).params.numpy().item(), 4)
    0.9

    Reference: Kingma and Ba, Adam: a method for stochastic optimization, ICLR 2015, section 7.1.
    """
    settings = {"learning_rate": learning_rate, "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon}
    return leafwise(loss, _rule, zeros("moment", "largest"), settings, weight_decay)


def _rule(w: tf.Tensor, g: tf.Tensor, slots: Slots, values: Values, n: tf.Tensor) -> tuple[tf.Tensor, Slots]:
    m = blend(slots["moment"], g, values["beta_1"])
    u = tf.maximum(values["beta_2"] * slots["largest"], tf.abs(g))
    rate = values["learning_rate"] / (1 - values["beta_1"] ** n)
    w -= rate * inert_at_zero(m, u) / (u + values["epsilon"])
    return w, {"moment": m, "largest": u}
