"""Gradient clipping: by value, by the norm of each leaf of the params, or by the norm of all of them."""

from __future__ import annotations

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.ops import safe_sqrt
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Loss, OwnGradient, Setting, check_settings, gradient, resolve


def clipped(
    loss: Loss,
    clipvalue: Setting | None = None,
    clipnorm: Setting | None = None,
    global_clipnorm: Setting | None = None,
) -> Loss:
    """The loss with a clipped gradient, for any optimiser: `rf.adam(rf.clipped(loss, global_clipnorm=1.0), "lr")`.

    With the bound c and g = grad J_t(w):

    clipvalue         min(max(g_i, -c), c) for each entry
    clipnorm          g c / max(norm(g), c) for each leaf of the params
    global_clipnorm   the same, with the norm of all leaves together

    The clipped gradient is differentiable wherever the norm (or the entry) is not exactly c. Where an entry is clipped by
    value, the training forgets the loss, and the hypergradient is 0 there.

    Args:
      loss: (params, hypers, batch) -> scalar, J_t.
      clipvalue, clipnorm, global_clipnorm: one of the three, as in Keras; a number, the name of a hyper, or a function
        (hypers, t) -> tensor.

    >>> from rfho2.dynamics.gradient_descent import gradient_descent
    >>> dynamics = gradient_descent(clipped(lambda w, hypers, batch: 5 * w**2, clipnorm=1.0), learning_rate=0.5)
    >>> dynamics.step(tf.constant(2.0), {}, None, tf.constant(0)).numpy().item()
    1.5
    """
    bounds = {"clipvalue": clipvalue, "clipnorm": clipnorm, "global_clipnorm": global_clipnorm}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    if len(given) != 1:
        raise ValueError(f"clipped got {sorted(given) or 'no bound'}; pass one of {list(bounds)}.")
    ((kind, bound),) = given.items()
    check_settings(loss, **given)
    if isinstance(bound, int | float) and not bound > 0:
        raise ValueError(f"{kind} is {bound}; it has to be above 0.")
    clip = {"clipvalue": _by_value, "clipnorm": _by_norm, "global_clipnorm": _by_global_norm}[kind]

    def own_gradient(params: Nest, hypers: Hypers, batch: Nest, t: tf.Tensor) -> Nest:
        return clip(gradient(loss, params, hypers, batch, t), resolve(kind, bound, params, hypers, t))

    return OwnGradient(loss, own_gradient)


def _by_value(g: Nest, bound: Nest) -> Nest:
    return nest.map(lambda g, c: tf.minimum(tf.maximum(g, -c), c), g, bound)


def _by_norm(g: Nest, bound: Nest) -> Nest:
    return nest.map(lambda g, c: g * _scale(tf.reduce_sum(tf.square(g)), c), g, bound)


def _by_global_norm(g: Nest, bound: Nest) -> Nest:
    squares = tf.add_n([tf.reduce_sum(tf.square(leaf)) for leaf in nest.flatten(g)])
    return nest.map(lambda g, c: g * _scale(squares, c), g, bound)


def _scale(squares: tf.Tensor, bound: tf.Tensor) -> tf.Tensor:
    norm, one = safe_sqrt(squares), tf.ones([], squares.dtype)
    longer = norm > bound
    return tf.where(longer, bound / tf.where(longer, norm, one), one)
