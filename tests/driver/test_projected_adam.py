"""Projected Adam: Keras's Adam for free hypers, projected onto the constraint set for the others."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.seeds import seed

SHAPES = {"scalar": (), "vector": (4,), "matrix": (3, 3), "cube": (2, 3, 2)}  # ranks 0 to 3
CONSTRAINTS = {
    "scalar": rf.Box(-0.25, 0.5),
    "vector": rf.BoxL1Ball(1.5),
    "matrix": rf.SymmetricNonNegative(2.0),
    "cube": rf.L2Ball(0.75),
}
OTHERS = {
    "scalar": rf.NonNegative(),
    "vector": rf.Simplex(),
    "matrix": rf.L1Ball(1.0),
    "cube": rf.BoxL1Ball(3.0, 0.125, 0.75),
}


def random_hypers(rng, dtype=tf.float64):
    return {name: tf.constant(rng.normal(size=shape), dtype) for name, shape in SHAPES.items()}


def start(rng, constraints, dtype=tf.float64):
    """Random hypers, projected onto their sets."""
    return {name: constraints[name].project(hyper) for name, hyper in random_hypers(rng, dtype).items()}


@functools.cache
def constrained():
    """An optimiser with all constraints, traced once for all tests: a trace takes a second."""
    return rf.projected_adam(0.3, CONSTRAINTS)


def bits(nest):
    return [(leaf.dtype.name, tuple(leaf.shape), leaf.numpy().tobytes()) for leaf in tf.nest.flatten(nest)]


def adam_by_hand(start, grads, rate, beta_1, beta_2, epsilon):
    x, m, v = start, 0.0, 0.0
    for k, g in enumerate(grads, 1):
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        x = x - rate * np.sqrt(1 - beta_2**k) / (1 - beta_1**k) * m / (np.sqrt(v) + epsilon)
    return x


# Free hypers


@pytest.mark.parametrize(
    ("dtype", "rate", "beta_1", "beta_2", "rtol"),
    [
        (tf.float64, 2.0**-6, 0.875, 0.9990234375, 1e-12),  # settings that Keras represents exactly in any dtype
        (tf.float32, 0.01, 0.9, 0.999, 1e-4),
    ],
)
def test_free_hypers_move_as_with_keras_adam(dtype, rate, beta_1, beta_2, rtol):
    rng = np.random.default_rng(seed(1))
    first = random_hypers(rng, dtype)
    variables = {name: keras.Variable(hyper, dtype=dtype.name) for name, hyper in first.items()}
    theirs = keras.optimizers.Adam(rate, beta_1, beta_2, epsilon=1e-7)
    ours = rf.projected_adam(rate, beta_1=beta_1, beta_2=beta_2, epsilon=1e-7)
    hypers, state = first, ours.init(first)
    for _ in range(15):
        grads = random_hypers(rng, dtype)
        hypers, state = ours.update(grads, state, hypers)
        theirs.apply([grads[name] for name in SHAPES], [variables[name] for name in SHAPES])
    for name, hyper in hypers.items():
        expected = variables[name].numpy()
        assert np.linalg.norm(hyper - expected) <= rtol * np.linalg.norm(expected - first[name]), name


@pytest.mark.parametrize("settings", [{}, {"beta_1": 0.5, "beta_2": 0.7, "epsilon": 1e-3}, {"beta_1": 0.0}], ids=str)
def test_updates_follow_the_formula_to_the_precision_of_float64(settings):
    rng = np.random.default_rng(seed(2))
    first = random_hypers(rng)
    grads = [random_hypers(rng) for _ in range(20)]
    optimizer = rf.projected_adam(0.01, **settings)
    hypers, state = first, optimizer.init(first)
    for g in grads:
        hypers, state = optimizer.update(g, state, hypers)
    settings = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7} | settings
    for name in SHAPES:
        expected = adam_by_hand(first[name].numpy(), [g[name].numpy() for g in grads], 0.01, **settings)
        np.testing.assert_allclose(hypers[name], expected, rtol=0, atol=1e-13, err_msg=name)


def test_epsilon_is_added_outside_the_square_root():
    optimizer = rf.projected_adam(1.0, beta_1=0.0, beta_2=0.0, epsilon=1.0)
    hypers = {"a": tf.constant(0.0, tf.float64)}
    moved, _ = optimizer.update({"a": tf.constant(3.0, tf.float64)}, optimizer.init(hypers), hypers)
    assert moved["a"].numpy() == pytest.approx(-3.0 / (3.0 + 1.0), abs=1e-15)


def test_a_zero_gradient_moves_nothing():
    hypers = random_hypers(np.random.default_rng(3))
    optimizer = rf.projected_adam(0.1)
    moved, _ = optimizer.update(tf.nest.map_structure(tf.zeros_like, hypers), optimizer.init(hypers), hypers)
    assert bits(moved) == bits(hypers)


# Constraints


@pytest.mark.parametrize(
    ("constraints", "dtype"),
    [
        (CONSTRAINTS, tf.float64),
        (OTHERS, tf.float32),
        pytest.param(CONSTRAINTS, tf.float32, marks=pytest.mark.slow),
    ],
    ids=["float64", "others-float32", "float32"],
)
def test_updates_stay_in_the_sets_and_keep_names_shapes_and_dtypes(constraints, dtype):
    rng = np.random.default_rng(seed(6))
    optimizer = constrained() if constraints is CONSTRAINTS else rf.projected_adam(0.3, constraints)
    hypers = start(rng, constraints, dtype)
    state = optimizer.init(hypers)
    for _ in range(10):
        before = hypers, state
        hypers, state = optimizer.update(random_hypers(rng, dtype), state, hypers)
        for name, hyper in hypers.items():
            assert bool(constraints[name].contains(hyper)), name
        tf.nest.assert_same_structure(before, (hypers, state))
        assert [kind[:2] for kind in bits(before)] == [kind[:2] for kind in bits((hypers, state))]


def test_a_constrained_update_is_the_projection_of_the_free_one():
    rng = np.random.default_rng(seed(7))
    hypers, grads = start(rng, CONSTRAINTS), random_hypers(rng)
    free = rf.projected_adam(0.3)
    without, _ = free.update(grads, free.init(hypers), hypers)
    within, _ = constrained().update(grads, constrained().init(hypers), hypers)
    for name, constraint in CONSTRAINTS.items():
        np.testing.assert_allclose(within[name], constraint.project(without[name]), rtol=0, atol=1e-14, err_msg=name)


def test_a_hyper_without_a_constraint_is_free():
    hypers = {"bound": tf.constant(0.5), "free": tf.constant(0.5)}
    optimizer = rf.projected_adam(10.0, {"bound": rf.Box(0.0, 1.0)})
    moved, _ = optimizer.update({"bound": tf.constant(-1.0), "free": tf.constant(-1.0)}, optimizer.init(hypers), hypers)
    assert moved["bound"].numpy() == 1.0
    assert moved["free"].numpy() == pytest.approx(10.5, rel=1e-5)


def test_a_user_defined_constraint_works():
    class Whole:
        def project(self, x):
            return tf.round(x)

        def contains(self, x, atol=None):
            return tf.reduce_all(x == tf.round(x))

    hypers = {"a": tf.constant([1.0, 2.0])}
    optimizer = rf.projected_adam(0.8, {"a": Whole()})
    moved, _ = optimizer.update({"a": tf.constant([1.0, -1.0])}, optimizer.init(hypers), hypers)
    np.testing.assert_array_equal(moved["a"], [0.0, 3.0])


def test_nan_in_a_gradient_reaches_only_its_own_hyper():
    rng = np.random.default_rng(8)
    hypers, grads = start(rng, CONSTRAINTS), random_hypers(rng)
    optimizer = constrained()
    for name in SHAPES:
        moved, _ = optimizer.update({**grads, name: grads[name] * np.nan}, optimizer.init(hypers), hypers)
        assert [other for other, hyper in moved.items() if np.isnan(hyper.numpy()).any()] == [name]


# Learning rates


def first_steps(rate, scale=1.0):
    """How far each hyper moves in the first update: by the rate, except for the effect of epsilon."""
    hypers = {"a": tf.constant(1.0, tf.float64), "b": tf.constant([1.0, -1.0], tf.float64)}
    optimizer = rf.projected_adam(rate)
    state = optimizer.init(hypers)
    state = state._replace(learning_rate={name: scale * r for name, r in state.learning_rate.items()})
    moved, _ = optimizer.update(
        {"a": tf.constant(2.0, tf.float64), "b": tf.constant([3.0, -4.0], tf.float64)}, state, hypers
    )
    return {name: np.max(np.abs(moved[name] - hypers[name])) for name in hypers}


def test_every_hyper_has_its_own_learning_rate():
    assert first_steps({"a": 0.1, "b": 0.01}) == pytest.approx({"a": 0.1, "b": 0.01}, rel=1e-4)
    assert first_steps(0.1) == pytest.approx({"a": 0.1, "b": 0.1}, rel=1e-4)


def test_a_learning_rate_of_zero_fixes_a_hyper():
    assert first_steps({"a": 0.0, "b": 0.01})["a"] == 0


def test_learning_rates_are_part_of_the_state_and_scale_the_step():
    optimizer = rf.projected_adam({"a": 0.1, "b": 0.01})
    state = optimizer.init({"a": tf.constant(0.0, tf.float64), "b": tf.zeros(3, tf.float32)})
    assert {name: (rate.numpy(), rate.dtype) for name, rate in state.learning_rate.items()} == {
        "a": (np.float64(0.1), tf.float64),
        "b": (np.float32(0.01), tf.float32),
    }
    assert first_steps(0.1, scale=0.25) == pytest.approx({"a": 0.025, "b": 0.025}, rel=1e-4)


def test_scaled_learning_rates_stay_in_the_state():
    hypers = {"a": tf.constant(1.0)}
    optimizer = rf.projected_adam(0.5)
    state = optimizer.init(hypers)._replace(learning_rate={"a": tf.constant(0.125)})
    for _ in range(3):
        hypers, state = optimizer.update({"a": tf.constant(1.0)}, state, hypers)
    assert state.learning_rate["a"].numpy() == 0.125
    assert state.count.numpy() == 3


# The log scale


def test_on_the_log_scale_a_hyper_moves_as_adam_moves_its_logarithm():
    rng = np.random.default_rng(seed(11))
    start = {name: tf.constant(rng.lognormal(0.0, 3.0, size=SHAPES[name])) for name in ("scalar", "cube")}
    grads = [{name: tf.constant(rng.normal(size=SHAPES[name])) for name in start} for _ in range(12)]
    optimizer = rf.projected_adam(0.2, log_scale=["scalar", "cube"])
    hypers, state = start, optimizer.init(start)
    path = [start]
    for g in grads:
        hypers, state = optimizer.update(g, state, hypers)
        path.append(hypers)
    for name, first in start.items():
        along = [(g[name] * h[name]).numpy() for g, h in zip(grads, path[:-1], strict=True)]  # dE/d log h at each iterate
        expected = np.exp(adam_by_hand(np.log(first), along, 0.2, 0.9, 0.999, 1e-7))
        np.testing.assert_allclose(hypers[name], expected, rtol=1e-12, err_msg=name)


def test_only_the_named_hypers_move_by_factors():
    hypers = {"factor": tf.constant([1e-3, 10.0], tf.float64), "plain": tf.constant(2.0, tf.float64)}
    optimizer = rf.projected_adam(0.5, log_scale=["factor"])
    grads = {"factor": tf.constant([3e4, -1.0], tf.float64), "plain": tf.constant(5.0, tf.float64)}
    moved, _ = optimizer.update(grads, optimizer.init(hypers), hypers)
    np.testing.assert_allclose(moved["factor"], [1e-3 * np.exp(-0.5), 10.0 * np.exp(0.5)], rtol=1e-6)
    assert moved["plain"].numpy() == pytest.approx(1.5, rel=1e-6)


def test_on_the_log_scale_a_hyper_stays_in_its_box():
    hypers = {name: tf.constant([0.5, 0.02]) for name in ("box", "positive")}
    optimizer = rf.projected_adam(
        3.0, {"box": rf.Box(0.01, 1.0), "positive": rf.NonNegative()}, log_scale=("box", "positive")
    )
    grads = {name: tf.constant([-1.0, 1.0]) for name in hypers}
    moved, _ = optimizer.update(grads, optimizer.init(hypers), hypers)
    np.testing.assert_array_equal(moved["box"], np.float32([1.0, 0.01]))
    np.testing.assert_allclose(moved["positive"], [0.5 * np.exp(3), 0.02 * np.exp(-3)], rtol=1e-3)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=lambda dtype: dtype.name)
def test_on_the_log_scale_no_hyper_becomes_zero(dtype):
    hypers = {"a": tf.constant(1.0, dtype)}
    optimizer = rf.projected_adam(1000.0, {"a": rf.NonNegative()}, log_scale=["a"])
    moved, _ = optimizer.update({"a": tf.constant(1.0, dtype)}, optimizer.init(hypers), hypers)
    assert 0 < moved["a"].numpy() < 1e-37


def test_nan_in_a_gradient_is_not_hidden_by_the_log_scale():
    hypers = {"a": tf.constant(1.0)}
    optimizer = rf.projected_adam(0.1, log_scale=["a"])
    moved, _ = optimizer.update({"a": tf.constant(np.nan)}, optimizer.init(hypers), hypers)
    assert np.isnan(moved["a"].numpy())


def test_the_log_scale_is_part_of_the_settings():
    assert rf.projected_adam(0.1, log_scale=("b", "a")).settings["log_scale"] == ["a", "b"]
    assert rf.projected_adam(0.1).settings["log_scale"] == []


@pytest.mark.parametrize("value", [0.0, [1.0, -2.0], float("nan")], ids=str)
def test_what_moves_by_factors_starts_above_zero(value):
    with pytest.raises(ValueError, match=r"log_scale has 'rate', which starts at .*above 0"):
        rf.projected_adam(0.1, log_scale=["rate"]).init({"rate": tf.constant(value)})


def test_an_unknown_name_in_log_scale_is_rejected():
    with pytest.raises(ValueError, match=r"log_scale.*'rl'.*\['lr'\]"):
        rf.projected_adam(0.1, log_scale=["rl"]).init({"lr": tf.constant(0.1)})
    with pytest.raises(TypeError, match=r"log_scale is the string 'lr'.*\['lr'\]"):
        rf.projected_adam(0.1, log_scale="lr")


@pytest.mark.parametrize("constraint", [rf.Simplex(), rf.L1Ball(1.0), rf.BoxL1Ball(1.0), rf.L2Ball(1.0)], ids=repr)
def test_a_set_that_projects_to_zero_is_rejected_on_the_log_scale(constraint):
    with pytest.raises(ValueError, match=r"log_scale has 'x'.*can give 0.*rf\.Box") as error:
        rf.projected_adam(0.1, {"x": constraint}, log_scale=["x"])
    assert repr(constraint) in str(error.value)


# Errors


def test_a_constraint_for_an_unknown_hyper_is_rejected():
    with pytest.raises(ValueError, match=r"constraints.*'rl'.*\['lr'\]"):
        rf.projected_adam(0.1, {"rl": rf.NonNegative()}).init({"lr": tf.constant(0.1)})


@pytest.mark.parametrize(
    ("constraint", "value"),
    [
        (rf.NonNegative(), -0.1),
        (rf.Box(0.0, 1.0), [0.5, 1.5]),
        (rf.Simplex(), [0.5, 0.6]),
        (rf.BoxL1Ball(1.5), [1.0, 1.0]),
        (rf.L2Ball(1.0), [[1.0, 1.0]]),
        (rf.SymmetricNonNegative(), [[1.0, 0.5], [0.25, 1.0]]),
        (rf.Box(0.0, 1.0), float("nan")),
    ],
    ids=repr,
)
def test_a_start_outside_the_set_is_rejected_and_both_are_named(constraint, value):
    with pytest.raises(ValueError, match=r"'weights' starts outside.*project") as error:
        rf.projected_adam(0.1, {"weights": constraint}).init({"lr": tf.constant(0.1), "weights": tf.constant(value)})
    assert repr(constraint) in str(error.value)


def test_a_missing_learning_rate_is_rejected():
    with pytest.raises(ValueError, match=r"learning_rate.*\['b', 'c'\]"):
        rf.projected_adam({"a": 0.1}).init({name: tf.constant(1.0) for name in "abc"})


def test_a_learning_rate_for_an_unknown_hyper_is_rejected():
    with pytest.raises(ValueError, match=r"learning_rate.*'z'.*\['a'\]"):
        rf.projected_adam({"a": 0.1, "z": 0.1}).init({"a": tf.constant(1.0)})


# Purity


def test_update_is_deterministic_and_leaves_its_inputs_unchanged():
    rng = np.random.default_rng(9)
    hypers = start(rng, CONSTRAINTS)
    optimizer, twin = constrained(), rf.projected_adam(0.3, CONSTRAINTS)
    state = optimizer.init(hypers)
    for _ in range(3):
        grads = random_hypers(rng)
        before = bits((grads, state, hypers))
        once, again = (optimizer.update(grads, state, hypers) for _ in range(2))
        assert bits((grads, state, hypers)) == before
        assert bits(once) == bits(again)
        assert bits(twin.update(grads, state, hypers)) == bits(once)
        hypers, state = once


def test_update_works_inside_a_tf_function():
    rng = np.random.default_rng(10)
    hypers, grads = start(rng, CONSTRAINTS), random_hypers(rng)
    optimizer = constrained()
    state = optimizer.init(hypers)
    outer = tf.function(lambda *arguments: optimizer.update(*arguments), autograph=False)
    for one, other in zip(
        tf.nest.flatten(outer(grads, state, hypers)), tf.nest.flatten(optimizer.update(grads, state, hypers)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-15)


def test_the_settings_of_a_user_defined_constraint_are_the_same_in_every_process():
    class Half:
        def __init__(self, low):
            self.low = low

        def project(self, x):
            return tf.maximum(x, self.low)

        def contains(self, x, atol=None):
            return tf.reduce_all(x >= self.low)

    first, again, other = (rf.projected_adam(0.1, {"x": Half(low)}).settings["constraints"]["x"] for low in (1.0, 1.0, 2.0))
    assert first == again
    assert first != other
    assert " at 0x" not in first


def test_rates_may_be_arrays_and_constraints_pairs():
    optimizer = rf.projected_adam({"h": np.array([0.1, 0.2])}, [("h", rf.NonNegative())])
    hypers = {"h": tf.constant([1.0, 1.0])}
    moved, _ = optimizer.update({"h": tf.ones(2)}, optimizer.init(hypers), hypers)
    np.testing.assert_allclose(moved["h"], [0.9, 0.8], rtol=1e-5)
