"""Weights of training examples reveal wrong labels."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.keras_models import SPARSE, TRAIN, VALID, blobs, network


@pytest.mark.parametrize("refits", [0, 2])
def test_wrong_labels_are_found(refits):
    rng = np.random.default_rng(0)
    x, y = blobs(noise=0.4)
    wrong = rng.random(len(y)) < 0.3
    labels = np.where(wrong, (y + rng.integers(1, 3, len(wrong))) % 3, y)
    model = network()
    before = model.get_weights()
    cleaned = rf.per_example_weights(
        model,
        SPARSE,
        (x, labels),
        blobs(seed=1, noise=0.4),
        steps=40,
        batch_size=40,
        iterations=25,
        refits=refits,
        jit_compile=False,
    )
    suspected = np.isin(np.arange(len(wrong)), cleaned.suspects)
    f1 = 2 * np.sum(suspected & wrong) / (np.sum(suspected) + np.sum(wrong))
    assert f1 > 0.9
    assert np.all(np.diff(cleaned.weights[cleaned.suspects]) >= 0)
    assert cleaned.weights.min() >= 0
    assert cleaned.weights.max() <= 1
    for was, now in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(was, now)


def test_a_loss_for_the_whole_batch_is_refused():
    with pytest.raises(ValueError, match="one number for the whole batch"):
        rf.per_example_weights(network(), lambda y, out: keras.ops.mean(out), TRAIN, VALID, steps=2, iterations=1)


def test_a_dataset_is_refused():
    with pytest.raises(TypeError, match="train is a dataset"):
        rf.per_example_weights(network(), SPARSE, tf.data.Dataset.from_tensor_slices(TRAIN).batch(9), VALID)


def test_refits_are_refused_before_anything_is_trained():
    with pytest.raises(ValueError, match="refits is -1"):
        rf.per_example_weights(network(), SPARSE, TRAIN, VALID, refits=-1)
    with pytest.raises(ValueError, match="validation has sample weights"):
        rf.per_example_weights(network(), SPARSE, TRAIN, (*VALID, np.ones(len(VALID[1]))))
