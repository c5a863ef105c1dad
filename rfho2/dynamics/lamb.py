"""LAMB: Adam whose step is as long, relative to the weights, in every layer."""

from __future__ import annotations

import tensorflow as tf

from rfho2.core.ops import inert_at_zero, safe_sqrt
from rfho2.dynamics.base import Dynamics, Loss, Setting
from rfho2.dynamics.leafwise import Slots, Values, blend, leafwise, zeros


def lamb(
    loss: Loss,
    learning_rate: Setting,
    beta_1: Setting = 0.9,
    beta_2: Setting = 0.999,
    epsilon: Setting = 1e-7,
    weight_decay: Setting = 0.0,
) -> Dynamics:
    """LAMB, in Keras's form.

    m_n = b1 m_{n-1} + (1 - b1) g_n,  v_n = b2 v_{n-1} + (1 - b2) g_n^2
    d_n = m_n / (1 - b1^n) / (sqrt(v_n / (1 - b2^n)) + epsilon)
    w_n = w_{n-1} - eta d_n norm(w_{n-1}) / norm(d_n), for each leaf; without the quotient where one of the two norms is 0

    Args:
      loss: (params, hypers, batch) -> scalar, J_n; g_n is its gradient.
      learning_rate: eta, the length of a step relative to the weights.
      beta_1, beta_2, epsilon: as in `rf.adam`.
      weight_decay: decoupled, as in `rf.adamw`: the step begins from w - eta * weight_decay * w.

    >>> dynamics = lamb(lambda w, hypers, batch: w**2, learning_rate=0.1)
    >>> round(dynamics.step(dynamics.init(tf.constant(2.0), {}), {}, None, tf.constant(0)).params.numpy().item(), 4)
    1.8

    Reference: You et al., Large batch optimization for deep learning: training BERT in 76 minutes, ICLR 2020.
    """
    settings = {"learning_rate": learning_rate, "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon}
    return leafwise(loss, _rule, zeros("first_moment", "second_moment"), settings, weight_decay, entrywise=False)


def _rule(w: tf.Tensor, g: tf.Tensor, slots: Slots, values: Values, n: tf.Tensor) -> tuple[tf.Tensor, Slots]:
    b1, b2 = values["beta_1"], values["beta_2"]
    m, v = blend(slots["first_moment"], g, b1), blend(slots["second_moment"], tf.square(g), b2)
    d = inert_at_zero(m, v) / (1 - b1**n) / (safe_sqrt(v / (1 - b2**n)) + values["epsilon"])
    size, length = (safe_sqrt(tf.reduce_sum(tf.square(x))) for x in (w, d))
    both = (size > 0) & (length > 0)
    ratio = tf.where(both, size / tf.where(both, length, tf.ones_like(length)), tf.ones_like(size))
    return w - ratio * values["learning_rate"] * d, {"first_moment": m, "second_moment": v}
