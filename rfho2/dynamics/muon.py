"""Muon: orthogonalised momentum for matrices, AdamW for all other params."""

from __future__ import annotations

import re
from collections.abc import Sequence

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.ops import inert_at_zero, safe_sqrt
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, Loss, Setting, check_settings, gradient, resolve
from rfho2.dynamics.leafwise import LeafwiseState, blend

NOT_ZERO = 1e-7  # added to the norm of a matrix before it is divided by it, as in Keras


def muon(
    loss: Loss,
    learning_rate: Setting,
    adam_beta_1: Setting = 0.9,
    adam_beta_2: Setting = 0.999,
    adam_weight_decay: Setting = 0.004,
    epsilon: Setting = 1e-7,
    weight_decay: Setting = 0.004,
    momentum: Setting = 0.95,
    adam_lr_ratio: Setting = 1.0,
    rms_rate: Setting = 0.2,
    coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
    ns_steps: int = 5,
    nesterov: bool = True,
    exclude_layers: Sequence[str] = (),
    exclude_embeddings: bool = True,
) -> Dynamics:
    """Muon, in Keras's form.

    For each matrix of p rows and q columns, with w the weights less eta * weight_decay * w:

    m_n = mu m_{n-1} + g_n
    w_n = w - eta rms_rate sqrt(max(p, q)) O(g_n + mu m_n)

    O(x) approximates the orthogonal matrix nearest to x: from x / norm(x), `ns_steps` times x <- a x + (b y + c y^2) x with
    y = x x^T. All other params follow AdamW, with the rate eta * adam_lr_ratio and the decay eta * adam_weight_decay.

    Args:
      loss: (params, hypers, batch) -> scalar, J_n; g_n is its gradient.
      learning_rate: eta.
      adam_beta_1, adam_beta_2, adam_weight_decay, epsilon, adam_lr_ratio: of AdamW.
      weight_decay, momentum: of the matrices; mu is the momentum.
      rms_rate: the root mean square of a step, relative to eta.
      coefficients: (a, b, c), Keras's muon_a, muon_b and muon_c.
      ns_steps: iterations towards the orthogonal matrix.
      nesterov: whether O is taken of g_n + mu m_n rather than of m_n.
      exclude_layers: regular expressions; a matrix whose path matches one follows AdamW.
      exclude_embeddings: whether matrices with "embedding" in their paths follow AdamW.

    >>> dynamics = muon(lambda w, hypers, batch: tf.reduce_sum(w**2), learning_rate=0.1, weight_decay=0.0)
    >>> step = dynamics.step(dynamics.init(tf.eye(2), {}), {}, None, tf.constant(0))
    >>> [round(x, 2) for x in step.params.numpy().ravel().tolist()]  # about 0.1 * 0.2 * sqrt(2) less on the diagonal
    [0.97, 0.0, 0.0, 0.97]

    Reference: Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024.
    """
    settings = {
        "learning_rate": learning_rate, "adam_beta_1": adam_beta_1, "adam_beta_2": adam_beta_2,
        "adam_weight_decay": adam_weight_decay, "epsilon": epsilon, "weight_decay": weight_decay, "momentum": momentum,
        "adam_lr_ratio": adam_lr_ratio, "rms_rate": rms_rate,
    }  # fmt: skip
    check_settings(loss, **settings)

    def is_matrix(path: str, w: tf.Tensor) -> bool:
        embedded = exclude_embeddings and "embedding" in path.lower()
        return w.shape.rank == 2 and not embedded and not any(re.search(one, path) for one in exclude_layers)

    def init(params: Nest, hypers: Hypers) -> LeafwiseState:
        zeros = nest.zeros_like(params)
        squares = [tf.zeros([], w.dtype) if is_matrix(path, w) else w for path, w in nest.leaves_with_path(params)]
        return LeafwiseState(params, {"moment": zeros, "second_moment": nest.zeros_like(nest.pack(params, squares))})

    def step(state: LeafwiseState, hypers: Hypers, batch: Nest, t: tf.Tensor) -> LeafwiseState:
        w = state.params
        g = nest.flatten(gradient(loss, w, hypers, batch, t))
        n = tf.cast(t + 1, g[0].dtype)
        values = [nest.flatten(resolve(name, value, w, hypers, t)) for name, value in settings.items()]
        moments = (nest.flatten(state.slots[name]) for name in ("moment", "second_moment"))
        after = [
            _of_matrix(w, g, m, v, dict(zip(settings, s, strict=True)), coefficients, ns_steps, nesterov)
            if is_matrix(path, w)
            else _adamw(w, g, m, v, dict(zip(settings, s, strict=True)), n)
            for (path, w), g, m, v, s in zip(
                nest.leaves_with_path(w), g, *moments, list(zip(*values, strict=True)), strict=True
            )
        ]
        new, m, v = (nest.pack(w, list(leaves)) for leaves in zip(*after, strict=True))
        return LeafwiseState(new, {"moment": m, "second_moment": v})

    return Dynamics(init, step, lambda state: state.params)


Leaf = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
"""(w, moment, second moment)."""


def _of_matrix(
    w: tf.Tensor,
    g: tf.Tensor,
    m: tf.Tensor,
    v: tf.Tensor,
    values: dict[str, tf.Tensor],
    coefficients: tuple[float, float, float],
    ns_steps: int,
    nesterov: bool,
) -> Leaf:
    eta, mu = values["learning_rate"], values["momentum"]
    m = mu * m + g
    direction = orthogonalised(g + mu * m if nesterov else m, coefficients, ns_steps)
    longest = tf.sqrt(tf.cast(max(w.shape), w.dtype))
    return w - eta * values["weight_decay"] * w - eta * values["rms_rate"] * longest * direction, m, v


def orthogonalised(x: tf.Tensor, coefficients: tuple[float, float, float], steps: int) -> tf.Tensor:
    """About U V^T, where x = U S V^T; the derivative at x = 0 is taken to be 0."""
    a, b, c = coefficients
    transposed = x.shape[0] > x.shape[1]
    norm = safe_sqrt(tf.reduce_sum(tf.square(x)))
    x = tf.where(norm > 0, x, tf.stop_gradient(x)) / (norm + NOT_ZERO)
    x = tf.transpose(x) if transposed else x
    for _ in range(steps):
        y = tf.matmul(x, x, transpose_b=True)
        x = a * x + (b * y + c * y @ y) @ x
    return tf.transpose(x) if transposed else x


def _adamw(w: tf.Tensor, g: tf.Tensor, m: tf.Tensor, v: tf.Tensor, values: dict[str, tf.Tensor], n: tf.Tensor) -> Leaf:
    b1, b2, eta = values["adam_beta_1"], values["adam_beta_2"], values["learning_rate"]
    m, v = blend(m, g, b1), blend(v, tf.square(g), b2)
    rate = eta * values["adam_lr_ratio"] * safe_sqrt(1 - b2**n) / (1 - b1**n)
    w -= eta * values["adam_weight_decay"] * w
    return w - rate * inert_at_zero(m, v) / (safe_sqrt(v) + values["epsilon"]), m, v
