"""The memory that a call adds, as a plan counts it."""

import pytest
import tensorflow as tf

from rfho2.planning import memory, peaks


@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="resident memory can be read on Linux only")
def test_memory_that_tensorflow_has_kept_since_an_earlier_call_counts_again():
    size = 30_000_000
    for _ in range(2):
        assert 3.9 * size < peaks.added(lambda: tf.reduce_sum(tf.ones([size]))) < 8 * size


def test_the_larger_of_the_meters_that_answer_counts(monkeypatch):
    def unknown():
        raise ValueError

    def counts(before, after):
        return peaks.Meter(lambda: before, lambda: after)

    monkeypatch.setattr(peaks.devices, "gpu", lambda: False)
    for resident, allocated, bytes_added in (
        (counts(5, 12), counts(0, 3), 7),
        (counts(5, 6), counts(0, 3), 3),
        (counts(5, 6), peaks.Meter(unknown, unknown), 1),
        (peaks.Meter(unknown, unknown), peaks.Meter(unknown, unknown), 0),
    ):
        monkeypatch.setattr(peaks, "RESIDENT", resident)
        monkeypatch.setattr(peaks, "allocator", lambda device, meter=allocated: meter)
        assert peaks.added(lambda: None) == bytes_added
