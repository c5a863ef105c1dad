"""Making a file of CIFAR features from fake images with a tiny network: layout, resumption, components, the command."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from absl import flags

from data import cifar_features, downloads
from data import extract_cifar_features as extraction
from data.errors import DataError

ROOT = Path(__file__).parents[2]
SETTINGS = extraction.Settings("cifar10", per_class=4, seed=0, batch=3)
NAMES = tuple(f"class {c}" for c in range(10))


def read(dataset):
    """Six different images of each class, of 2 x 2 pixels."""
    rng = np.random.default_rng(7)
    labels = rng.permutation(np.repeat(np.arange(10), 6))
    return downloads.Images(rng.integers(0, 256, (len(labels), 2, 2, 3), np.uint8), labels, NAMES)


class Tiny:
    """A linear network that keeps its inputs, and fails at call number `fails_at`."""

    def __init__(self, fails_at=None, error=RuntimeError):
        self.inputs, self._fails_at, self._error = [], fails_at, error
        self._weights = np.random.default_rng(1).normal(size=(12, 8))

    def __call__(self, images):
        if len(self.inputs) == self._fails_at:
            raise self._error("stopped")
        self.inputs.append(images.copy())
        return images.reshape(len(images), 12) @ self._weights


def make(output, network, settings=SETTINGS, dimensions=5):
    return extraction.make(settings, dimensions, output, read, lambda: network)


def partial(output):
    return output.with_name(output.name + ".partial")


def test_the_reader_understands_the_file(tmp_path):
    made = make(tmp_path / "new" / "a.npz", Tiny())
    read_back = cifar_features.find("cifar10", "file", str(tmp_path / "new" / "a.npz"))
    np.testing.assert_array_equal(made.features, read_back.features)
    assert read_back.features.shape == (40, 5)
    assert read_back.class_names == NAMES
    assert np.bincount(read_back.labels).tolist() == [4] * 10
    assert np.load(tmp_path / "new" / "a.npz")["features"].dtype == np.float16
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.npz"], "drafts or batches are left"


def test_features_belong_to_their_labels(tmp_path):
    made = make(tmp_path / "a.npz", Tiny(), dimensions=0)
    source, network = read("cifar10"), Tiny()
    rows = downloads.balanced(source.labels, NAMES, 4, 0, "")
    expected = network(source.images[rows])
    np.testing.assert_allclose(made.features, expected / expected.std(), rtol=2e-3, atol=1e-4)
    np.testing.assert_array_equal(made.labels, source.labels[rows])


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The features and the batches of a run that nothing interrupts."""
    network = Tiny()
    return make(tmp_path_factory.mktemp("whole") / "a.npz", network), network.inputs


@pytest.mark.parametrize("fails_at", [0, 1, 6, 13])
def test_a_killed_run_resumes_after_the_last_finished_batch(tmp_path, uninterrupted, fails_at):
    expected, batches = uninterrupted
    assert [len(batch) for batch in batches] == 13 * [3] + [1], "the last batch is smaller"
    killed, resumed = Tiny(fails_at), Tiny()
    with pytest.raises(RuntimeError):
        make(tmp_path / "a.npz", killed)
    assert not (tmp_path / "a.npz").exists()
    made = make(tmp_path / "a.npz", resumed)
    assert len(killed.inputs) == fails_at
    for batch, expected_batch in zip(killed.inputs + resumed.inputs, batches, strict=True):  # each batch once
        np.testing.assert_array_equal(batch, expected_batch)
    np.testing.assert_array_equal(expected.features, made.features)
    np.testing.assert_array_equal(expected.labels, made.labels)
    assert not partial(tmp_path / "a.npz").exists()


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY\x01\x00", b"something else"])
def test_a_lost_or_broken_batch_is_computed_again(tmp_path, uninterrupted, content):
    with pytest.raises(RuntimeError):
        make(tmp_path / "a.npz", Tiny(6))
    file = partial(tmp_path / "a.npz") / "00002.npy"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    network = Tiny()
    np.testing.assert_array_equal(make(tmp_path / "a.npz", network).features, uninterrupted[0].features)
    assert len(network.inputs) == 14 - 6 + 1


@pytest.mark.parametrize("change", [{"per_class": 5}, {"seed": 1}, {"batch": 4}, {"dataset": "cifar100"}])
def test_batches_of_other_settings_are_discarded(tmp_path, change, capsys):
    other = SETTINGS._replace(**change)
    with pytest.raises(RuntimeError):
        make(tmp_path / "a.npz", Tiny(6))
    assert "belongs to other settings" not in capsys.readouterr().err
    made = make(tmp_path / "a.npz", Tiny(), other)
    assert "a.npz.partial belongs to other settings and is discarded" in capsys.readouterr().err
    np.testing.assert_array_equal(made.features, make(tmp_path / "fresh.npz", Tiny(), other).features)


def test_batches_of_other_images_are_discarded(tmp_path, capsys):
    images = read("cifar10").images
    extraction.extract(images, Tiny(), SETTINGS, tmp_path / "partial")
    network = Tiny()
    extraction.extract(255 - images, network, SETTINGS, tmp_path / "partial")
    assert "discarded" in capsys.readouterr().err
    assert len(network.inputs) == 20


def test_other_dimensions_reuse_the_finished_batches(tmp_path):
    with pytest.raises(DataError, match="dimensions is 9, but 40 images of 8 numbers each have at most 8"):
        make(tmp_path / "a.npz", Tiny(), dimensions=9)
    network = Tiny()
    assert make(tmp_path / "a.npz", network, dimensions=8).features.shape == (40, 8)
    assert not network.inputs


def test_a_finished_file_is_not_made_again(tmp_path):
    make(tmp_path / "a.npz", Tiny())
    with pytest.raises(DataError, match=r"a\.npz already exists; remove it"):
        make(tmp_path / "a.npz", Tiny(fails_at=0))


def test_an_output_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot be written \(.+\); choose another --output"):
        make(tmp_path / "file" / "a.npz", Tiny())


def test_principal_components_are_the_eigenvectors_of_the_covariance():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50, 8)) @ rng.normal(size=(8, 8)) + 10
    components = extraction.principal_components(features, 3)
    values, vectors = np.linalg.eigh(np.cov(features.T))
    np.testing.assert_allclose(np.cov(components.T), np.diag(values[::-1][:3]), atol=1e-10 * values[-1])
    expected = (features - features.mean(axis=0)) @ vectors[:, ::-1][:, :3]
    np.testing.assert_allclose(np.abs(components), np.abs(expected), atol=1e-8)
    np.testing.assert_allclose(components.mean(axis=0), 0, atol=1e-10)


def test_two_principal_components_preserve_features_in_a_plane(capsys):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 9)) - 4
    components = extraction.principal_components(features, 2)
    distances = [np.linalg.norm(x[:, None] - x, axis=-1) for x in (features, components)]
    np.testing.assert_allclose(*distances, atol=1e-10)
    assert "explain 100.0 % of the variance" in capsys.readouterr().out


@pytest.mark.parametrize("dimensions", [0, 3])
def test_the_overall_standard_deviation_is_one(dimensions):
    features = 1e5 * np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    scaled = extraction.compressed(features, dimensions)
    assert scaled.dtype == np.float16
    assert scaled.std(dtype=np.float64) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("dimensions", [0, 2])
@pytest.mark.parametrize("value", [1.0, np.nan])
def test_features_that_are_constant_or_not_finite(value, dimensions):
    with pytest.raises(DataError, match="equal or not finite; the weights of the network are broken"):
        extraction.compressed(value * np.ones((5, 1)) * np.arange(3), dimensions)


def parsed(*arguments):
    values = flags.FlagValues()
    extraction.define_flags(values)
    values(["command", *arguments])
    return values


def test_the_command_writes_the_file(tmp_path, monkeypatch, capsys, uninterrupted):
    monkeypatch.setattr(extraction, "read_images", read)
    monkeypatch.setattr(extraction, "inception", Tiny)
    extraction.main(["command"], parsed(f"--output={tmp_path}/a.npz", "--per_class=4", "--batch=3", "--dimensions=5"))
    assert f"Written to {tmp_path}/a.npz: 40 x 5 numbers, 10 classes." in capsys.readouterr().out
    np.testing.assert_array_equal(cifar_features.load(tmp_path / "a.npz").features, uninterrupted[0].features)


@pytest.mark.parametrize(("dataset", "per_class"), [("cifar10", 600), ("cifar100", 100)])
def test_the_command_writes_where_the_reader_looks(dataset, per_class, monkeypatch):
    calls = []

    def fake_make(settings, dimensions, output, *rest):
        calls.append((settings, dimensions, output))
        return cifar_features.Features(np.zeros((1, 1)), np.zeros(1), ("0",))

    monkeypatch.setattr(extraction, "make", fake_make)
    extraction.main(["command"], parsed(f"--dataset={dataset}"))
    settings = extraction.Settings(dataset, per_class, seed=0, batch=50)
    assert calls == [(settings, 256, cifar_features.cached(dataset))]


def test_bad_data_give_one_sentence_and_exit_code_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(extraction, "read_images", read)
    with pytest.raises(SystemExit) as caught:
        extraction.main(["command"], parsed(f"--output={tmp_path}/a.npz"))
    assert caught.value.code == 1
    assert capsys.readouterr().err == (
        "there are only 6 images of class 0 ('class 0'), but 600 are needed; choose a smaller --per_class.\n"
    )


def test_ctrl_c_prints_a_command_that_resumes(tmp_path, monkeypatch, capsys):
    arguments = [f"--output={tmp_path}/a b.npz", "--per_class=4", "--batch=3", "--dimensions=5"]
    networks = [Tiny(5, KeyboardInterrupt), Tiny()]
    monkeypatch.setattr(extraction, "read_images", read)
    monkeypatch.setattr(sys, "argv", ["extract_cifar_features.py", *arguments])
    monkeypatch.setattr(extraction, "inception", lambda: networks[0])
    with pytest.raises(SystemExit) as caught:
        extraction.main(["command"], parsed(*arguments))
    assert caught.value.code == 130
    command = f"python -m data.extract_cifar_features '--output={tmp_path}/a b.npz' --per_class=4"
    assert f"To resume, run: {command}" in capsys.readouterr().err
    monkeypatch.setattr(extraction, "inception", lambda: networks[1])
    extraction.main(["command"], parsed(*arguments))
    assert [len(network.inputs) for network in networks] == [5, 9]


def test_the_command_starts_and_rejects_a_stray_word():
    command = [sys.executable, "-m", "data.extract_cifar_features", "cifar10"]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert child.returncode == 1
    assert "not understood: cifar10; flags look like --name=value" in child.stdout + child.stderr
    assert "Traceback" not in child.stderr
