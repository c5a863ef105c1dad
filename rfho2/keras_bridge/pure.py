"""A Keras model as a pure function: what it draws can be drawn again, what it normalises by has its true derivatives."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from rfho2 import batches

LOCK = threading.RLock()
FULL_RANGE_UNIFORM = tf.random.stateless_uniform  # kept, because the name means `uniform` below while a model is called


def moments(
    x: tf.Tensor, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance with all their derivatives; `tf.nn.moments` has a stop_gradient that spoils the second ones."""
    y = tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x
    mean = tf.reduce_mean(y, axes, keepdims=True)
    variance = tf.reduce_mean(tf.square(y - mean), axes, keepdims=True)
    both = [tf.cast(part, x.dtype) for part in (mean, variance)]
    mean, variance = both if keepdims else [tf.squeeze(part, axes) for part in both]
    return mean, variance


def uniform(
    shape: Any, seed: tf.Tensor, minval: Any = 0, maxval: Any = None, dtype: Any = tf.float32, *args: Any, **kwargs: Any
) -> tf.Tensor:
    """`tf.random.stateless_uniform`, the same numbers in graph and XLA; integers, which are so already, are left alone."""
    dtype = tf.as_dtype(dtype)
    if not dtype.is_floating:
        return FULL_RANGE_UNIFORM(shape, seed, minval, maxval, dtype, *args, **kwargs)
    low, high = tf.cast(minval, dtype), tf.cast(1 if maxval is None else maxval, dtype)
    return low + (high - low) * batches.uniform(tf.cast(seed, tf.int32), shape, dtype)


def normal(
    shape: Any, seed: tf.Tensor, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = tf.float32, *args: Any, **kwargs: Any
) -> tf.Tensor:
    """`tf.random.stateless_normal` from two uniform numbers each (Box and Muller)."""
    key = tf.cast(seed, tf.int32)
    radius = tf.sqrt(-2 * tf.math.log(1 - batches.uniform(key, shape, dtype)))
    angle = 6.283185307179586 * batches.uniform(key + tf.constant([0x3C6EF372, 0]), shape, dtype)
    return tf.cast(mean, dtype) + tf.cast(stddev, dtype) * radius * tf.cos(angle)


def dropout(
    x: tf.Tensor, rate: Any, seed: tf.Tensor, rng_alg: Any = None, noise_shape: Any = None, name: str | None = None
) -> tf.Tensor:
    """`tf.nn.experimental.stateless_dropout`, the same mask in graph and XLA."""
    shape = tf.shape(x) if noise_shape is None else noise_shape
    kept = batches.uniform(tf.cast(seed, tf.int32), shape, x.dtype) >= tf.cast(rate, x.dtype)
    return tf.where(kept, x / (1 - tf.cast(rate, x.dtype)), tf.zeros([], x.dtype))


@contextlib.contextmanager
def exchanged(*exchanges: tuple[Any, str, Any]) -> Iterator[None]:
    """Puts `value` in the place of `owner.name` for as long as the block runs."""
    with LOCK, contextlib.ExitStack() as stack:
        for owner, name, value in exchanges:
            base: Any = object if isinstance(owner, keras.Layer) else type(owner)  # Keras's own way would track the value
            if name in vars(owner):
                stack.callback(base.__setattr__, owner, name, vars(owner)[name])
            else:
                stack.callback(base.__delattr__, owner, name)
            base.__setattr__(owner, name, value)
        yield


def tensorflow_made_right() -> contextlib.AbstractContextManager[None]:
    """TensorFlow's functions that Keras layers call, and users' own layers, mended as above."""
    return exchanged(
        (tf.nn, "moments", moments),
        (tf.nn.experimental, "stateless_dropout", dropout),
        (tf.random, "stateless_uniform", uniform),
        (tf.random, "stateless_normal", normal),
    )


def normalising(layers: Sequence[keras.Layer], by_batch: bool) -> contextlib.AbstractContextManager[None]:
    """Batch norm by the statistics of the batch, or frozen ones, whether the model is called in training or not.

    The moving statistics are no function of the params; an objective by means of them would not be one either.
    """

    def call_of(layer: keras.layers.BatchNormalization) -> Callable[..., Any]:
        original = layer.call
        return lambda inputs, training=None, mask=None: original(inputs, training=by_batch, mask=mask)

    found = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
    return exchanged(*[(layer, "call", call_of(layer)) for layer in found])


def naming_loops(layers: Sequence[keras.Layer]) -> contextlib.AbstractContextManager[None]:
    """Makes a recurrent layer say its name where forward mode fails on its loop."""

    def call_of(layer: keras.layers.RNN) -> Callable[..., Any]:
        original = layer.call

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except TypeError as error:
                raise TypeError(
                    f"layer '{layer.name}' ({type(layer).__name__}) runs a loop over time, through which TensorFlow has no "
                    f"forward mode: use rf.reverse(problem) or rf.tune(method='reverse'), or build it "
                    f"with unroll=True. ({error})"
                ) from error

        return call

    looped = [layer for layer in layers if isinstance(layer, keras.layers.RNN) and not layer.unroll]
    return exchanged(*[(layer, "call", call_of(layer)) for layer in looped])


@contextlib.contextmanager
def computing_in(layers: Sequence[keras.Layer], dtype: str) -> Iterator[None]:
    """All layers in `dtype`, for params that were cast to it: a model built in float32 can be checked in float64."""
    with LOCK, contextlib.ExitStack() as stack:
        for layer in layers:
            if layer.variable_dtype != dtype:
                stack.callback(setattr, layer, "dtype_policy", layer.dtype_policy)
                layer.dtype_policy = dtype
        yield
