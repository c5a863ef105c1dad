"""Downloads of images and weights: taken from the disk if present, and reported in one sentence if unavailable."""

import numpy as np
import pytest

from data import downloads
from data.errors import DataError
from data.extract_cifar_features import read_images
from data.inception import inception

NAMES = tuple(f"class {c}" for c in range(10))
RNG = np.random.default_rng(7)
LABELS = RNG.permutation(np.repeat(np.arange(10), 6))
IMAGES = RNG.integers(0, 256, (60, 2, 2, 3), np.uint8)


def test_a_sample_is_balanced_without_repetition_and_determined_by_the_seed():
    first, same_seed, other_seed = (downloads.balanced(LABELS, NAMES, 4, seed, "-") for seed in (0, 0, 1))
    assert np.bincount(LABELS[first]).tolist() == [4] * 10
    assert len(set(first)) == 40
    np.testing.assert_array_equal(first, same_seed)
    assert set(first) != set(other_seed)
    assert np.any(np.diff(LABELS[first]) < 0), "the order is random"


def test_too_few_images():
    with pytest.raises(DataError, match=r"only 6 images of class 0 \('class 0'\), but 7 are needed; choose fewer\.$"):
        downloads.balanced(LABELS, NAMES, 7, 0, "choose fewer")


@pytest.fixture
def connection(monkeypatch):
    """Every host can be reached."""

    class Connection:
        def close(self):
            pass

    monkeypatch.setattr(downloads.socket, "create_connection", lambda *args: Connection())


@pytest.fixture
def nothing_prepared(monkeypatch):
    """tensorflow-datasets has no images yet, and downloads fail."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class Builder:
        def is_prepared(self):
            return False

        def download_and_prepare(self):
            raise RuntimeError("checksum differs\nand much more")

    monkeypatch.setattr(tfds, "builder", lambda name: Builder())


@pytest.mark.usefixtures("nothing_prepared", "no_connection")
def test_images_without_a_connection():
    message = (
        r"no copy of the images of cifar100 on this disk, .* cannot be reached \(no route to host\); .* another machine\.$"
    )
    with pytest.raises(DataError, match=message):
        read_images("cifar100")


@pytest.mark.usefixtures("nothing_prepared", "connection")
def test_a_failed_download_of_images_is_reported_in_one_sentence():
    message = r"^the images of cifar10 cannot be downloaded \(checksum differs\); try again later or .* another machine\.$"
    with pytest.raises(DataError, match=message):
        read_images("cifar10")


@pytest.mark.usefixtures("no_connection")
def test_images_on_this_disk_need_no_connection(monkeypatch):
    tfds = pytest.importorskip("tensorflow_datasets")

    class Prepared:
        info = type("Info", (), {"features": {"label": type("Label", (), {"names": list(NAMES)})}})

        def is_prepared(self):
            return True

        def as_dataset(self, split, batch_size, shuffle_files):
            assert (split, batch_size, shuffle_files) == ("train", -1, False)
            return {"image": IMAGES, "label": LABELS}

    monkeypatch.setattr(tfds, "builder", lambda name: Prepared())
    monkeypatch.setattr(tfds, "as_numpy", lambda dataset: dataset)
    for actual, expected in zip(read_images("cifar10"), (IMAGES, LABELS, NAMES), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.usefixtures("no_connection")
def test_weights_without_a_connection(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"no copy of the weights of Inception-V3 on this disk, .* \(no route to host\)"):
        inception()


@pytest.mark.usefixtures("connection")
def test_weights_that_cannot_be_loaded_are_reported_in_one_sentence(monkeypatch, tmp_path):
    import tensorflow as tf

    def fail(**kwargs):
        raise Exception("URL fetch failure")

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(tf.keras.applications, "InceptionV3", fail)
    with pytest.raises(DataError, match=r"cannot be loaded \(URL fetch failure\); empty .*models and try again"):
        inception()


@pytest.mark.slow
def test_inception_gives_2048_numbers_that_depend_on_the_image():
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    network = inception(weights=None)
    numbers = network(images)
    assert numbers.shape == (2, 2048)
    assert np.all(np.isfinite(numbers))
    assert np.any(numbers[0] != numbers[1])
    np.testing.assert_allclose(network(images[1:]), numbers[1:], rtol=1e-3, atol=1e-6)
