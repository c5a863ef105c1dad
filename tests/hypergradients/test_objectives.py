"""Several objectives, running costs, learned initialisation, the direct term, truncation."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.problems import assert_agree, build, cosh_valley, differences

METHODS = pytest.mark.parametrize("method", [rf.reverse, rf.forward])
COMPILERS = pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["graph", "jit"])


def trajectory(problem, params, hypers):
    """s_1, ..., s_T by a plain loop."""
    state, states = problem.dynamics.init(params, hypers), []
    for t in map(tf.constant, range(problem.steps)):
        state = problem.dynamics.step(state, hypers, None if problem.batches is None else problem.batches(t), t)
        states.append(problem.dynamics.params(state))
    return states


def doubles(**hypers):
    return {name: tf.constant(value, tf.float64) for name, value in hypers.items()}


@METHODS
@COMPILERS
def test_two_objectives_each_tune_their_own_hypers(method, jit_compile):
    case = cosh_valley()
    training = rf.batches.full(case.batches(tf.constant(0)))
    objectives = {
        "validation": rf.Objective(case.objective, hypers=["l2"]),
        "training": rf.Objective(case.objective, hypers=["lr", "mu"], batches=training),
    }
    problem = rf.Problem(rf.momentum(case.loss, "lr", "mu"), objectives, 6, case.batches, case.validation)
    hypers = doubles(lr=0.1, mu=0.6, l2=0.02)
    hypergradient = method(problem, jit_compile=jit_compile)(case.params, hypers)
    end = lambda h: trajectory(problem, case.params, h)[-1]  # noqa: E731
    validation = lambda h: case.objective(end(h), h, case.validation(tf.constant(0)))  # noqa: E731
    train = lambda h: case.objective(end(h), h, training(tf.constant(0)))  # noqa: E731
    np.testing.assert_allclose(hypergradient.value["validation"], validation(hypers), rtol=1e-12)
    np.testing.assert_allclose(hypergradient.value["training"], train(hypers), rtol=1e-12)
    expected = {**differences(train, hypers), "l2": differences(validation, hypers)["l2"]}
    assert_agree(hypergradient.grads, expected, rtol=1e-6)


@METHODS
@COMPILERS
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_running_cost(method, every, jit_compile):
    case = cosh_valley()
    cost = lambda p, hypers, batch: hypers["weight"] * case.objective(p, hypers, batch)  # noqa: E731
    problem = rf.Problem(rf.momentum(case.loss, "lr", 0.5), rf.RunningCost(cost, every), 7, case.batches, case.validation)
    hypers = doubles(lr=0.1, l2=0.02, weight=1.5)

    def total(h):
        states = trajectory(problem, case.params, h)
        return sum(cost(states[t - 1], h, case.validation(tf.constant(0))) for t in range(every, 8, every))

    hypergradient = method(problem, jit_compile=jit_compile)(case.params, hypers)
    np.testing.assert_allclose(hypergradient.value, total(hypers), rtol=1e-12)
    assert_agree(hypergradient.grads, differences(total, hypers), rtol=1e-6)


@METHODS
def test_running_and_final_objectives_together(method):
    case = cosh_valley()
    objectives = {
        "speed": rf.Objective(rf.RunningCost(case.objective, every=2), hypers=["lr"]),
        "end": rf.Objective(case.objective, hypers=["l2"]),
    }
    problem = rf.Problem(rf.momentum(case.loss, "lr", 0.5), objectives, 5, case.batches, case.validation)
    hypers, batch = doubles(lr=0.1, l2=0.02), case.validation(tf.constant(0))
    speed = lambda h: sum(case.objective(trajectory(problem, case.params, h)[t - 1], h, batch) for t in (2, 4))  # noqa: E731
    end = lambda h: case.objective(trajectory(problem, case.params, h)[-1], h, batch)  # noqa: E731
    hypergradient = method(problem, jit_compile=False)(case.params, hypers)
    expected = {"lr": differences(speed, hypers)["lr"], "l2": differences(end, hypers)["l2"]}
    assert_agree(hypergradient.grads, expected, rtol=1e-6)


@METHODS
@COMPILERS
def test_learned_initialisation_and_direct_term(method, jit_compile):
    loss = lambda w, hypers, batch: tf.reduce_sum(tf.cosh(w))  # noqa: E731
    inner = rf.momentum(loss, "lr", 0.5)
    dynamics = inner._replace(init=lambda params, hypers: inner.init(params + hypers["start"] ** 2, hypers))
    objective = lambda w, hypers, batch: tf.reduce_sum(w**2) + 3 * hypers["lr"] ** 2 + hypers["only direct"] ** 3  # noqa: E731
    problem = rf.Problem(dynamics, objective, 4)
    hypers = {"start": tf.constant([0.3, -0.4], tf.float64), **doubles(lr=0.1), "only direct": tf.constant(0.7, tf.float64)}
    params = tf.constant([1.0, 0.5], tf.float64)
    end = lambda h: objective(trajectory(problem, params, h)[-1], h, None)  # noqa: E731
    hypergradient = method(problem, jit_compile=jit_compile)(params, hypers)
    assert_agree(hypergradient.grads, differences(end, hypers), rtol=1e-6)


def test_truncation_to_all_steps_is_the_full_reverse():
    problem, params, hypers = build("quadratic", "adam")
    full = rf.reverse(problem, jit_compile=False)(params, hypers)
    same = rf.reverse(problem, truncate=problem.steps, jit_compile=False)(params, hypers)
    tf.nest.map_structure(np.testing.assert_array_equal, full, same)


@pytest.mark.parametrize("running", [False, True])
def test_truncation_treats_the_state_before_it_as_constant(running):
    case, k = cosh_valley(), 3
    objective = rf.RunningCost(case.objective, every=2) if running else case.objective
    hypers = doubles(lr=0.1, l2=0.02)
    problem = rf.Problem(rf.momentum(case.loss, "lr", 0.5), objective, 7, case.batches, case.validation)
    hypergradient = rf.reverse(problem, truncate=k, jit_compile=False)(case.params, hypers)
    head = problem.dynamics.init(case.params, hypers)
    early = []
    for t in map(tf.constant, range(7 - k)):
        head = problem.dynamics.step(head, hypers, case.batches(t), t)
        early.append(problem.dynamics.params(head))

    def tail(h):
        state, batch, total = head, case.validation(tf.constant(0)), tf.constant(0.0, tf.float64)
        if running:
            total += sum(case.objective(early[t - 1], h, batch) for t in (2, 4))
        for t in range(7 - k, 7):
            state = problem.dynamics.step(state, h, case.batches(tf.constant(t)), tf.constant(t))
            if running and (t + 1) % 2 == 0:
                total += case.objective(problem.dynamics.params(state), h, batch)
        return total if running else case.objective(problem.dynamics.params(state), h, batch)

    np.testing.assert_allclose(hypergradient.value, tail(hypers), rtol=1e-12)
    assert_agree(hypergradient.grads, differences(tail, hypers), rtol=1e-6)


@METHODS
def test_hypers_of_any_rank(method):
    w = tf.constant(np.random.default_rng(0).normal(size=(2, 3)))
    loss = lambda w, hypers, batch: tf.reduce_sum(hypers["cube"] * tf.cosh(w)) + tf.reduce_sum(hypers["matrix"] * w)  # noqa: E731
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), lambda w, h, b: tf.reduce_sum(w**2), 3)
    rng = np.random.default_rng(1)
    hypers = {
        "cube": tf.constant(rng.normal(size=(2, 2, 3))),
        "matrix": tf.constant(rng.normal(size=(2, 3))),
        **doubles(lr=0.1),
    }
    end = lambda h: tf.reduce_sum(trajectory(problem, w, h)[-1] ** 2)  # noqa: E731
    assert_agree(method(problem, jit_compile=False)(w, hypers).grads, differences(end, hypers), rtol=1e-6)


@METHODS
def test_the_validation_batch_follows_k(method):
    loss = lambda w, hypers, batch: w**2  # noqa: E731
    validation = lambda k: tf.cast(k, tf.float64)  # noqa: E731
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), lambda w, h, target: (w - target) ** 2, 1, None, validation)
    engine = method(problem, jit_compile=False)
    for k in (0, 2):
        expected = 2 * (0.8 - k) * -2.0
        np.testing.assert_allclose(engine(tf.constant(1.0, tf.float64), {"lr": 0.1}, k).grads["lr"], expected, rtol=1e-12)
