"""One measurement: what is trained, by which engine, and the numbers that are taken."""

import functools
import json
import subprocess

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from experiments.common import processes, timing
from experiments.complexity import measure
from experiments.complexity.tasks import Task
from rfho2.planning import memory
from tests.support.binaries import run_binary
from tests.support.complexity_rows import forward_task

TINY = Task("memory", "reverse", 4, 2, 3, 2, 1)


def test_extrapolation_is_exact_for_a_line():
    seconds = [0.3 + 0.02 * steps for steps in (2, 12)]
    assert measure.extrapolate((2, 12), seconds, 1000) == pytest.approx(0.3 + 0.02 * 1000)
    with pytest.raises(ValueError, match="too much noise"):
        measure.extrapolate((2, 12), [0.5, 0.5], 1000)


def test_an_extrapolated_measurement_times_both_lengths(monkeypatch):
    monkeypatch.setattr(measure, "problem", lambda steps, hypers: steps)
    monkeypatch.setattr(measure, "caller", lambda method, steps, *rest: lambda: 0.5 + 0.1 * steps)
    monkeypatch.setattr(timing, "seconds_of", lambda call: call())
    row = measure.measure(forward_task(200, timed=(2, 12)))
    assert row == {"seconds": pytest.approx(0.5 + 0.1 * 1000), "peak_bytes": None}
    assert measure.measure(forward_task(2, steps=7))["seconds"] == pytest.approx(0.5 + 0.1 * 7)


def test_weights_multiply_the_losses_of_the_first_digits_only():
    p = measure.problem(steps=1, hypers=4)
    images, labels, _ = measure.digits()[0]
    params, ones = measure.initial_params((2,)), measure.initial_hypers(4)
    hypers = ones | {"weights": tf.constant([0.0, 3.0])}

    def velocity(i, hypers):
        batch = (tf.gather(images, i), tf.gather(labels, i), tf.constant(i))
        return p.dynamics.step(p.dynamics.init(params, hypers), hypers, batch, tf.constant(0)).velocity["b1"].numpy()

    np.testing.assert_allclose(velocity([0], hypers), 0.0)
    np.testing.assert_allclose(velocity([1], hypers), 3 * velocity([1], ones), rtol=1e-5)
    np.testing.assert_allclose(velocity([2, 4999], hypers), velocity([2, 4999], ones), rtol=1e-5)


def test_each_method_is_the_engine_with_its_setting():
    problem = measure.problem(1000, 2)

    def settings(method):
        call = measure.caller(method, problem, (2,), 2, truncate=100)
        return {name: call.func.settings.get(name) for name in ("method", "checkpoints", "truncate", "hyper_batch")}

    unset = {"checkpoints": None, "truncate": None, "hyper_batch": None}
    assert settings("reverse") == {**unset, "method": "reverse"}
    assert settings("checkpointed") == {**unset, "method": "reverse", "checkpoints": 64}
    assert settings("truncated") == {**unset, "method": "reverse", "truncate": 100}
    assert settings("forward") == {**unset, "method": "forward"}
    assert settings("real time") == {**unset, "method": "real_time", "hyper_batch": 1000}


def check(row):
    assert row.get("missing") is None
    assert 0 < row["seconds"] < 60
    assert 0 < row["peak_bytes"] < 1e9


@pytest.mark.slow  # in a process that has run many tests, resetting the peak of its memory takes half a minute
@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="Linux only")
def test_the_binary_prints_one_measurement(monkeypatch):
    """Without XLA, whose compilation takes longer than everything else."""
    monkeypatch.setattr(rf, "reverse", functools.partial(rf.reverse, jit_compile=False))
    ended = run_binary("complexity", f"--measure={json.dumps(TINY._asdict())}")
    assert ended.code == 0, ended.err[-2000:]
    check(json.loads(ended.out.splitlines()[-1]))


def test_a_fresh_process_returns_its_measurement_or_the_reason_of_its_failure(monkeypatch):
    done = subprocess.CompletedProcess([], 0, 'a warning\n{"seconds": 1.5, "peak_bytes": 7}\n', "")
    run = {}
    monkeypatch.setattr(processes, "run", lambda *args, **kwargs: run.update(args=args, **kwargs) or done)
    assert measure.measure_in_fresh_process(TINY) == {"seconds": 1.5, "peak_bytes": 7}
    name, flag = run["args"]
    assert name == "complexity"
    assert Task.of(json.loads(flag.removeprefix("--measure="))) == TINY
    done.returncode = -9
    row = measure.measure_in_fresh_process(TINY)
    assert row == {"seconds": None, "peak_bytes": None, "missing": "killed by SIGKILL, out of memory?"}


@pytest.mark.slow
@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="Linux only")
def test_a_process_measures_seconds_and_memory():
    check(measure.measure_in_fresh_process(TINY))
