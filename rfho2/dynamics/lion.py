"""Lion: steps by the sign of a running mean of the gradient."""

from __future__ import annotations

import tensorflow as tf

from rfho2.dynamics.base import Dynamics, Loss, Setting
from rfho2.dynamics.leafwise import Slots, Values, blend, leafwise, zeros


def lion(
    loss: Loss,
    learning_rate: Setting,
    beta_1: Setting = 0.9,
    beta_2: Setting = 0.99,
    weight_decay: Setting = 0.0,
) -> Dynamics:
    """Lion, in Keras's form.

    w_n = w_{n-1} - eta sign(b1 m_{n-1} + (1 - b1) g_n)
    m_n = b2 m_{n-1} + (1 - b2) g_n

    The sign has derivative 0 wherever it has one. The hypergradient of the learning rate and of the weight decay is exact:
    the weights are linear in each step's rate as long as no sign changes. That of anything that acts through the gradient
    alone (the betas, penalties, weights of examples) is 0, and such hypers cannot be tuned with Lion.

    Args:
      loss: (params, hypers, batch) -> scalar, J_n; g_n is its gradient.
      learning_rate: eta, the length of every weight's step.
      beta_1, beta_2: decay rates of the mean, as it is used and as it is kept.
      weight_decay: decoupled, as in `rf.adamw`.

    >>> dynamics = lion(lambda w, hypers, batch: w**2, learning_rate=0.1)
    >>> round(dynamics.step(dynamics.init(tf.constant(1.0), {}), {}, None, tf.constant(0)).params.numpy().item(), 4)
    0.9

    Reference: Chen et al., Symbolic discovery of optimization algorithms, NeurIPS 2023.
    """
    settings = {"learning_rate": learning_rate, "beta_1": beta_1, "beta_2": beta_2}
    return leafwise(loss, _rule, zeros("moment"), settings, weight_decay)


def _rule(w: tf.Tensor, g: tf.Tensor, slots: Slots, values: Values, n: tf.Tensor) -> tuple[tf.Tensor, Slots]:
    m = slots["moment"]
    w -= values["learning_rate"] * tf.sign(blend(m, g, values["beta_1"]))
    return w, {"moment": blend(m, g, values["beta_2"])}
