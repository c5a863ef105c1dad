"""The loops that a GPU gets, flat states and several steps per iteration, give what the plain loops give: here on a CPU."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.core import devices
from tests.support.problems import build

METHODS = {
    "reverse": rf.reverse,
    "truncated": lambda problem, **options: rf.reverse(problem, truncate=problem.steps - 1, **options),
    "checkpointed": lambda problem, **options: rf.reverse(problem, checkpoints=2, **options),
    "windows": lambda problem, **options: rf.real_time(problem, problem.steps, mode="reverse", **options),
}


@pytest.mark.parametrize(
    ("method", "steps", "jit_compile"),
    [
        pytest.param("reverse", 1, False, marks=pytest.mark.slow),  # fewer steps than one iteration takes
        pytest.param("reverse", 10, False, marks=pytest.mark.slow),  # two iterations
        ("reverse", 23, False),  # four, and a remainder
        pytest.param("reverse", 12, True, marks=pytest.mark.slow),
        pytest.param("truncated", 14, False, marks=pytest.mark.slow),
        ("checkpointed", 13, False),
        ("windows", 11, False),
    ],
)
def test_the_loops_of_a_gpu_give_the_same_numbers(monkeypatch, method, steps, jit_compile):
    problem, params, hypers = build("softmax_regression", "momentum", steps, tf.float64)
    results = []
    for gpu in (False, True):
        monkeypatch.setattr(devices, "gpu", lambda gpu=gpu: gpu)
        results.append(METHODS[method](problem, jit_compile=jit_compile)(params, hypers))
    for plain, flat in zip(*map(tf.nest.flatten, results), strict=True):
        np.testing.assert_allclose(plain, flat, rtol=1e-12, atol=1e-15)


def test_rows_of_a_call_are_restored(monkeypatch):
    """Scalars, vectors and a matrix of two dtypes, which lie in two arrays."""
    monkeypatch.setattr(devices, "gpu", lambda: True)
    problem, params, hypers = build("softmax_regression", "momentum", 3, tf.float64)
    histories = [
        rf.HyperOptimizer(rf.reverse(problem, jit_compile=False), rf.projected_adam(0.01), iterations_per_call=n)
        .run(params, hypers, 4)
        .history
        for n in (1, 4)
    ]
    assert [set(row) for row in histories[0]] == [set(row) for row in histories[1]]
    for one, other in zip(*histories, strict=True):
        assert {name: value for name, value in one.items() if name != "seconds"} == {
            name: value for name, value in other.items() if name != "seconds"
        }
