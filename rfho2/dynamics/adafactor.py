"""Adafactor: second moments from their row and column means, and steps relative to the weights."""

from __future__ import annotations

import tensorflow as tf

from rfho2.core.ops import inert_at_zero, safe_sqrt
from rfho2.dynamics.base import Dynamics, Loss, Setting
from rfho2.dynamics.leafwise import Slots, Values, blend, leafwise

NEVER_MOVED = 1e3  # times epsilon_1: second moments below this come from epsilon_1 alone


def adafactor(
    loss: Loss,
    learning_rate: Setting,
    beta_2_decay: Setting = -0.8,
    epsilon_1: Setting = 1e-30,
    epsilon_2: Setting = 1e-3,
    clip_threshold: Setting = 1.0,
    weight_decay: Setting = 0.0,
) -> Dynamics:
    """Adafactor, in Keras's form; rms(x) is the root mean square of the entries of a leaf.

    b_n = 1 - n^beta_2_decay,  q_n = g_n^2 + epsilon_1
    r_n = b_n r_{n-1} + (1 - b_n) (means of q_n over columns),  c_n likewise over rows,  v_n = r_n c_n / mean(r_n)
    u_n = g_n / sqrt(v_n)
    w_n = w_{n-1} - min(eta, 1 / sqrt(n)) max(epsilon_2, rms(w_{n-1})) u_n / max(1, rms(u_n) / clip_threshold)

    A leaf with fewer than two axes has v_n = b_n v_{n-1} + (1 - b_n) q_n.

    Args:
      loss: (params, hypers, batch) -> scalar, J_n; g_n is its gradient.
      learning_rate: eta; where it exceeds 1 / sqrt(n), it has no effect.
      beta_2_decay: how quickly the memory of the second moments grows.
      epsilon_1, epsilon_2: keep the second moments and the size of the weights away from 0.
      clip_threshold: the largest root mean square of u_n.
      weight_decay: decoupled, as in `rf.adamw`: the step begins from w - eta * weight_decay * w.

    >>> dynamics = adafactor(lambda w, hypers, batch: w**2, learning_rate=0.1)
    >>> round(dynamics.step(dynamics.init(tf.constant(2.0), {}), {}, None, tf.constant(0)).params.numpy().item(), 4)
    1.8

    Reference: Shazeer and Stern, Adafactor: adaptive learning rates with sublinear memory cost, ICML 2018.
    """
    settings = {
        "learning_rate": learning_rate,
        "beta_2_decay": beta_2_decay,
        "epsilon_1": epsilon_1,
        "epsilon_2": epsilon_2,
        "clip_threshold": clip_threshold,
    }
    return leafwise(loss, _rule, _slots, settings, weight_decay, entrywise=False)


def _slots(w: tf.Tensor) -> Slots:
    if w.shape.rank < 2:
        return {"rows": tf.zeros_like(w), "columns": tf.zeros([], w.dtype)}
    return {"rows": tf.zeros_like(w[..., 0]), "columns": tf.zeros_like(w[..., 0, :])}


def _rule(w: tf.Tensor, g: tf.Tensor, slots: Slots, values: Values, n: tf.Tensor) -> tuple[tf.Tensor, Slots]:
    b = 1 - n ** values["beta_2_decay"]
    square = tf.square(g) + values["epsilon_1"]
    if w.shape.rank < 2:
        r, c = blend(slots["rows"], square, b), slots["columns"]
        v = r
    else:
        r = blend(slots["rows"], tf.reduce_mean(square, -1), b)
        c = blend(slots["columns"], tf.reduce_mean(square, -2), b)
        v = (r / tf.reduce_mean(r, -1, keepdims=True))[..., None] * c[..., None, :]
    moved = tf.where(v > NEVER_MOVED * values["epsilon_1"], v, tf.zeros_like(v))
    u = inert_at_zero(g, moved) / tf.sqrt(v)
    u /= tf.maximum(tf.ones([], w.dtype), _rms(u) / values["clip_threshold"])
    rate = tf.minimum(values["learning_rate"], 1 / tf.sqrt(n)) * tf.maximum(values["epsilon_2"], _rms(w))
    return w - rate * u, {"rows": r, "columns": c}


def _rms(x: tf.Tensor) -> tf.Tensor:
    return safe_sqrt(tf.reduce_mean(tf.square(x)))
