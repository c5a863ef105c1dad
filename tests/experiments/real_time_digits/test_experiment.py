"""A network tuned in real time on few digits."""

import functools

import pytest

import rfho2 as rf
from experiments.real_time_digits import report
from experiments.real_time_digits.experiment import Config, run
from tests.support.digits import few_digits


@pytest.mark.slow
def test_the_hypers_leave_the_null_teacher_and_the_error_falls(tmp_path, monkeypatch):
    monkeypatch.setattr(rf, "real_time", functools.partial(rf.real_time, jit_compile=False))
    config = Config(hidden=5, hyper_batch=3, hyper_iterations=4)
    result = run(config, few_digits(validation=500), (), tmp_path / "checkpoints")
    first, last = result.history[0], result.history[-1]
    assert (first["lr"], first["mu"], first["l2"]) == (0.0, 0.0, 0.0)
    assert last["lr"] > 0
    assert last["value"] < first["value"]
    assert report.summary(result.history, config).startswith(f"after 12 steps: test accuracy {last['test accuracy']:.2%}, ")
    report.curves(result.history, config, tmp_path / "curves")
    assert (tmp_path / "curves.png").stat().st_size > 1000
