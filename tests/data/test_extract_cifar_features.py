"""Making a file of CIFAR features, with fake images and a tiny network: choice, resumption, components, messages."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from absl import flags

from data import cifar_features
from data import extract_cifar_features as extraction
from data.errors import DataError

ROOT = Path(__file__).parents[2]
SETTINGS = extraction.Settings("cifar10", per_class=4, seed=0, batch=3)
NAMES = tuple(f"class {c}" for c in range(10))


def read(dataset, each=6):
    """Images of 2 x 2, all of them different."""
    rng = np.random.default_rng(7)
    labels = rng.permutation(np.repeat(np.arange(10), each))
    return extraction.Images(rng.integers(0, 256, (len(labels), 2, 2, 3), np.uint8), labels, NAMES)


class Tiny:
    """A linear network that counts what it is asked, and breaks at call `breaks`."""

    def __init__(self, breaks=None, error=RuntimeError):
        self.seen, self._breaks, self._error = [], breaks, error
        self._weights = np.random.default_rng(1).normal(size=(12, 8))

    def __call__(self, images):
        if len(self.seen) == self._breaks:
            raise self._error("stopped")
        self.seen.append(images.copy())
        return images.reshape(len(images), 12) @ self._weights


def make(output, network, settings=SETTINGS, dimensions=5):
    return extraction.make(settings, dimensions, output, read, lambda: network)


def partial(output):
    return output.with_name(output.name + ".partial")


def test_the_file_has_the_layout_of_the_reader(tmp_path):
    made = make(tmp_path / "new" / "a.npz", Tiny())
    found = cifar_features.find("cifar10", "file", str(tmp_path / "new" / "a.npz"))
    np.testing.assert_array_equal(made.features, found.features)
    assert found.features.shape == (40, 5)
    assert found.class_names == NAMES
    assert np.bincount(found.labels).tolist() == [4] * 10
    assert np.load(tmp_path / "new" / "a.npz")["features"].dtype == np.float16
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.npz"], "no drafts, no batches"


def test_features_belong_to_their_labels(tmp_path):
    made = make(tmp_path / "a.npz", Tiny(), dimensions=0)
    source, network = read("cifar10"), Tiny()
    rows = extraction.balanced(source, 4, 0)
    wanted = network(source.images[rows])
    np.testing.assert_allclose(made.features, wanted / wanted.std(), rtol=2e-3, atol=1e-4)
    np.testing.assert_array_equal(made.labels, source.labels[rows])


def test_the_choice_is_balanced_without_repetition_and_a_function_of_the_seed():
    source = read("cifar10")
    first, again, other = (extraction.balanced(source, 4, seed) for seed in (0, 0, 1))
    assert np.bincount(source.labels[first]).tolist() == [4] * 10
    assert len(set(first)) == 40
    np.testing.assert_array_equal(first, again)
    assert set(first) != set(other)
    assert np.any(np.diff(source.labels[first]) < 0), "in random order"


def test_too_few_images():
    with pytest.raises(DataError, match=r"only 6 images of class 0 \('class 0'\); choose --per_class=6 or less"):
        extraction.balanced(read("cifar10"), 7, 0)


@pytest.mark.parametrize("breaks", [0, 1, 6, 13])
def test_a_killed_run_goes_on_where_it_was(tmp_path, breaks):
    whole, first, second = Tiny(), Tiny(breaks), Tiny()
    wanted = make(tmp_path / "whole.npz", whole)
    with pytest.raises(RuntimeError):
        make(tmp_path / "a.npz", first)
    assert not (tmp_path / "a.npz").exists()
    made = make(tmp_path / "a.npz", second)
    assert len(first.seen) == breaks
    assert len(whole.seen) == 14
    assert len(whole.seen[-1]) == 1, "the last batch is smaller"
    assert len(first.seen + second.seen) == 14, "each batch once"
    for before, now in zip(whole.seen, first.seen + second.seen, strict=True):
        np.testing.assert_array_equal(before, now)
    np.testing.assert_array_equal(wanted.features, made.features)
    np.testing.assert_array_equal(wanted.labels, made.labels)
    assert not partial(tmp_path / "a.npz").exists()


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY\x01\x00", b"something else"])
def test_a_lost_or_broken_batch_is_computed_again(tmp_path, content):
    wanted = make(tmp_path / "whole.npz", Tiny())
    with pytest.raises(RuntimeError):
        make(tmp_path / "a.npz", Tiny(6))
    file = partial(tmp_path / "a.npz") / "00002.npy"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    network = Tiny()
    np.testing.assert_array_equal(make(tmp_path / "a.npz", network).features, wanted.features)
    assert len(network.seen) == 14 - 6 + 1


@pytest.mark.parametrize("change", [{"per_class": 5}, {"seed": 1}, {"batch": 4}, {"dataset": "cifar100"}])
def test_batches_of_other_settings_are_discarded(tmp_path, change, capsys):
    other = SETTINGS._replace(**change)
    with pytest.raises(RuntimeError):
        make(tmp_path / "a.npz", Tiny(6))
    assert "belongs to other settings" not in capsys.readouterr().err
    made = make(tmp_path / "a.npz", Tiny(), other)
    assert "a.npz.partial belongs to other settings; it is discarded" in capsys.readouterr().err
    np.testing.assert_array_equal(made.features, make(tmp_path / "fresh.npz", Tiny(), other).features)


def test_batches_of_other_images_are_discarded(tmp_path, capsys):
    images = read("cifar10").images
    extraction.extract(images, Tiny(), SETTINGS, tmp_path / "partial")
    network = Tiny()
    extraction.extract(255 - images, network, SETTINGS, tmp_path / "partial")
    assert "discarded" in capsys.readouterr().err
    assert len(network.seen) == 20


def test_other_dimensions_use_the_finished_batches(tmp_path):
    with pytest.raises(DataError, match="dimensions is 9, but 40 images of 8 numbers each have at most 8"):
        make(tmp_path / "a.npz", Tiny(), dimensions=9)
    network = Tiny()
    assert make(tmp_path / "a.npz", network, dimensions=8).features.shape == (40, 8)
    assert not network.seen


def test_a_finished_file_is_not_made_again(tmp_path):
    make(tmp_path / "a.npz", Tiny())
    with pytest.raises(DataError, match=r"a.npz is already there; remove it"):
        make(tmp_path / "a.npz", Tiny(breaks=0))


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot be written \(.+\); choose another --output"):
        make(tmp_path / "file" / "a.npz", Tiny())


def test_principal_components_are_the_eigenvectors_of_the_covariance():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50, 8)) @ rng.normal(size=(8, 8)) + 10
    found = extraction.principal_components(features, 3)
    values, vectors = np.linalg.eigh(np.cov(features.T))
    np.testing.assert_allclose(np.cov(found.T), np.diag(values[::-1][:3]), atol=1e-10 * values[-1])
    wanted = (features - features.mean(axis=0)) @ vectors[:, ::-1][:, :3]
    np.testing.assert_allclose(np.abs(found), np.abs(wanted), atol=1e-8)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-10)


def test_principal_components_lose_nothing_of_features_in_a_plane(capsys):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 9)) - 4
    found = extraction.principal_components(features, 2)
    distances = [np.linalg.norm(x[:, None] - x, axis=-1) for x in (features, found)]
    np.testing.assert_allclose(*distances, atol=1e-10)
    assert "have 100.0 % of the variance" in capsys.readouterr().out


@pytest.mark.parametrize("dimensions", [0, 3])
def test_the_overall_standard_deviation_is_one(dimensions):
    features = 1e5 * np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    found = extraction.compressed(features, dimensions)
    assert found.dtype == np.float16
    assert found.std(dtype=np.float64) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("dimensions", [0, 2])
@pytest.mark.parametrize("value", [1.0, np.nan])
def test_a_network_that_says_nothing(value, dimensions):
    with pytest.raises(DataError, match="the same or not finite; the weights of the network are broken"):
        extraction.compressed(value * np.ones((5, 1)) * np.arange(3), dimensions)


def refuse(*args, **kwargs):
    raise OSError("no route to host")


class Builder:
    """What tensorflow-datasets gives before anything is downloaded."""

    def is_prepared(self):
        return False

    def download_and_prepare(self):
        raise RuntimeError("checksum differs\nand much more")


def test_no_network_for_images_is_one_sentence(monkeypatch):
    import tensorflow_datasets as tfds

    monkeypatch.setattr(tfds, "builder", lambda name: Builder())
    monkeypatch.setattr(extraction.socket, "create_connection", refuse)
    with pytest.raises(
        DataError, match=r"images of cifar100 are not on this disk .* cannot be reached \(no route to host\)"
    ):
        extraction.read_tfds("cifar100")


class Open:
    def close(self):
        pass


def test_a_download_of_images_that_fails_is_one_sentence(monkeypatch):
    import tensorflow_datasets as tfds

    monkeypatch.setattr(tfds, "builder", lambda name: Builder())
    monkeypatch.setattr(extraction.socket, "create_connection", lambda *args, **kwargs: Open())
    with pytest.raises(
        DataError, match=r"^the images of cifar10 cannot be downloaded \(checksum differs\); try again later.$"
    ):
        extraction.read_tfds("cifar10")


def test_images_that_are_on_this_disk_need_no_network(monkeypatch):
    import tensorflow_datasets as tfds

    source = read("cifar10")

    class Prepared:
        info = type("Info", (), {"features": {"label": type("Label", (), {"names": list(NAMES)})}})

        def is_prepared(self):
            return True

        def as_dataset(self, split, batch_size, shuffle_files):
            assert (split, batch_size, shuffle_files) == ("train", -1, False)
            return {"image": source.images, "label": source.labels}

    monkeypatch.setattr(tfds, "builder", lambda name: Prepared())
    monkeypatch.setattr(tfds, "as_numpy", lambda dataset: dataset)
    monkeypatch.setattr(extraction.socket, "create_connection", refuse)
    for found, wanted in zip(extraction.read_tfds("cifar10"), source, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_no_network_for_weights_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(extraction.socket, "create_connection", refuse)
    with pytest.raises(DataError, match=r"weights of Inception-V3 are not on this disk .* \(no route to host\)"):
        extraction.inception()


def test_weights_that_cannot_be_had_are_one_sentence(monkeypatch, tmp_path):
    import tensorflow as tf

    def fail(**kwargs):
        raise Exception("URL fetch failure")

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(tf.keras.applications, "InceptionV3", fail)
    monkeypatch.setattr(extraction.socket, "create_connection", lambda *args, **kwargs: Open())
    with pytest.raises(DataError, match=r"cannot be had \(URL fetch failure\)"):
        extraction.inception()


@pytest.mark.slow
def test_inception_gives_2048_numbers_and_sees_the_images():
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    network = extraction.inception(weights=None)
    numbers = network(images)
    assert numbers.shape == (2, 2048)
    assert np.all(np.isfinite(numbers))
    assert np.any(numbers[0] != numbers[1])
    np.testing.assert_allclose(network(images[1:]), numbers[1:], rtol=1e-3, atol=1e-6)


def parsed(*arguments):
    values = flags.FlagValues()
    extraction.define_flags(values)
    values(["command", *arguments])
    return values


def test_the_command_writes_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(extraction, "read_tfds", read)
    monkeypatch.setattr(extraction, "inception", Tiny)
    extraction.main(["command"], parsed(f"--output={tmp_path}/a.npz", "--per_class=4", "--batch=3", "--dimensions=5"))
    assert f"Written to {tmp_path}/a.npz: 40 x 5 numbers, 10 classes." in capsys.readouterr().out
    wanted = make(tmp_path / "b.npz", Tiny())
    np.testing.assert_array_equal(cifar_features.load(tmp_path / "a.npz").features, wanted.features)


@pytest.mark.parametrize(("dataset", "per_class"), [("cifar10", 600), ("cifar100", 100)])
def test_the_command_writes_where_the_reader_looks(dataset, per_class, monkeypatch):
    asked = []

    def fake(settings, dimensions, output, *rest):
        asked.append((settings, dimensions, output))
        return cifar_features.Features(np.zeros((1, 1)), np.zeros(1), ("0",))

    monkeypatch.setattr(extraction, "make", fake)
    extraction.main(["command"], parsed(f"--dataset={dataset}"))
    settings = extraction.Settings(dataset, per_class, seed=0, batch=50)
    assert asked == [(settings, 256, cifar_features.cached(dataset))]


def test_bad_data_are_one_sentence_and_exit_code_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(extraction, "read_tfds", read)
    with pytest.raises(SystemExit) as caught:
        extraction.main(["command"], parsed(f"--output={tmp_path}/a.npz"))
    assert caught.value.code == 1
    assert capsys.readouterr().err.startswith("per_class is 600, but there are only 6 images")


def test_ctrl_c_says_how_to_go_on_and_it_does(tmp_path, monkeypatch, capsys):
    arguments = [f"--output={tmp_path}/a b.npz", "--per_class=4", "--batch=3", "--dimensions=5"]
    networks = [Tiny(5, KeyboardInterrupt), Tiny()]
    monkeypatch.setattr(extraction, "read_tfds", read)
    monkeypatch.setattr(sys, "argv", ["extract_cifar_features.py", *arguments])
    monkeypatch.setattr(extraction, "inception", lambda: networks[0])
    with pytest.raises(SystemExit) as caught:
        extraction.main(["command"], parsed(*arguments))
    assert caught.value.code == 130
    command = f"python -m data.extract_cifar_features '--output={tmp_path}/a b.npz' --per_class=4"
    assert f"To go on, run again: {command}" in capsys.readouterr().err
    monkeypatch.setattr(extraction, "inception", lambda: networks[1])
    extraction.main(["command"], parsed(*arguments))
    assert [len(network.seen) for network in networks] == [5, 9]


def test_the_command_starts_and_tells_a_stray_word():
    command = [sys.executable, "-m", "data.extract_cifar_features", "cifar10"]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert child.returncode == 1
    assert "not understood: cifar10; flags look like --name=value" in child.stdout + child.stderr
    assert "Traceback" not in child.stderr
