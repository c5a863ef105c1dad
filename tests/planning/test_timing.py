"""Short timed runs: what is measured, and on which problems."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.planning import timing
from tests.support.problems import build


def problem(steps, m=3):
    def loss(w, hypers, batch):
        return tf.reduce_sum(w**2) * tf.reduce_sum(hypers["decay"])

    return rf.Problem(rf.gradient_descent(loss, 0.1), loss, steps), np.ones(6, np.float32), {"decay": np.ones(m)}


@pytest.mark.parametrize(
    ("peaks", "state_bytes", "fixed"),
    [((3e6, 10e6), 1e5, 2.8e6), ((3e6, 18e6), 2e5, 3.6e6), ((5e6, 4e6), 2e5, 0.0), ((0, 0), 2e5, 0.0)],
    ids=["half of the state", "more than the state", "noise", "not reported"],
)
def test_the_bytes_that_reverse_keeps_are_the_slope_of_two_runs_and_at_most_the_state(
    peaks, state_bytes, fixed, monkeypatch
):
    reported = iter(peaks)
    monkeypatch.setattr(timing, "added", lambda _: next(reported))
    monkeypatch.setattr(timing, "_best", lambda _: 1.0)
    measured = timing.time_reverse(problem(72)[0], None, None, 1e-6, 72, state=200_000)
    assert measured.state_bytes == pytest.approx(state_bytes)
    assert measured.bytes == pytest.approx(fixed)


def test_bytes_that_are_too_few_to_measure_count_as_the_whole_state(monkeypatch):
    reported = iter((0, 0, 1000))
    monkeypatch.setattr(timing, "added", lambda _: next(reported))
    monkeypatch.setattr(timing, "_best", lambda _: 1.0)
    p, params, hypers = problem(72)
    assert timing.time_reverse(p, None, None, 1e-6, 72, state=24).state_bytes == 24
    params, hypers = rf.reverse(p).validated(params, hypers)
    assert timing.time_windows(p, params, hypers, 1e-6, 72, state=24).state_bytes == 24


def planned_columns(m, monkeypatch):
    """The numbers of columns that the planner pushes in one run."""
    numbers = []
    directions = timing.directions
    monkeypatch.setattr(timing, "directions", lambda hypers, begin, n: numbers.append(n) or directions(hypers, begin, n))
    p, params, hypers = problem(20, m)
    planned = rf.plan(p, params, hypers, memory="1GB")
    assert all(choice.seconds > 0 and choice.bytes > 0 for choice in planned.choices)
    return set(numbers)


@pytest.mark.parametrize(("m", "columns"), [(3, 3), (200, 50)])
def test_one_chunk_is_measured_whatever_the_number_of_chunks(m, columns, monkeypatch, quick):
    assert planned_columns(m, monkeypatch) == {columns}


@pytest.mark.slow  # the example in the docstring of `rf.plan` measures with XLA too
@pytest.mark.slow
def test_runs_compiled_by_xla_can_be_measured(monkeypatch):
    monkeypatch.setattr(timing, "SECONDS", 1e-3)
    assert planned_columns(2, monkeypatch) == {2}


def test_a_few_steps_can_be_planned(quick):
    """A schedule has no more entries than there are steps."""

    def loss(w, hypers, batch):
        return tf.reduce_sum(w**2)

    for steps in (1, 2, 3):
        p = rf.Problem(rf.gradient_descent(loss, lambda hypers, t: tf.gather(hypers["lr"], t)), loss, steps)
        assert rf.plan(p, tf.ones(3), {"lr": np.full(steps, 0.1)}).chosen.seconds >= 0, steps


def test_a_running_cost_that_starts_late_is_evaluated_in_the_short_run_too():
    p, _, _ = build("quadratic", "gradient_descent", steps=50)
    late = rf.Problem(p.dynamics, rf.RunningCost(p.objective, every=25), 50)
    short = timing._shortened(late, 4)
    assert (short.steps, short.objective.every) == (4, 4)
    both = {"a": rf.Objective(rf.RunningCost(p.objective, 25), ["curvature"]), "b": rf.Objective(p.objective, ["lr"])}
    short = timing._shortened(rf.Problem(p.dynamics, both, 50), 4)
    assert short.objective["a"].fn.every == 4
    assert short.objective["b"] == both["b"]


@pytest.mark.parametrize(
    ("second", "expected"), [((20, 5.0), (1.0, 0.2)), ((20, 3.0), (0.0, 0.15)), ((20, 9.0), (0.0, 0.6))]
)
def test_times_lie_on_a_line_that_never_falls_and_begins_at_zero_or_above(second, expected):
    assert timing._line((10, 3.0), second) == pytest.approx(expected)
