"""Offline tuning and cleaning of Keras models."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.training import train_with
from tests.keras_bridge.test_real_time_tuner import SPARSE, TRAIN, VALID, blobs, network


def tuned(model=None, hypers=("learning_rate",), method="reverse", **options):
    options = {"steps": 30, "iterations": 6, "batch_size": 12, "jit_compile": False, **options}
    return rf.tune(model or network(), SPARSE, TRAIN, VALID, hypers, method, **options)


@pytest.mark.parametrize(
    "method", ["reverse", pytest.param("forward", marks=pytest.mark.slow), pytest.param("auto", marks=pytest.mark.slow)]
)
def test_the_validation_loss_falls(method):
    found = tuned(hypers={"learning_rate": 1e-3, "momentum": 0.5}, method=method, hyper_rate=0.5)
    values = [row["value"] for row in found.result.history]
    assert values[-1] < 0.9 * values[0]
    assert float(found.hypers["learning_rate"]) > 2e-3
    assert found.result.history[0]["learning_rate"] == pytest.approx(1e-3)


def test_reverse_and_forward_find_the_same():
    both = [tuned(method=method).hypers["learning_rate"] for method in ("reverse", "forward")]
    np.testing.assert_allclose(*both, rtol=1e-4)


def test_the_model_is_refitted_on_all_examples():
    models = [network() for _ in range(2)]
    for model, refit in zip(models, (True, False), strict=True):
        tuned(model, refit=refit)
    losses = [float(keras.ops.mean(SPARSE(VALID[1], model(VALID[0])))) for model in models]
    assert all(loss < 1.0 for loss in losses)
    assert losses[0] != losses[1]


def test_without_refit_the_model_has_the_best_weights():
    model = network()
    found = tuned(model, refit=False)
    assert float(SPARSE(VALID[1], model(VALID[0]))) == pytest.approx(found.result.best.value, rel=1e-5)


def test_a_decay_for_each_layer():
    found = tuned(hypers=("weight_decay",), per_layer=True)
    assert found.hypers["weight_decay"].shape == (2,)
    assert len({round(float(v), 12) for v in found.hypers["weight_decay"]}) == 2


def test_an_unknown_method():
    with pytest.raises(ValueError, match="method is 'backwards'"):
        tuned(method="backwards")


def test_wrong_labels_are_found():
    rng = np.random.default_rng(0)
    x, y = blobs(noise=0.4)
    wrong = rng.random(len(y)) < 0.3
    labels = np.where(wrong, (y + rng.integers(1, 3, len(wrong))) % 3, y)
    model = network()
    before = model.get_weights()
    found = rf.per_example_weights(
        model, SPARSE, (x, labels), blobs(seed=1, noise=0.4), steps=40, batch_size=40, iterations=25, jit_compile=False
    )
    suspected = np.zeros(len(wrong), bool)
    suspected[found.suspects] = True
    hits = (suspected & wrong).sum()
    assert 2 * hits / (suspected.sum() + wrong.sum()) > 0.9
    assert np.all(np.diff(found.weights[found.suspects]) >= 0)
    assert found.weights.min() >= 0
    assert found.weights.max() <= 1
    for was, now in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(was, now)


def test_a_loss_for_the_whole_batch_has_no_weights():
    with pytest.raises(ValueError, match="one number for the whole batch"):
        rf.per_example_weights(network(), lambda y, out: keras.ops.mean(out), TRAIN, VALID, steps=2, iterations=1)


def test_cleaning_wants_arrays():
    with pytest.raises(TypeError, match="train is a dataset"):
        rf.per_example_weights(network(), SPARSE, tf.data.Dataset.from_tensor_slices(TRAIN).batch(9), VALID)


def test_hypers_of_every_kind_are_right_against_differences():
    """Label smoothing above all, which Keras's own cross-entropy would get wrong; a decay and a rate for each layer."""
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Dense(3, "tanh", kernel_regularizer="l2", dtype="float64"),
        keras.layers.Dense(3, dtype="float64"),
    ]
    model = keras.Sequential([keras.Input([4], dtype="float64"), *layers])
    names = ("learning_rate", "momentum", "weight_decay", "label_smoothing", "regularization")
    inner = train_with(model, SPARSE, names, "momentum", True, None, "batch")
    data = (TRAIN[0][:20].astype("float64"), TRAIN[1][:20])
    batches = rf.batches.seeded(rf.batches.shuffled(data, 5, 0), 1)
    problem = rf.Problem(inner.dynamics(), inner.objective, 4, batches, rf.batches.full(data))
    start = {**inner.knobs.start, "learning_rate": [0.3, 0.2], "weight_decay": [0.1, 0.2]}
    check = rf.check_hypergradient(problem, inner.model.params, inner.knobs.inside(start))
    assert check.ok, check
    assert {row.hyper for row in check.table} == set(names)
