"""The part of a model that is neither trained nor random is computed once; text goes through its lookups there."""

import re
from fractions import Fraction

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.tuners import real_time_tuner
from rfho2.keras_bridge.tuners.trials import trial_steps
from rfho2.keras_bridge.wrapping import frozen
from tests.support.keras_models import SPARSE

L = keras.layers
RNG = np.random.default_rng(0)
IMAGES, CLASSES = RNG.normal(size=(96, 6, 6, 1)).astype("float32"), RNG.integers(0, 3, 96)
COLOURS, NUMBERS = np.array(["red", "green", "blue"])[CLASSES][:, None], RNG.normal(size=(96, 2)).astype("float32")


def backbone(*inside):
    """A frozen network with batch norm under a head with dropout and batch norm."""
    keras.utils.set_random_seed(0)
    base = keras.Sequential([keras.Input((6, 6, 1)), L.Flatten(), L.Dense(4), L.BatchNormalization(), *inside], name="base")
    base.trainable = False
    x = keras.Input((6, 6, 1))
    h = L.BatchNormalization()(L.Dropout(0.3)(base(L.Rescaling(0.5)(x), training=False)))
    model = keras.Model(x, L.Dense(3)(h))
    model.compile(keras.optimizers.Adam(1e-2), SPARSE, metrics=["accuracy"])
    return model


def mixed():
    """Text and numbers, one input each."""
    keras.utils.set_random_seed(0)
    colour, numbers = keras.Input((1,), dtype="string", name="colour"), keras.Input((2,), name="numbers")
    known = L.StringLookup(vocabulary=["red", "green", "blue"], output_mode="one_hot")(colour)
    model = keras.Model({"colour": colour, "numbers": numbers}, L.Dense(3)(L.Concatenate()([known, numbers])))
    model.compile(keras.optimizers.SGD(0.1), SPARSE, metrics=["accuracy"])
    return model


def fitted(model, x, y, held_out, epochs=2, **options):
    tuner = rf.RealTimeTuner(model, hyper_batch=4, check=False, jit_compile=False, keep="last")
    return tuner.fit(x, y, held_out, epochs=epochs, batch_size=8, verbose=0, **options)


def test_the_outputs_of_a_frozen_backbone_are_computed_once_and_the_weights_are_the_same(monkeypatch, capsys):
    held_out = IMAGES[:24], CLASSES[:24]
    models = [backbone(), backbone()]
    parts = frozen.divided(models[0])
    assert parts.until == "base"
    rf.RealTimeTuner(models[0], hyper_batch=4, check=False, jit_compile=False, keep="last").fit(
        IMAGES[24:], CLASSES[24:], held_out, epochs=1, batch_size=8
    )
    told = capsys.readouterr().out
    assert re.search(r"Computing 'base', which is neither trained nor random, once \.\.\. \(\d", told)
    assert re.search(r"Trying learning rates \.\.\. 0\.01(, \S+)+ \(\d+\.\d s\)\n", told)
    monkeypatch.setattr(real_time_tuner, "divided", lambda model: None)
    fitted(models[1], IMAGES[24:], CLASSES[24:], held_out, epochs=1)
    for ours, whole in zip(models[0].variables, models[1].variables, strict=True):
        if ours.name != "seed_generator_state":
            np.testing.assert_allclose(ours.numpy(), whole.numpy(), atol=1e-5, err_msg=ours.path)


def test_only_what_is_neither_trained_nor_random_is_computed_once():
    assert frozen.divided(backbone(L.Dropout(0.1))) is None, "dropout is active in training, training=False or not"
    assert frozen.divided(keras.Sequential([keras.Input((3,)), L.Rescaling(2.0), L.Dense(1)])) is None, "not worth it"
    thawed = backbone()
    thawed.get_layer("base").trainable = True
    assert frozen.divided(thawed) is None
    statistics = keras.Sequential([keras.Input((3,)), L.BatchNormalization(scale=False, center=False), L.Dense(1)])
    assert frozen.divided(statistics) is None
    embedding = L.Embedding(9, 4, mask_zero=True, trainable=False)
    assert frozen.divided(keras.Sequential([keras.Input((5,)), embedding, L.LSTM(3)])) is None, "the mask would be lost"
    penalised = L.Dense(4, activity_regularizer="l2", trainable=False)
    assert frozen.divided(keras.Sequential([keras.Input((5,)), penalised, L.Dense(3)])) is None
    whole = backbone()
    own = type("Own", (keras.Model,), {"call": lambda self, x, training=None: whole(x)})(whole.inputs, whole.outputs)
    assert frozen.divided(own) is None, "its call is not its graph"
    assert not frozen.divided(whole).fits(10**9)


def text(part):
    x, rows = {"colour": COLOURS, "numbers": NUMBERS}, slice(24, None) if part == "train" else slice(24)
    return {name: column[rows] for name, column in x.items()}, CLASSES[rows]


def batches(part):
    return tf.data.Dataset.from_tensor_slices(text(part)).batch(8)


def test_text_in_a_dataset():
    history = fitted(mixed(), batches("train"), None, batches("validation"))
    assert history.history["val_accuracy"][-1] == 1


@pytest.mark.slow
def test_text_in_arrays_with_checkpoints_and_in_tune(tmp_path):
    from_dataset = fitted(mixed(), batches("train"), None, batches("validation"), checkpoint_dir=tmp_path / "run")
    from_arrays = fitted(mixed(), *text("train"), text("validation"), shuffle=False)
    np.testing.assert_allclose(from_arrays.history["loss"], from_dataset.history["loss"], rtol=1e-5)
    settings = {"steps": 9, "iterations": 2, "batch_size": 8, "verbose": 0, "check": False}
    tuned = rf.tune(mixed(), train=batches("train"), validation=batches("validation"), **settings)
    assert tuned.model.evaluate(batches("validation"), verbose=0)[0] < 1


@pytest.mark.parametrize(("updates", "steps"), [(100, 60), (9, 60), (6, 40), (3, 20), (1, 20)])
def test_the_trials_of_a_short_fit_are_short(updates, steps):
    assert trial_steps(Fraction(20), updates) == steps


def test_a_model_inside_a_model_is_checked_in_float64():
    keras.utils.set_random_seed(0)
    inner = keras.Sequential([keras.Input((4,)), L.Dense(5, "tanh")])
    model = keras.Sequential([keras.Input((3,)), L.Dense(4), inner, L.Dense(2)])
    wrapped = rf.from_keras(model, check=False)
    params = {path: tf.cast(p, tf.float64) for path, p in wrapped.params.items()}
    x = RNG.normal(size=(2, 3))
    first, second, third = (p.numpy() for path, p in params.items() if path.endswith("kernel"))
    exact = np.tanh(x @ first @ second) @ third
    np.testing.assert_allclose(wrapped.apply(params, tf.constant(x)), exact, rtol=1e-14)
    assert inner.inputs[0].dtype == "float32"
