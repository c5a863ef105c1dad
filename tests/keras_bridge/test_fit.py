"""`fit` as in Keras: epochs, options, and what a compiled model brings with it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.tuners import trials
from tests.support.keras_models import SPARSE, TRAIN, VALID, fit, network, tuner


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """Leaves out what other tests cover and takes most of the time."""
    monkeypatch.setattr(trials, "safe_start", lambda trial, hypers, *_: hypers)


class Record(keras.callbacks.Callback):
    """What callbacks see."""

    def __init__(self):
        super().__init__()
        self.batches, self.epochs, self.logs = [], [], []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append(batch)

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(epoch)
        self.logs.append(logs)


def test_an_epoch_has_as_many_steps_as_in_keras_and_its_training_is_keras_own():
    """31 batches, updates after 10, 20 and 31 steps; the rate is held, so that Keras can do the same."""
    x, y = (part[:217] for part in TRAIN)
    ours, theirs, seen = network(), network(), Record()
    theirs.compile(keras.optimizers.SGD(0.05, 0.8), SPARSE)
    theirs.fit(x, y, 7, 2, verbose=0, shuffle=False)
    ours.compile(keras.optimizers.SGD(0.05, 0.8), SPARSE, metrics=["accuracy"])
    held = rf.RealTimeTuner(ours, hyper_batch=10, hyper_rate=0.0, keep="last", jit_compile=False, check=False)
    options = {"epochs": 3, "initial_epoch": 1, "shuffle": False, "batch_size": 7, "verbose": 0}
    held.fit(x, y, VALID, callbacks=[seen], **options)
    assert seen.batches == [9, 19, 30] * 2
    assert seen.epochs == [1, 2]
    assert {"loss", "accuracy", "val_loss", "val_accuracy", "learning_rate"} <= set(seen.logs[0])
    for one, other in zip(ours.trainable_variables, theirs.trainable_variables, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), atol=1e-5)


def test_a_compiled_model_brings_loss_optimizer_and_settings_and_gets_the_tuned_ones():
    model = network()
    model.compile(keras.optimizers.Adam(2e-3, beta_1=0.8), SPARSE)
    tuned = rf.RealTimeTuner(model, hyper_batch=5, jit_compile=False, check=False)
    assert tuned.hypers["learning_rate"] == pytest.approx(2e-3)
    assert tuned._training.optimizer.fixed["beta_1"] == pytest.approx(0.8)
    fit(tuned)
    assert float(model.optimizer.learning_rate) == pytest.approx(float(tuned.hypers["learning_rate"]), rel=1e-5)
    assert float(model.optimizer.learning_rate) != pytest.approx(2e-3, rel=1e-2)
    assert "adam, learning_rate=" in repr(tuned)
    model.fit(*TRAIN, verbose=0)


@pytest.mark.slow
def test_one_learning_rate_beside_a_decay_for_each_layer_is_written_back():
    model = network()
    model.compile(keras.optimizers.Adam(2e-3), SPARSE)
    names = ["learning_rate", "weight_decay"]
    tuned = rf.RealTimeTuner(model, hypers=names, per_layer="weight_decay", hyper_batch=5, jit_compile=False, check=False)
    history = fit(tuned)
    assert tuned.hypers["weight_decay"].shape == (2,)
    assert float(model.optimizer.learning_rate) == pytest.approx(float(tuned.hypers["learning_rate"]), rel=1e-5)
    assert {"learning_rate", "weight_decay/network/hidden", "weight_decay/network/last"} <= set(history.trajectories)


@pytest.mark.slow
def test_an_optimizer_of_another_kind_keeps_its_settings():
    model = network()
    model.compile(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 10)), SPARSE)
    fit(rf.RealTimeTuner(model, optimizer="momentum", hyper_batch=5, jit_compile=False, check=False))


def test_weights_of_outputs_that_a_model_was_compiled_with():
    inputs = keras.Input([4])
    outputs = {"b": keras.layers.Dense(1, name="first")(inputs), "a": keras.layers.Dense(1, name="second")(inputs)}
    model = keras.Model(inputs, outputs)
    model.compile("sgd", {"a": "mse", "b": "mae"}, loss_weights={"a": 3.0, "b": 0.5})
    training = rf.RealTimeTuner(model)._training
    x, y = TRAIN[0][:8], dict.fromkeys("ab", TRAIN[0][:8, :1])
    ours = training.objective(training.model.params, {}, (tf.constant(x), y))
    assert float(ours) == pytest.approx(model.evaluate(x, y, verbose=0)[0], rel=1e-5)


def test_one_step_between_updates_and_a_share_to_validate_on():
    history = fit(tuner(hyper_batch=1, check=False), *TRAIN, validation_data=None, validation_split=0.5, epochs=1)
    assert len(history.trajectories["learning_rate"]) == 10


def test_metrics_that_keras_cannot_compute_are_named_before_the_training_and_stages_at_once(capsys):
    def metric(y, outputs):
        raise TypeError("no such metric")

    with pytest.raises(ValueError, match=r"cannot be evaluated.*no such metric"):
        fit(tuner(metrics=[metric], check=False), verbose=1)
    assert "Checking metrics ..." in capsys.readouterr().out
