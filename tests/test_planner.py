"""The planner: arithmetic on given measurements, the choice, and the engine that makes it by itself."""

import math

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2 import planner
from rfho2.hypergradients import checkpointing
from rfho2.planner import Measured
from tests.helpers import build
from tests.test_checkpointing import walk


@pytest.fixture
def measured(monkeypatch):
    """One step takes 1 ms, with its pull-back 3 ms, with three columns pushed 5 ms; states of 24 bytes."""
    monkeypatch.setattr(planner, "_time_training", lambda *_: 1e-3)
    times = {rf.reverse: Measured(3e-3, 1000, 10), rf.forward: Measured(5e-3, 2000, 10)}
    monkeypatch.setattr(planner, "_time_engine", lambda problem, build, *_: times[build])


def problem(steps):
    def loss(w, hypers, batch):
        return tf.reduce_sum(hypers["decay"] * w**2)

    return rf.Problem(rf.gradient_descent(loss, 0.1), loss, steps), np.ones(6, np.float32), {"decay": np.ones(6)}


def test_the_fastest_that_fits_is_chosen(measured):
    steps = 10_000
    p, params, hypers = problem(steps)
    state = 24
    plain = rf.plan(p, params, hypers, memory="1MB")
    assert str(plain.chosen) == "rf.reverse(problem)"
    assert plain.chosen.seconds == pytest.approx(30.0)
    assert plain.chosen.bytes == pytest.approx(steps * state + (1000 - 10 * state))

    tight = rf.plan(p, params, hypers, memory=20_000)
    slots = tight.chosen.settings["checkpoints"]
    assert slots == int((20_000 - 760) / state)
    assert tight.chosen.bytes <= 20_000
    assert tight.chosen.seconds == pytest.approx(30.0 + 1e-3 * (checkpointing.steps_run(steps, slots) - steps))
    assert "rf.reverse(problem) would take 30 s and 241 kB" in tight.reason

    least = rf.plan(p, params, hypers, memory=10)
    assert "nothing fits in 10 B" in least.reason
    assert least.chosen.bytes == min(choice.bytes for choice in least.choices)


def test_few_hypers_and_little_memory_make_it_forward(measured, monkeypatch):
    times = {rf.reverse: Measured(3e-3, 1000, 10), rf.forward: Measured(3.5e-3, 500, 10)}
    monkeypatch.setattr(planner, "_time_engine", lambda problem, build, *_: times[build])
    found = rf.plan(*problem(10_000), memory=1000)
    assert str(found.chosen) == "rf.forward(problem)"
    assert found.chosen.seconds == pytest.approx(35.0)


def test_chunks_shrink_until_they_fit(measured):
    found = rf.plan(*problem(100), memory=1100)
    chunked = [choice for choice in found.choices if "chunk" in choice.settings]
    assert [choice.settings for choice in chunked] == [{"chunk": 3}]
    assert chunked[0].bytes == pytest.approx(1000)
    assert chunked[0].seconds == pytest.approx(2 * 100 * 5e-3 / 2)


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


def test_no_memory_given_is_half_of_what_is_free():
    assert 1e6 < planner._bytes(None) < 1e15


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


def test_a_running_cost_seen_late_can_be_planned(monkeypatch):
    p, params, hypers = build("quadratic", "gradient_descent", steps=50)
    late = rf.Problem(p.dynamics, rf.RunningCost(p.objective, every=25), 50)
    monkeypatch.setattr(planner, "SECONDS", 1e-9)
    assert rf.plan(late, params, hypers).measured["pull-back"] > 0


def test_a_run_without_end_cannot_be_planned():
    p, params, hypers = problem(None)
    with pytest.raises(ValueError, match=r"steps is None.*real_time"):
        rf.plan(p, params, hypers)
