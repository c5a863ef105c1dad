"""Functions compiled once: by XLA where possible, as a plain graph otherwise."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf

UNSUPPORTED = re.compile(r"unsupported operation|No registered '|not compilable|non-static|compile-time constant|XLA")
BROKEN = re.compile(r"\bhlo\b|Triton|ptxas|LLVM|autotun", re.IGNORECASE)  # the compiler itself fails, on a GPU
DEVICE = re.compile(r"CUDA_ERROR|launch|illegal|out of memory", re.IGNORECASE)  # the device fails, and would fail again


class Compiled:
    """A `tf.function` that tries XLA first and falls back to the graph, with one warning that names the op.

    Args:
      function: of tensors and nests of tensors.
      jit_compile: None tries XLA; True or False insists.
    """

    def __init__(self, function: Callable[..., Any], jit_compile: bool | None = None):
        self._function = function
        self._may_fall_back = jit_compile is None
        self.jit_compiled = jit_compile is not False
        self._compiled = self._compile()

    def __call__(self, *args: Any) -> Any:
        try:
            result = self._compiled(*args)
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.InternalError) as error:
            if not (self._may_fall_back and self.jit_compiled and _is_xlas(error)):
                raise
            warnings.warn(
                f"XLA cannot compile {_culprit(error.message)}; running as a plain graph, which is slower. "
                f"Pass jit_compile=False to choose this without trying.",
                stacklevel=3,
            )
            self.jit_compiled = False
            self._compiled = self._compile()
            result = self._compiled(*args)
        return result

    def _compile(self) -> Callable[..., Any]:
        return graph_function(self._function, jit_compile=self.jit_compiled)


def graph_function(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    """A `tf.function` without AutoGraph, with these settings.

    TensorFlow counts traces by the code of a function, and warns of retracing when several functions made by the same lines
    are traced once each. It counts a partial object by itself.
    """
    return tf.function(functools.partial(function), autograph=False, **settings)


def _is_xlas(error: tf.errors.OpError) -> bool:
    """Whether it is XLA that cannot compile, and not the user's code or the device that fails."""
    if isinstance(error, tf.errors.InternalError):
        return bool(BROKEN.search(error.message)) and not DEVICE.search(error.message)
    return bool(UNSUPPORTED.search(error.message))


def _culprit(message: str) -> str:
    """The names of the ops in an XLA error message, or its first line."""
    ops = re.findall(r"No registered '(\w+)'", message) + re.findall(r"\(op: (\w+)\)", message)
    names = re.findall(r"\{\{node ([\w/.-]+)\}\}", message)
    if ops or names:
        return ", ".join(dict.fromkeys(ops or names))
    return message.strip().splitlines()[0][:200]
