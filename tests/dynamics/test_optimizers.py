"""Every optimiser: twenty steps of it and of Keras's, and derivatives with respect to all its settings."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.problems import assert_agree, differences, response

ADAM = {"learning_rate": 0.01, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
DECAYED = ADAM | {"weight_decay": 0.1}
FACTORED = {"beta_2_decay": -0.8, "epsilon_2": 1e-3, "clip_threshold": 0.8, "weight_decay": 0.1}
MUON = {"adam_beta_1": 0.9, "adam_beta_2": 0.999, "adam_weight_decay": 0.05, "epsilon": 1e-7, "weight_decay": 0.1}
SUMMED = {"learning_rate": 0.1, "initial_accumulator_value": 0.1, "epsilon": 0.05, "weight_decay": 0.1}
OPTIMISERS = {  # ours, Keras's, the settings, and those that are not differentiated
    "gradient_descent": (rf.gradient_descent, "SGD", {"learning_rate": 0.1, "weight_decay": 0.1}, {}),
    "momentum": (rf.momentum, "SGD", {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.1}, {}),
    "nesterov": (rf.nesterov, "SGD", {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.1}, {}),
    "rmsprop": (rf.rmsprop, "RMSprop", {"learning_rate": 0.01, "rho": 0.9, "epsilon": 1e-7}, {}),
    "rmsprop, all": (
        rf.rmsprop,
        "RMSprop",
        {"learning_rate": 0.01, "rho": 0.9, "epsilon": 1e-2, "momentum": 0.5, "weight_decay": 0.1},
        {"centered": True},
    ),
    "adagrad": (rf.adagrad, "Adagrad", SUMMED, {}),
    "adadelta": (rf.adadelta, "Adadelta", {"learning_rate": 1.0, "rho": 0.95, "epsilon": 1e-3, "weight_decay": 0.1}, {}),
    "adam": (rf.adam, "Adam", ADAM, {}),
    "amsgrad": (rf.adam, "Adam", ADAM | {"beta_2": 0.9}, {"amsgrad": True}),
    "adamw": (rf.adamw, "AdamW", DECAYED, {}),
    "nadam": (rf.nadam, "Nadam", DECAYED, {}),
    "adamax": (rf.adamax, "Adamax", DECAYED, {}),
    "lamb": (rf.lamb, "Lamb", DECAYED, {}),
    "lion": (rf.lion, "Lion", {"learning_rate": 0.01, "beta_1": 0.9, "beta_2": 0.99, "weight_decay": 0.1}, {}),
    "adafactor": (rf.adafactor, "Adafactor", {"learning_rate": 0.1, **FACTORED}, {}),
    "muon": (
        rf.muon,
        "Muon",
        {"learning_rate": 0.2, "momentum": 0.95, "adam_lr_ratio": 0.5, "rms_rate": 0.2, **MUON},
        {"ns_steps": 3},
    ),
}
COVERED = ("gradient_descent", "momentum", "nesterov", "rmsprop", "adagrad", "adam", "adamw")  # by golden numbers and grids


def optimisers(slow):
    return pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in slow)) for n in OPTIMISERS])


RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 5)), RNG.integers(0, 3, 60)
SHAPES = {"w1": (5, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}  # four small leaves, which are stepped together
START = {name: RNG.normal(size=shape) for name, shape in SHAPES.items()}


def network(dtype, **hypers):
    """A small network: its params, loss and batches."""
    data = tf.constant(X, dtype), tf.constant(Y)

    def loss(p, hypers, batch):
        logits = tf.tanh(batch[0] @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        penalty = hypers["l2"] * tf.reduce_sum(p["w1"] ** 2) if "l2" in hypers else 0.0
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], logits)) + penalty

    return {key: tf.constant(value, dtype) for key, value in START.items()}, loss, rf.batches.shuffled(data, 10, seed=4)


@optimisers(slow=("gradient_descent", "momentum", "adam"))
def test_twenty_steps_equal_keras(name):
    make, kind, settings, constants = OPTIMISERS[name]
    if not hasattr(keras.optimizers, kind):
        pytest.skip(f"this Keras has no {kind}")
    start, loss, batches = network(tf.float32)
    more = {"nesterov": True} if name == "nesterov" else {}
    dynamics, optimizer = (
        make(loss, **settings, **constants),
        getattr(keras.optimizers, kind)(**settings, **constants, **more),
    )
    state = dynamics.init(start, {})
    variables = {key: keras.Variable(value, name=key) for key, value in start.items()}
    slope = tf.function(lambda w, batch: tf.gradients(loss(w, {}, batch), list(w.values())), autograph=False)
    step = tf.function(dynamics.step, autograph=False)
    gather = tf.function(batches, autograph=False)
    for t in map(tf.constant, range(20)):
        batch = gather(t)
        state = step(state, {}, batch, t)
        grads = slope({key: variable.value for key, variable in variables.items()}, batch)
        optimizer.apply(grads, list(variables.values()))
    assert_as_far(dynamics.params(state), variables, start)


def assert_as_far(w, variables, start, rtol=1e-4):
    """The weights are those of Keras's variables, up to a small part of the way that they have gone."""
    distance = np.sqrt(sum(np.sum((w[key] - variables[key].numpy()) ** 2) for key in start))
    moved = np.sqrt(sum(np.sum((variables[key].numpy() - start[key]) ** 2) for key in start))
    assert moved > 0.1
    assert distance <= rtol * moved


def problem(name, steps=2):
    """A training in float64 all of whose settings are hypers."""
    make, _, settings, constants = OPTIMISERS[name]
    start, loss, batches = network(tf.float64)
    names = {setting: setting for setting in settings}
    values = {**settings, "l2": 0.01, **({"epsilon": 0.01} if "epsilon" in settings else {})}  # differences need room
    hypers = {key: tf.constant(value, tf.float64) for key, value in values.items()}
    objective = lambda p, hypers, batch: loss(p, {}, batches(tf.constant(7)))  # noqa: E731
    return rf.Problem(make(loss, **names, **constants), objective, steps, batches), start, hypers


def slow_but_for(*quick):
    return pytest.mark.parametrize(
        "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in quick)) for n in OPTIMISERS]
    )


def by_a_tape(training, start, hypers):
    """The derivative of the objective by one tape over all steps."""
    with tf.GradientTape() as tape:
        tape.watch(hypers)
        value = response(training, start, hypers)
    return tape.gradient(value, hypers, unconnected_gradients=tf.UnconnectedGradients.ZERO)


@optimisers(slow=COVERED)
def test_a_tape_through_the_steps_agrees_with_differences(name):
    training, start, hypers = problem(name)
    expected = differences(lambda h: response(training, start, h), hypers, h=1e-6)
    assert_agree(by_a_tape(training, start, hypers), expected, rtol=1e-6)


@optimisers(slow=OPTIMISERS)
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "jit"])
def test_reverse_and_forward_mode_agree_with_differences(name, jit_compile):
    training, start, hypers = problem(name)
    expected = differences(lambda h: response(training, start, h), hypers, h=1e-6)
    for method in (rf.reverse, rf.forward):
        assert_agree(method(training, jit_compile=jit_compile)(start, hypers).grads, expected, rtol=1e-6)


KINDS = ("clipvalue", "clipnorm", "global_clipnorm")
BOUNDS = {"clipvalue": (1e-3, 0.02, 10.0), "clipnorm": (0.01, 0.25, 10.0), "global_clipnorm": (0.01, 0.3, 10.0)}


@pytest.mark.parametrize("kind", KINDS)
def test_clipped_gradients_are_keras_own(kind):
    start, loss, batches = network(tf.float32)
    batch = batches(tf.constant(0))
    with tf.GradientTape() as tape:
        tape.watch(start)
        value = loss(start, {}, batch)
    plain = tape.gradient(value, start)
    lengths = []
    for bound in BOUNDS[kind]:
        dynamics = rf.gradient_descent(rf.clipped(loss, **{kind: bound}), 1.0)
        w = dynamics.step(start, {}, batch, tf.constant(0))
        expected = keras.optimizers.SGD(1.0, **{kind: bound})._clip_gradients(list(plain.values()))
        for key, clipped in zip(start, expected, strict=True):
            np.testing.assert_allclose(start[key] - w[key], clipped, atol=1e-6)
        lengths.append(float(sum(tf.reduce_sum((start[key] - w[key]) ** 2) for key in start)))
    assert lengths[0] < lengths[1] < lengths[2], "the bounds do not lie on both sides"


@pytest.mark.parametrize("kind", KINDS)
def test_clipping_has_its_derivatives_on_both_sides_of_the_bound(kind):
    start, loss, batches = network(tf.float64)
    training = rf.Problem(rf.momentum(rf.clipped(loss, **{kind: "bound"}), "lr", 0.9), loss, 2, batches, batches)
    value = tf.function(lambda hypers: response(training, start, hypers), autograph=False)
    for which, bound in enumerate(BOUNDS[kind]):  # all of the gradient is clipped, a part of it, nothing
        hypers = {name: tf.constant(v, tf.float64) for name, v in {"lr": 0.1, "bound": bound, "l2": 0.01}.items()}
        grads = by_a_tape(training, start, hypers)
        assert_agree(grads, differences(value, hypers, h=1e-7), rtol=1e-5)
        assert (float(grads["bound"]) == 0) == (which == 2)


def through(method):
    return lambda training, start, hypers: method(training, jit_compile=False)(start, hypers).grads


MODES = [by_a_tape, *(pytest.param(through(method), marks=pytest.mark.slow) for method in (rf.reverse, rf.forward))]


@pytest.mark.parametrize("method", MODES, ids=["tape", "reverse", "forward"])
def test_an_average_of_accumulated_steps_has_its_derivatives(method):
    start, loss, batches = network(tf.float64)

    def make(loss):
        return rf.adam(rf.clipped(loss, global_clipnorm="bound"), "lr", epsilon=0.01)

    dynamics = rf.averaged(rf.accumulated(make, loss, 2), "mu")
    training = rf.Problem(dynamics, lambda p, h, batch: loss(p, {}, batch), 5, batches, batches)
    hypers = {"lr": 0.05, "bound": 0.3, "mu": 0.6, "l2": 0.01}
    hypers = {name: tf.constant(value, tf.float64) for name, value in hypers.items()}
    expected = differences(lambda h: response(training, start, h), hypers, h=1e-6)
    assert_agree(method(training, start, hypers), expected, rtol=1e-6)


def test_an_average_is_that_of_the_weights_and_accumulated_steps_are_those_of_mean_gradients():
    loss = lambda w, hypers, batch: batch * w  # noqa: E731
    dynamics = rf.averaged(rf.accumulated(lambda f: rf.gradient_descent(f, 0.5), loss, 2), 0.5, first=2)
    state, averages, weights = dynamics.init(tf.constant(1.0), {}), [], []
    for t, batch in enumerate([1.0, 3.0, 4.0, 0.0, 8.0]):
        state = dynamics.step(state, {}, batch, tf.constant(t))
        averages.append(float(dynamics.params(state)))
        weights.append(float(state.state.state))
    assert weights == [1.0, 0.0, 0.0, -1.0, -1.0]
    assert averages == [1.0, 0.0, 0.0, -0.5, -0.75]


def test_mistakes_in_clipping_are_refused():
    loss = lambda w, hypers, batch: w**2  # noqa: E731
    for arguments, message in (
        ({}, "no bound"),
        ({"clipnorm": 1.0, "clipvalue": 1.0}, "clipnorm"),
        ({"clipnorm": 0}, "above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            rf.clipped(loss, **arguments)
