"""Grappler, which optimises TensorFlow's graphs, without the pass that makes large sums in loops fail."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def whole_sums() -> Iterator[None]:
    """Graphs that are called for the first time in this context keep sums of three or more tensors as single operations.

    Grappler's memory optimiser replaces such a sum by a temporary variable if it estimates that the graph needs more than
    200 MB on a CPU. In a loop that carries one of the summands, as the adjoint of a residual network, the variable is
    created once more than it is destroyed, and the next call of the graph fails (tensorflow/tensorflow#23780).
    """
    from tensorflow.python.eager import context  # private, because tf.config has no switch for this pass

    current = context.context()
    before = current.function_call_options
    options = current.function_call_options = copy.copy(before)
    options.config_proto_serialized = _without_memory_pass(before.config_proto_serialized)
    try:
        yield
    finally:
        if current.function_call_options is options:  # otherwise, tf.config was used inside, and has reset them
            current.function_call_options = before


@functools.cache
def _without_memory_pass(serialized: bytes) -> tf.compat.v1.ConfigProto:
    """The same configuration without that pass; as a message, because the setter refuses bytes."""
    config = tf.compat.v1.ConfigProto.FromString(serialized)
    rewriting = config.graph_options.rewrite_options
    rewriting.memory_optimization = rewriting.NO_MEM_OPT
    return config
