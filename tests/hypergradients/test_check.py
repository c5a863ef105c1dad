"""check_hypergradient finds what is wrong, and reports it."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.dynamics.base import with_replay
from tests.support.problems import OPTIMISERS, build, cosh_valley, optimisers


@pytest.mark.parametrize("optimiser", optimisers("momentum"))
def test_right_problems_pass(optimiser):
    check = rf.check_hypergradient(*build("quadratic", optimiser, steps=3))
    assert check.ok, str(check)
    assert {row.hyper for row in check.table} == {*OPTIMISERS[optimiser][1], "curvature"}
    assert all(row.error <= 1e-6 for row in check.table)
    assert {row.direction[:1] for row in check.table if row.hyper == "curvature"} == {"["}, "one of its entries"
    assert {row.direction for row in check.table if row.hyper == "learning_rate"} == {""}
    text = str(check)
    assert [word in text for word in ("reverse", "forward", "difference", "learning_rate", "curvature", "ok")] == [True] * 6


def test_several_objectives_and_running_costs_pass():
    case = cosh_valley()
    objectives = {
        "speed": rf.Objective(rf.RunningCost(case.objective, every=2), hypers=["lr"]),
        "end": rf.Objective(case.objective, hypers=["l2"]),
    }
    problem = rf.Problem(rf.momentum(case.loss, "lr", 0.5), objectives, 4, case.batches, case.validation)
    check = rf.check_hypergradient(problem, case.params, {"lr": 0.1, "l2": 0.02})
    assert check.ok, str(check)


def regression(loss_of):
    rng = np.random.default_rng(0)
    x, y = tf.constant(rng.normal(size=(8, 3))), tf.constant(rng.integers(0, 2, 8))
    params = {"w": tf.constant(rng.normal(size=(3, 2)))}
    objective = lambda p, h, b: tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ p["w"]))  # noqa: E731
    return rf.Problem(rf.gradient_descent(loss_of(x, y), "lr"), objective, 3), params


def test_labels_that_depend_on_a_hyper_hide_a_term():
    def loss_of(x, y):
        def loss(p, hypers, batch):
            labels = tf.one_hot(y, 2, dtype=tf.float64) * (1 - hypers["smoothing"]) + hypers["smoothing"] / 2
            return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, x @ p["w"]))

        return loss

    problem, params = regression(loss_of)
    check = rf.check_hypergradient(problem, params, {"lr": 0.1, "smoothing": 0.2})
    assert not check.ok
    assert "smoothing" in check.message
    assert "labels" in check.message


def test_batch_moments_hide_a_term():
    def loss_of(x, y):
        def loss(p, hypers, batch):
            z = x @ p["w"]
            mean, variance = tf.nn.moments(z, [0])
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, (z - mean) / tf.sqrt(variance + 1e-3)))

        return loss

    problem, params = regression(loss_of)
    check = rf.check_hypergradient(problem, params, {"lr": 0.1})
    assert not check.ok
    assert "tf.nn.moments" in str(check)


def test_a_reverse_mode_that_differs_from_forward_mode_is_reported():
    """A wrong replay, which only reverse mode uses: it drops the dependence of a step on the state."""
    loss = lambda w, hypers, batch: hypers["scale"] * tf.reduce_sum(tf.cosh(w))  # noqa: E731
    right = rf.gradient_descent(loss, 0.1)
    step = with_replay(
        lambda *args: right.step(*args),
        lambda state, hypers, batch, t, new: right.step(tf.stop_gradient(state), hypers, batch, t),
    )
    problem = rf.Problem(right._replace(step=step), lambda w, h, b: tf.reduce_sum(w**2), 3)
    check = rf.check_hypergradient(problem, tf.constant([1.0, 0.5], tf.float64), {"scale": 0.7})
    assert not check.ok
    assert "scale" in check.message
    (row,) = check.table
    assert row.forward == pytest.approx(row.difference, rel=1e-6)
    assert row.reverse != pytest.approx(row.forward, rel=1e-2)


def test_a_hyper_that_reaches_nothing_is_named():
    problem, params, hypers = build("quadratic", "momentum")
    check = rf.check_hypergradient(problem, params, {**hypers, "lost": 1.0})
    assert not check.ok
    assert "'lost' has no effect" in str(check)


def test_an_op_without_second_derivative_is_named():
    def loss_of(x, y):
        def loss(p, hypers, batch):
            return tf.reduce_mean(tf.math.igamma(tf.exp(p["w"]), tf.constant(1.0, tf.float64)))

        return loss

    problem, params = regression(loss_of)
    check = rf.check_hypergradient(problem, params, {"lr": 0.1})
    assert not check.ok
    assert "IgammaGradA" in check.message


def test_nan_is_named():
    problem, params, hypers = build("quadratic", "gradient_descent")
    check = rf.check_hypergradient(problem, params, {**hypers, "curvature": [np.nan, 1.0, 1.0]})
    assert not check.ok
    assert "not finite: objective, reverse hypergradient of 'learning_rate'" in str(check)


def test_a_problem_at_rest_passes():
    loss = lambda w, hypers, batch: tf.reduce_sum(w**2)  # noqa: E731
    check = rf.check_hypergradient(
        rf.Problem(rf.gradient_descent(loss, "lr"), loss, 2), tf.zeros(2, tf.float64), {"lr": 0.1}
    )
    assert check.ok, str(check)


def test_a_tiny_hyper_passes():
    case = cosh_valley()
    problem = rf.Problem(rf.momentum(case.loss, "lr", 0.5), case.objective, 3, case.batches, case.validation)
    check = rf.check_hypergradient(problem, case.params, {"lr": 0.1, "l2": 1e-10})
    assert check.ok, str(check)


def test_float32_is_refused_with_the_way_out():
    problem, params, hypers = build("quadratic", "momentum", dtype=tf.float32)
    with pytest.raises(TypeError, match=r"float32.*tf\.cast\(x, tf\.float64\)"):
        rf.check_hypergradient(problem, params, hypers)


def test_an_objective_in_float32_is_refused():
    problem, params, hypers = build("quadratic", "momentum")
    single = rf.Problem(problem.dynamics, lambda w, h, b: tf.reduce_sum(tf.cast(w, tf.float32) ** 2), 3)
    with pytest.raises(TypeError, match=r"objective.*float32.*float64"):
        rf.check_hypergradient(single, params, hypers)


def test_large_arrays_are_checked_along_random_directions():
    loss = lambda w, hypers, batch: tf.reduce_sum(hypers["a"] * tf.cosh(w))  # noqa: E731
    problem = rf.Problem(rf.gradient_descent(loss, 0.1), lambda w, h, b: tf.reduce_sum(w**2), 2)
    check = rf.check_hypergradient(problem, tf.ones(5000, tf.float64), {"a": np.linspace(0.1, 1, 5000)})
    assert check.ok, str(check)
    assert "a, direction " in str(check)


def test_differences_of_a_chaotic_training_are_said_to_be_doubtful():
    logistic_map = rf.Dynamics(lambda w, h: w, lambda w, h, batch, t: h["a"] * w * (1 - w), lambda w: w)
    check = rf.check_hypergradient(
        rf.Problem(logistic_map, lambda w, h, batch: w**2, 60), tf.constant(0.3, tf.float64), {"a": 3.9}
    )
    assert not check.ok
    assert "the differences may be wrong" in check.message
