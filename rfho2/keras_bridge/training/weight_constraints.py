"""Keras's constraints on weights, applied as part of each step, so that hypergradients include them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from rfho2.core.ops import safe_sqrt
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics
from rfho2.dynamics.decay import with_params

Projection = Callable[[tf.Tensor], tf.Tensor]


def projections(variables: Mapping[str, Any]) -> dict[str, Projection]:
    """The constraint of each Keras variable that has one, with finite derivatives also at columns of zeros; by path."""
    return {path: _projection(path, v.constraint) for path, v in variables.items() if v.constraint is not None}


def _projection(path: str, constraint: Any) -> Projection:
    kind = type(constraint)
    if kind is keras.constraints.NonNeg:
        return tf.nn.relu
    if kind is keras.constraints.MaxNorm:
        most, axis = constraint.max_value, constraint.axis
        return lambda w: _rescaled(w, axis, lambda norm: tf.clip_by_value(norm, 0, most))
    if kind is keras.constraints.UnitNorm:
        return lambda w: _rescaled(w, constraint.axis, tf.ones_like)
    if kind is keras.constraints.MinMaxNorm:
        low, high, rate = constraint.min_value, constraint.max_value, constraint.rate
        target = lambda norm: rate * tf.clip_by_value(norm, low, high) + (1 - rate) * norm  # noqa: E731
        return lambda w: _rescaled(w, constraint.axis, target)
    name = getattr(constraint, "__name__", kind.__name__)
    raise ValueError(
        f"variable '{path}' has the constraint {name}; rfho2 supports NonNeg, MaxNorm, UnitNorm and MinMaxNorm of "
        f"keras.constraints. Build the layer with one of them, or without."
    )


def _rescaled(w: tf.Tensor, axis: Any, target: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    norm = safe_sqrt(tf.reduce_sum(tf.square(w), axis, keepdims=True))
    return w * target(norm) / (keras.backend.epsilon() + norm)


def constrained(dynamics: Dynamics, projections: Mapping[str, Projection]) -> Dynamics:
    """The dynamics whose params, a dict by path, are projected after each step."""
    if not projections:
        return dynamics

    def step(state: Nest, hypers: Hypers, batch: Nest, t: tf.Tensor) -> Nest:
        new = dynamics.step(state, hypers, batch, t)
        params = {path: projections[path](p) if path in projections else p for path, p in dynamics.params(new).items()}
        return with_params(dynamics, new, params)

    return dynamics._replace(step=step)
