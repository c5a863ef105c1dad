"""The driver: what a run returns, whom it tells, and what is left when it breaks off."""

import functools
import json
import math
import time

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf

TARGET = tf.constant([1.0, -2.0, 0.5])
PARAMS = tf.zeros(3)
HYPERS = {"lr": 0.1, "weights": [1.0, 1.0, 1.0]}
METHODS = ["reverse", "forward", "real_time"]
EXPLODING = 1e30  # a learning rate that leads to inf - inf


def loss(w, hypers, batch):
    return 0.5 * tf.reduce_sum(hypers["weights"] * (w - tf.cast(TARGET, w.dtype)) ** 2)


def objective(w, hypers, shift):
    return 0.5 * tf.reduce_sum((w - tf.cast(TARGET, w.dtype) - tf.cast(shift, w.dtype)) ** 2)


def shift(k):
    """A validation batch that differs from one hyper-iteration to the next."""
    return 0.01 * tf.cast(k % 2, tf.float32)


@functools.cache
def engine(method="reverse"):
    """Compiled once for all tests, which it can be because it is pure."""
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), objective, steps=4, validation=shift)
    if method == "real_time":
        return rf.real_time(problem, hyper_batch=2, jit_compile=False)
    return {"reverse": rf.reverse, "forward": rf.forward}[method](problem, jit_compile=False)


@functools.cache
def adam(rate=0.05):
    return rf.projected_adam(rate, {"lr": rf.Box(0.0, 1.0), "weights": rf.NonNegative()})


def visiting(rates):
    """An "optimiser" that takes the learning rate through given values, whatever the hypergradient."""
    rates = tf.constant([*rates, 0.1])

    def update(grads, visited, hypers):
        return {**hypers, "lr": rates[visited + 1]}, visited + 1

    return rf.HyperUpdate(lambda hypers: tf.constant(0), update)


def run(
    optimizer, iterations, method="reverse", hypers=None, checkpoint_dir=None, resume=True, checkpoint_every=1, **kwargs
):
    tuner = rf.HyperOptimizer(engine(method), optimizer, **kwargs)
    return tuner.run(PARAMS, hypers or HYPERS, iterations, checkpoint_dir, resume, checkpoint_every)


def visit(rates, **kwargs):
    return run(visiting(rates), len(rates), hypers={**HYPERS, "lr": rates[0]}, **kwargs)


def same_bits(a, b):
    tf.nest.assert_same_structure(a, b)
    pairs = zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True)
    return all(np.asarray(x).dtype == np.asarray(y).dtype and np.array_equal(x, y) for x, y in pairs)


class Recorder:
    """Keeps all it is told."""

    def __init__(self):
        self.events, self.told = [], []

    def on_start(self, run):
        self.events.append("start")
        self.run = run

    def on_hyper_iteration(self, k, hypers, hypergradient, extra):
        self.events.append(k)
        self.told.append((hypers, hypergradient, extra))

    def on_end(self, result):
        self.events.append("end")
        self.result = result


# What a run does and returns


@pytest.mark.parametrize("method", METHODS)
def test_tuned_hypers_beat_those_that_are_held(method):
    tuned, held = run(adam(), 8, method), run(adam(rate=0.0), 8, method)
    assert tuned.history[-1]["value"] < 0.7 * held.history[-1]["value"]
    assert tuned.history[-1]["value"] < 0.7 * tuned.history[0]["value"]


@pytest.mark.parametrize("method", METHODS)
def test_each_hyper_iteration_is_an_advance_and_an_update(method):
    optimizer, hypers = adam(), {name: tf.constant(value) for name, value in HYPERS.items()}
    carry, opt_state = engine(method).start(PARAMS, hypers), optimizer.init(hypers)
    result, rows = run(optimizer, 3, method), []
    for k in range(3):
        found, carry = engine(method).advance(carry, hypers, k)
        rows.append({
            "iteration": k, "value": float(found.value), "lr": float(hypers["lr"]),
            "hypergradient/lr": float(tf.norm(found.grads["lr"])),
            "hypergradient/weights": float(tf.norm(found.grads["weights"])),
            **{f"norm of {name}": float(norm) for name, norm in engine(method).norms.items()},
        })  # fmt: skip
        hypers, opt_state = optimizer.update(found.grads, opt_state, hypers)
    assert [{key: value for key, value in row.items() if key != "seconds"} for row in result.history] == rows
    assert same_bits(result.hypers, hypers)
    assert same_bits(result.state, found.state)


def test_real_time_is_one_training_and_the_batch_engines_start_again():
    again, going_on = (run(adam(rate=0.0), 4, method).history for method in ("reverse", "real_time"))
    assert again[0]["value"] == again[2]["value"]  # of one validation batch
    assert going_on[3]["value"] < going_on[1]["value"] < going_on[0]["value"]


def test_history_is_one_flat_json_dict_per_hyper_iteration():
    history = run(adam(), 4).history
    keys = {"iteration", "value", "lr", "hypergradient/lr", "hypergradient/weights", "norm of adjoint", "seconds"}
    assert [set(row) for row in history] == [keys] * 4
    assert [row["iteration"] for row in history] == [0, 1, 2, 3]
    assert {type(value) for row in history for value in row.values()} == {int, float}
    assert json.loads(json.dumps(history, allow_nan=False)) == history
    assert [row["seconds"] for row in history] == sorted(row["seconds"] for row in history)


def test_result_has_the_hypers_and_state_as_they_went_in():
    result = run(adam(), 2)
    assert result._fields == ("hypers", "state", "history", "best")
    assert {name: hyper.shape.as_list() for name, hyper in result.hypers.items()} == {"lr": [], "weights": [3]}
    assert all(leaf.dtype == tf.float32 for leaf in [*result.hypers.values(), result.state])
    assert result.state.shape == PARAMS.shape


def test_hypers_follow_the_dtype_of_the_params():
    tuner = rf.HyperOptimizer(engine(), adam())
    result = tuner.run(tf.cast(PARAMS, tf.float64), {**HYPERS, "lr": tf.constant(0.1)}, 2)
    assert {leaf.dtype for leaf in [*result.hypers.values(), result.state, *result.best.hypers.values()]} == {tf.float64}


@pytest.mark.parametrize("method", METHODS)
def test_a_second_run_of_the_same_tuner_gives_the_same_bits(method):
    tuner = rf.HyperOptimizer(engine(method), adam())
    hypers = {name: tf.constant(value) for name, value in HYPERS.items()}
    first, second = (tuner.run(PARAMS, hypers, 3) for _ in range(2))
    assert same_bits([first.hypers, first.state, first.best], [second.hypers, second.state, second.best])


@pytest.mark.parametrize("argument", ["iterations", "checkpoint_every"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_counts_have_to_be_whole_and_positive(argument, value):
    with pytest.raises(ValueError, match=argument):
        rf.HyperOptimizer(engine(), adam()).run(PARAMS, HYPERS, **{"iterations": 2, argument: value})


# Several objectives


def several():
    objectives = {
        "training": rf.Objective(lambda w, hypers, batch: loss(w, hypers, None), ["lr"]),
        "validation": rf.Objective(objective, ["weights"]),
    }
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), objectives, steps=3, validation=shift)
    return rf.reverse(problem, jit_compile=False)


def test_several_objectives_stand_in_the_history_each_and_in_sum():
    recorder = Recorder()
    result = rf.HyperOptimizer(several(), adam(), [recorder], best_by="value/validation").run(PARAMS, HYPERS, 3)
    for row, (_, found, _) in zip(result.history, recorder.told, strict=True):
        assert row["value/training"] == float(found.value["training"])
        assert row["value/validation"] == float(found.value["validation"])
        assert row["value"] == row["value/training"] + row["value/validation"]
    assert result.best.value == min(row["value/validation"] for row in result.history)
    assert result.history[-1]["value"] < result.history[0]["value"]


# The best hyper-iteration


def test_best_is_the_lowest_value_with_its_own_hypers_and_state():
    rates = [0.1, 0.4, 0.3, 0.05]
    result = visit(rates)
    values = [row["value"] for row in result.history]
    assert (result.best.iteration, result.best.value) == (1, min(values))
    assert float(result.best.hypers["lr"]) == np.float32(0.4)
    assert same_bits(result.best.state, engine()(PARAMS, result.best.hypers, 1).state)
    assert not same_bits(result.best.state, result.state)


def test_of_equally_good_ones_the_first_is_best():
    assert visit([0.1, 0.3, 0.1, 0.3]).best.iteration == 1


def test_best_by_a_metric():
    result = visit([0.3, 0.1, 0.2, 0.25], metrics=lambda state, hypers, k: {"rate": hypers["lr"]}, best_by="rate")
    assert (result.best.iteration, result.best.value) == (1, float(np.float32(0.1)))


def test_a_metric_that_is_not_a_number_is_never_the_best():
    scores = [math.nan, 3.0, math.nan, 2.0]
    result = visit([0.1] * 4, metrics=lambda state, hypers, k: {"score": scores[k]}, best_by="score")
    assert (result.best.iteration, result.best.value) == (3, 2.0)


def test_best_by_something_unknown_names_what_there_is():
    with pytest.raises(ValueError, match=r"best_by is 'accuracy'.*'hypergradient/lr'.*'score'.*'value'"):
        run(adam(), 2, metrics=lambda state, hypers, k: {"score": 1.0}, best_by="accuracy")


@pytest.mark.parametrize("name", ["value", "iteration"])
@pytest.mark.parametrize("what", ["metric", "hyper"])
def test_a_metric_or_hyper_of_that_name_does_not_displace_the_drivers_own(what, name):
    recorder = Recorder()
    if what == "metric":
        result = visit([0.1, 0.4, 0.3], callbacks=[recorder], metrics=lambda state, hypers, k: {name: -5.0 - k})
    else:
        problem = rf.Problem(rf.gradient_descent(lambda w, hypers, batch: (w - 1.0) ** 2, name), lambda w, *_: w**2, steps=1)
        tuner = rf.HyperOptimizer(rf.reverse(problem, jit_compile=False), rf.projected_adam(0.01), [recorder])
        result = tuner.run(tf.constant(0.0), {name: -3.0}, 3)
    values = [float(found.value) for _, found, _ in recorder.told]
    assert [row["value"] for row in result.history] == values
    assert [row["iteration"] for row in result.history] == [0, 1, 2]
    assert (result.best.value, result.best.iteration) == (min(values), int(np.argmin(values)))


# Callbacks and metrics


def test_callbacks_are_told_of_the_start_every_hyper_iteration_and_the_end():
    recorder = Recorder()
    result = run(adam(), 3, callbacks=[recorder])
    assert recorder.events == ["start", 0, 1, 2, "end"]
    assert (recorder.run.first, recorder.run.iterations) == (0, 3)
    assert same_bits(recorder.run.hypers, {name: tf.constant(value) for name, value in HYPERS.items()})
    assert recorder.run.config["engine"].items() >= {"method": "reverse", "steps": 4}.items()
    assert recorder.run.config["optimizer"]["learning_rate"] == 0.05
    json.dumps(recorder.run.config)
    assert same_bits(recorder.result, result)


def test_callbacks_see_the_hypers_at_which_the_hypergradient_was_taken():
    recorder = Recorder()
    result = run(adam(), 3, callbacks=[recorder])
    for k, (hypers, found, _) in enumerate(recorder.told):
        assert same_bits(found, engine()(PARAMS, hypers, k))
        assert result.history[k]["lr"] == float(hypers["lr"])


def test_metrics_reach_callbacks_whole_and_the_history_as_numbers():
    called = []

    def metrics(state, hypers, k):
        called.append((state, hypers, k))
        return {"norm": tf.norm(state), "count": np.int64(k), "all": state, "phase": "training"}

    recorder = Recorder()
    result = run(adam(), 2, callbacks=[recorder], metrics=metrics)
    for k, (hypers, found, extra) in enumerate(recorder.told):
        assert same_bits(called[k][:2], (found.state, hypers))
        assert called[k][2] == k
        assert list(extra) == ["norm", "count", "all", "phase"]
        assert same_bits(extra["all"], found.state)
        assert result.history[k]["norm"] == float(tf.norm(found.state))
        assert (result.history[k]["count"], "all" in result.history[k], "phase" in result.history[k]) == (k, False, False)
    json.dumps(result.history, allow_nan=False)


def test_without_metrics_extra_is_empty():
    recorder = Recorder()
    run(adam(), 1, callbacks=[recorder])
    assert recorder.told[0][2] == {}


@pytest.mark.parametrize("methods", [(), ("on_start",), ("on_hyper_iteration",), ("on_end",), ("on_start", "on_end")])
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
def test_on_end_is_called_with_what_was_finished_when_something_raises(where, error):
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


def test_time_in_metrics_and_callbacks_is_not_the_algorithms(monkeypatch, tmp_path):
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
    seconds = [row["seconds"] for row in tuner.run(PARAMS, HYPERS, 4, tmp_path).history]  # goes on with the time so far
    assert [int(s // 1e3) for s in seconds] == [1, 2, 3, 4]


# A run that is taken up again


@pytest.mark.parametrize("method", METHODS)
def test_iterations_is_the_total_also_when_a_run_is_taken_up_again(method, tmp_path):
    recorder = Recorder()
    run(adam(), 2, method, checkpoint_dir=tmp_path)
    result = run(adam(), 5, method, checkpoint_dir=tmp_path, callbacks=[recorder])
    assert recorder.events == ["start", 2, 3, 4, "end"]
    assert (recorder.run.first, recorder.run.iterations) == (2, 5)
    straight = run(adam(), 5, method)
    assert [row["iteration"] for row in result.history] == [0, 1, 2, 3, 4]
    assert [row["value"] for row in result.history] == [row["value"] for row in straight.history]
    assert same_bits([result.hypers, result.state, result.best], [straight.hypers, straight.state, straight.best])


def test_iterations_that_are_done_are_returned_at_once(tmp_path):
    first = run(adam(), 3, checkpoint_dir=tmp_path)
    recorder = Recorder()

    def never(*args):
        raise AssertionError("nothing was left to do")

    again = run(adam(), 3, checkpoint_dir=tmp_path, callbacks=[recorder], metrics=never)
    assert recorder.events == ["start", "end"]
    assert again.history == first.history
    assert same_bits([again.hypers, again.state, again.best], [first.hypers, first.state, first.best])


def seen_enough(history):
    return len(history) >= 3


def test_a_run_stops_when_its_history_says_so():
    recorder = Recorder()
    result = run(adam(), 9, stop=seen_enough, callbacks=[recorder])
    assert recorder.events == ["start", 0, 1, 2, "end"]
    assert same_bits([result.hypers, result.state], [(short := run(adam(), 3)).hypers, short.state])


def test_a_run_that_stopped_is_saved_and_stays_stopped(tmp_path):
    first = run(adam(), 9, stop=seen_enough, checkpoint_dir=tmp_path, checkpoint_every=5)
    recorder = Recorder()
    again = run(adam(), 9, stop=seen_enough, checkpoint_dir=tmp_path, checkpoint_every=5, callbacks=[recorder])
    assert recorder.events == ["start", "end"]
    assert again.history == first.history
    further = run(adam(), 5, checkpoint_dir=tmp_path)
    assert [row["iteration"] for row in further.history] == [0, 1, 2, 3, 4]
    assert same_bits(further.hypers, run(adam(), 5).hypers)


# Divergence


@pytest.mark.parametrize("method", METHODS)
def test_divergence_names_the_hyper_iteration_the_quantities_and_the_norms(method):
    recorder = Recorder()
    with pytest.raises(rf.DivergenceError) as caught:
        visit([0.1, 0.2, EXPLODING, 0.1], method=method, callbacks=[recorder])
    message = str(caught.value)
    assert isinstance(caught.value, ArithmeticError)
    assert caught.value.iteration == 2
    assert "hyper-iteration 2" in message
    assert all(name in message for name in ("value", "hypergradient of lr", "hypergradient of weights", "Norms", "Try"))
    assert recorder.events == ["start", 0, 1, "end"]
    finished = visit([0.1, 0.2], method=method)
    for result in (caught.value.result, recorder.result):
        assert [row["value"] for row in result.history] == [row["value"] for row in finished.history]
        assert same_bits([result.state, result.best], [finished.state, finished.best])
        assert float(result.hypers["lr"]) == np.float32(EXPLODING)  # where it went wrong


def test_divergence_of_a_hypergradient_alone_is_seen_and_named():
    def root(w, hypers, batch):  # finite at 0, its derivative is not
        return tf.sqrt(hypers["a"]) + tf.reduce_sum(hypers["b"] * w**2)

    problem = rf.Problem(rf.gradient_descent(lambda w, hypers, batch: tf.reduce_sum(w**2), 0.25), root, steps=1)
    tuner = rf.HyperOptimizer(rf.reverse(problem, jit_compile=False), rf.projected_adam(0.1))
    with pytest.raises(rf.DivergenceError) as caught:
        tuner.run(tf.constant([4.0, 3.0]), {"a": 0.0, "b": [1.0, 1.0]}, 3)
    bad, norms = str(caught.value).split("Norms:")
    assert "hypergradient of a" in bad
    assert "hypergradient of b" not in bad
    assert "value: 6.25" in norms
    assert f"hypergradient of b: {np.hypot(4.0, 2.25):.6g}" in norms


def test_divergence_at_the_very_first_hyper_iteration_has_nothing_to_keep():
    with pytest.raises(rf.DivergenceError) as caught:
        visit([EXPLODING, 0.1])
    assert caught.value.iteration == 0
    assert caught.value.result.history == []
    assert caught.value.result.best is None
    assert "hyper-iteration -1" not in str(caught.value)


@pytest.mark.parametrize("method", ["reverse", "real_time"])
def test_divergence_leaves_the_checkpoint_as_it_was(method, tmp_path):
    rates = [0.1, 0.2, 0.3, EXPLODING]
    visiting_all = visiting(rates)
    run(visiting_all, 3, method, checkpoint_dir=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for _ in range(2):  # again and again to the same end
        with pytest.raises(rf.DivergenceError) as caught:
            run(visiting_all, 4, method, checkpoint_dir=tmp_path)
        assert caught.value.iteration == 3
        assert [row["iteration"] for row in caught.value.result.history] == [0, 1, 2]
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(run(visiting_all, 3, method, checkpoint_dir=tmp_path).history) == 3


def test_divergence_between_two_checkpoints_loses_nothing_that_was_finished(tmp_path):
    rates, recorder = [0.1, 0.2, 0.3, EXPLODING], Recorder()
    with pytest.raises(rf.DivergenceError) as caught:
        run(visiting(rates), 4, checkpoint_dir=tmp_path, checkpoint_every=2)
    assert [row["iteration"] for row in caught.value.result.history] == [0, 1, 2]
    with pytest.raises(rf.DivergenceError):
        run(visiting(rates), 4, checkpoint_dir=tmp_path, checkpoint_every=2, callbacks=[recorder])
    assert recorder.run.first == 3  # the message says that the checkpoint has all of it too
