"""Hypers of every kind: optimisers, layers, labels, regularisers and outputs."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.training.keras_training import _decays, make_training
from rfho2.keras_bridge.training.tunables import OPTIMIZERS, TUNABLES
from tests.support.keras_models import SPARSE, TRAIN, VALID, consecutive, fit, network, tuner
from tests.support.problems import assert_agree, differences, response


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_every_optimiser_tunes_weight_decay(optimizer):
    history = fit(tuner(hypers=("learning_rate", "weight_decay"), optimizer=optimizer), epochs=1)
    assert history.history["weight_decay"][0] != pytest.approx(TUNABLES["weight_decay"].start, rel=1e-4)


def test_weight_decay_applies_to_matrices_that_are_not_biases():
    names = ("dense/kernel", "dense/bias", "matrix", "bias/embeddings")
    assert [_decays(name, tf.zeros([2, 2])) for name in names] == [True, False, True, True]
    assert not _decays("norm/gamma", tf.zeros([2]))


@pytest.mark.slow
@pytest.mark.parametrize("batch_norm", [False, True], ids=["plain", "batch norm"])
def test_label_smoothing_regularisers_and_dropout(batch_norm):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(8, "tanh", kernel_regularizer="l2"), keras.layers.Dropout(0.2), keras.layers.Dense(3)]
    norm = keras.layers.BatchNormalization()
    model = keras.Sequential([keras.Input([4]), *([norm] if batch_norm else []), *layers])
    history = fit(tuner(model, hypers=("label_smoothing", "regularization")))
    for name in ("label_smoothing", "regularization"):
        assert history.history[name][-1] != pytest.approx(TUNABLES[name].start, rel=1e-4)
    assert history.history["val_loss"][-1] < 1.0
    assert not batch_norm or np.max(np.abs(norm.moving_mean.numpy())) > 1e-3


@pytest.mark.slow
def test_each_output_can_have_a_weight():
    x = keras.Input([4])
    hidden = keras.layers.Dense(6, "tanh")(x)
    model = keras.Model(x, [keras.layers.Dense(3, name="kind")(hidden), keras.layers.Dense(1, name="size")(hidden)])
    train, valid = ((x, [y, np.sum(x, 1, keepdims=True)]) for x, y in (TRAIN, VALID))
    loss = {"size": "mse", "kind": SPARSE}  # not in the order of the outputs
    history = fit(tuner(model, loss, hypers=("loss_weights",)), *train, validation_data=valid, epochs=1)
    assert {"loss_weights/kind", "loss_weights/size"} <= set(history.history)


@pytest.fixture(scope="module")
def every_kind():
    """(problem, params, hypers) with hypers of every kind; a weight decay and a learning rate per layer."""
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Dense(3, "tanh", kernel_regularizer="l2", dtype="float64"),
        keras.layers.Dense(3, dtype="float64"),
    ]
    model = keras.Sequential([keras.Input([4], dtype="float64"), *layers])
    names = ("learning_rate", "momentum", "weight_decay", "label_smoothing", "regularization")
    training = make_training(model, SPARSE, names, "momentum", True, None, "batch")
    data = (TRAIN[0][:20].astype("float64"), TRAIN[1][:20])
    batches = rf.batches.seeded(consecutive(data, 5), 1)
    problem = rf.Problem(training.dynamics(), training.objective, 4, batches, rf.batches.full(data))
    start = {**training.tunables.start, "learning_rate": [0.3, 0.2], "weight_decay": [0.1, 0.2]}
    hypers = {name: tf.constant(value) for name, value in training.tunables.to_internal(start).items()}
    return problem, training.model.params, hypers


def test_hypergradients_of_every_kind_agree_with_differences(every_kind):
    """Above all that of label smoothing, which Keras's cross-entropy would get wrong."""
    problem, params, hypers = every_kind
    exact = rf.reverse(problem, jit_compile=False)(params, hypers).grads
    assert_agree(exact, differences(lambda h: response(problem, params, h), hypers), rtol=1e-6)


@pytest.mark.slow
def test_both_modes_agree_on_hypers_of_every_kind(every_kind):
    check = rf.check_hypergradient(*every_kind)
    assert check.ok, check
    assert {row.hyper for row in check.table} == set(every_kind[2])


def test_label_smoothing_starts_from_that_of_the_loss():
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2)
    assert make_training(network(), loss, ["label_smoothing"], None, False, None, "batch").tunables.start == {
        "label_smoothing": 0.2
    }
    overridden = make_training(network(), loss, {"label_smoothing": 0.1}, None, False, None, "batch")
    assert overridden.tunables.start == {"label_smoothing": 0.1}


def test_an_optimizer_that_has_trained_before_is_taken_over_with_a_warning():
    model = network()
    model.compile(keras.optimizers.Adam(3e-3), SPARSE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rf.RealTimeTuner(model)
    model.fit(*TRAIN, batch_size=40, verbose=0)
    with pytest.warns(UserWarning, match=r"Adam has already taken \d+ steps; its settings are used"):
        rf.RealTimeTuner(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rf.RealTimeTuner(model, SPARSE, optimizer="adam")
