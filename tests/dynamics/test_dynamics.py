"""Optimisers at dead units, with schedules and parameter groups; dynamics of one's own."""

import itertools
import types

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.problems import assert_agree, differences, response


def dead_unit_problem(make):
    """A ReLU network whose second unit never fires: the gradient of its weights is always 0."""
    rng = np.random.default_rng(5)
    x, y = tf.constant(rng.uniform(0.1, 1.0, size=(10, 3))), tf.constant(rng.normal(size=10))
    w1 = rng.normal(size=(3, 3))
    w1[:, 1] = -np.abs(w1[:, 1])
    params = {"w1": tf.constant(w1), "w2": tf.constant(rng.normal(size=3))}

    def loss(p, hypers, batch):
        return tf.reduce_mean((tf.linalg.matvec(tf.nn.relu(x @ p["w1"]), p["w2"]) - y) ** 2) * hypers["scale"]

    return rf.Problem(make(loss), lambda p, h, b: loss(p, {"scale": 1.0}, b), 6), params


DEAD = [(0.1, rf.reverse, False), (0.0, rf.reverse, False)]


def dead_unit_cases():
    """Adam and AdamW, both methods, graph and XLA; those in reverse mode and graphs are quick."""
    for case in itertools.product((0.0, 0.1), (rf.reverse, rf.forward), (False, True)):
        name = f"{'adamw' if case[0] else 'adam'}-{case[1].__name__}-{'jit' if case[2] else 'graph'}"
        yield pytest.param(*case, id=name, marks=[] if case in DEAD else [pytest.mark.slow])


@pytest.mark.parametrize(("decay", "method", "jit_compile"), dead_unit_cases())
def test_a_dead_unit_has_finite_derivatives(decay, method, jit_compile):
    rest = ("b1", "b2", "eps")
    problem, params = dead_unit_problem(lambda f: rf.adamw(f, "lr", decay, *rest) if decay else rf.adam(f, "lr", *rest))
    hypers = {"lr": 0.02, "b1": 0.8, "b2": 0.9, "eps": 1e-3, "scale": 1.3}
    hypers = {name: tf.constant(value, tf.float64) for name, value in hypers.items()}
    hypergradient = method(problem, jit_compile=jit_compile)(params, hypers)
    assert_agree(hypergradient.grads, differences(lambda h: response(problem, params, h), hypers), rtol=1e-6)
    dead = problem.dynamics.params(hypergradient.state)["w1"][:, 1]
    np.testing.assert_allclose(dead, params["w1"][:, 1] * (1 - 0.02 * decay) ** 6, rtol=1e-14)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["graph", "jit"])
@pytest.mark.parametrize("optimiser", [rf.adam, rf.rmsprop])
def test_a_weight_that_never_moves_has_no_derivative_in_both_modes(optimiser, jit_compile):
    """w[0] is 0, and only the penalty and the objective know it: its adjoint must not grow."""
    loss = lambda w, hypers, batch: (w[1] - 1) ** 2 + hypers["l2"] * tf.reduce_sum(w**2)  # noqa: E731
    problem = rf.Problem(optimiser(loss, "lr"), lambda w, h, b: (w[1] - 1) ** 2 + 0.1 * w[0], 40)
    hypers = {name: tf.constant(value, tf.float64) for name, value in {"lr": 0.01, "l2": 0.1}.items()}
    start = tf.constant([0.0, 0.3], tf.float64)
    pulled, pushed = (method(problem, jit_compile=jit_compile)(start, hypers) for method in (rf.reverse, rf.forward))
    assert float(pulled.norms["adjoint"]) < 10
    assert_agree(pulled.grads, pushed.grads, rtol=1e-9)
    assert_agree(pulled.grads, differences(lambda h: response(problem, start, h), hypers), rtol=1e-5)


@pytest.mark.parametrize("method", [rf.reverse, rf.forward])
def test_a_schedule_of_one_rate_for_each_step(method):
    loss = lambda w, hypers, batch: tf.reduce_sum(tf.cosh(w))  # noqa: E731
    problem = rf.Problem(rf.gradient_descent(loss, lambda hypers, t: hypers["rates"][t]), loss, 4)
    params, hypers = tf.constant([0.5, -1.0], tf.float64), {"rates": tf.constant([0.1, 0.2, 0.05, 0.3], tf.float64)}
    hypergradient = method(problem, jit_compile=False)(params, hypers)
    assert_agree(hypergradient.grads, differences(lambda h: response(problem, params, h), hypers), rtol=1e-6)


@pytest.mark.parametrize("method", [rf.reverse, rf.forward])
def test_a_rate_for_each_group_of_parameters(method):
    params = {
        "body": {"w": tf.constant([1.0, 2.0], tf.float64), "b": tf.constant(0.5, tf.float64)},
        "head": tf.constant([3.0], tf.float64),
    }
    loss = lambda p, hypers, batch: sum(tf.reduce_sum(tf.cosh(leaf)) for leaf in tf.nest.flatten(p))  # noqa: E731
    rates = lambda hypers, t: {"body": hypers["slow"], "head": hypers["fast"]}  # noqa: E731
    problem = rf.Problem(rf.momentum(loss, rates, 0.5), loss, 3)
    hypers = {"slow": tf.constant(0.01, tf.float64), "fast": tf.constant(0.1, tf.float64)}
    hypergradient = method(problem, jit_compile=False)(params, hypers)
    assert_agree(hypergradient.grads, differences(lambda h: response(problem, params, h), hypers), rtol=1e-6)


def test_a_hand_written_dynamics():
    def step(state, hypers, batch, t):
        w, average = state
        w = w - hypers["rate"] * tf.sin(w)
        return w, average + (w - average) / tf.cast(t + 1, w.dtype)

    dynamics = rf.Dynamics(lambda w, hypers: (w, tf.zeros_like(w)), step, lambda state: state[1])
    problem = rf.Problem(dynamics, lambda w, hypers, batch: tf.reduce_sum(w**2), 5)
    params, hypers = tf.constant([1.0, 2.0], tf.float64), {"rate": tf.constant(0.3, tf.float64)}
    numerical = differences(lambda h: response(problem, params, h), hypers)
    for method in (rf.reverse, rf.forward):
        assert_agree(method(problem, jit_compile=False)(params, hypers).grads, numerical, rtol=1e-6)


def test_lookups_whose_gradients_are_sparse():
    table = tf.constant(np.random.default_rng(0).normal(size=(6, 2)))
    loss = lambda w, hypers, batch: tf.reduce_sum(hypers["a"] * tf.gather(w, [1, 1, 4]) ** 4)  # noqa: E731
    problem = rf.Problem(rf.momentum(loss, 0.01, 0.9), loss, 3)
    hypers = {"a": tf.constant(0.7, tf.float64)}
    numerical = differences(lambda h: response(problem, table, h), hypers)
    for method in (rf.reverse, rf.forward):
        assert_agree(method(problem, jit_compile=False)(table, hypers).grads, numerical, rtol=1e-6)


@pytest.mark.slow
def test_dropout_masks_are_the_same_in_graph_and_under_xla():
    x = tf.constant(np.random.default_rng(0).normal(size=(30, 8)))

    def loss(w, hypers, batch):
        (x,), key = batch
        mask = tf.cast(rf.batches.uniform(key, (5, 8)) < 0.5, w.dtype)
        return tf.reduce_mean((tf.linalg.matvec(x * mask, w) - 1) ** 2)

    batches = rf.batches.seeded(rf.batches.shuffled((x,), 5, seed=1), seed=2)
    objective = lambda w, hypers, batch: tf.reduce_sum(w**2)  # noqa: E731
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), objective, 8, batches)
    graph, jit = (rf.reverse(problem, jit_compile=j)(tf.zeros(8, tf.float64), {"lr": 0.1}) for j in (False, True))
    np.testing.assert_allclose(graph.state, jit.state, rtol=1e-12)
    assert_agree(graph.grads, jit.grads, rtol=1e-10)


def test_a_replaced_step_is_not_replayed_as_the_original():
    """Momentum tells reverse mode how to shorten the replay of *its* step; a step in its place is differentiated in full."""

    def loss(w, hypers, batch):
        return tf.reduce_sum((w - hypers["target"]) ** 2)

    momentum = rf.momentum(loss, 0.1, 0.5)
    doubled = momentum._replace(step=lambda *args: momentum.step(momentum.step(*args), *args[1:]))
    unpacked = types.SimpleNamespace(init=doubled.init, step=doubled.step, params=doubled.params)
    params, hypers = tf.constant([1.0, 2.0], tf.float64), {"target": np.array([0.3, -0.2])}
    for dynamics in (doubled, unpacked):
        problem = rf.Problem(dynamics, lambda w, h, batch: tf.reduce_sum(w**3), steps=3)
        reverse, forward = (engine(problem, jit_compile=False)(params, hypers) for engine in (rf.reverse, rf.forward))
        assert_agree(reverse.grads, forward.grads, rtol=1e-10)
