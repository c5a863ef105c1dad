"""Optimisers that need no learning rate, or no schedule: DoG, D-Adaptation, Prodigy and schedule-free AdamW.

Each has the default settings of its authors. A norm or a product without an index is over all weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import tensorflow as tf

import rfho2 as rf
from rfho2.core import nest
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Loss, gradient

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
FIRST = 1e-6  # the first estimate of the distance to the solution; for DoG relative to the norm of the weights, plus 1
GAMMA = 8  # of DoG's average: larger values forget earlier weights sooner
RATE = 0.0025  # of schedule-free AdamW
State = TypeVar("State", bound=NamedTuple)


class DoG(NamedTuple):
    """Weights, initial weights, largest distance between the two, sum of squared gradients, average of the weights."""

    params: Nest
    initial: Nest
    distance: tf.Tensor
    squares: tf.Tensor
    average: Nest


def dog(loss: Loss) -> rf.Dynamics:
    """Distance over gradients (Ivgi, Hinder and Carmon, 2023), with its average of the weights.

    r_t = max over i <= t of norm(w_i - w_0), at least r_0 = 1e-6 (1 + norm(w_0))
    w_{t+1} = w_t - r_t g_t / sqrt(sum over i <= t of norm(g_i)^2)
    a_{t+1} = (1 - c) a_t + c w_{t+1}, where c = (gamma + 1) / (t + 1 + gamma)
    """

    def init(params: Nest, hypers: Hypers) -> DoG:
        norm = nest.norm(params)
        return DoG(params, params, FIRST * (1 + norm), tf.cast(EPSILON, norm.dtype), params)

    def step(state: DoG, g: Nest, t: tf.Tensor) -> DoG:
        distance = tf.maximum(state.distance, nest.norm(_minus(state.params, state.initial)))
        squares = state.squares + nest.dot(g, g)
        eta = distance / tf.sqrt(squares)
        params = nest.map(lambda w, g: w - eta * g, state.params, g)
        c = (GAMMA + 1) / (tf.cast(t, eta.dtype) + 1 + GAMMA)
        average = nest.map(lambda a, w: (1 - c) * a + c * w, state.average, params)
        return DoG(params, state.initial, distance, squares, average)

    return _dynamics(loss, init, step, lambda state: state.params, lambda state: state.average)


class DAdapted(NamedTuple):
    """Weights, moments, sum of gradients, numerator of the estimate, estimate d of the distance to the solution."""

    params: Nest
    m: Nest
    v: Nest
    s: Nest
    numerator: tf.Tensor
    d: tf.Tensor


def d_adaptation(loss: Loss) -> rf.Dynamics:
    """Adam with D-Adaptation (Defazio and Mishchenko, 2023).

    With b = sqrt(beta_2):
    r_t = b r_{t-1} + (1 - b) d_t <g_t, s_{t-1} / (sqrt(v_{t-1}) + eps)>
    m_t = beta_1 m_{t-1} + (1 - beta_1) d_t g_t,  v_t = beta_2 v_{t-1} + (1 - beta_2) g_t^2
    s_t = b s_{t-1} + (1 - b) d_t g_t,  d_{t+1} = max(d_t, r_t / ((1 - b) |s_t|_1))
    w_t = w_{t-1} - m_t / (sqrt(v_t) + eps)
    """
    b = BETA_2**0.5

    def init(params: Nest, hypers: Hypers) -> DAdapted:
        zeros, dtype = nest.zeros_like(params), nest.flatten(params)[0].dtype
        return DAdapted(params, zeros, zeros, zeros, tf.zeros([], dtype), tf.cast(FIRST, dtype))

    def step(state: DAdapted, g: Nest, t: tf.Tensor) -> DAdapted:
        params, m, v, s, numerator, d = state
        numerator = b * numerator + (1 - b) * d * nest.dot(g, nest.map(_ratio, s, v))
        m = nest.map(lambda m, g: BETA_1 * m + (1 - BETA_1) * d * g, m, g)
        v = nest.map(lambda v, g: BETA_2 * v + (1 - BETA_2) * tf.square(g), v, g)
        s = nest.map(lambda s, g: b * s + (1 - b) * d * g, s, g)
        estimate = tf.math.divide_no_nan(numerator, (1 - b) * _sum_of_sizes(s))
        params = nest.map(lambda w, m, v: w - _ratio(m, v), params, m, v)
        return DAdapted(params, m, v, s, numerator, tf.maximum(d, estimate))

    return _dynamics(loss, init, step, lambda state: state.params)


class Prodigal(NamedTuple):
    """Weights, initial weights, moments, sum of gradients, numerator of the estimate, estimate d of the distance."""

    params: Nest
    initial: Nest
    m: Nest
    v: Nest
    s: Nest
    numerator: tf.Tensor
    d: tf.Tensor


def prodigy(loss: Loss) -> rf.Dynamics:
    """Adam with Prodigy's estimate (Mishchenko and Defazio, 2024).

    With b = sqrt(beta_2):
    r_t = b r_{t-1} + d_t^2 <g_t, w_0 - w_{t-1}> / d_1,  s_t = b s_{t-1} + d_t^2 g_t / d_1
    m_t = beta_1 m_{t-1} + (1 - beta_1) d_t g_t,  v_t = beta_2 v_{t-1} + (1 - beta_2) (d_t g_t)^2
    d_{t+1} = max(d_t, r_t / |s_t|_1)
    w_t = w_{t-1} - d_t m_t / (sqrt(v_t) + d_{t+1} eps)
    """
    b = BETA_2**0.5

    def init(params: Nest, hypers: Hypers) -> Prodigal:
        zeros, dtype = nest.zeros_like(params), nest.flatten(params)[0].dtype
        return Prodigal(params, params, zeros, zeros, zeros, tf.zeros([], dtype), tf.cast(FIRST, dtype))

    def step(state: Prodigal, g: Nest, t: tf.Tensor) -> Prodigal:
        w, initial, m, v, s, numerator, d = state
        numerator = b * numerator + d / FIRST * d * nest.dot(g, _minus(initial, w))
        s = nest.map(lambda s, g: b * s + d / FIRST * d * g, s, g)
        m = nest.map(lambda m, g: BETA_1 * m + (1 - BETA_1) * d * g, m, g)
        v = nest.map(lambda v, g: BETA_2 * v + (1 - BETA_2) * tf.square(d * g), v, g)
        new_d = tf.maximum(d, tf.math.divide_no_nan(numerator, _sum_of_sizes(s)))
        w = nest.map(lambda w, m, v: w - d * m / (tf.sqrt(v) + new_d * EPSILON), w, m, v)
        return Prodigal(w, initial, m, v, s, numerator, new_d)

    return _dynamics(loss, init, step, lambda state: state.params)


class ScheduleFree(NamedTuple):
    """Weights z, their average x, and the second moment."""

    z: Nest
    x: Nest
    v: Nest


def schedule_free(loss: Loss) -> rf.Dynamics:
    """Schedule-free AdamW without weight decay (Defazio and others, 2024).

    g_t is the gradient at y_t = (1 - beta_1) z_t + beta_1 x_t
    z_{t+1} = z_t - eta g_t / (sqrt(v_t / (1 - beta_2^t)) + eps),  x_{t+1} = (1 - 1/t) x_t + z_{t+1} / t
    """

    def init(params: Nest, hypers: Hypers) -> ScheduleFree:
        return ScheduleFree(params, params, nest.zeros_like(params))

    def step(state: ScheduleFree, g: Nest, t: tf.Tensor) -> ScheduleFree:
        n = tf.cast(t + 1, nest.flatten(g)[0].dtype)
        v = nest.map(lambda v, g: BETA_2 * v + (1 - BETA_2) * tf.square(g), state.v, g)
        z = nest.map(lambda z, g, v: z - RATE * _ratio(g, v / (1 - BETA_2**n)), state.z, g, v)
        return ScheduleFree(z, nest.map(lambda x, z: x + (z - x) / n, state.x, z), v)

    def between(state: ScheduleFree) -> Nest:
        return nest.map(lambda z, x: (1 - BETA_1) * z + BETA_1 * x, state.z, state.x)

    return _dynamics(loss, init, step, between, lambda state: state.x)


RATE_FREE = {"DoG": dog, "D-Adaptation": d_adaptation, "Prodigy": prodigy, "schedule-free": schedule_free}


def _dynamics(
    loss: Loss,
    init: Callable[[Nest, Hypers], State],
    step: Callable[[State, Nest, tf.Tensor], State],
    point: Callable[[State], Nest],
    params: Callable[[State], Nest] | None = None,
) -> rf.Dynamics:
    """The gradient is taken at `point(state)`; the weights to evaluate are `params(state)`, by default the same."""

    def whole_step(state: State, hypers: Hypers, batch: Nest, t: tf.Tensor) -> State:
        return step(state, gradient(loss, point(state), hypers, batch, t), t)

    return rf.Dynamics(init, whole_step, params or point)


def _minus(a: Nest, b: Nest) -> Nest:
    return nest.map(lambda a, b: a - b, a, b)


def _ratio(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    return m / (tf.sqrt(v) + EPSILON)


def _sum_of_sizes(tree: Nest) -> tf.Tensor:
    return tf.add_n([tf.reduce_sum(tf.abs(leaf)) for leaf in nest.flatten(tree)])
