"""Patches applied while a Keras model is called: reproducible random draws, and moments with all their derivatives."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rfho2.core import ops
from rfho2.hypergradients.sensitivity import MAX_SEPARATE

LOCK = threading.RLock()
ORIGINAL_RESIZE = tf.image.resize
FULL_RANGE_UNIFORM = tf.random.stateless_uniform  # the original: while a model is called, that name refers to `uniform`


def moments(
    x: tf.Tensor, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance with all their derivatives; `tf.nn.moments` has a stop_gradient that makes the second ones wrong."""
    y = tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x
    mean = tf.reduce_mean(y, axes, keepdims=True)
    variance = tf.reduce_mean(tf.square(y - mean), axes, keepdims=True)
    both = [tf.cast(part, x.dtype) for part in (mean, variance)]
    mean, variance = both if keepdims else [tf.squeeze(part, axes) for part in both]
    return mean, variance


def softsign(x: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """x / (1 + |x|); `tf.nn.softsign` has no second derivative."""
    return x / (1 + tf.abs(x))


def uniform(
    shape: Any, seed: tf.Tensor, minval: Any = 0, maxval: Any = None, dtype: Any = tf.float32, *args: Any, **kwargs: Any
) -> tf.Tensor:
    """`tf.random.stateless_uniform` with the same numbers in graph mode and XLA; for integers TensorFlow's already agree."""
    dtype = tf.as_dtype(dtype)
    if not dtype.is_floating:
        return FULL_RANGE_UNIFORM(shape, seed, minval, maxval, dtype, *args, **kwargs)
    low, high = tf.cast(minval, dtype), tf.cast(1 if maxval is None else maxval, dtype)
    return low + (high - low) * ops.uniform(tf.cast(seed, tf.int32), shape, dtype)


def normal(
    shape: Any, seed: tf.Tensor, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = tf.float32, *args: Any, **kwargs: Any
) -> tf.Tensor:
    """`tf.random.stateless_normal`, each number from two uniform ones (Box-Muller)."""
    key = tf.cast(seed, tf.int32)
    radius = tf.sqrt(-2 * tf.math.log(1 - ops.uniform(key, shape, dtype)))
    angle = 6.283185307179586 * ops.uniform(key + tf.constant([0x3C6EF372, 0]), shape, dtype)
    return tf.cast(mean, dtype) + tf.cast(stddev, dtype) * radius * tf.cos(angle)


def dropout(
    x: tf.Tensor, rate: Any, seed: tf.Tensor, rng_alg: Any = None, noise_shape: Any = None, name: str | None = None
) -> tf.Tensor:
    """`tf.nn.experimental.stateless_dropout` with the same mask in graph mode and XLA."""
    shape = tf.shape(x) if noise_shape is None else noise_shape
    keep = ops.uniform(tf.cast(seed, tf.int32), shape, x.dtype) >= tf.cast(rate, x.dtype)
    return tf.where(keep, x / (1 - tf.cast(rate, x.dtype)), tf.zeros([], x.dtype))


def resize(images: tf.Tensor, size: Any, method: Any = "bilinear", *args: Any, **kwargs: Any) -> tf.Tensor:
    """`tf.image.resize` as a product with an interpolation matrix along each axis, which has all its derivatives.

    TensorFlow's second derivatives of bilinear resizing are wrong, and of other methods missing. Each matrix is what the
    original makes of the identity.
    """
    static = tf.get_static_value(size)
    known = images.shape.rank in (3, 4) and None not in images.shape[-3:-1] and static is not None
    if method == "nearest" or not known or args or set(kwargs) - {"antialias"}:
        return ORIGINAL_RESIZE(images, size, method, *args, **kwargs)
    matrices = []
    for old, new in zip(images.shape[-3:-1], np.asarray(static).tolist(), strict=True):
        with tf.init_scope():
            identity = tf.eye(old)[:, :, None]
            matrices.append(ORIGINAL_RESIZE(identity, [new, old], method, **kwargs)[:, :, 0].numpy())
    dtype = tf.float32 if not images.dtype.is_floating else images.dtype
    rows, columns = (tf.constant(matrix, dtype) for matrix in matrices)
    resized = tf.einsum("...yxc,iy,jx->...ijc", tf.cast(images, dtype), rows, columns)
    return resized if images.dtype == tf.float64 else tf.cast(resized, tf.float32)  # as TensorFlow does


@contextlib.contextmanager
def replaced(*replacements: tuple[Any, str, Any]) -> Iterator[None]:
    """Replaces `owner.name` with `value`, for each (owner, name, value), while the block runs."""
    with LOCK, contextlib.ExitStack() as stack:
        for owner, name, value in replacements:
            # Keras's own __setattr__ would track the value.
            base: Any = object if isinstance(owner, keras.Layer) else type(owner)
            if name in vars(owner):
                stack.callback(base.__setattr__, owner, name, vars(owner)[name])
            else:
                stack.callback(base.__delattr__, owner, name)
            base.__setattr__(owner, name, value)
        yield


def differentiable_tensorflow() -> contextlib.AbstractContextManager[None]:
    """Replaces the TensorFlow functions that Keras's and users' layers call with those above."""
    return replaced(
        (tf.nn, "moments", moments),
        (tf.nn, "softsign", softsign),
        (tf.image, "resize", resize),
        (tf.nn.experimental, "stateless_dropout", dropout),
        (tf.random, "stateless_uniform", uniform),
        (tf.random, "stateless_normal", normal),
    )


def batch_norm(
    layers: Sequence[keras.Layer], by_batch: bool, in_training: bool, fixed: set[int]
) -> contextlib.AbstractContextManager[None]:
    """Makes batch norm use the statistics of the batch, or the moving ones, both in training and in inference.

    The moving statistics are not a function of the params, so an objective that used them would not be one either.

    Args:
      by_batch: which of the two.
      in_training: whether the model is called in training mode.
      fixed: ids of the layers that the model itself never calls in training mode, as is usual with a pretrained backbone;
        they use the moving statistics. A call in training mode adds to them.
    """

    def call_of(layer: keras.layers.BatchNormalization) -> Callable[..., Any]:
        original = layer.call

        def call(inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
            if in_training and not training:
                fixed.add(id(layer))
            return original(inputs, training=by_batch and id(layer) not in fixed, mask=mask)

        return call

    norms = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
    return replaced(*[(layer, "call", call_of(layer)) for layer in norms])


def named_loop_errors(layers: Sequence[keras.Layer]) -> contextlib.AbstractContextManager[None]:
    """Adds the name of a recurrent layer to the error that forward mode raises in its loop."""

    def call_of(layer: keras.layers.RNN) -> Callable[..., Any]:
        original = layer.call

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except TypeError as error:
                raise TypeError(
                    f"layer '{layer.name}' ({type(layer).__name__}) loops over time, which TensorFlow's accumulators cannot "
                    f"follow: use rf.reverse(problem), rf.real_time(problem, ..., mode='reverse'), "
                    f"rf.tune(method='reverse') or rf.forward(problem, chunk={MAX_SEPARATE}), or build the layer with "
                    f"unroll=True. ({error})"
                ) from error

        return call

    looped = [layer for layer in layers if isinstance(layer, keras.layers.RNN) and not layer.unroll]
    return replaced(*[(layer, "call", call_of(layer)) for layer in looped])


def without_cudnn(layers: Sequence[keras.Layer]) -> contextlib.AbstractContextManager[None]:
    """Makes recurrent layers compute with ordinary ops on a GPU too: cuDNN's kernels have no second derivative."""
    return replaced(*[(layer, "use_cudnn", False) for layer in layers if getattr(layer, "use_cudnn", False)])


@contextlib.contextmanager
def computing_in(layers: Sequence[keras.Layer], dtype: str) -> Iterator[None]:
    """Makes all layers compute in `dtype`, that of the params: a model built in float32 can be checked in float64.

    Models inside the model would cast what they are given to the dtype of their inputs, and layers that draw random numbers
    draw them in Keras's default dtype.
    """
    graphs = [getattr(layer, "_functional", layer) for layer in layers]
    inputs = [tensor for graph in graphs for tensor in getattr(graph, "_inputs", ())]
    inputs += [layer for layer in layers if isinstance(layer, keras.layers.InputLayer)]
    casting = [one for one in inputs if one.dtype == "float32" != dtype]
    with replaced(*[(one, "_dtype", dtype) for one in casting]), contextlib.ExitStack() as stack:
        if dtype == "float64":
            stack.callback(keras.config.set_floatx, keras.config.floatx())
            keras.config.set_floatx(dtype)
        for layer in layers:
            if layer.variable_dtype != dtype:
                stack.callback(setattr, layer, "dtype_policy", layer.dtype_policy)
                layer.dtype_policy = dtype
        yield
