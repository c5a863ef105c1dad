"""MNIST: the embedded digits, samples through (fake) tensorflow-datasets, broken files, and splits with noisy labels."""

import functools

import numpy as np
import pytest

from data import mnist
from data.errors import DataError


@pytest.fixture(scope="module")
def digits():
    return mnist.load()


def test_the_embedded_digits_are_balanced(digits):
    assert digits.images.shape == (20_000, 784)
    assert digits.images.dtype == np.float32
    assert digits.images.min() == 0.0
    assert digits.images.max() == 1.0
    assert np.bincount(digits.labels).tolist() == [2000] * 10


@functools.cache
def fake_data(per_class):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(10), per_class))
    return rng.integers(0, 256, (len(labels), 28, 28, 1), np.uint8), labels


def test_a_sample_through_tfds_is_balanced_and_determined_by_the_seed():
    first, same_seed, other_seed = (mnist.load("tfds", seed, reader=lambda: fake_data(2100)) for seed in (1, 1, 2))
    assert np.bincount(first.labels).tolist() == [2000] * 10
    np.testing.assert_array_equal(first.images, same_seed.images)
    assert np.any(first.labels != other_seed.labels)


def test_too_few_digits_in_tfds():
    with pytest.raises(DataError, match=r"only 1999 images of class 0 \('0'\), but 2000 are needed; use --source=embedded"):
        mnist.load("tfds", reader=lambda: fake_data(1999))


def test_a_missing_connection_is_reported_in_one_sentence(monkeypatch, no_connection):
    class Builder:
        def is_prepared(self):
            return False

    tfds = pytest.importorskip("tensorflow_datasets")

    monkeypatch.setattr(tfds, "builder", lambda name: Builder())
    with pytest.raises(
        DataError, match=r"no copy of MNIST .* cannot be reached \(no route to host\); .* or use --source=embedded\.$"
    ):
        mnist.load("tfds")


def test_an_unknown_source():
    with pytest.raises(DataError, match="'web'; choose 'embedded' or 'tfds'"):
        mnist.load("web")


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.npz does not exist; check it out again"):
        mnist.load(path=tmp_path / "none.npz")


def test_truncated_files(tmp_path):
    path, content = tmp_path / "cut.npz", mnist.EMBEDDED.read_bytes()
    for size in (0, 10, 1000, 3_000_000, len(content) - 1000):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=r"cut\.npz cannot be read .*it is broken or cut off: check it out again"):
            mnist.load(path=path)
        assert path.read_bytes() == content[:size]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": np.zeros((5, 28, 28), np.uint8)}, "has no labels"),
        ({"images": np.zeros((5, 27, 28), np.uint8), "labels": np.zeros(5, np.uint8)}, r"images are uint8\[5, 27, 28\]"),
        ({"images": np.zeros((5, 28, 28)), "labels": np.zeros(5, np.uint8)}, "images are float64"),
        ({"images": np.zeros((5, 28, 28), np.uint8), "labels": np.zeros(4, np.uint8)}, r"labels are uint8\[4\]"),
        ({"images": np.zeros((5, 28, 28), np.uint8), "labels": np.full(5, 10, np.uint8)}, "from 0 to 9"),
        ({"images": np.zeros((0, 28, 28), np.uint8), "labels": np.zeros(0, np.uint8)}, "images are"),
    ],
)
def test_a_file_with_the_wrong_arrays(tmp_path, arrays, message):
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(DataError, match=message):
        mnist.load(path=tmp_path / "wrong.npz")


def test_objects_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "evil.npz", images=np.array([{}], dtype=object), labels=np.zeros(1, np.uint8))
    with pytest.raises(DataError, match=r"evil\.npz holds pickled objects, which cannot be read"):
        mnist.load(path=tmp_path / "evil.npz")


def test_half_of_the_training_labels_are_wrong_and_all_others_right(digits):
    split = mnist.noisy_split(digits, seed=3)
    assert [len(part.labels) for part in (split.train, split.validation, split.test)] == [5000, 5000, 10_000]
    assert split.noisy.sum() == 2500
    np.testing.assert_array_equal(split.train.labels != split.true_labels, split.noisy)
    shift = (split.train.labels - split.true_labels)[split.noisy] % 10
    counts = np.bincount(shift, minlength=10)
    assert counts[0] == 0
    assert np.all(np.abs(counts[1:] - 2500 / 9) < 5 * np.sqrt(2500 / 9))
    labels = np.concatenate([split.true_labels, split.validation.labels, split.test.labels])
    assert np.bincount(labels).tolist() == [2000] * 10


def test_the_split_is_determined_by_the_seed(digits):
    first, same_seed, other_seed = (mnist.noisy_split(digits, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.train.labels, same_seed.train.labels)
    np.testing.assert_array_equal(first.test.images, same_seed.test.images)
    assert np.any(first.noisy != other_seed.noisy)


def test_too_few_digits_to_split():
    with pytest.raises(DataError, match="too few"):
        mnist.noisy_split(mnist.Digits(np.zeros((10, 784), np.float32), np.zeros(10, np.int32)), 0)
