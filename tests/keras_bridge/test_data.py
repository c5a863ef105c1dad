"""Training and validation data: datasets of every kind, and what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from rfho2.keras_bridge.data import datasets, sources
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

    def test_a_dataset_of_four_parts(self, idle):
        with pytest.raises(ValueError, match="yields 4 parts"):
            fit(idle, tf.data.Dataset.from_tensor_slices((*TRAIN, TRAIN[1], TRAIN[1])).batch(12))

    def test_a_generator(self, idle):
        with pytest.raises(TypeError, match=r"x is a generator, which can be read only once.*PyDataset"):
            fit(idle, (part for part in [TRAIN]), None)

    def test_weights_of_classes_and_of_examples(self, idle):
        with pytest.raises(ValueError, match="class_weight and sample_weight are both given"):
            fit(idle, *TRAIN, class_weight={0: 2.0}, sample_weight=np.ones(240))

    def test_both_kinds_of_validation_data(self, idle):
        with pytest.raises(ValueError, match="validation_split and validation_data are both given"):
            fit(idle, *TRAIN, validation_split=0.2)

    def test_an_initial_epoch_after_the_last(self, idle):
        with pytest.raises(ValueError, match=r"initial_epoch is 2, but epochs.* is 2"):
            fit(idle, *TRAIN, initial_epoch=2)

    def test_different_numbers_of_examples(self, idle):
        with pytest.raises(ValueError, match="same number of examples"):
            fit(idle, TRAIN[0], TRAIN[1][:-1])


def test_a_dataset_that_ends_early_is_refused():
    batches = iter([tuple(part[i : i + 12] for part in TRAIN) for i in range(0, 120, 12)])
    spec = (tf.TensorSpec([12, 4], tf.float32), tf.TensorSpec([12], tf.int32))
    dataset = tf.data.Dataset.from_generator(lambda: batches, output_signature=spec)
    with pytest.raises(ValueError, match="ended"):
        fit(tuner(), dataset, steps_per_epoch=20)


ORDER = datasets.Order(batch_size=12, shuffle=False, seed=0)


def test_batches_in_order_repeat_after_an_epoch():
    source = sources.training_batches(*TRAIN, ORDER)
    assert source.steps == 20
    for index in (0, 19, 20):
        (x, y), _ = source.batches(tf.constant(index))
        rows = slice(12 * (index % 20), 12 * (index % 20) + 12)
        np.testing.assert_array_equal(x, TRAIN[0][rows])
        np.testing.assert_array_equal(y, TRAIN[1][rows])


def test_classes_and_examples_have_weights():
    (_, y, weights), _ = sources.training_batches(*TRAIN, ORDER, class_weight={0: 2.0, 2: 0.5}).batches(tf.constant(3))
    np.testing.assert_array_equal(weights, np.array([2.0, 1.0, 0.5])[y])
    one_hot = np.eye(3)[TRAIN[1]]
    (_, _, same), _ = sources.training_batches(TRAIN[0], one_hot, ORDER, class_weight={0: 2.0, 2: 0.5}).batches(
        tf.constant(3)
    )
    np.testing.assert_array_equal(weights, same)
    sample_weight = np.arange(240.0)
    (_, _, weights), _ = sources.training_batches(*TRAIN, ORDER, sample_weight=sample_weight).batches(tf.constant(1))
    np.testing.assert_array_equal(weights, sample_weight[12:24])
    dataset = tf.data.Dataset.from_tensor_slices(TRAIN).batch(12)
    stream = sources.training_batches(dataset, None, ORDER, class_weight={0: 2.0}).batches
    (_, y, weights), _ = stream.take(1)
    np.testing.assert_array_equal(weights, np.where(y == 0, 2.0, 1.0))


def test_the_last_examples_are_held_out():
    first, last = sources.split(sources.arrays(*TRAIN, None, "x and y"), 0.25)
    np.testing.assert_array_equal(first[1], TRAIN[1][:180])
    np.testing.assert_array_equal(last[0], TRAIN[0][180:])
    with pytest.raises(ValueError, match=r"validation_split is 1\.5"):
        sources.split(first, 1.5)


def test_lists_are_arrays():
    x, y = sources.arrays(TRAIN[0].tolist(), TRAIN[1].tolist(), None, "x and y")
    np.testing.assert_array_equal(y, TRAIN[1])
    assert x.shape == TRAIN[0].shape


class Batches(keras.utils.PyDataset):
    """The blobs, 20 batches of 12."""

    finished_epochs = 0

    def __len__(self):
        return 20

    def __getitem__(self, i):
        return [part[12 * i : 12 * i + 12] for part in TRAIN]

    def on_epoch_end(self):
        self.finished_epochs += 1


def test_the_batches_of_a_pydataset_are_shuffled_in_each_epoch():
    batches = Batches()
    source = sources.training_batches(batches, None, ORDER._replace(shuffle=True))
    assert source.steps == 20
    (x, _), _ = source.batches.take(41)  # tf.data reads ahead: on many cores, most of an epoch
    first, second = (np.sort(x[20 * k : 20 * k + 20, 0, 0]) for k in range(2))
    np.testing.assert_array_equal(first, np.sort(TRAIN[0][::12, 0]))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(x[:20], x[20:40])
    assert batches.finished_epochs == 2, "not by what is read beside the training"
