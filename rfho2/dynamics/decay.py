"""Decoupled weight decay, for any optimiser."""

from __future__ import annotations

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, Setting, is_zero, resolve


def with_decay(dynamics: Dynamics, learning_rate: Setting, weight_decay: Setting) -> Dynamics:
    """The dynamics, with eta * weight_decay * w_{t-1} subtracted from w_t; unchanged if the decay is the number 0.

    The result has no `step.gradient`: the decay keeps the weights away from where the gradient of the loss is zero.
    """
    if is_zero(weight_decay):
        return dynamics

    def step(state: Nest, hypers: Hypers, batch: Nest, t: tf.Tensor) -> Nest:
        w, new = dynamics.params(state), dynamics.step(state, hypers, batch, t)
        eta, decay = (
            resolve(name, value, w, hypers, t)
            for name, value in (("learning_rate", learning_rate), ("weight_decay", weight_decay))
        )
        shrunk = nest.map(lambda new, w, eta, decay: new - eta * decay * w, dynamics.params(new), w, eta, decay)
        return with_params(dynamics, new, shrunk)

    return dynamics._replace(step=step)


def with_params(dynamics: Dynamics, state: Nest, params: Nest) -> Nest:
    """The state of one of the library's optimisers, with other params; that of gradient descent is the params."""
    return params if dynamics.params(state) is state else state._replace(params=params)
