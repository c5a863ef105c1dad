"""Nadam: Adam with Nesterov's momentum."""

from __future__ import annotations

import tensorflow as tf

from rfho2.core.ops import inert_at_zero, safe_sqrt
from rfho2.dynamics.base import Dynamics, Loss, Setting
from rfho2.dynamics.leafwise import Slots, Values, blend, leafwise


def nadam(
    loss: Loss,
    learning_rate: Setting,
    beta_1: Setting = 0.9,
    beta_2: Setting = 0.999,
    epsilon: Setting = 1e-7,
    weight_decay: Setting = 0.0,
) -> Dynamics:
    """Nadam, in Keras's form.

    u_n = b1 (1 - 0.96^n / 2),  p_n = u_1 u_2 ... u_n
    m_n = b1 m_{n-1} + (1 - b1) g_n,  v_n = b2 v_{n-1} + (1 - b2) g_n^2
    w_n = w_{n-1} - eta (u_{n+1} m_n / (1 - p_{n+1}) + (1 - u_n) g_n / (1 - p_n)) / (sqrt(v_n / (1 - b2^n)) + epsilon)

    Args:
      loss: (params, hypers, batch) -> scalar, J_n; g_n is its gradient.
      learning_rate: eta.
      beta_1, beta_2, epsilon: as in `rf.adam`.
      weight_decay: decoupled, as in `rf.adamw`.

    >>> dynamics = nadam(lambda w, hypers, batch: w**2, learning_rate=0.1)
    >>> round(dynamics.step(dynamics.init(tf.constant(1.0), {}), {}, None, tf.constant(0)).params.numpy().item(), 4)
    0.8937

    Reference: Dozat, Incorporating Nesterov momentum into Adam, ICLR workshop 2016.
    """
    settings = {"learning_rate": learning_rate, "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon}
    return leafwise(loss, _rule, _slots, settings, weight_decay, entrywise=False)


def _slots(w: tf.Tensor) -> Slots:
    return {"first_moment": tf.zeros_like(w), "second_moment": tf.zeros_like(w), "product": tf.ones([], w.dtype)}


def _rule(w: tf.Tensor, g: tf.Tensor, slots: Slots, values: Values, n: tf.Tensor) -> tuple[tf.Tensor, Slots]:
    b1, b2 = values["beta_1"], values["beta_2"]
    m, v = blend(slots["first_moment"], g, b1), blend(slots["second_moment"], tf.square(g), b2)
    now, ahead = (b1 * (1 - 0.5 * tf.pow(tf.cast(0.96, w.dtype), k)) for k in (n, n + 1))
    product = slots["product"] * now
    pull = ahead * inert_at_zero(m, v) / (1 - product * ahead) + (1 - now) * inert_at_zero(g, v) / (1 - product)
    w -= values["learning_rate"] * pull / (safe_sqrt(v / (1 - b2**n)) + values["epsilon"])
    return w, {"first_moment": m, "second_moment": v, "product": product}
