"""Learning rate and momentum of a Keras model are updated so that neither undoes the other."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.training.hyper_update import bold_update, hyper_update
from rfho2.keras_bridge.training.tunables import select_tunables

START = {"learning_rate": 0.01, "momentum": 0.9, "weight_decay": 1e-4}


def step(grads, start=START, rate=0.1, ranges=None, layers=()):
    """The hypers on the user's scale after one update with these hypergradients."""
    tunables = select_tunables(start, ranges, "momentum", layers)
    optimizer = hyper_update(tunables, rate)
    hypers = {name: tf.constant(value) for name, value in tunables.to_internal(tunables.start).items()}
    grads = {name: tf.constant(grad, tf.float64) for name, grad in grads.items()}
    moved, _ = optimizer.update(grads, optimizer.init(hypers), hypers)
    return {name: value.numpy() for name, value in tunables.to_user(moved).items()}


def test_momentum_stays_if_only_the_step_length_matters():
    after = step({"learning_rate": -3.0, "momentum": -3.0, "weight_decay": 0.0})  # E depends on lr / (1 - momentum) alone
    assert after["momentum"] == pytest.approx(0.9, rel=1e-12)
    assert after["learning_rate"] == pytest.approx(0.01 * np.exp(0.1), rel=1e-6)


def test_the_step_length_stays_if_only_momentum_matters():
    after = step({"learning_rate": 0.0, "momentum": -3.0, "weight_decay": 0.0})
    assert after["momentum"] > 0.9
    assert after["learning_rate"] / (1 - after["momentum"]) == pytest.approx(0.1, rel=1e-6)


def test_the_formula_for_the_derivatives_in_the_new_coordinates():
    """dF/d(u + v) = dE/du and dF/dv = dE/dv - dE/du, for E(u, v) = F(u + v, v)."""

    def f(s, v):
        return tf.sin(s) * v**2 + 3 * v

    u, v = tf.constant(-4.0, tf.float64), tf.constant(2.0, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch((u, v))
        value = f(u + v, v)
    e_u, e_v = tape.gradient(value, (u, v))
    s = tf.constant(float(u + v), tf.float64)
    with tf.GradientTape() as tape:
        tape.watch((s, v))
        value = f(s, v)
    f_s, f_v = tape.gradient(value, (s, v))
    assert f_s.numpy() == pytest.approx(e_u.numpy())
    assert f_v.numpy() == pytest.approx((e_v - e_u).numpy())


def test_ranges_are_on_the_users_scale():
    ranges = {"learning_rate": (0.005, 0.02), "momentum": (0.5, 0.95)}
    after = step({"learning_rate": -1.0, "momentum": 0.0, "weight_decay": 0.0}, rate=10.0, ranges=ranges)
    assert after["learning_rate"] == pytest.approx(0.02)
    assert after["momentum"] == pytest.approx(0.5)


def test_the_learning_rates_of_all_layers_share_one_momentum():
    start = {"learning_rate": [0.01, 0.02], "momentum": 0.9}
    after = step({"learning_rate": [-1.0, -2.0], "momentum": -3.0}, start, layers=("a", "b"))
    assert after["momentum"] == pytest.approx(0.9, rel=1e-12)
    np.testing.assert_allclose(after["learning_rate"], np.array([0.01, 0.02]) * np.exp(0.1), rtol=1e-6)


def test_without_the_pair_it_is_projected_adam():
    tunables = select_tunables({"learning_rate": 0.01, "weight_decay": 1e-4}, None, "momentum")
    plain = rf.projected_adam(tunables.rates(0.1), tunables.constraints())
    assert hyper_update(tunables, 0.1).settings == plain.settings


def test_in_real_time_the_learning_rate_falls_only_as_far_as_that_matters():
    tunables = select_tunables({"learning_rate": 0.01, "weight_decay": 1e-4}, None, "adam")
    optimizer = bold_update(tunables, 0.5)
    assert optimizer.relative
    hypers = {name: tf.constant(value) for name, value in tunables.to_internal(tunables.start).items()}

    def change(relative):
        grads = {"learning_rate": tf.constant(relative, tf.float64), "weight_decay": tf.constant(1e-6, tf.float64)}
        moved, _ = optimizer.update(grads, optimizer.init(hypers), hypers)
        return [float(moved[name] - hypers[name]) for name in ("learning_rate", "weight_decay")]

    rise, decay = change(-1e-5)
    assert rise == pytest.approx(0.5, rel=1e-4)
    assert decay == pytest.approx(-0.15, rel=1e-4)  # other hypers move as ever
    assert change(0.01)[0] == pytest.approx(-0.25, rel=1e-4)
    assert change(1.0)[0] == pytest.approx(-0.5 / 1.01, rel=1e-4)
    assert abs(change(1e-5)[0]) < 1e-3


def test_without_a_learning_rate_real_time_updates_as_offline():
    tunables = select_tunables(["weight_decay"], None, "adam")
    online, offline = bold_update(tunables, 0.5), hyper_update(tunables, 0.5)
    assert (online.settings, online.relative) == (offline.settings, offline.relative)


def test_on_a_plateau_momentum_still_does_not_change_the_length_of_a_step():
    tunables = select_tunables({"learning_rate": 0.01, "momentum": 0.9}, None, "momentum")
    optimizer = bold_update(tunables, 0.5)
    hypers = {name: tf.constant(value) for name, value in tunables.to_internal(tunables.start).items()}
    grads = {"learning_rate": tf.constant(1e-7, tf.float64), "momentum": tf.constant(-1e-3, tf.float64)}
    moved, _ = optimizer.update(grads, optimizer.init(hypers), hypers)
    after = {name: float(value) for name, value in tunables.to_user(moved).items()}
    assert after["momentum"] > 0.91
    assert after["learning_rate"] / (1 - after["momentum"]) == pytest.approx(0.1, rel=1e-4)


def test_the_layers_together_decide_whether_the_rate_matters():
    tunables = select_tunables(["learning_rate"], None, "adam", layers=[f"layer {i}" for i in range(10)])
    optimizer = bold_update(tunables, 0.5)
    hypers = {name: tf.constant(value) for name, value in tunables.to_internal(tunables.start).items()}
    grads = {"learning_rate": tf.fill([10], tf.constant(0.001, tf.float64))}  # together 0.01
    moved, _ = optimizer.update(grads, optimizer.init(hypers), hypers)
    np.testing.assert_allclose(moved["learning_rate"] - hypers["learning_rate"], -0.25, rtol=1e-3)
