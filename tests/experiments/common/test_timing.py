"""Timers: calls alternate, compilation does not count, the best round does."""

import tensorflow as tf

from experiments.common import timing


def test_calls_alternate_after_one_call_that_does_not_count() -> None:
    made = []
    calls = {name: lambda name=name: made.append(name) for name in "ab"}
    seconds = timing.interleaved(calls, rounds=2)
    assert made == list("abab")
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}
    made.clear()
    timing.best_times(calls, rounds=1)
    assert made == list("abab")


def test_the_best_of_the_rounds_counts(monkeypatch) -> None:
    clock = iter([0.0, 5.0, 10.0, 11.0, 20.0, 23.0, 30.0, 32.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    calls = {"tensors": lambda: {"x": tf.constant(1.0), "y": [tf.constant(2.0)]}, "number": lambda: 3.0}
    assert timing.best_times(calls, rounds=2, warm_up=False) == {"tensors": 3.0, "number": 1.0}
