"""Weights of training examples reveal wrong labels."""

import keras
import matplotlib as mpl
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.tuners.cleaning import Cleaned
from tests.support.keras_models import SPARSE, TRAIN, VALID, blobs, network

mpl.use("Agg")


@pytest.mark.parametrize("refits", [pytest.param(0, marks=pytest.mark.slow), 2])
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


def test_refits_alone_need_no_weights(capsys):
    (x, y), rng = blobs(noise=0.4), np.random.default_rng(0)
    wrong = rng.random(len(y)) < 0.3
    noisy, settings = (x, np.where(wrong, (y + 1) % 3, y)), {"steps": 40, "batch_size": 40, "jit_compile": False}
    cleaned = rf.per_example_weights(network(), SPARSE, noisy, blobs(seed=1, noise=0.4), iterations=0, **settings)
    assert cleaned.result is None
    assert "refits: 100%" in capsys.readouterr().err
    assert repr(cleaned).startswith(
        f"Cleaned: {len(cleaned.suspects)} of {len(x)} examples are suspects: {cleaned.suspects[0]}, "
    )
    assert set(cleaned.weights) == {0.5}
    assert list(cleaned.suspects) != sorted(cleaned.suspects), "in the order of their losses"
    assert np.mean(wrong[cleaned.suspects]) > 0.9
    assert len(cleaned.suspects) > 0.8 * np.sum(wrong)
    with pytest.raises(ValueError, match="iterations is 0"):
        rf.per_example_weights(network(), SPARSE, noisy, VALID, iterations=0, refits=0, **settings)


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


@pytest.fixture
def cleaned():
    suspects = np.array([3, 1, 6])
    return Cleaned(np.linspace(0, 1, 8), suspects, None)


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 1), (5, 4, 3)])
def test_the_first_suspects_are_drawn_with_their_labels(cleaned, shape):
    images = np.arange(8 * np.prod(shape), dtype=np.float32).reshape(8, *shape)
    labels = np.arange(10, 18)
    for shaped in (labels, labels[:, None], np.eye(18)[labels]):
        figure = cleaned.plot((images, shaped), number=2)
        drawn = [axis for axis in figure.axes if axis.images]
        assert [axis.get_title() for axis in drawn] == ["labelled 13", "labelled 11"]
    first = np.asarray(drawn[0].images[0].get_array())
    assert first.shape[:2] == (5, 4)
    assert first.max() == 1, "the lightest of what is drawn"
    assert np.asarray(drawn[1].images[0].get_array()).min() == 0


def test_what_cannot_be_drawn_is_refused(cleaned):
    with pytest.raises(ValueError, match=r"shape \[None, 7\], and only images"):
        cleaned.plot((np.ones([8, 7]), np.ones(8)))
    with pytest.raises(ValueError, match="train has 9 examples, but 8 were cleaned"):
        cleaned.plot((np.ones([9, 7]), np.ones(9)))
    with pytest.raises(ValueError, match="several inputs or outputs"):
        cleaned.plot(({"a": np.ones([8, 7])}, np.ones(8)))
    with pytest.raises(ValueError, match="nothing to draw"):
        cleaned._replace(suspects=np.array([], int)).plot((np.ones([8, 5, 5]), np.ones(8)))
