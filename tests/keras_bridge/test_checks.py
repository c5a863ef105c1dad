"""Labels and losses that do not fit the model are refused before training."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from rfho2.keras_bridge.training.losses import losses
from rfho2.keras_bridge.tuners.checks import _fits, check_labels
from tests.support.keras_models import fit, tuner

LABELS = np.array([0, 2, 1])
LOGITS = tf.zeros([3, 3])


@pytest.mark.parametrize(
    ("loss", "labels", "message"),
    [
        ("categorical_crossentropy", LABELS, r"needs one-hot labels of 3 classes.*to_categorical"),
        ("sparse_categorical_crossentropy", keras.utils.to_categorical(LABELS, 3), "needs one class index per example"),
        ("sparse_categorical_crossentropy", np.array([0, 7]), r"from 0 to 7.*classes 0 to 2"),
    ],
    ids=["integers", "one-hot", "out of range"],
)
def test_labels_of_the_wrong_kind_are_refused(loss, labels, message):
    with pytest.raises(ValueError, match=message):
        check_labels(losses(loss), labels, LOGITS)


def test_fit_checks_the_labels():
    with pytest.raises(ValueError, match="needs one-hot labels"):
        fit(tuner(loss=keras.losses.CategoricalCrossentropy(from_logits=True)))


def test_a_loss_without_gradient_is_refused():
    def accuracy(y, out):
        return tf.cast(tf.equal(tf.argmax(out, -1, tf.int32), tf.cast(y, tf.int32)), tf.float32)

    with pytest.raises(ValueError, match="loss accuracy has no gradient"):
        fit(tuner(loss=accuracy))


@pytest.mark.parametrize(
    ("label", "output", "fits"),
    [
        ([3], [3], True),
        ([3], [2], False),
        ([3], [1], False),
        ([3, 1], [3], True),
        ([], [1], True),
        ([4, 2], [None, 2], True),
        ([4, 2], [None, 3], False),
        ([4, 2], [2], False),
    ],
)
def test_a_label_fits_an_output_of_its_shape_but_for_axes_of_size_one_or_unknown(label, output, fits):
    assert _fits(label, output) == fits
