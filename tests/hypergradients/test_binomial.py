"""Checkpointed reverse mode: the numbers of plain reverse mode, the fewest possible steps, one graph for all T."""

import functools
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.hypergradients import binomial
from tests.support.problems import OPTIMISERS, assert_agree, build
from tests.support.schedules import walk


def assert_same(plain, checkpointed, dtype):
    """Value and last state are bit-identical; gradients agree to rounding."""
    exact = [tf.nest.flatten((result.value, result.state)) for result in (plain, checkpointed)]
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
    hypergradient = rf.reverse(built, checkpoints=slots, jit_compile=jit_compile)(params, hypers)
    assert_same(plain(problem, optimiser, steps, dtype, jit_compile), hypergradient, dtype)


def grid():
    """Optimiser, steps, slots, precision and compiler; quick: momentum in float64, as a graph."""
    shapes = [(steps, slots) for steps in (1, 2, 7, 100) for slots in sorted({1, 2, 5, math.isqrt(4 * steps), steps})]
    for optimiser, (steps, slots), dtype, jit_compile in itertools.product(
        ("momentum", "adam"), shapes, (tf.float64, tf.float32), (False, True)
    ):
        case = (optimiser, steps, slots, dtype, jit_compile)
        # With as many slots as steps, or more, it is plain reverse mode. Rare and common schedules are quick.
        shown = optimiser == "momentum" and dtype == tf.float64 and not jit_compile
        shown = shown and (steps, slots) in ((1, 1), (7, 2), (100, 5))
        marks = [] if shown else [pytest.mark.slow]
        yield pytest.param(
            *case, marks=marks, id=f"{optimiser}-{steps}-{slots}-{dtype.name}-{'jit' if jit_compile else 'graph'}"
        )


@pytest.mark.parametrize(("optimiser", "steps", "slots", "dtype", "jit_compile"), grid())
def test_checkpointed_equals_plain(optimiser, steps, slots, dtype, jit_compile):
    compare("quadratic", optimiser, steps, slots, dtype, jit_compile)


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", [o for o in OPTIMISERS if o not in ("momentum", "adam")])
def test_checkpointed_equals_plain_for_the_other_optimisers(optimiser):
    compare("quadratic", optimiser, 7, 3, tf.float64, False)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "jit"])
def test_checkpointed_replays_shuffled_batches(jit_compile):
    compare("shuffled_network", "momentum", 13, 3, tf.float64, jit_compile)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "jit"])
@pytest.mark.parametrize("slots", [4, 20, 64])
@pytest.mark.parametrize("optimiser", ["momentum", "adam"])
def test_checkpointed_equals_plain_over_a_thousand_steps(optimiser, slots, jit_compile):
    compare("shuffled_network", optimiser, 1000, slots, tf.float32, jit_compile)


@pytest.mark.parametrize("truncate", [pytest.param(None, marks=pytest.mark.slow), 6])
def test_checkpoints_with_running_costs_truncation_and_several_objectives(truncate):
    built, params, hypers = build("quadratic", "momentum", 9)
    objectives = {
        "end": rf.Objective(built.objective, ["curvature"]),
        "way": rf.Objective(rf.RunningCost(built.objective, every=2), ["learning_rate", "momentum"]),
    }
    problem = rf.Problem(built.dynamics, objectives, 9, built.batches, built.validation)
    engines = [rf.reverse(problem, checkpoints=c, truncate=truncate, jit_compile=False) for c in (None, 2)]
    whole, few = (engine(params, hypers) for engine in engines)
    assert whole.value == few.value
    assert_agree(whole.grads, few.grads, rtol=1e-12)


@pytest.mark.parametrize(("steps", "slots"), [(1, 1), (6, 1), (20, 3), (12, 12)])
def test_the_backward_sweep_visits_every_state_with_the_fewest_steps_and_slots(steps, slots):
    """Run eagerly on numbers: s_t = 3 t, so that a wrong state is noticed; steps and slots are counted."""
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
    saved, last = binomial.record(step, tf.constant(0), 0, steps, slots)
    assert int(last) == 3 * steps
    assert all(int(array.size()) == slots for array in saved.slots)
    binomial.fold_back(step, body, tf.constant(0, tf.int64), saved, 0, steps, slots)
    assert seen == list(range(steps))[::-1]
    assert counts["steps"] == binomial.steps_run(steps, slots)


def test_reverse_saves_no_more_states_than_asked(monkeypatch):
    asked = []
    record = binomial.record
    monkeypatch.setattr(binomial, "record", lambda *args: asked.append(args[2:]) or record(*args))
    built, params, hypers = build("quadratic", "momentum", 9)
    for checkpoints, truncate in ((3, None), (3, 6), (9, None), (12, None), (6, 6), (None, None)):
        rf.reverse(built, checkpoints, truncate, jit_compile=False)(params, hypers)
    assert asked == [(0, 9, 3), (3, 6, 3)], "the others save all states and need no schedule"


def nodes(steps, slots):
    """The size of the traced graph, including the functions of its loops."""
    built, params, hypers = build("quadratic", "momentum", steps)
    engine = rf.reverse(built, checkpoints=slots, jit_compile=False)
    engine(params, hypers)
    (trace,) = engine._compiled.graph._list_all_concrete_functions()
    graph = trace.graph.as_graph_def()
    return sum(len(f.node_def) for f in graph.library.function) + len(graph.node)


def test_the_graph_does_not_grow_with_steps_or_slots():
    assert nodes(30, 3) == nodes(300, 3) == nodes(300, 40)


@pytest.mark.parametrize(("value", "reason"), [(0, "at least 1"), (2.5, "an integer"), (True, "an integer")])
def test_checkpoints_have_to_be_a_count(value, reason):
    built, _, _ = build("quadratic", "momentum")
    with pytest.raises(ValueError, match=f"checkpoints is {value!r}.*{reason}"):
        rf.reverse(built, checkpoints=value)


@functools.cache
def fewest(states, slots):
    """The fewest steps that visit all the states backwards, the first one saved in one of the slots: exhaustive search."""
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


def test_the_cost_of_few_states():
    assert walk(20_000, 283)[0] < 2 * 20_000  # 2 sqrt(T): less than one more training
    assert walk(10_000, 30)[0] < 4 * 10_000


@pytest.mark.slow
def test_the_cost_of_few_states_over_a_hundred_thousand_steps():
    assert walk(100_000, 100)[0] < 3 * 100_000
    assert walk(100_000, 30)[0] < 5 * 100_000
