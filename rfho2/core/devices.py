"""The devices that computations run on."""

from __future__ import annotations

import tensorflow as tf


def gpu() -> bool:
    """Whether TensorFlow has a GPU."""
    return bool(tf.config.list_logical_devices("GPU"))
