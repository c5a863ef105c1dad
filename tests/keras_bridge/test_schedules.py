"""Compiled learning-rate schedules: the tuned learning rate is a factor on them."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import rfho2 as rf
from rfho2.keras_bridge.training.schedules import ScaledSchedule, peak, scaled
from tests.support.keras_cases import OwnSchedule
from tests.support.keras_models import SPARSE, TRAIN, VALID, fit, network

COSINE = keras.optimizers.schedules.CosineDecay(1e-3, 40, warmup_target=1e-2, warmup_steps=5)


class Reads(keras.callbacks.Callback):
    """The learning rate that callbacks see at the end of each epoch."""

    def __init__(self):
        super().__init__()
        self.rates = []

    def on_epoch_end(self, epoch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


def test_the_rate_in_effect_is_shown_and_the_scaled_schedule_goes_on(tmp_path):
    model = network()
    model.compile(keras.optimizers.AdamW(COSINE, clipnorm=1.0), SPARSE)
    tuner = rf.RealTimeTuner(model, hyper_batch=5, jit_compile=False, check=False)
    assert tuner.hypers["learning_rate"] == 1
    low, high = tuner._tunables.ranges["learning_rate"]
    assert (low * peak(COSINE), high * peak(COSINE)) == pytest.approx((1e-6, 10))
    reads = Reads()
    history = fit(tuner, callbacks=[reads])
    steps, factors = len(TRAIN[0]) // 12, history.trajectories["learning_rate_factor"]
    assert factors[0] != factors[-1]
    for epoch, (rate, factor) in enumerate(
        zip(history.history["learning_rate"], history.history["learning_rate_factor"], strict=True)
    ):
        assert rate == pytest.approx(factor * float(COSINE((epoch + 1) * steps - 1)), rel=1e-5)
    expected = [float(f) * float(COSINE((e + 1) * steps)) for e, f in enumerate(history.history["learning_rate_factor"])]
    np.testing.assert_allclose(reads.rates, expected, rtol=1e-5)
    left = model.optimizer._learning_rate
    assert isinstance(left, ScaledSchedule)
    assert (left.factor, left.first_step) == (pytest.approx(float(tuner.hypers["learning_rate"])), 2 * steps)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", custom_objects={"ScaledSchedule": rf.ScaledSchedule})
    assert float(loaded.optimizer.learning_rate) == pytest.approx(left.factor * float(COSINE(2 * steps)), rel=1e-6)
    loaded.fit(*TRAIN, verbose=0)
    again = fit(tuner, epochs=1)
    assert again.history["learning_rate"][0] == pytest.approx(
        again.history["learning_rate_factor"][0] * float(COSINE(3 * steps - 1)), rel=1e-5
    )
    left = model.optimizer._learning_rate
    assert (left.schedule, left.factor) == (COSINE, pytest.approx(float(tuner.hypers["learning_rate"])))
    assert left.first_step == 3 * steps


@pytest.mark.slow
def test_a_schedule_goes_on_after_a_fit_that_was_finished_before(tmp_path):
    for _ in range(2):  # the second fit finds nothing left to do
        model = network()
        model.compile(keras.optimizers.Adam(COSINE), SPARSE)
        fit(rf.RealTimeTuner(model, hyper_batch=5, jit_compile=False, check=False), checkpoint_dir=tmp_path / "run")
        assert model.optimizer._learning_rate.first_step == 2 * (len(TRAIN[0]) // 12)


LOAD = """
import keras, rfho2 as rf
model = keras.saving.load_model({path!r}, custom_objects={{"ScaledSchedule": rf.ScaledSchedule}})
print("rate", float(model.optimizer.learning_rate))
"""


@pytest.mark.slow
def test_a_saved_schedule_is_loaded_by_a_new_process(tmp_path):
    model = network()
    model.compile(keras.optimizers.Adam(scaled(COSINE, 0.5, 3)), SPARSE)
    model.save(tmp_path / "model.keras")
    command = [sys.executable, "-c", LOAD.format(path=str(tmp_path / "model.keras"))]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert float(told.split()[-1]) == pytest.approx(0.5 * float(COSINE(3)))


@pytest.mark.slow
def test_a_schedule_in_tune():
    model = network()
    model.compile(keras.optimizers.SGD(OwnSchedule(), 0.9, global_clipnorm=1.0), SPARSE)
    tuned = rf.tune(
        model, train=TRAIN, validation=VALID, steps=30, iterations=4, batch_size=12, jit_compile=False, verbose=0
    )
    assert tuned.result.best.value < tuned.result.history[0]["value"]
    left = model.optimizer._learning_rate
    assert (left.factor, left.first_step) == (pytest.approx(tuned.hypers["learning_rate"]), 30)


def test_schedules_that_are_scaled_twice_without_a_peak_and_with_lion():
    twice = scaled(scaled(OwnSchedule(), 2.0, 3), 0.5, 4)
    assert (type(twice.schedule), twice.factor, twice.first_step) == (OwnSchedule, 1.0, 7)
    assert float(twice(1)) == pytest.approx(float(OwnSchedule()(8)))
    with pytest.raises(ValueError, match="ConstantZero has no positive rate"):
        peak(type("ConstantZero", (OwnSchedule,), {"__call__": lambda self, step: 0.0})())
    with pytest.raises(ValueError, match="'label_smoothing', which cannot be tuned with Lion"):
        rf.RealTimeTuner(network(), SPARSE, ["label_smoothing"], optimizer="lion")
