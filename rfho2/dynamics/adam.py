"""Adam and AdamW."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.ops import inert_at_zero, safe_sqrt
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, Loss, Setting, check_settings, gradient, is_zero, resolve, with_gradient
from rfho2.dynamics.leafwise import Rule, Slots, Values, blend, decayed, leafwise, updated, zeros


class AdamState(NamedTuple):
    """s_t = (w_t, m_t, v_t)."""

    params: Nest
    first_moment: Nest
    second_moment: Nest


def adam(
    loss: Loss,
    learning_rate: Setting,
    beta_1: Setting = 0.9,
    beta_2: Setting = 0.999,
    epsilon: Setting = 1e-7,
    amsgrad: bool = False,
) -> Dynamics:
    """Adam, in Keras's form: epsilon is added outside the root, the bias correction multiplies the rate.

    m_t = b1 m_{t-1} + (1 - b1) g_t,  v_t = b2 v_{t-1} + (1 - b2) g_t^2
    w_t = w_{t-1} - eta sqrt(1 - b2^t) / (1 - b1^t) m_t / (sqrt(v_t) + epsilon)

    Where a gradient has always been 0 (a dead unit, or a weight of 0 that has a penalty and gets no data), the derivative of
    the step is taken to be 0, in reverse and in forward mode: see `core.ops.inert_at_zero`.

    Args:
      loss: (params, hypers, batch) -> scalar, J_t; g_t is its gradient.
      learning_rate: eta.
      beta_1, beta_2: decay rates of the moments.
      epsilon: bounds the step where the gradient is small.
      amsgrad: whether the largest v so far takes the place of v_t.

    >>> dynamics = adam(lambda w, hypers, batch: w**2, learning_rate=0.1)
    >>> round(dynamics.step(dynamics.init(tf.constant(1.0), {}), {}, None, tf.constant(0)).params.numpy().item(), 4)
    0.9

    References: Kingma and Ba, Adam: a method for stochastic optimization, ICLR 2015; Reddi, Kale and Kumar, On the
    convergence of Adam and beyond, ICLR 2018 (amsgrad).
    """
    return _adam(loss, learning_rate, 0.0, beta_1, beta_2, epsilon, amsgrad)


def adamw(
    loss: Loss,
    learning_rate: Setting,
    weight_decay: Setting,
    beta_1: Setting = 0.9,
    beta_2: Setting = 0.999,
    epsilon: Setting = 1e-7,
    amsgrad: bool = False,
) -> Dynamics:
    """Adam with decoupled weight decay: Adam's w_t, less eta * weight_decay * w_{t-1}.

    Args:
      loss: (params, hypers, batch) -> scalar, without the decay.
      learning_rate: eta, which multiplies the decay too, as in Keras.
      weight_decay: the fraction of the weights subtracted at each step, before multiplication by eta.
      beta_1, beta_2, epsilon, amsgrad: as in `adam`.

    >>> dynamics = adamw(lambda w, hypers, batch: w**2, learning_rate=0.1, weight_decay=0.5)
    >>> round(dynamics.step(dynamics.init(tf.constant(1.0), {}), {}, None, tf.constant(0)).params.numpy().item(), 4)
    0.85

    Reference: Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019.
    """
    return _adam(loss, learning_rate, weight_decay, beta_1, beta_2, epsilon, amsgrad)


def _adam(
    loss: Loss,
    learning_rate: Setting,
    weight_decay: Setting,
    beta_1: Setting,
    beta_2: Setting,
    epsilon: Setting,
    amsgrad: bool,
) -> Dynamics:
    settings = {"learning_rate": learning_rate, "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon}
    if amsgrad:
        return leafwise(loss, adam_rule, zeros("first_moment", "second_moment", "largest"), settings, weight_decay)
    check_settings(loss, **settings, weight_decay=weight_decay)
    rule: Rule = adam_rule
    decays = not is_zero(weight_decay)
    if decays:
        rule, settings = decayed(rule), {**settings, "weight_decay": weight_decay}

    def step(state: AdamState, hypers: Hypers, batch: Nest, t: tf.Tensor) -> AdamState:
        w, m, v = state
        g = gradient(loss, w, hypers, batch, t)
        values = {name: resolve(name, value, w, hypers, t) for name, value in settings.items()}
        w, moments = updated(rule, w, g, {"first_moment": m, "second_moment": v}, values, t, entrywise=True)
        return AdamState(w, **moments)

    def init(params: Nest, hypers: Hypers) -> AdamState:
        return AdamState(params, nest.zeros_like(params), nest.zeros_like(params))

    # With a decay there is no `step.gradient`: it keeps the weights away from where the gradient of the loss is zero.
    return Dynamics(init=init, step=step if decays else with_gradient(step, loss), params=lambda state: state.params)


def adam_rule(w: tf.Tensor, g: tf.Tensor, slots: Slots, values: Values, n: tf.Tensor) -> tuple[tf.Tensor, Slots]:
    """Step n of one leaf; with the slot "largest", that of amsgrad."""
    b1, b2 = values["beta_1"], values["beta_2"]
    m, v = blend(slots["first_moment"], g, b1), blend(slots["second_moment"], tf.square(g), b2)
    new = {"first_moment": m, "second_moment": v}
    if "largest" in slots:
        new["largest"] = v = tf.maximum(slots["largest"], v)
    rate = values["learning_rate"] * safe_sqrt(1 - b2**n) / (1 - b1**n)
    return w - rate * inert_at_zero(m, v) / (safe_sqrt(v) + values["epsilon"]), new
