"""Callbacks and metrics: when they are called, with what, and what remains of a run that they end."""

import json
import time

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.tuning import HYPERS, PARAMS, Recorder, adam, engine, run, same_bits


def test_callbacks_are_called_at_the_start_at_every_hyper_iteration_and_at_the_end():
    recorder = Recorder()
    result = run(adam(), 3, callbacks=[recorder])
    assert recorder.events == ["start", 0, 1, 2, "end"]
    assert (recorder.run.first, recorder.run.iterations) == (0, 3)
    assert same_bits(recorder.run.hypers, {name: tf.constant(value) for name, value in HYPERS.items()})
    assert recorder.run.config["engine"].items() >= {"method": "reverse", "steps": 4}.items()
    assert recorder.run.config["optimizer"]["learning_rate"] == 0.05
    json.dumps(recorder.run.config)
    assert same_bits(recorder.result, result)


def test_callbacks_receive_the_norms_before_each_hyper_iteration():
    calls = []

    with pytest.warns(DeprecationWarning, match=r"hypergradient\.norms"):

        class Watch(rf.Callback):
            def on_norms(self, k, norms):
                calls.append((k, norms))

            def on_hyper_iteration(self, k, hypers, hypergradient, extra):
                assert calls[-1][1] == {"norm of adjoint": float(hypergradient.norms["adjoint"])}
                calls.append(k)

    history = run(adam(), 2, callbacks=[Watch()]).history
    norms = [{"norm of adjoint": row["norm of adjoint"]} for row in history]
    assert calls == [(0, norms[0]), 0, (1, norms[1]), 1]


def test_callbacks_receive_the_hypers_at_which_the_hypergradient_was_computed():
    recorder = Recorder()
    result = run(adam(), 3, callbacks=[recorder])
    for k, (hypers, hypergradient, _) in enumerate(recorder.reports):
        assert same_bits(hypergradient, engine()(PARAMS, hypers, k))
        assert result.history[k]["lr"] == float(hypers["lr"])


def test_callbacks_receive_all_metrics_and_the_history_those_that_are_numbers():
    called = []

    def metrics(state, hypers, k):
        called.append((state, hypers, k))
        return {"norm": tf.norm(state), "count": np.int64(k), "all": state, "phase": "training"}

    recorder = Recorder()
    result = run(adam(), 2, callbacks=[recorder], metrics=metrics)
    for k, (hypers, hypergradient, extra) in enumerate(recorder.reports):
        state = hypergradient.state
        assert same_bits(called[k][:2], (state, hypers))
        assert called[k][2] == k
        assert list(extra) == ["norm", "count", "all", "phase"]
        assert same_bits(extra["all"], state)
        assert result.history[k]["norm"] == float(tf.norm(state))
        assert (result.history[k]["count"], "all" in result.history[k], "phase" in result.history[k]) == (k, False, False)
    json.dumps(result.history, allow_nan=False)


def test_without_metrics_extra_is_empty():
    recorder = Recorder()
    run(adam(), 1, callbacks=[recorder])
    assert recorder.reports[0][2] == {}


@pytest.mark.parametrize("methods", [("on_start",), ("on_hyper_iteration",), ("on_end",), ("on_start", "on_end")])
def test_a_callback_may_have_only_some_of_the_methods(methods):
    called = []
    record = {name: lambda self, *args, name=name: called.append(name) for name in methods}
    run(adam(), 1, callbacks=[type("Partial", (), record)()])
    assert called == list(methods)


def test_callbacks_are_called_in_order():
    called = []
    make = lambda name: type("C", (), {"on_hyper_iteration": lambda self, k, *_: called.append((k, name))})()  # noqa: E731
    run(adam(), 2, callbacks=(make("a"), make("b")))
    assert called == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]


class Failing:
    def __init__(self, at, error):
        self.at, self.error = at, error

    def on_hyper_iteration(self, k, *_):
        if k == self.at:
            raise self.error


@pytest.mark.parametrize("error", [RuntimeError("disk full"), KeyboardInterrupt()], ids=["error", "ctrl-c"])
@pytest.mark.parametrize("where", ["callback", "metrics"])
def test_after_an_error_on_end_receives_what_was_finished(where, error):
    recorder, failing = Recorder(), Failing(2, error)
    if where == "callback":
        settings = {"callbacks": [recorder, failing]}
    else:
        settings = {"callbacks": [recorder], "metrics": lambda state, hypers, k: failing.on_hyper_iteration(k) or {}}
    with pytest.raises(type(error)):
        run(adam(), 5, **settings)
    assert recorder.events[-1] == "end"
    finished = run(adam(), 2)
    assert [row["iteration"] for row in recorder.result.history] == [0, 1]
    assert same_bits([recorder.result.hypers, recorder.result.best], [finished.hypers, finished.best])


def test_seconds_do_not_include_metrics_and_callbacks(monkeypatch, tmp_path):
    skew, real = [0.0], time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: real() + skew[0])

    def hours(*args):
        skew[0] += 1e6
        return {}

    class Slow:
        """An engine whose every call takes another 1000 s."""

        problem, settings, start, initial_state = (
            getattr(engine(), name) for name in ("problem", "settings", "start", "initial_state")
        )

        def advance(self, *args):
            skew[0] += 1e3
            return engine().advance(*args)

    watch = type("Watch", (), {"on_start": hours, "on_hyper_iteration": hours, "on_end": hours})()
    tuner = rf.HyperOptimizer(Slow(), adam(), [watch], metrics=hours)
    tuner.run(PARAMS, HYPERS, 2, tmp_path)
    seconds = [row["seconds"] for row in tuner.run(PARAMS, HYPERS, 4, tmp_path).history]  # adds to the time so far
    assert [int(s // 1e3) for s in seconds] == [1, 2, 3, 4]
