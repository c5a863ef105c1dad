"""Muon: orthogonalised momentum for matrices, AdamW for all other params."""

from __future__ import annotations

import re
from collections.abc import Sequence

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.ops import safe_sqrt
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.adam import adam_rule
from rfho2.dynamics.base import Dynamics, Loss, Setting
from rfho2.dynamics.leafwise import LeafwiseState, Slots, Values, leafwise, zeros

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

    def is_matrix(path: str, w: tf.Tensor) -> bool:
        embedded = exclude_embeddings and "embedding" in path.lower()
        return w.shape.rank == 2 and not embedded and not any(re.search(one, path) for one in exclude_layers)

    def init(params: Nest, hypers: Hypers) -> LeafwiseState:
        squares = [tf.zeros([], w.dtype) if is_matrix(path, w) else w for path, w in nest.leaves_with_path(params)]
        slots = {"first_moment": params, "second_moment": nest.pack(params, squares)}
        return LeafwiseState(params, nest.zeros_like(slots))

    def rule(w: tf.Tensor, g: tf.Tensor, slots: Slots, values: Values, n: tf.Tensor) -> tuple[tf.Tensor, Slots]:
        if w.shape.rank != 2 or slots["second_moment"].shape.rank:  # a matrix has no second moment
            return _adamw(w, g, slots, values, n)
        eta, mu = values["learning_rate"], values["momentum"]
        m = mu * slots["first_moment"] + g
        direction = orthogonalised(g + mu * m if nesterov else m, coefficients, ns_steps)
        length = values["rms_rate"] * tf.sqrt(tf.cast(max(w.shape), w.dtype))
        return w - eta * values["weight_decay"] * w - eta * length * direction, {**slots, "first_moment": m}

    steps = leafwise(loss, rule, zeros("first_moment", "second_moment"), settings, entrywise=False)
    # A new function, without `step.gradient`: the decays keep the weights away from where the gradient is zero.
    return steps._replace(init=init, step=lambda *args: steps.step(*args))


def _adamw(w: tf.Tensor, g: tf.Tensor, slots: Slots, values: Values, n: tf.Tensor) -> tuple[tf.Tensor, Slots]:
    eta = values["learning_rate"]
    settings = {name: values[f"adam_{name}"] for name in ("beta_1", "beta_2")} | {"epsilon": values["epsilon"]}
    settings["learning_rate"] = eta * values["adam_lr_ratio"]
    return adam_rule(w - eta * values["adam_weight_decay"] * w, g, slots, settings, n)


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
