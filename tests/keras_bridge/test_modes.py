"""A tuner uses forward mode for a few hypers, and reverse mode for many hypers or for models with control flow."""

import time

import keras
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.tuners import real_time_tuner, trials
from rfho2.keras_bridge.tuners.modes import control_flow
from tests.support.keras_models import TRAIN, VALID, fit, tuner


class Branching(keras.layers.Layer):
    """Takes a branch that depends on its inputs."""

    def call(self, x):
        return tf.cond(tf.reduce_mean(x) > 0, lambda: tf.tanh(x), lambda: 0.5 * x)


def with_layers(*layers):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input([4]), keras.layers.Dense(4), *layers, keras.layers.Dense(3)])


MODELS = {
    "branching": lambda: with_layers(Branching()),
    "lstm": lambda: with_layers(keras.layers.Reshape([4, 1]), keras.layers.LSTM(3)),
    "gru": lambda: with_layers(keras.layers.Reshape([4, 1]), keras.layers.GRU(3)),
    "both": lambda: with_layers(keras.layers.Reshape([4, 1]), keras.layers.SimpleRNN(3), Branching()),
}


@pytest.fixture
def unchecked(monkeypatch):
    """Leaves out what a fit does before it trains and other tests cover, because it takes most of the time."""
    monkeypatch.setattr(real_time_tuner, "check_training", lambda *args, **_: None)
    monkeypatch.setattr(trials, "safe_start", lambda trial, hypers, *_: hypers)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_control_flow_is_tuned_in_reverse_mode(name, unchecked):
    reverse = tuner(MODELS[name](), hypers={"learning_rate": 1e-3})
    trajectories = fit(reverse, epochs=1).trajectories
    assert reverse.mode == "reverse"
    assert trajectories["learning_rate"][-1] > 1.5 * trajectories["learning_rate"][0]
    assert trajectories["value"][-1] < trajectories["value"][0]


@pytest.mark.slow
def test_many_numbers_are_tuned_in_reverse_mode():
    many = tuner(hypers=["learning_rate", "weight_decay"], per_layer=True, metrics=["accuracy"])
    history = fit(many, epochs=5)
    assert many.mode == "reverse"
    assert history.history["val_accuracy"][-1] > 0.8
    assert history.history["learning_rate/network/hidden"][-1] > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [False, True])
def test_xla_compiles_a_recurrent_layer_once(streamed):
    wrapped = rf.from_keras(with_layers(keras.layers.Reshape([4, 1]), keras.layers.SimpleRNN(3)), check=False)

    def loss(params, hypers, batch):
        return tf.reduce_mean(tf.square(wrapped.apply(params, batch[0], training=True)))

    batches = rf.batches.shuffled(TRAIN, 12, seed=0)
    if streamed:
        batches = rf.batches.stream(tf.data.Dataset.from_tensor_slices(TRAIN).batch(12))
    training = rf.Problem(rf.gradient_descent(loss, "lr"), loss, None, batches, rf.batches.full(VALID))
    engine = rf.real_time(training, 2, jit_compile=True, mode="reverse")
    carry, seconds = engine.start(wrapped.params, {"lr": 0.1}), []
    for k in range(2):
        before = time.process_time()
        _, carry = engine.advance(carry, {"lr": 0.1 + k}, k)
        seconds.append(time.process_time() - before)
    assert seconds[1] < 0.2 * seconds[0]


class StopFitError(Exception):
    """Ends a fit before it trains, with the engine's settings."""


@pytest.fixture
def settings_of(monkeypatch, unchecked):
    """The settings of the engine that a tuner's fit uses."""

    def stop(*args, **settings):
        raise StopFitError(rf.real_time(*args, **settings).settings)

    def settings_of(tuner):
        with pytest.raises(StopFitError) as error:
            fit(tuner)
        (settings,) = error.value.args
        assert settings["mode"] == tuner.mode
        return tuple(settings[name] for name in ("mode", "carry", "discount"))

    monkeypatch.setattr(real_time_tuner, "real_time", stop)
    return settings_of


def test_the_mode_follows_from_the_number_of_hypers_unless_the_user_chooses(settings_of):
    many = {"hypers": ["learning_rate", "weight_decay"], "per_layer": True}
    assert tuner().mode is None
    assert settings_of(tuner(hypers=["learning_rate", "momentum", "weight_decay"])) == ("forward", True, 0.999)
    assert settings_of(tuner(**many)) == ("reverse", False, 0.999)
    assert settings_of(tuner(**many, carry=True)) == ("forward", True, 0.999)
    assert settings_of(tuner(**many, mode="forward", carry=False)) == ("forward", False, 0.999)
    assert settings_of(tuner(mode="reverse", discount=0.9)) == ("reverse", False, 0.9)


def test_control_flow_asks_for_reverse_mode_except_for_one_step_or_where_the_user_asks_for_few_hypers(settings_of):
    model = MODELS["branching"]()
    assert settings_of(tuner(model)) == ("reverse", False, 0.999)
    assert settings_of(tuner(model, discount=0)) == ("forward", True, 0.0)
    many = {"hypers": ["learning_rate", "weight_decay", "momentum"], "per_layer": True}
    for asked, named in ({"mode": "forward"}, "mode is 'forward'"), ({"carry": True}, "carry is True"):
        assert settings_of(tuner(model, **asked)) == ("forward", True, 0.999)
        with pytest.raises(ValueError, match=rf"{named}.*control flow \(If\).*at most 4 numbers, not \d+\. .*uses reverse"):
            fit(tuner(model, **many, **asked))


def test_contradictory_arguments_are_refused_at_once():
    with pytest.raises(ValueError, match="carry is True, but mode is 'reverse'"):
        tuner(mode="reverse", carry=True)
    with pytest.raises(ValueError, match="discount is 2"):
        tuner(discount=2)


def squared_where_positive(w):
    return tf.cond(tf.reduce_sum(w) > 0, lambda: w**2, lambda: w)


@pytest.mark.parametrize(
    ("call", "kinds"),
    [
        (tf.sin, []),
        (squared_where_positive, ["If"]),
        (tf.function(squared_where_positive), ["If"]),
        (lambda w: tf.switch_case(tf.constant(1), [lambda: w, lambda: tf.sin(w)]), ["Case"]),
        (lambda w: squared_where_positive(tf.map_fn(tf.sin, w)), ["If", "While"]),
        (lambda w: w * tf.while_loop(lambda x: x < 3.0, lambda x: 2 * x, (tf.constant(1.0),))[0], []),
    ],
    ids=["none", "cond", "function", "switch", "two", "irrelevant"],
)
def test_control_flow_matters_if_it_depends_on_the_params_or_the_hypers(call, kinds):
    examples, w = lambda t: tf.constant([1.0, 2.0]), tf.ones([2])
    assert control_flow(lambda w, hypers, x: tf.reduce_sum(call(w) + x), w, {}, examples) == kinds
    assert control_flow(lambda w, hypers, x: tf.reduce_sum(call(hypers["h"]) + w), w, {"h": w}, examples) == kinds
    assert control_flow(lambda w, hypers, x: tf.reduce_sum(call(x) + w), w, {}, examples) == []
