"""The memory that matters to a plan: the GPU's if TensorFlow has one, main memory otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rfho2.core import devices
from rfho2.planning import memory

GPU = "GPU:0"


def free() -> float:
    """Bytes that are still available."""
    return _free_on_gpu() if devices.gpu() else memory.free()


def _free_on_gpu() -> float:
    """What TensorFlow's allocator may hold, and does not hold yet."""
    from tensorflow.python.client import device_lib  # private, but the only place that knows the limit

    limits = [device.memory_limit for device in device_lib.list_local_devices() if device.name.endswith(GPU)]
    return float(limits[0] - tf.config.experimental.get_memory_info(GPU)["current"])


def added(function: Callable[[], Any]) -> int:
    """Bytes that a call adds at its peak, without the graph and the code, which an earlier call has created.

    0 if the system does not report them.
    """
    try:
        function()
        before = _reset()
        function()
        return _peak() - before
    except (OSError, StopIteration):
        return 0


def _reset() -> int:
    """Restarts the measurement; returns the bytes in use."""
    if not devices.gpu():
        return memory.reset_peak()
    tf.config.experimental.reset_memory_stats(GPU)
    return int(tf.config.experimental.get_memory_info(GPU)["current"])


def _peak() -> int:
    return int(tf.config.experimental.get_memory_info(GPU)["peak"]) if devices.gpu() else memory.peak()
