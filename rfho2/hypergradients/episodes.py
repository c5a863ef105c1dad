"""Where an episode starts: params that are a function of the hyper-iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from rfho2.core import errors, nest
from rfho2.core.types import Nest


@dataclass(frozen=True)
class ParamsFunction:
    """A pure function k -> params in place of params.

    To TensorFlow it is a nest without leaves: a checkpoint stores nothing of it, and a function of it is traced once.

    Attributes:
      function: k -> params, where k is an int32 scalar.
      dtype: that of the params.
    """

    function: Callable[[tf.Tensor], Nest]
    dtype: tf.DType

    def __call__(self, k: int | tf.Tensor) -> Nest:
        """The params of episode k."""
        return params_at(self.function, k)

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[()]]:
        return (self.function, self.dtype), ()

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[Any, ...], leaves: tuple[()]) -> ParamsFunction:
        return cls(*metadata)


def params_at(params: Nest | Callable[[tf.Tensor], Nest], k: int | tf.Tensor) -> Nest:
    """The params of episode k, checked: `params` themselves, or the value at k of a function.

    >>> params_at(lambda k: 2.0 * tf.cast(k, tf.float32), 3).numpy().item()
    6.0
    """
    return errors.checked_params(params(tf.convert_to_tensor(k, tf.int32)) if callable(params) else params)


def carried(params: Nest | Callable[[tf.Tensor], Nest], first: Nest) -> Nest:
    """The start of every hyper-iteration: the params, or the function k -> params.

    Args:
      params: as the user passed them.
      first: the params of episode 0, checked.
    """
    if not callable(params):
        return first
    return params if isinstance(params, ParamsFunction) else ParamsFunction(params, nest.flatten(first)[0].dtype)


def example(params: Nest) -> Nest:
    """A value of the params' dtype."""
    return tf.TensorSpec([], params.dtype) if isinstance(params, ParamsFunction) else params
