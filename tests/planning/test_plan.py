"""The planner: arithmetic on given measurements, the choice, and the engine that makes it by itself."""

import math

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.hypergradients import binomial as checkpointing
from rfho2.planning import memory, timing
from rfho2.planning import plan as planner
from rfho2.planning.timing import Measured
from tests.hypergradients.test_binomial import walk
from tests.support.problems import build

STATE = 24  # bytes


def given(monkeypatch, step, back, push):
    """Instead of measurements."""
    monkeypatch.setattr(planner, "time_training", lambda *_: step)
    monkeypatch.setattr(planner, "time_reverse", lambda *_: back)
    monkeypatch.setattr(planner, "time_forward", lambda *_: push)


@pytest.fixture
def measured(monkeypatch):
    """One step takes 1 ms, with its pull-back 3 ms, with six columns pushed 13 ms; every call 0.5 s; states of 24 bytes."""
    given(monkeypatch, Measured(0, 1e-3, 0), Measured(0.5, 3e-3, 760, STATE), Measured(0.5, 13e-3, 2000))


def problem(steps, m=6):
    def loss(w, hypers, batch):
        return tf.reduce_sum(w**2) * tf.reduce_sum(hypers["decay"])

    return rf.Problem(rf.gradient_descent(loss, 0.1), loss, steps), np.ones(6, np.float32), {"decay": np.ones(m)}


def test_the_fastest_that_fits_is_chosen(measured):
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
    assert tight.chosen.seconds == pytest.approx(30.5 + 1e-3 * (checkpointing.steps_run(steps, slots) - steps))
    assert "rf.reverse(problem) would take 30.5 s and 241 kB" in tight.reason

    least = rf.plan(p, params, hypers, memory=10)
    assert "nothing fits in 10 B" in least.reason
    assert str(least.chosen) == "rf.reverse(problem, checkpoints=1)"


@pytest.mark.parametrize(
    ("peaks", "kept", "fixed"),
    [((3e6, 10e6), 1e5, 2.8e6), ((3e6, 18e6), 2e5, 3.6e6), ((5e6, 4e6), 2e5, 0.0), ((0, 0), 2e5, 0.0)],
    ids=["half of the state", "more than the state", "noise", "not told"],
)
def test_what_reverse_keeps_is_the_slope_of_two_runs_and_at_most_the_state(peaks, kept, fixed, monkeypatch):
    remembered = iter(peaks)
    monkeypatch.setattr(timing, "_peak", lambda _: next(remembered))
    monkeypatch.setattr(timing, "_best", lambda _: 1.0)
    found = timing.time_reverse(problem(72)[0], None, None, 1e-6, 72, state=200_000)
    assert found.kept == pytest.approx(kept)
    assert found.bytes == pytest.approx(fixed)


def test_what_is_too_little_to_be_seen_counts_as_the_whole_state(monkeypatch):
    remembered = iter((0, 1000))
    monkeypatch.setattr(timing, "_peak", lambda _: next(remembered))
    monkeypatch.setattr(timing, "_best", lambda _: 1.0)
    assert timing.time_reverse(problem(72)[0], None, None, 1e-6, 72, state=24).kept == 24


def test_few_hypers_and_little_memory_make_it_forward(monkeypatch):
    given(monkeypatch, Measured(0, 1e-3, 0), Measured(0, 3e-3, 760, STATE), Measured(0, 3.5e-3, 500))
    found = rf.plan(*problem(10_000), memory=1000)
    assert str(found.chosen) == "rf.forward(problem)"
    assert found.chosen.seconds == pytest.approx(35.0)
    assert found.chosen.bytes == pytest.approx(500)


def test_chunks_shrink_until_they_fit(measured):
    """2000 bytes with six columns are 1712 that any chunk needs and 48 for each column."""
    found = rf.plan(*problem(100), memory=1900)
    whole, part = sorted((c for c in found.choices if c.method == "forward"), key=lambda choice: choice.seconds)
    assert whole.settings == {}
    assert part.settings == {"chunk": 3}
    assert part.bytes == pytest.approx(1712 + 3 * 48)
    assert part.seconds == pytest.approx(2 * (0.5 + 100 * (1e-3 + 3 * 2e-3)))


def test_many_hypers_are_several_trainings(measured):
    found = rf.plan(*problem(100, m=640), memory="1GB")
    (pushed,) = [choice for choice in found.choices if choice.method == "forward"]
    assert found.measured["columns"] == 64
    assert pushed.seconds == pytest.approx(10 * (0.5 + 100 * 13e-3))


def test_the_table_lists_every_choice_and_marks_what_is_too_much(measured):
    found = rf.plan(*problem(10_000), memory="100kB")
    text = str(found)
    assert all(str(choice) in text for choice in found.choices)
    assert text.count("too much") == sum(choice.bytes > 1e5 for choice in found.choices) > 0
    assert text.endswith(found.reason)
    assert [c.seconds for c in found.choices] == sorted(c.seconds for c in found.choices)


@pytest.mark.parametrize(
    ("memory", "number"), [("2GB", 2e9), ("500 MB", 5e8), ("1.5g", 1.5e9), (1024, 1024), ("3e3", 3e3), ("2GiB", 2 * 2**30)]
)
def test_memory_is_read(memory, number):
    assert planner._bytes(memory) == number


@pytest.mark.parametrize("memory", ["much", "", "-1GB", 0, -5, "1.2.3GB", math.inf, math.nan])
def test_memory_that_cannot_be_read(memory):
    with pytest.raises(ValueError, match=r"memory is .*; pass a number of bytes"):
        rf.auto(problem(10)[0], memory=memory)


def test_no_memory_given_is_half_of_what_is_free(monkeypatch):
    monkeypatch.setattr(planner, "free", lambda: 1e9)
    assert planner._bytes(None) == 5e8
    assert 1e6 < memory.free() < 1e15


@pytest.mark.parametrize(("steps", "slots"), [(1, 1), (9, 2), (30, 5), (100, 20), (100, 13), (1000, 3), (500, 499)])
def test_the_steps_run_are_those_of_the_schedule(steps, slots):
    assert checkpointing.steps_run(steps, slots) == walk(steps, slots)[0]


@pytest.mark.parametrize(("steps", "runs"), [(100, 1), (100, 2), (1000, 3), (20_000, 2), (7, 6)])
def test_the_fewest_slots_do_and_fewer_do_not(steps, runs):
    slots = checkpointing.fewest_slots(steps, runs)
    assert checkpointing.reach(slots, steps + 1).shape[1] - 1 <= runs
    assert slots == 1 or checkpointing.reach(slots - 1, steps + 1).shape[1] - 1 > runs


def test_auto_is_the_engine_that_it_chose():
    p, params, hypers = build("tanh_network", "momentum", steps=20)
    engine = rf.auto(p, memory="1GB")
    assert engine.plan is None
    found = engine(params, hypers)
    assert engine.plan.chosen.bytes <= 1e9
    assert set(engine.plan.measured) == {"step", "pull-back", "push-forward", "columns"}
    right = engine.plan.chosen.build(p)(params, hypers)
    assert found.value == right.value
    for name in hypers:
        np.testing.assert_array_equal(found.grads[name], right.grads[name])
    plan = engine.plan
    tuner = rf.HyperOptimizer(engine, rf.projected_adam(1e-3))
    result = tuner.run(params, hypers, iterations=2)
    assert engine.plan is plan, "it plans once"
    assert result.history[0]["value"] == float(right.value)


def test_the_planner_does_not_use_more_memory_than_it_may(monkeypatch):
    asked = {}
    step = Measured(0, 1e-3, 0)
    monkeypatch.setattr(planner, "time_training", lambda *_: step)
    monkeypatch.setattr(planner, "time_reverse", lambda *args: asked.update(steps=args[-2]) or step)
    monkeypatch.setattr(planner, "time_forward", lambda *args: asked.update(columns=args[-1]) or step)
    rf.plan(*problem(10_000, m=640), memory=20 * STATE)
    assert asked == {"steps": 10, "columns": 10}


@pytest.mark.parametrize("m", [3, 200])
def test_real_measurements_are_of_one_chunk(m, monkeypatch):
    """What one training with a chunk takes does not depend on how many chunks there are."""
    sizes = []
    real = timing.directions
    monkeypatch.setattr(
        timing, "directions", lambda hypers, begin, number: sizes.append(number) or real(hypers, begin, number)
    )
    p, params, hypers = problem(20, m)
    found = rf.plan(p, params, hypers, memory="1GB")
    assert set(sizes) == {3 if m == 3 else 50}
    assert all(choice.seconds > 0 and choice.bytes > 0 for choice in found.choices)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_few_steps_can_be_planned(steps):
    """A schedule has no more entries than there are steps."""

    def loss(w, hypers, batch):
        return tf.reduce_sum(w**2)

    p = rf.Problem(rf.gradient_descent(loss, lambda hypers, t: tf.gather(hypers["lr"], t)), loss, steps)
    assert rf.plan(p, tf.ones(3), {"lr": np.full(steps, 0.1)}).chosen.seconds >= 0


def test_a_running_cost_seen_late_is_seen_in_the_short_run():
    p, _, _ = build("quadratic", "gradient_descent", steps=50)
    late = rf.Problem(p.dynamics, rf.RunningCost(p.objective, every=25), 50)
    short = timing._shortened(late, 4)
    assert (short.steps, short.objective.every) == (4, 4)
    both = {"a": rf.Objective(rf.RunningCost(p.objective, 25), ["curvature"]), "b": rf.Objective(p.objective, ["lr"])}
    short = timing._shortened(rf.Problem(p.dynamics, both, 50), 4)
    assert short.objective["a"].fn.every == 4
    assert short.objective["b"] == both["b"]


def test_hypers_without_entries_leave_reverse(measured):
    p, params, _ = problem(10)
    with pytest.raises(ValueError, match="hypers has no entries"):
        rf.forward(p, jit_compile=False)(params, {"decay": np.zeros(0)})
    assert rf.plan(p, params, {"decay": np.zeros(0)}).chosen.method == "reverse"


def test_a_run_without_end_cannot_be_planned():
    p, params, hypers = problem(None)
    for planned in (lambda: rf.plan(p, params, hypers), lambda: rf.auto(p)):
        with pytest.raises(ValueError, match=r"steps is None.*real_time"):
            planned()
