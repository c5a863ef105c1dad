"""The digits: embedded, through tensorflow-datasets (a fake one), broken, split and corrupted."""

import numpy as np
import pytest

from data import mnist
from data.errors import DataError


def test_the_embedded_digits_are_balanced():
    digits = mnist.load()
    assert digits.images.shape == (20_000, 784)
    assert digits.images.dtype == np.float32
    assert digits.images.min() == 0.0
    assert digits.images.max() == 1.0
    assert np.bincount(digits.labels).tolist() == [2000] * 10


def fake_reader(per_class=2100, channels=True):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(10), per_class))
    images = rng.integers(0, 256, (len(labels), 28, 28, 1) if channels else (len(labels), 28, 28), np.uint8)
    return lambda: (images, labels)


def test_tfds_gives_a_balanced_subset_that_is_a_function_of_the_seed():
    first, again, other = (mnist.load("tfds", seed, reader=fake_reader()) for seed in (1, 1, 2))
    assert np.bincount(first.labels).tolist() == [2000] * 10
    np.testing.assert_array_equal(first.images, again.images)
    assert np.any(first.labels != other.labels)


def test_tfds_with_too_few_digits():
    with pytest.raises(DataError, match="only 1999 images of digit 0; 2000 are needed"):
        mnist.load("tfds", reader=fake_reader(1999))


def test_no_network_is_one_sentence(monkeypatch):
    class Builder:
        def is_prepared(self):
            return False

    import tensorflow_datasets as tfds

    def refuse(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(tfds, "builder", lambda name: Builder())
    monkeypatch.setattr(mnist.socket, "create_connection", refuse)
    with pytest.raises(DataError, match=r"cannot be reached \(no route to host\); use --source=embedded"):
        mnist.load("tfds")


def test_an_unknown_source():
    with pytest.raises(DataError, match="'web'; choose 'embedded' or 'tfds'"):
        mnist.load("web")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="is not there"):
        mnist.load(path=tmp_path / "none.npz")


@pytest.mark.parametrize("size", [0, 10, 1000, 3_000_000])
def test_a_truncated_file(tmp_path, size):
    path = tmp_path / "cut.npz"
    path.write_bytes(mnist.EMBEDDED.read_bytes()[:size])
    with pytest.raises(DataError, match="broken or cut off"):
        mnist.load(path=path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": np.zeros((5, 28, 28), np.uint8)}, "cannot be read"),
        ({"images": np.zeros((5, 27, 28), np.uint8), "labels": np.zeros(5, np.uint8)}, r"images are uint8\[5, 27, 28\]"),
        ({"images": np.zeros((5, 28, 28)), "labels": np.zeros(5, np.uint8)}, "images are float64"),
        ({"images": np.zeros((5, 28, 28), np.uint8), "labels": np.zeros(4, np.uint8)}, r"labels are uint8\[4\]"),
        ({"images": np.zeros((5, 28, 28), np.uint8), "labels": np.full(5, 10, np.uint8)}, "from 0 to 9"),
        ({"images": np.zeros((0, 28, 28), np.uint8), "labels": np.zeros(0, np.uint8)}, "images are"),
    ],
)
def test_a_wrong_file(tmp_path, arrays, message):
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(DataError, match=message):
        mnist.load(path=tmp_path / "wrong.npz")


def test_objects_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "evil.npz", images=np.array([{}], dtype=object), labels=np.zeros(1, np.uint8))
    with pytest.raises(DataError, match="cannot be read"):
        mnist.load(path=tmp_path / "evil.npz")


def test_half_of_the_training_labels_are_wrong_and_nothing_else():
    digits = mnist.load()
    split = mnist.noisy_split(digits, seed=3)
    assert [len(part.labels) for part in (split.train, split.validation, split.test)] == [5000, 5000, 10_000]
    assert split.noisy.sum() == 2500
    np.testing.assert_array_equal(split.train.labels != split.true_labels, split.noisy)
    shift = (split.train.labels - split.true_labels)[split.noisy] % 10
    counts = np.bincount(shift, minlength=10)
    assert counts[0] == 0
    assert np.all(np.abs(counts[1:] - 2500 / 9) < 5 * np.sqrt(2500 / 9))
    whole = np.concatenate([split.true_labels, split.validation.labels, split.test.labels])
    assert np.bincount(whole).tolist() == [2000] * 10


def test_the_split_is_a_function_of_the_seed():
    digits = mnist.load()
    first, again, other = (mnist.noisy_split(digits, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.train.labels, again.train.labels)
    np.testing.assert_array_equal(first.test.images, again.test.images)
    assert np.any(first.noisy != other.noisy)


def test_too_few_digits_to_split():
    with pytest.raises(DataError, match="too few"):
        mnist.noisy_split(mnist.Digits(np.zeros((10, 784), np.float32), np.zeros(10, np.int32)), 0)
