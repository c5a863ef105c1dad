"""The planner: what it predicts from given measurements, and what it chooses."""

import dataclasses
import importlib
import math

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.hypergradients import binomial
from rfho2.planning import memory
from rfho2.planning.timing import Measured
from tests.support.schedules import walk

STATE = 24  # bytes

planner = importlib.import_module("rfho2.planning.plan")  # `rfho2.planning.plan` is the function


def pretend(monkeypatch, step, back, push):
    """Replaces the measurements."""
    monkeypatch.setattr(planner, "time_training", lambda *_: step)
    monkeypatch.setattr(planner, "time_reverse", lambda *_: back)
    monkeypatch.setattr(planner, "time_forward", lambda *_: push)


@pytest.fixture
def measured(monkeypatch):
    """A step takes 1 ms, with its pull-back 3 ms, with a push of six columns 13 ms; a call 0.5 s; a state has 24 bytes."""
    pretend(monkeypatch, Measured(0, 1e-3, 0), Measured(0.5, 3e-3, 760, STATE), Measured(0.5, 13e-3, 2000))


def problem(steps, m=6):
    def loss(w, hypers, batch):
        return tf.reduce_sum(w**2) * tf.reduce_sum(hypers["decay"])

    return rf.Problem(rf.gradient_descent(loss, 0.1), loss, steps), np.ones(6, np.float32), {"decay": np.ones(m)}


def test_an_implicit_hypergradient_is_listed_only_where_the_training_is_solved(measured, monkeypatch):
    monkeypatch.setattr(planner, "time_implicit", lambda *_: Measured(0.25, 1e-3, 0))
    p, params, hypers = problem(10_000)
    assert "implicit" not in str(rf.plan(p, params, hypers, memory="1MB"))
    solved = rf.plan(p, params, hypers, memory="1MB", solved=True)
    assert str(solved.chosen) == "rf.implicit(problem)"
    assert solved.chosen.seconds == pytest.approx(10.25)
    assert solved.chosen.bytes == 8 * STATE
    assert solved.chosen.build(p).settings["method"] == "implicit"


def test_forward_mode_is_left_out_where_it_fails(measured, monkeypatch):
    def fails(*_):
        raise SystemError("accumulators do not follow loops\nmore")

    monkeypatch.setattr(planner, "time_forward", fails)
    p, params, hypers = problem(3)
    planned = rf.plan(p, params, hypers, memory="1MB")
    assert {choice.method for choice in planned.choices} == {"reverse"}
    assert planned.measured["push-forward"] == 0
    assert str(planned).endswith(" rf.forward(problem) is left out, because it fails: accumulators do not follow loops")


def test_the_fastest_engine_that_fits_is_chosen(measured):
    steps, fixed = 10_000, 760
    p, params, hypers = problem(steps)
    plain = rf.plan(p, params, hypers, memory="1MB")
    assert str(plain.chosen) == "rf.reverse(problem)"
    assert plain.chosen.seconds == pytest.approx(30.5)
    assert plain.chosen.bytes == pytest.approx(steps * STATE + fixed)

    tight = rf.plan(p, params, hypers, memory=20_000)
    slots = tight.chosen.settings["checkpoints"]
    assert slots == int((20_000 - fixed) / STATE)
    assert tight.chosen.bytes <= 20_000
    assert tight.chosen.seconds == pytest.approx(30.5 + 1e-3 * (binomial.steps_run(steps, slots) - steps))
    assert "rf.reverse(problem) would take 30.5 s and 241 kB" in tight.reason

    least = rf.plan(p, params, hypers, memory=10)
    assert "nothing fits in 10 B" in least.reason
    assert str(least.chosen) == "rf.reverse(problem, checkpoints=1)"


def test_forward_is_chosen_with_few_hypers_and_little_memory(monkeypatch):
    pretend(monkeypatch, Measured(0, 1e-3, 0), Measured(0, 3e-3, 760, STATE), Measured(0, 3.5e-3, 500))
    planned = rf.plan(*problem(10_000), memory=1000)
    assert str(planned.chosen) == "rf.forward(problem)"
    assert planned.chosen.seconds == pytest.approx(35.0)
    assert planned.chosen.bytes == pytest.approx(500)


def test_chunks_shrink_until_they_fit(measured):
    """2000 bytes with six columns are 1712 that any chunk needs and 48 for each column."""
    planned = rf.plan(*problem(100), memory=1900)
    whole, part = sorted((c for c in planned.choices if c.method == "forward"), key=lambda choice: choice.seconds)
    assert whole.settings == {}
    assert part.settings == {"chunk": 3}
    assert part.bytes == pytest.approx(1712 + 3 * 48)
    assert part.seconds == pytest.approx(2 * (0.5 + 100 * (1e-3 + 3 * 2e-3)))


def test_many_hypers_take_several_trainings(measured):
    planned = rf.plan(*problem(100, m=640), memory="1GB")
    (pushed,) = [choice for choice in planned.choices if choice.method == "forward"]
    assert planned.measured["columns"] == 64
    assert pushed.seconds == pytest.approx(10 * (0.5 + 100 * 13e-3))


def test_the_table_lists_every_choice_and_marks_those_that_need_too_much(measured):
    planned = rf.plan(*problem(10_000), memory="100kB")
    text = str(planned)
    assert all(str(choice) in text for choice in planned.choices)
    assert text.count("too much") == sum(choice.bytes > 1e5 for choice in planned.choices) > 0
    assert text.endswith(planned.reason)
    assert [c.seconds for c in planned.choices] == sorted(c.seconds for c in planned.choices)


def test_hypers_without_entries_leave_only_reverse(measured):
    p, params, _ = problem(10)
    with pytest.raises(ValueError, match="hypers has no entries"):
        rf.forward(p, jit_compile=False)(params, {"decay": np.zeros(0)})
    assert rf.plan(p, params, {"decay": np.zeros(0)}).chosen.method == "reverse"


def test_a_run_without_end_cannot_be_planned():
    p, params, hypers = problem(None)
    for planned in (lambda: rf.plan(p, params, hypers), lambda: rf.auto(p)):
        with pytest.raises(ValueError, match=r"steps is None.*real_time"):
            planned()
    streamed = dataclasses.replace(p, batches=rf.batches.stream(tf.data.Dataset.range(1).repeat()))
    with pytest.raises(ValueError, match=r"batches is a stream.*cached"):
        rf.plan(streamed, params, hypers, hyper_batch=3)
    with pytest.raises(ValueError, match="hyper_batch is 0"):
        rf.auto(p, hyper_batch=0)


def test_windows_are_planned_for_each_version_of_a_problem(measured, monkeypatch):
    """The version that keeps its activations takes 3 ms a step, and 760 bytes; the other one 4 ms, and 100 bytes."""
    backs = iter([Measured(0, 3e-3, 760, STATE), Measured(0, 4e-3, 100, STATE)])
    monkeypatch.setattr(planner, "time_windows", lambda *_: next(backs))
    p, params, hypers = problem(None)
    versions = {"kept": p, "recomputed": dataclasses.replace(p)}
    planned = rf.plan(versions, params, hypers, memory=100 + 20 * STATE, hyper_batch=20)
    assert str(planned.chosen) == "rf.real_time(problem['recomputed'], hyper_batch=20, mode='reverse')"
    assert planned.chosen.bytes == 100 + 20 * STATE
    assert planned.chosen.build(versions).problem is versions["recomputed"]
    fastest = planned.choices[0]
    assert (fastest.version, fastest.settings, fastest.seconds) == ("kept", planned.chosen.settings, pytest.approx(0.06))
    fewer = [choice for choice in planned.choices if choice.version == "kept" and choice.settings.get("checkpoints") == 3]
    assert fewer[0].seconds == pytest.approx(0.06 + 1e-3 * (binomial.steps_run(20, 3) - 20))
    assert fewer[0].build(versions).settings["checkpoints"] == 3


# Memory


@pytest.mark.parametrize(
    ("text", "number"),
    [("2GB", 2e9), ("500 MB", 5e8), ("1.5g", 1.5e9), (1024, 1024), (1, 1), ("3e3", 3e3), ("2GiB", 2 * 2**30)],
)
def test_memory_may_be_a_number_or_a_text(text, number):
    assert planner.parse_bytes(text) == number


@pytest.mark.parametrize("text", ["much", "", "-1GB", 0, -5, "1.2.3GB", math.inf, math.nan])
def test_memory_that_is_no_number_of_bytes_is_rejected(text):
    with pytest.raises(ValueError, match=r"memory is .*; pass a number of bytes"):
        rf.auto(problem(10)[0], memory=text)


def test_half_of_the_free_memory_is_the_default(monkeypatch):
    monkeypatch.setattr(planner, "free", lambda: 1e9)
    assert planner.parse_bytes(None) == 5e8
    assert 1e6 < memory.free() < 1e15


def test_the_short_runs_use_no_more_memory_than_there_is(monkeypatch):
    asked = {}
    step = Measured(0, 1e-3, 0)
    monkeypatch.setattr(planner, "time_training", lambda *_: step)
    monkeypatch.setattr(planner, "time_reverse", lambda *args: asked.update(steps=args[-2]) or step)
    monkeypatch.setattr(planner, "time_forward", lambda *args: asked.update(columns=args[-1]) or step)
    rf.plan(*problem(10_000, m=640), memory=20 * STATE)
    assert asked == {"steps": 10, "columns": 10}


# The schedule of checkpointed reverse


@pytest.mark.parametrize(("steps", "slots"), [(1, 1), (9, 2), (30, 5), (100, 20), (100, 13), (1000, 3), (500, 499)])
def test_the_predicted_steps_are_those_that_the_schedule_runs(steps, slots):
    assert binomial.steps_run(steps, slots) == walk(steps, slots)[0]


@pytest.mark.parametrize(("steps", "runs"), [(100, 1), (100, 2), (1000, 3), (20_000, 2), (7, 6)])
def test_the_fewest_slots_suffice_and_one_fewer_does_not(steps, runs):
    slots = binomial.fewest_slots(steps, runs)
    assert binomial.reach(slots, steps + 1).shape[1] - 1 <= runs
    assert slots == 1 or binomial.reach(slots - 1, steps + 1).shape[1] - 1 > runs
