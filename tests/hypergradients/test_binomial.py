"""Checkpointed reverse: the same numbers as plain reverse, the fewest steps that the room allows, one graph for all T."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.hypergradients import binomial as checkpointing
from tests.support.problems import OPTIMISERS, assert_agree, build


def assert_same(plain, checkpointed, dtype):
    """Value and last state to the bit; gradients to rounding, as the contract has it."""
    exact = [tf.nest.flatten((found.value, found.state)) for found in (plain, checkpointed)]
    for a, b in zip(*exact, strict=True):
        np.testing.assert_array_equal(a, b)
    for name, grad in plain.grads.items():  # which may be 0: one step has no momentum
        error = np.linalg.norm(grad - checkpointed.grads[name])
        assert error <= (1e-12 if dtype == tf.float64 else 1e-3) * np.linalg.norm(grad), name


@functools.cache
def plain(problem, optimiser, steps, dtype, jit_compile):
    built, params, hypers = build(problem, optimiser, steps, dtype)
    return rf.reverse(built, jit_compile=jit_compile)(params, hypers)


def compare(problem, optimiser, steps, slots, dtype, jit_compile):
    built, params, hypers = build(problem, optimiser, steps, dtype)
    found = rf.reverse(built, checkpoints=slots, jit_compile=jit_compile)(params, hypers)
    assert_same(plain(problem, optimiser, steps, dtype, jit_compile), found, dtype)


def kinds():
    """Precision and compiler; the two that differ in one thing only from another are slow."""
    for dtype, jit_compile in ((tf.float64, False), (tf.float32, True), (tf.float32, False), (tf.float64, True)):
        name = f"{dtype.name}-{'jit' if jit_compile else 'graph'}"
        marks = [pytest.mark.slow] if (dtype == tf.float64) == jit_compile else []
        yield pytest.param(dtype, jit_compile, id=name, marks=marks)


def grid():
    """As many slots as steps or more are plain reverse itself: one of those is enough at every change."""
    for steps in (1, 2, 7, 100):
        for slots in sorted({1, 2, 5, math.isqrt(4 * steps), steps}):
            yield pytest.param(steps, slots, marks=[pytest.mark.slow] if slots >= steps > 1 or slots > steps else [])


@pytest.mark.parametrize(("dtype", "jit_compile"), kinds())
@pytest.mark.parametrize("optimiser", ["momentum", "adam"])
@pytest.mark.parametrize(("steps", "slots"), grid())
def test_checkpointed_is_plain(optimiser, steps, slots, dtype, jit_compile):
    compare("quadratic", optimiser, steps, slots, dtype, jit_compile)


@pytest.mark.parametrize("optimiser", [o for o in OPTIMISERS if o not in ("momentum", "adam")])
def test_checkpointed_is_plain_for_the_other_optimisers(optimiser):
    compare("quadratic", optimiser, 7, 3, tf.float64, False)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "jit"])
def test_checkpointed_replays_shuffled_batches(jit_compile):
    compare("tanh_network", "adam", 13, 3, tf.float64, jit_compile)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "jit"])
@pytest.mark.parametrize("slots", [4, 20, 64])
@pytest.mark.parametrize("optimiser", ["momentum", "adam"])
def test_checkpointed_is_plain_over_a_thousand_steps(optimiser, slots, jit_compile):
    compare("tanh_network", optimiser, 1000, slots, tf.float32, jit_compile)


def test_checkpoints_with_running_costs_truncation_and_several_objectives():
    built, params, hypers = build("softmax_regression", "momentum", 9)
    objectives = {
        "end": rf.Objective(built.objective, ["weights"]),
        "way": rf.Objective(rf.RunningCost(built.objective, every=2), ["learning_rate", "momentum"]),
    }
    problem = rf.Problem(built.dynamics, objectives, 9, built.batches, built.validation)
    for truncate in (None, 6):
        engines = [rf.reverse(problem, checkpoints=c, truncate=truncate, jit_compile=False) for c in (None, 2)]
        whole, few = (engine(params, hypers) for engine in engines)
        assert whole.value == few.value
        assert_agree(whole.grads, few.grads, rtol=1e-12)


@pytest.mark.parametrize(("steps", "slots"), [(1, 1), (6, 1), (20, 3), (30, 7), (30, 30)])
def test_the_machine_visits_every_state_with_the_fewest_steps_and_slots(steps, slots):
    """Run eagerly on numbers: s_t = 3 t, so that a wrong state shows; steps and writes are counted."""
    counts = {"steps": 0}

    def step(state, t):
        counts["steps"] += 1
        assert int(state) == 3 * int(t)
        return state + 3

    def body(visited, state, t):
        assert int(state) == 3 * int(t)
        seen.append(int(t))
        return visited + 1

    seen = []
    kept, last = checkpointing.record(step, tf.constant(0), 0, steps, slots)
    assert int(last) == 3 * steps
    assert all(int(array.size()) == slots for array in kept.slots)
    checkpointing.fold_back(step, body, tf.constant(0, tf.int64), kept, 0, steps, slots)
    assert seen == list(range(steps))[::-1]
    assert counts["steps"] == checkpointing.steps_run(steps, slots)


def test_reverse_keeps_no_more_states_than_it_is_told(monkeypatch):
    asked = []
    record = checkpointing.record
    monkeypatch.setattr(checkpointing, "record", lambda *args: asked.append(args[2:]) or record(*args))
    built, params, hypers = build("quadratic", "momentum", 9)
    for checkpoints, truncate in ((3, None), (3, 6), (9, None), (12, None), (6, 6), (None, None)):
        rf.reverse(built, checkpoints, truncate, jit_compile=False)(params, hypers)
    assert asked == [(0, 9, 3), (3, 6, 3)], "the others keep all states and need no schedule"


def nodes(steps, slots):
    """The size of the traced graph, functions of loops included."""
    built, params, hypers = build("quadratic", "momentum", steps)
    engine = rf.reverse(built, checkpoints=slots, jit_compile=False)
    engine(params, hypers)
    (trace,) = engine._compiled._compiled._list_all_concrete_functions()
    graph = trace.graph.as_graph_def()
    return sum(len(f.node_def) for f in graph.library.function) + len(graph.node)


def test_the_graph_does_not_grow_with_steps_or_slots():
    assert nodes(30, 3) == nodes(300, 3) == nodes(300, 40)


@pytest.mark.parametrize(("value", "reason"), [(0, "at least 1"), (2.5, "whole number"), (True, "whole number")])
def test_checkpoints_have_to_be_a_count(value, reason):
    built, _, _ = build("quadratic", "momentum")
    with pytest.raises(ValueError, match=f"checkpoints is {value!r}.*{reason}"):
        rf.reverse(built, checkpoints=value)


def walk(steps, slots):
    """(steps run forwards, most states kept) of the schedule, by running it on plain numbers: a state is its time."""
    table = checkpointing.reach(slots, steps + 1)

    def distance(length, free):
        row = table[free]
        runs = int(np.sum(row < length))
        return min(row[runs - 1], length - table[free - 1][runs - 1])

    assert all(
        int(checkpointing.distance(tf.constant(table), tf.constant(n), tf.constant(s))) == distance(n, s)
        for n, s in [(steps + 1, slots), (2, 1), (min(steps, slots) + 1, slots)]
    )
    kept, run, most = [], 0, 0
    t = 0
    for end in range(steps, -1, -1):
        if end < steps:
            t = kept.pop()
        while t < end:
            kept.append(t)
            most = max(most, len(kept))
            ahead = distance(end - t + 1, slots - len(kept) + 1)
            assert 1 <= ahead <= end - t
            run, t = run + ahead, t + ahead
        assert t == end
    return run, most


@functools.cache
def fewest(states, slots):
    """The fewest steps that visit so many states backwards, the first of them kept in one of the slots: all ways tried."""
    if states == 1:
        return 0
    if slots == 1:
        return states * (states - 1) // 2
    return min(d + fewest(states - d, slots - 1) + fewest(d, slots) for d in range(1, states))


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 6])
def test_the_schedule_runs_the_fewest_steps(slots):
    for steps in range(1, 31):
        assert walk(steps, slots)[0] == fewest(steps + 1, slots)


@pytest.mark.parametrize(("steps", "slots"), [(1, 1), (5, 1), (7, 7), (100, 20), (1000, 64), (1000, 3), (20_000, 283)])
def test_the_schedule_keeps_no_more_than_the_slots(steps, slots):
    assert walk(steps, slots)[1] <= slots


def test_what_few_states_cost():
    assert walk(20_000, 283)[0] < 2 * 20_000  # 2 sqrt(T): less than one more training
    assert walk(100_000, 100)[0] < 3 * 100_000
    assert walk(100_000, 30)[0] < 5 * 100_000
