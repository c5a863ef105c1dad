"""Checks of user input that several folders share; a message names the argument, shows its value and says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Nest, Result


class DivergenceError(ArithmeticError):
    """A value or hypergradient is not finite, or (with `.finite`) a value exceeds a limit.

    `.what` is a short description; `.result` holds every hyper-iteration that finished before it.
    """

    def __init__(self, message: str, iteration: int, result: Result | None = None, finite: bool = False, what: str = ""):
        super().__init__(message)
        self.iteration = iteration
        self.result = result
        self.finite = finite
        self.what = what


def _floating_tensor(argument: str, value: Any, dtype: tf.DType | None = None) -> tf.Tensor:
    """`value` as a floating tensor, or an error that names the leaf."""
    if isinstance(value, tf.Tensor) and value.dtype in (tf.float32, tf.float64) and dtype in (None, value.dtype):
        return value
    try:
        if dtype is not None and not tf.is_tensor(value):
            # Through NumPy, in one conversion: TensorFlow would round a Python float to float32, and cast on the device.
            array = np.asarray(value)
            tensor = tf.convert_to_tensor(array.astype(dtype.as_numpy_dtype) if array.dtype.kind == "f" else array)
        else:
            tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{argument} is {type(value).__name__} {value!r:.80}, which is not a tensor: {error}") from None
    if not tensor.dtype.is_floating:
        raise TypeError(
            f"{argument} has dtype {tensor.dtype.name}; only floating tensors can be differentiated. "
            f"Pass it as float32 or float64 (1.0 instead of 1), or put it into the batch."
        )
    if tensor.dtype == tf.bfloat16:  # 8 bits are too few for sums over steps, and NumPy, which writes checkpoints, lacks it
        raise TypeError(
            f"{argument} has dtype bfloat16; keep it in float32 and cast inside the loss, as mixed precision does."
        )
    return tensor if dtype is None or tensor.dtype == dtype else tf.cast(tensor, dtype)


def checked_params(params: Nest) -> Nest:
    """`params` with every leaf a tensor, all of one floating dtype."""
    leaves = [(path, _floating_tensor(f"params leaf '{path}'", leaf)) for path, leaf in nest.leaves_with_path(params)]
    if not leaves:
        raise ValueError(f"params is {params!r}: there is nothing to train. Pass at least one tensor.")
    dtypes = {leaf.dtype.name: path for path, leaf in leaves}
    if len(dtypes) > 1:
        examples = ", ".join(f"'{path}' is {dtype}" for dtype, path in dtypes.items())
        raise TypeError(f"params mix dtypes: {examples}. Cast all of them to one dtype, for instance with tf.cast.")
    return nest.pack(params, [leaf for _, leaf in leaves])


def check_named(hypers: Any) -> None:
    """Requires a dict by name."""
    if not isinstance(hypers, Mapping) or not all(isinstance(name, str) for name in hypers):
        raise TypeError(
            f"hypers is {hypers!r:.80}; pass a flat dict from name to value, such as {{'lr': 0.1}}, after the params."
        )


def checked_hypers(hypers: Mapping[str, Any], params: Nest) -> dict[str, tf.Tensor]:
    """`hypers` as tensors of the params' dtype."""
    check_named(hypers)
    if not hypers:
        raise ValueError("hypers is empty: there is nothing to tune. Pass at least one, such as {'lr': 0.1}.")
    for name, value in hypers.items():
        if isinstance(value, Mapping):
            raise TypeError(
                f"hyper '{name}' is a dict; hypers are flat: give each of {sorted(value)} its own name. The "
                f"params come before the hypers."
            )
    dtype = nest.flatten(params)[0].dtype
    return {name: _floating_tensor(f"hyper '{name}'", value, dtype) for name, value in hypers.items()}


def checked_batch(argument: str, batch: Nest) -> Nest:
    """`batch`, which may not be empty: the gradient of a mean over no examples is 0, and training would silently stop."""
    for path, leaf in nest.leaves_with_path(batch):
        shape = tf.TensorShape(getattr(leaf, "shape", ()))
        if shape.rank and shape[0] == 0:
            raise ValueError(f"{argument}: leaf '{path}' has shape {list(shape)}: no examples. Pass at least one.")
    return batch


def check_count(argument: str, value: Any, most: int | None = None, least: int = 1) -> int:
    """Requires an integer from `least` to `most`; returns it as a Python int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{argument} is {value!r}; it has to be an integer, at least {least}.")
    if most is not None and value > most:
        raise ValueError(f"{argument} is {value}; it can be at most {most}.")
    return int(value)


def check_callable(argument: str, value: Any, signature: str) -> None:
    """Requires a function."""
    if not callable(value):
        raise TypeError(f"{argument} is {type(value).__name__} {value!r:.80}; pass a function {signature}.")


def unknown_hyper(where: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that is not among the hypers."""
    return ValueError(f"{where} names the hyper '{name}', but the hypers are {sorted(known)}. Add it or correct the name.")


def check_scalar(argument: str, value: Any, dtype: tf.DType) -> None:
    """Requires a floating scalar of the params' dtype, which every objective and loss has to be."""
    if not tf.is_tensor(value):
        raise TypeError(f"{argument} returned {type(value).__name__} {value!r:.80}; return a scalar tensor.")
    if not value.dtype.is_floating or value.shape.rank != 0:
        raise ValueError(
            f"{argument} returned a {value.dtype.name} tensor of shape {value.shape}; return a floating scalar, for "
            f"instance with tf.reduce_mean."
        )
    if value.dtype != dtype:
        raise TypeError(
            f"{argument} returned {value.dtype.name}, but the params are {dtype.name}; compute it in {dtype.name}: cast the "
            f"data and the constants it uses, with tf.cast(x, tf.{dtype.name})."
        )
