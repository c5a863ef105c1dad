"""Wrong labels among the validation examples, on real digits: the tuner bounds what they cost."""

import keras
import numpy as np
import pytest

import rfho2 as rf
from data import mnist

TRAIN, VALIDATION = slice(1000), slice(1000, 1300)


def accuracy(share, robust, optimizer="sgd"):
    """Of a network on 4,000 other digits, tuned on 300 digits of which a share has a wrong label."""
    digits, rng = mnist.load(), np.random.default_rng(0)
    order = rng.permutation(len(digits.images))[:5300]
    x, y = digits.images[order], digits.labels[order].astype("int32")
    wrong = np.where(rng.random(300) < share, rng.integers(1, 10, 300), 0)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([784]), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    held_out = x[VALIDATION], (y[VALIDATION] + wrong) % 10
    rf.RealTimeTuner(model, robust=robust).fit(x[TRAIN], y[TRAIN], validation_data=held_out, epochs=15, verbose=0)
    return model.evaluate(x[1300:], y[1300:], verbose=0)[1]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_few_wrong_labels_hardly_matter(optimizer):
    clean, bounded = (accuracy(share, True, optimizer) for share in (0.0, 0.1))
    assert bounded > clean - 0.02
    assert bounded > accuracy(0.1, False, optimizer) + 0.02, "the bound is not needed here: the test shows nothing"
