"""Learning rate and momentum of a Keras model move so that one does not undo the other."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.hyper_update import moves
from rfho2.keras_bridge.tunables import knobs

START = {"learning_rate": 0.01, "momentum": 0.9, "weight_decay": 1e-4}


def step(grads, start=START, rate=0.1, ranges=None, layers=()):
    """The hypers as users know them, before and after one update with these hypergradients."""
    chosen = knobs(start, ranges, "momentum", layers)
    update = moves(chosen, rate)
    hypers = {name: tf.constant(value) for name, value in chosen.inside(chosen.start).items()}
    moved, _ = update.update({n: tf.constant(g, tf.float64) for n, g in grads.items()}, update.init(hypers), hypers)
    return {name: value.numpy() for name, value in chosen.outside(moved).items()}


def test_what_asks_for_longer_steps_alone_leaves_the_momentum_where_it_is():
    after = step({"learning_rate": -3.0, "momentum": -3.0, "weight_decay": 0.0})  # E depends on lr / (1 - momentum) alone
    assert after["momentum"] == pytest.approx(0.9, rel=1e-12)
    assert after["learning_rate"] == pytest.approx(0.01 * np.exp(0.1), rel=1e-6)


def test_what_asks_for_momentum_alone_leaves_the_length_of_steps():
    after = step({"learning_rate": 0.0, "momentum": -3.0, "weight_decay": 0.0})
    assert after["momentum"] > 0.9
    assert after["learning_rate"] / (1 - after["momentum"]) == pytest.approx(0.1, rel=1e-6)


def test_the_change_of_coordinates_is_that_of_the_derivative():
    u, v = tf.constant(-4.0, tf.float64), tf.constant(2.0, tf.float64)
    f = lambda s, v: tf.sin(s) * v**2 + 3 * v  # noqa: E731
    with tf.GradientTape(persistent=True) as tape:
        tape.watch((u, v))
        total = u + v
        tape.watch(total)
        whole, inner = f(u + v, v), f(total, v)
    assert tape.gradient(inner, total).numpy() == pytest.approx(tape.gradient(whole, u).numpy())
    partly = tape.gradient(whole, v) - tape.gradient(whole, u)
    held = tf.constant(float(total), tf.float64)
    with tf.GradientTape() as other:
        other.watch(v)
        value = f(held, v)
    assert partly.numpy() == pytest.approx(other.gradient(value, v).numpy())


def test_ranges_are_those_of_the_hypers_as_users_know_them():
    ranges = {"learning_rate": (0.005, 0.02), "momentum": (0.5, 0.95)}
    after = step({"learning_rate": -1.0, "momentum": 0.0, "weight_decay": 0.0}, rate=10.0, ranges=ranges)
    assert after["learning_rate"] == pytest.approx(0.02)
    assert after["momentum"] == pytest.approx(0.5)


def test_learning_rates_of_layers_share_the_momentum():
    start = {"learning_rate": [0.01, 0.02], "momentum": 0.9}
    after = step({"learning_rate": [-1.0, -2.0], "momentum": -3.0}, start, layers=("a", "b"))
    assert after["momentum"] == pytest.approx(0.9, rel=1e-12)
    np.testing.assert_allclose(after["learning_rate"], np.array([0.01, 0.02]) * np.exp(0.1), rtol=1e-6)


def test_without_both_of_them_it_is_projected_adam():
    chosen = knobs({"learning_rate": 0.01, "weight_decay": 1e-4}, None, "momentum")
    plain = rf.projected_adam(chosen.rates(0.1), chosen.constraints())
    assert moves(chosen, 0.1).settings == plain.settings
