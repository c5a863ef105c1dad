"""Recomputed blocks, one by one and in a loop: the same derivatives in every mode and order, without the activations."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.problems import assert_agree, differences, response

RNG = np.random.default_rng(0)


def normal(*shape):
    return tf.constant(0.4 * RNG.normal(size=shape), tf.float64)


PARAMS = [{"in": normal(4, 6), "bias": normal(6), "out": normal(6, 4)} for _ in range(2)]
DATA = normal(9, 4), normal(9, 4)
HYPERS = {"lr": 0.05, "l2": 0.02, "gain": 1.2}


def block(w, inputs, positions, gain):
    """Two inputs that are differentiated, of which one is a number, and one of integers; a nest of two outputs."""
    x, total = inputs
    hidden = tf.tanh(gain * x @ w["in"] + w["bias"]) * tf.cast(positions % 3, x.dtype)[:, None]
    x = x + hidden @ w["out"]
    return x, total + tf.reduce_mean(x**2)


def error(params, gain, batch, layer):
    x, y = batch
    total = tf.zeros([], x.dtype)
    for w in params:
        x, total = layer(w, (x, total), tf.range(9), gain)
    return tf.reduce_mean((x - y) ** 2) + 0.1 * total


def problem(layer, error=error):
    """Four steps of Adam; the gain of the blocks is a hyper, in the loss and in the objective."""

    def loss(params, hypers, batch):
        penalty = tf.add_n([tf.reduce_sum(w["in"] ** 2) for w in params])
        return error(params, hypers["gain"], batch, layer) + hypers["l2"] * penalty

    dynamics = rf.adam(loss, "lr", epsilon=1e-2)
    full = rf.batches.full(DATA)
    return rf.Problem(dynamics, lambda p, h, batch: error(p, h["gain"], batch, layer), 4, full, full)


def stacked(block):
    """The layers as one loop; what they share is a part of x."""
    layers = rf.recompute_layers(lambda w, x: (*block(w, x[:2], w["positions"], x[2]), x[2]))

    def run(params, gain, batch, _):
        x, y = batch
        w = {name: tf.stack([w[name] for w in params]) for name in params[0]} | {"positions": tf.stack([tf.range(9)] * 2)}
        x, total, _ = layers(w, (x, tf.zeros([], x.dtype), gain))
        return tf.reduce_mean((x - y) ** 2) + 0.1 * total

    return run


def hypers():
    return {name: tf.constant(value, tf.float64) for name, value in HYPERS.items()}


@pytest.fixture(scope="module")
def expected():
    plain = problem(block)
    return differences(lambda h: response(plain, PARAMS, h), hypers())


ENGINES = {
    "reverse": rf.reverse,
    "forward": rf.forward,
    "windows": lambda problem, **options: rf.real_time(problem, 4, mode="reverse", checkpoints=2, **options),
}


@pytest.mark.parametrize("in_loop", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("method", "jit_compile"),
    [
        ("reverse", False),
        pytest.param("reverse", True, marks=pytest.mark.slow),
        pytest.param("forward", False, marks=pytest.mark.slow),
        pytest.param("forward", True, marks=pytest.mark.slow),
        pytest.param("windows", False, marks=pytest.mark.slow),
        pytest.param("windows", True, marks=pytest.mark.slow),
    ],
)
def test_hypergradients_agree_with_differences(expected, method, jit_compile, in_loop):
    recomputed = problem(block, stacked(block)) if in_loop else problem(rf.recompute(block))
    engine = ENGINES[method](recomputed, jit_compile=jit_compile)
    assert_agree(engine(PARAMS, hypers()).grads, expected, rtol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_three_derivatives_of_layers_in_a_loop(jit_compile):
    w, x = {"in": normal(3, 4, 4), "sign": tf.constant([1, -1, 1])}, normal(2, 4)
    layer = lambda w, x: x + tf.cast(w["sign"], x.dtype) * tf.tanh(x @ w["in"])  # noqa: E731

    def one_by_one(w, x):
        for i in range(3):
            x = layer({name: leaf[i] for name, leaf in w.items()}, x)
        return x

    def derivative(function, direction):
        def along(z):
            with tf.GradientTape() as tape:
                tape.watch(z)
                value = function(z)
            return tf.add_n([tf.reduce_sum(g * d) for g, d in zip(tape.gradient(value, z), direction, strict=True)])

        return along

    def third(layers):
        function = lambda z: tf.reduce_sum(tf.sin(layers(w | {"in": z[0]}, z[1])))  # noqa: E731
        for direction in directions:
            function = derivative(function, direction)
        return function

    directions = [(normal(3, 4, 4), normal(2, 4)) for _ in range(3)]
    compiled = tf.function(third(rf.recompute_layers(layer)), autograph=False, jit_compile=jit_compile)
    np.testing.assert_allclose(compiled((w["in"], x)), third(one_by_one)((w["in"], x)), rtol=1e-10)


@pytest.mark.parametrize(
    ("block", "params", "message"),
    [
        (lambda w, x: w * x, {"a": tf.ones([2]), "b": tf.ones([3])}, "first axis of each has to be that of the layers"),
        (lambda w, x: w * x, tf.constant(1.0), "Use tf.stack"),
        (lambda w, x: (w * x)[0], tf.ones([2]), "because the next layer continues from them"),
    ],
)
def test_layers_that_cannot_be_a_loop_are_refused(block, params, message):
    with pytest.raises(ValueError, match=message):
        rf.recompute_layers(block)(params, tf.ones([3]))


def test_equal_blocks_are_traced_once():
    calls = []

    def counted(w, x):
        calls.append(w)
        return tf.tanh(w * x)

    layer = rf.recompute(counted)

    def chain(w):
        for _ in range(5):
            w = layer(w, w)
        return w

    for _ in range(2):
        tf.function(chain, autograph=False)(tf.constant(0.5))
    assert len(calls) == 1


def test_xla_does_not_find_the_activations_of_the_forward_pass_again():
    """The gradient runs the block twice; a compiler that merged both would keep what the block computes in between."""

    def tanhs(layer):
        def slope(w):
            with tf.GradientTape() as tape:
                tape.watch(w)
                y = layer(w, layer(w, w))
            return tape.gradient(y, w)

        compiled = tf.function(slope, autograph=False, jit_compile=True)
        return compiled.experimental_get_compiler_ir(tf.ones([20, 20]))(stage="optimized_hlo").count(" tanh(")

    twice = lambda w, x: tf.tanh(w @ tf.tanh(w @ x))  # noqa: E731
    assert tanhs(rf.recompute(twice)) > tanhs(twice) == 4


def test_variables_and_arrays_can_be_arguments():
    variable, layer = tf.Variable(0.5), rf.recompute(lambda w, x, power: tf.tanh(w * x) ** power)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            value = layer(variable, np.float32([1.0]), 2)
        slope = tape.gradient(value, variable)
    y = np.tanh(0.5)
    np.testing.assert_allclose(slope, 2 * y * (1 - y**2), rtol=1e-6)
    np.testing.assert_allclose(outer.gradient(slope, variable), 2 * (1 - y**2) * (1 - 3 * y**2), rtol=1e-5)


def test_what_is_not_an_argument_is_refused():
    variable = tf.Variable(2.0)
    with pytest.raises(ValueError, match="not one of its arguments"):
        rf.recompute(lambda x: variable * x)(tf.constant(1.0))

    @tf.function
    def outside(w):
        return rf.recompute(lambda x: w * x)(tf.constant(1.0))

    with pytest.raises(ValueError, match="not one of its arguments"):
        outside(tf.constant(1.0))
    with pytest.raises(ValueError, match="recompute_layers: the block uses a variable"):
        rf.recompute_layers(lambda w, x: variable * w * x)(tf.ones([2]), tf.constant(1.0))
