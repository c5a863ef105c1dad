"""The memory that matters to a plan: the GPU's if TensorFlow has one, main memory otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core import devices
from rfho2.planning import memory

GPU, CPU = "GPU:0", "CPU:0"


class Meter(NamedTuple):
    """`reset` restarts a measurement and returns the bytes in use, `peak` the largest number since then."""

    reset: Callable[[], int]
    peak: Callable[[], int]


RESIDENT = Meter(memory.reset_peak, memory.peak)


def allocator(device: str) -> Meter:
    """What TensorFlow's allocator counts."""

    def reset() -> int:
        tf.config.experimental.reset_memory_stats(device)
        return int(tf.config.experimental.get_memory_info(device)["current"])

    return Meter(reset, lambda: int(tf.config.experimental.get_memory_info(device)["peak"]))


def free() -> float:
    """Bytes that are still available."""
    return _free_on_gpu() if devices.gpu() else memory.free()


def _free_on_gpu() -> float:
    """What TensorFlow's allocator may hold, and does not hold yet."""
    from tensorflow.python.client import device_lib  # private, but the only place that knows the limit

    limits = [device.memory_limit for device in device_lib.list_local_devices() if device.name.endswith(GPU)]
    return float(limits[0] - tf.config.experimental.get_memory_info(GPU)["current"])


def added(function: Callable[[], Any]) -> int:
    """Bytes that a call adds at its peak, without the graph and the code, which an earlier call has created."""
    function()
    since = watch()
    function()
    return since()


def watch() -> Callable[[], int]:
    """Starts to measure; returns a function that gives the bytes added at the peak since then.

    On a CPU, they are the larger of the resident bytes and of those that TensorFlow's allocator counts. On x86, TensorFlow
    uses oneDNN's allocator, which keeps freed memory, so that a second call adds no resident bytes; other allocators do not
    count. The answer is 0 if neither can be measured.
    """
    begun = []
    for meter in [allocator(GPU)] if devices.gpu() else [RESIDENT, allocator(CPU)]:
        with contextlib.suppress(OSError, StopIteration, ValueError):
            begun.append((meter, meter.reset()))
    return lambda: max((meter.peak() - before for meter, before in begun), default=0)
