"""Training and validation data: datasets of every kind, and what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.keras_models import TRAIN, VALID, fit, network, tuner


def test_a_dataset_whose_last_batch_is_smaller():
    dataset = tf.data.Dataset.from_tensor_slices(TRAIN).shuffle(240, seed=0).batch(13)
    valid = tf.data.Dataset.from_tensor_slices(VALID).batch(50)
    history = fit(tuner(metrics=["accuracy"], hypers={"learning_rate": 0.05}), dataset, validation_data=valid, epochs=3)
    assert history.history["val_accuracy"][-1] > 0.8
    assert len(history.epoch) == 3


@pytest.mark.slow
def test_an_infinite_dataset_and_batch_norm():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(6), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input([4]), *layers])
    dataset = tf.data.Dataset.from_tensor_slices(TRAIN).batch(12, drop_remainder=True).repeat()
    fit(tuner(model), dataset, steps_per_epoch=10, epochs=1)
    assert np.max(np.abs(model.layers[1].moving_mean.numpy())) > 1e-3


class TestRefused:
    """All with one tuner, which never starts."""

    @pytest.fixture(scope="class")
    def idle(self):
        return tuner(network())

    def test_no_validation_data(self, idle):
        with pytest.raises(ValueError, match="validation_data is None"):
            fit(idle, validation_data=None)

    def test_an_empty_dataset(self, idle):
        with pytest.raises(ValueError, match="ended before its first batch"):
            fit(idle, tf.data.Dataset.from_tensor_slices(TRAIN).take(0).batch(4))

    def test_a_dataset_of_single_examples(self, idle):
        with pytest.raises(ValueError, match=r"add \.batch"):
            fit(idle, tf.data.Dataset.from_tensor_slices(TRAIN))

    def test_a_dataset_with_weights(self, idle):
        with pytest.raises(ValueError, match="yields 3 parts"):
            fit(idle, tf.data.Dataset.from_tensor_slices((*TRAIN, TRAIN[1])).batch(12))

    def test_different_numbers_of_examples(self, idle):
        with pytest.raises(ValueError, match="same number of examples"):
            fit(idle, TRAIN[0], TRAIN[1][:-1])


def test_a_dataset_that_ends_early_is_refused():
    batches = iter([tuple(part[i : i + 12] for part in TRAIN) for i in range(0, 120, 12)])
    spec = (tf.TensorSpec([12, 4], tf.float32), tf.TensorSpec([12], tf.int32))
    dataset = tf.data.Dataset.from_generator(lambda: batches, output_signature=spec)
    with pytest.raises(ValueError, match="ended"):
        fit(tuner(), dataset, steps_per_epoch=20)
