"""A Keras model tuned while it trains: learning, histories, callbacks, and continuing a fit."""

from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.devices import same_bits
from tests.support.keras_models import TRAIN, VALID, fit, network, tuner


def test_it_learns_from_a_learning_rate_that_is_too_small_and_keeps_the_best_weights():
    model = network()
    history = fit(tuner(model, hypers={"learning_rate": 1e-4}, metrics=["accuracy"], robust=False), epochs=5)
    rates = history.trajectories["learning_rate"]
    assert rates[0] > 1e-3  # raised before the first step
    assert rates.max() > rates[0]
    assert history.history["val_accuracy"][-1] > 0.8
    assert model.evaluate(*VALID, verbose=0)[0] == pytest.approx(history.trajectories["value"].min(), rel=1e-5)


@pytest.mark.slow
def test_it_learns_from_a_learning_rate_that_is_too_large_and_can_keep_the_last_weights():
    model = network()
    history = fit(tuner(model, hypers={"learning_rate": 3.0}, metrics=["accuracy"], keep="last", robust=False), epochs=5)
    rates = history.trajectories["learning_rate"]
    assert rates[0] < 1.0  # lowered before the first step
    assert rates[-1] < 1.0
    assert history.history["val_accuracy"][-1] > 0.8
    loss, accuracy = model.evaluate(*VALID, verbose=0)
    assert accuracy == pytest.approx(history.history["val_accuracy"][-1])
    assert loss == pytest.approx(history.history["val_loss"][-1])
    assert loss > history.trajectories["value"].min(), "the last weights are the best ones: the test shows nothing"


def test_an_unknown_choice_of_weights_to_keep_is_refused():
    with pytest.raises(ValueError, match="keep is 'first'"):
        tuner(keep="first")


def test_steps_that_explode_are_undone_and_the_objective_can_be_another_loss():
    x, y = TRAIN[0] * 30, TRAIN[1].astype("float32")
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    validation = x[:50], y[:50]
    history = fit(tuner(model, "mse", {"learning_rate": 10.0}, objective="mae"), x, y, validation_data=validation)
    assert np.isfinite(history.history["val_loss"][-1])
    absolute = np.abs(y[:50] - model.predict(x[:50], verbose=0)[:, 0]).mean()
    assert history.trajectories["value"].min() == pytest.approx(absolute, rel=1e-5)
    assert history.trajectories["learning_rate"][0] < 0.1


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("accuracy", "objective: loss is the metric accuracy"),
        (
            lambda y, z: tf.cast(tf.argmax(z, -1) != tf.cast(y, tf.int64), z.dtype),
            "objective: loss <lambda> has no gradient",
        ),
        ("categorical_crossentropy", "objective: validation_data: loss categorical_crossentropy needs one-hot labels"),
    ],
)
def test_an_objective_that_cannot_be_minimised_is_refused(objective, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fit(tuner(objective=objective))


def test_the_history_has_the_hypers_of_each_layer_and_callbacks_write_their_files(tmp_path):
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="val_loss", save_best_only=True),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.TensorBoard(tmp_path / "board"),
    ]
    layered = tuner(hypers=("learning_rate", "momentum"), per_layer=True)
    with pytest.raises(ValueError, match="call fit first"):
        layered.plot()
    history = fit(layered, callbacks=callbacks)
    assert [axis.get_title() for axis in layered.plot().axes] == ["objective", "learning_rate", "momentum"]
    rates = [f"learning_rate/network/{layer}" for layer in ("hidden", "last")]
    assert set(history.history) == {"loss", "val_loss", "momentum", *rates}
    assert all(len(values) == 2 for values in history.history.values())
    assert len(history.trajectories["momentum"]) == 2 * (240 // 12 // 5)
    assert history.history[rates[0]][-1] != history.history[rates[1]][-1]
    loaded = keras.models.load_model(tmp_path / "best.keras")
    assert loaded(VALID[0][:2]).shape == (2, 3)
    header, *rows = (tmp_path / "log.csv").read_text().splitlines()
    assert "learning_rate" in header
    assert "val_loss" in header
    assert len(rows) == 2
    assert list((tmp_path / "board").rglob("events*"))


class Uninterrupted(NamedTuple):
    """A fit that early stopping ended after two epochs."""

    tuner: rf.RealTimeTuner
    history: keras.callbacks.History
    weights: list[np.ndarray]
    after_each_epoch: list[list[np.ndarray]]


@pytest.fixture(scope="module")
def uninterrupted():
    model, after_each_epoch = network(), []
    stop = keras.callbacks.EarlyStopping("val_loss", patience=0, min_delta=10.0, restore_best_weights=True)
    record = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: after_each_epoch.append(model.get_weights()))
    reference = tuner(model)
    history = fit(reference, callbacks=[record, stop], epochs=6)
    return Uninterrupted(reference, history, model.get_weights(), after_each_epoch)


def assert_same(weights, expected):
    for ours, theirs in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_early_stopping_ends_the_fit_and_restores_the_best_weights(uninterrupted):
    assert len(uninterrupted.history.epoch) == 2
    assert_same(uninterrupted.weights, uninterrupted.after_each_epoch[0])


def test_hypers_minimise_the_bounded_loss_while_keras_reports_the_plain_one(uninterrupted):
    history = uninterrupted.history  # the first test compares the plain loss, without `robust`
    per_epoch = len(history.trajectories["value"]) // 2
    for epoch, plain in enumerate(history.history["val_loss"]):
        assert 0.5 * plain < history.trajectories["value"][(epoch + 1) * per_epoch - 1] < 0.99 * plain


@same_bits
def test_a_killed_fit_resumes_bit_identically(uninterrupted, tmp_path):
    class Kill(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(tuner(keep="last"), callbacks=[Kill()], checkpoint_dir=tmp_path)
    model = network()
    trajectories = fit(tuner(model, keep="last"), checkpoint_dir=tmp_path).trajectories
    for name in ("learning_rate", "value", "loss"):
        np.testing.assert_array_equal(trajectories[name], uninterrupted.history.trajectories[name])
    assert_same(model.get_weights(), uninterrupted.after_each_epoch[1])


def test_a_second_fit_continues_with_the_weights_and_the_hypers(uninterrupted):
    rate = float(uninterrupted.tuner.hypers["learning_rate"])
    assert rate != pytest.approx(0.01)
    second = fit(uninterrupted.tuner, epochs=1)
    assert second.trajectories["learning_rate"][0] == pytest.approx(rate)
    assert second.history["val_loss"][0] < uninterrupted.history.history["val_loss"][0]


@pytest.mark.parametrize("callback", [keras.callbacks.ReduceLROnPlateau(), keras.callbacks.LearningRateScheduler(float)])
def test_callbacks_that_set_the_learning_rate_are_refused(callback):
    with pytest.raises(ValueError, match=type(callback).__name__):
        fit(tuner(), callbacks=[callback])
