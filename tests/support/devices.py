"""What a test may ask of the device."""

import os

import pytest
import tensorflow as tf

ON_GPU = bool(tf.config.list_physical_devices("GPU"))
DETERMINISTIC = os.environ.get("TF_DETERMINISTIC_OPS") in ("1", "true")

same_bits = pytest.mark.skipif(
    ON_GPU and not DETERMINISTIC,
    reason="a GPU repeats the same bits only with deterministic operations: set TF_DETERMINISTIC_OPS=1",
)


def cpu_only(reason: str) -> pytest.MarkDecorator:
    """A mark for a test of something that only a CPU does."""
    return pytest.mark.skipif(ON_GPU, reason=f"on a CPU only: {reason}")
