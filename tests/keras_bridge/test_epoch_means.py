"""The history has Keras's own numbers: means over the epoch, and in the optimizer callbacks see the tuned learning rate."""

import keras
import numpy as np
import pytest

import rfho2 as rf
from rfho2.keras_bridge.training.optimizers import Optimizer
from rfho2.keras_bridge.tuners.model_settings import ModelSettings
from tests.support.keras_models import SPARSE, TRAIN, fit, network, tuner

STILL = 1e-6  # a learning rate at which the weights hardly move


def weighted():
    """One output, with metrics and sample weights."""
    model = network()
    metrics = ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)]
    model.compile(keras.optimizers.SGD(STILL), SPARSE, metrics=metrics, weighted_metrics=["accuracy"])
    return model, (*TRAIN, np.random.default_rng(0).uniform(0.5, 2.0, len(TRAIN[1])).astype("float32"))


def two_outputs():
    """Two outputs, with a loss and a metric each, and a penalty."""
    keras.utils.set_random_seed(0)
    x = keras.Input([4])
    outputs = [
        keras.layers.Dense(3, name="a", kernel_regularizer="l2")(x),
        keras.layers.Dense(1, name="b")(keras.layers.BatchNormalization()(x)),
    ]
    model = keras.Model(x, outputs)
    model.compile(keras.optimizers.SGD(STILL), [SPARSE, "mse"], metrics=[["accuracy"], ["mae"]])
    return model, (TRAIN[0], [TRAIN[1], TRAIN[0][:, :1]])


@pytest.mark.parametrize(
    ("make", "mode"), [(weighted, "forward"), pytest.param(two_outputs, "reverse", marks=pytest.mark.slow)]
)
def test_loss_and_metrics_are_those_of_keras(make, mode):
    model, (x, y, *weights) = make()
    settings = {"epochs": 2, "batch_size": 13, "shuffle": False, "verbose": 0}
    settings["sample_weight"] = weights[0][:234] if weights else None  # 18 full batches: Keras would use the other 6 too
    x, y = x[:234], [part[:234] for part in y] if isinstance(y, list) else y[:234]
    theirs = model.fit(x, y, **settings).history
    model, _ = make()
    bounds = {"learning_rate": (0.99 * STILL, 1.01 * STILL)}
    ours = rf.RealTimeTuner(
        model, hypers={"learning_rate": STILL}, ranges=bounds, mode=mode, hyper_batch=5, jit_compile=False
    )
    history = ours.fit(x, y, validation_data=(x, y), **settings).history
    assert {name for name in history if not name.startswith("val_")} == {*theirs, "learning_rate"}
    for name, values in theirs.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5, err_msg=name)


def test_callbacks_read_the_learning_rate_and_are_told_that_they_cannot_set_it():
    class Halve(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.read = []

        def on_epoch_end(self, epoch, logs=None):
            self.read.append(float(self.model.optimizer.learning_rate))
            self.model.optimizer.learning_rate = self.read[-1] / 2

    halve, settled = Halve(), tuner(hypers={"learning_rate": 1e-3}, hyper_batch=20)
    with (
        pytest.warns(UserWarning, match=r"a callback set the optimizer's learning_rate to .*which has no effect"),
        pytest.warns(UserWarning, match=r"updated only 2 times: .* An update takes 20 steps"),
    ):
        history = fit(settled, callbacks=[halve])
    np.testing.assert_allclose(halve.read, history.history["learning_rate"], rtol=1e-6)
    best = int(np.argmin(history.trajectories["value"]))
    used = history.trajectories["learning_rate"][best]
    assert settled.hypers["learning_rate"] == pytest.approx(used), "those of the weights that were kept"
    assert float(settled.model.optimizer.learning_rate) == pytest.approx(used)


def test_an_optimizer_of_another_kind_shows_the_learning_rate_only_meanwhile():
    model = network()
    model.compile(keras.optimizers.Adam(1e-3), SPARSE)
    settings = ModelSettings(model, Optimizer("momentum"))
    settings.show({"learning_rate": 0.5, "momentum": 0.9}, 0)
    assert float(model.optimizer.learning_rate) == 0.5
    settings.end({"learning_rate": np.float64(0.25)}, 0)
    assert float(model.optimizer.learning_rate) == pytest.approx(1e-3)
    model.compile(keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10)), SPARSE)
    ModelSettings(model, Optimizer("momentum")).show({"learning_rate": 0.5}, 0)  # a schedule stays
