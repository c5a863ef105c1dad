"""Real time: equals forward mode at Delta = T; t continues; Z is carried or reset; streams."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.problems import assert_agree, build, cosh_valley, optimisers


@pytest.mark.parametrize("optimiser", optimisers("momentum"))
def test_one_hyper_batch_of_all_steps_is_forward_mode(optimiser):
    problem, params, hypers = build("quadratic", optimiser)
    once = rf.real_time(problem, problem.steps, jit_compile=False)(params, hypers)
    forward = rf.forward(problem, jit_compile=False)(params, hypers)
    assert_agree(once.grads, forward.grads, rtol=0)  # the same bits, since discount 1 is not in the graph
    np.testing.assert_allclose(once.value, forward.value, rtol=0)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["graph", "jit"])
def test_without_updates_the_second_hyper_batch_ends_where_forward_does(jit_compile):
    """t continues (Adam counts steps, minibatches differ) and Z is carried."""
    problem, params, hypers = build("quadratic", "adam", steps=6)
    engine = rf.real_time(problem, 3, jit_compile=jit_compile)
    carry = engine.start(params, hypers)
    for k in range(2):
        hypergradient, carry = engine.advance(carry, hypers, k)
    assert int(carry.t) == 6
    assert_agree(hypergradient.grads, rf.forward(problem, jit_compile=False)(params, hypers).grads, rtol=1e-10)


def test_carry_false_forgets_at_each_hyper_batch():
    problem, params, hypers = build("quadratic", "momentum", steps=6)
    engine = rf.real_time(problem, 3, carry=False, jit_compile=False)
    carry = engine.start(params, hypers)
    for k in range(2):
        hypergradient, carry = engine.advance(carry, hypers, k)
    truncated = rf.reverse(problem, truncate=3, jit_compile=False)(params, hypers)
    assert_agree(hypergradient.grads, truncated.grads, rtol=1e-10)
    assert all(not np.any(z) for z in tf.nest.flatten(carry.sensitivity))


def test_running_cost_is_summed_over_one_hyper_batch():
    case = cosh_valley()
    make = lambda objective, steps: rf.Problem(  # noqa: E731
        rf.momentum(case.loss, "lr", 0.5), objective, steps, case.batches, case.validation
    )
    hypers = {"lr": 0.1, "l2": 0.02}
    engine = rf.real_time(make(rf.RunningCost(case.objective), None), 2, jit_compile=False)
    carry, total = engine.start(case.params, hypers), 0.0
    for k in range(3):
        hypergradient, carry = engine.advance(carry, hypers, k)
        total += hypergradient.value
    whole = rf.forward(make(rf.RunningCost(case.objective), 6), jit_compile=False)(case.params, hypers)
    np.testing.assert_allclose(total, whole.value, rtol=1e-12)


def test_a_null_teacher_does_not_raise_and_only_the_rate_moves_first():
    case = cosh_valley()
    problem = rf.Problem(rf.momentum(case.loss, "lr", "mu"), case.objective, None, case.batches, case.validation)
    hypergradient = rf.real_time(problem, 4, jit_compile=False)(case.params, {"lr": 0.0, "mu": 0.0, "l2": 0.0})
    assert hypergradient.grads["lr"] != 0
    assert hypergradient.grads["mu"] == 0
    assert hypergradient.grads["l2"] == 0


def test_a_stream_gives_what_the_same_batches_by_index_give():
    case = cosh_valley()
    stacked = [case.batches(tf.constant(t)) for t in range(6)]
    dataset = tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *stacked)).repeat()
    make = lambda batches: rf.Problem(rf.adam(case.loss, "lr"), case.objective, None, batches, case.validation)  # noqa: E731
    results = []
    for batches in (rf.batches.stream(dataset), case.batches):
        engine = rf.real_time(make(batches), 3, jit_compile=False)
        carry = engine.start(case.params, {"lr": 0.1, "l2": 0.02})
        for k in range(2):
            hypergradient, carry = engine.advance(carry, {"lr": 0.1, "l2": 0.02}, k)
        results.append(hypergradient)
    assert_agree(results[0].grads, results[1].grads, rtol=1e-12)


@pytest.mark.parametrize("method", [rf.reverse, rf.forward])
def test_a_stream_is_refused_elsewhere(method):
    case = cosh_valley()
    stream = rf.batches.stream(tf.data.Dataset.from_tensors(case.batches(tf.constant(0))).repeat())
    problem = rf.Problem(rf.adam(case.loss, "lr"), case.objective, 3, stream, case.validation)
    with pytest.raises(ValueError, match=r"stream.*rf\.real_time"):
        method(problem, jit_compile=False)(case.params, {"lr": 0.1, "l2": 0.02})


def test_the_order_of_the_hypers_has_no_meaning():
    loss = lambda w, hypers, batch: tf.reduce_sum(tf.cosh(w)) * hypers["b"]  # noqa: E731
    dynamics = rf.adagrad(loss, 0.1, initial_accumulator_value="a")
    problem = rf.Problem(dynamics, lambda w, h, b: tf.reduce_sum(w**2), 2)
    params, hypers = tf.constant([1.0, 2.0], tf.float64), {"b": 1.5, "a": 0.2}
    engine = rf.real_time(problem, 2, jit_compile=False)
    swapped, _ = engine.advance(engine.start(params, {"a": 0.2, "b": 1.5}), hypers, 0)
    assert_agree(swapped.grads, rf.reverse(problem, jit_compile=False)(params, hypers).grads, rtol=1e-10)
