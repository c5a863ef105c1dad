"""Heavy-ball momentum and Nesterov's variant."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import (
    Dynamics,
    Loss,
    Setting,
    check_settings,
    gradient,
    resolve,
    substitute_value,
    with_gradient,
    with_replay,
)
from rfho2.dynamics.decay import with_decay


class MomentumState(NamedTuple):
    """s_t = (w_t, v_t)."""

    params: Nest
    velocity: Nest


def momentum(loss: Loss, learning_rate: Setting, momentum: Setting, weight_decay: Setting = 0.0) -> Dynamics:
    """Gradient descent with momentum: equation (2) of the paper, with the sign of its second line corrected.

    v_t = mu v_{t-1} + grad J_t(w_{t-1})
    w_t = w_{t-1} - eta v_t

    Unlike in Keras, the learning rate multiplies the velocity instead of being part of it: the iterates are the same for a
    constant eta, and a change of eta takes effect at once.

    Args:
      loss: (params, hypers, batch) -> scalar, J_t.
      learning_rate: eta.
      momentum: mu.
      weight_decay: decoupled, as in `rf.adamw`: the velocity does not contain it, unlike a penalty in the loss.

    >>> dynamics = momentum(lambda w, hypers, batch: w**2, learning_rate=0.25, momentum="mu")
    >>> state = dynamics.init(tf.constant(1.0), {})
    >>> dynamics.step(state, {"mu": tf.constant(0.9)}, None, tf.constant(0)).params.numpy().item()
    0.5
    """
    check_settings(loss, learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay)

    def step(state: MomentumState, hypers: Hypers, batch: Nest, t: tf.Tensor) -> MomentumState:
        w, v, eta, mu = *state, *_rates(learning_rate, momentum, state.params, hypers, t)
        g = gradient(loss, w, hypers, batch, t)
        v = nest.map(lambda v, g, mu: mu * v + g, v, g, mu)
        return MomentumState(nest.map(lambda w, v, eta: w - eta * v, w, v, eta), v)

    def replay(state: MomentumState, hypers: Hypers, batch: Nest, t: tf.Tensor, new: MomentumState) -> MomentumState:
        """Only dw_t/d eta = -v_t needs the value of the gradient, and v_t was saved."""
        w, v, eta, mu = *state, *_rates(learning_rate, momentum, state.params, hypers, t)
        g = gradient(loss, w, hypers, batch, t)
        v = nest.map(lambda v, g, mu, known: substitute_value(known, mu * v + g), v, g, mu, new.velocity)
        return MomentumState(nest.map(lambda w, v, eta: w - eta * v, w, v, eta), v)

    step = with_gradient(with_replay(step, replay), loss)
    dynamics = Dynamics(init=_at_rest, step=step, params=lambda state: state.params)
    return with_decay(dynamics, learning_rate, weight_decay)


def nesterov(loss: Loss, learning_rate: Setting, momentum: Setting, weight_decay: Setting = 0.0) -> Dynamics:
    """Nesterov's accelerated gradient, in Keras's form.

    v_t = mu v_{t-1} + grad J_t(w_{t-1})
    w_t = w_{t-1} - eta (mu v_t + grad J_t(w_{t-1}))

    Args:
      loss: (params, hypers, batch) -> scalar, J_t.
      learning_rate: eta.
      momentum: mu.
      weight_decay: decoupled, as in `rf.adamw`: the velocity does not contain it, unlike a penalty in the loss.

    >>> dynamics = nesterov(lambda w, hypers, batch: w**2, learning_rate=0.25, momentum=0.5)
    >>> dynamics.step(dynamics.init(tf.constant(1.0), {}), {}, None, tf.constant(0)).params.numpy().item()
    0.25
    """
    check_settings(loss, learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay)

    def step(state: MomentumState, hypers: Hypers, batch: Nest, t: tf.Tensor) -> MomentumState:
        w, v, eta, mu = *state, *_rates(learning_rate, momentum, state.params, hypers, t)
        g = gradient(loss, w, hypers, batch, t)
        v = nest.map(lambda v, g, mu: mu * v + g, v, g, mu)
        return MomentumState(nest.map(lambda w, v, g, eta, mu: w - eta * (mu * v + g), w, v, g, eta, mu), v)

    dynamics = Dynamics(init=_at_rest, step=with_gradient(step, loss), params=lambda state: state.params)
    return with_decay(dynamics, learning_rate, weight_decay)


def _at_rest(params: Nest, hypers: Hypers) -> MomentumState:
    return MomentumState(params, nest.zeros_like(params))


def _rates(learning_rate: Setting, momentum: Setting, w: Nest, hypers: Hypers, t: tf.Tensor) -> tuple[Nest, Nest]:
    return resolve("learning_rate", learning_rate, w, hypers, t), resolve("momentum", momentum, w, hypers, t)
