"""CIFAR feature files: reading, broken files, the sources, and splits."""

import zipfile

import numpy as np
import pytest

from data import cifar_features as cifar
from data.errors import DataError

GOOD = {
    "features": np.arange(12, dtype=np.float32).reshape(6, 2),
    "labels": np.array([2, 0, 1, 1, 0, 2]),
    "class_names": np.array(["cat", "dog", "ship"]),
}


def write(path, **changes):
    """A valid file apart from the changes; None leaves an array out."""
    np.savez(path, **{name: array for name, array in {**GOOD, **changes}.items() if array is not None})
    return path


def of_classes(classes, each=7):
    """Features in which example i of class c is the row [c, i]."""
    labels = np.repeat(np.arange(classes), each)
    rows = np.stack([labels, np.tile(np.arange(each), classes)], axis=1).astype(np.float32)
    return cifar.Features(rows, labels.astype(np.int32), tuple(map(str, range(classes))))


def save(path, classes):
    np.savez(path, features=of_classes(classes).features, labels=of_classes(classes).labels)
    return path


def test_the_embedded_features_are_balanced_and_scaled():
    embedded = cifar.load()
    assert embedded.features.shape == (6000, 256)
    assert (embedded.features.dtype, embedded.labels.dtype) == (np.float32, np.int32)
    assert np.bincount(embedded.labels).tolist() == [600] * 10
    assert embedded.features.std(dtype=np.float64) == pytest.approx(1, abs=1e-3)
    assert len(embedded.class_names) == 10
    assert set(cifar.VEHICLES) < set(embedded.class_names)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize("integer", [np.uint8, np.int64])
def test_all_numeric_types_become_float32_and_int32(tmp_path, dtype, integer):
    stored = {"features": GOOD["features"].astype(dtype), "labels": GOOD["labels"].astype(integer)}
    loaded = cifar.load(write(tmp_path / "a.npz", **stored))
    assert (loaded.features.dtype, loaded.labels.dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(loaded.features, GOOD["features"])
    np.testing.assert_array_equal(loaded.labels, GOOD["labels"])
    assert loaded.class_names == ("cat", "dog", "ship")


def test_classes_without_names_are_numbered(tmp_path):
    assert cifar.load(write(tmp_path / "a.npz", class_names=None)).class_names == ("0", "1", "2")


def with_one(value, dtype=np.float32):
    features = GOOD["features"].astype(dtype)
    features[3, 1] = value
    return features


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": None}, "has no features; data/README.md"),
        ({"features": None, "labels": None}, "has no features and no labels"),
        ({"features": np.zeros(6, np.float32)}, r"features are float32\[6\]"),
        ({"features": np.zeros((6, 0), np.float32)}, r"features are float32\[6, 0\]"),
        ({"features": np.zeros((0, 2), np.float32), "labels": np.zeros(0, int)}, r"features are float32\[0, 2\]"),
        ({"features": np.zeros((6, 2), np.int32)}, r"features are int32\[6, 2\]; float16, float32 or float64"),
        ({"features": np.zeros((6, 2), np.longdouble)}, "float16, float32 or float64"),
        ({"features": with_one(np.nan)}, "1 of 6 rows of features are not finite"),
        ({"features": with_one(np.inf)}, "1 of 6 rows of features are not finite"),
        ({"features": with_one(1e300, np.float64)}, "1 of 6 rows of features are not finite in float32"),
        ({"labels": np.zeros(5, int)}, r"labels are int64\[5\]; 6 integers"),
        ({"labels": np.zeros((6, 1), int)}, r"labels are int64\[6, 1\]"),
        ({"labels": GOOD["labels"].astype(float)}, "labels are float64"),
        ({"labels": GOOD["labels"] + 1}, "labels have 3 values from 1 to 3"),
        ({"labels": GOOD["labels"] - 1}, "labels have 3 values from -1 to 1"),
        ({"labels": GOOD["labels"] * 2}, "labels have 3 values from 0 to 4; they should be 0 to K-1"),
        ({"class_names": np.array(["cat", "dog"])}, r"class_names are <U3\[2\]; 3 strings"),
        ({"class_names": np.array([["cat", "dog", "ship"]])}, r"class_names are <U4\[1, 3\]"),
        ({"class_names": np.arange(3)}, r"class_names are int64\[3\]"),
    ],
)
def test_a_file_with_wrong_arrays(tmp_path, changes, message):
    path = write(tmp_path / "wrong.npz", **changes)
    with pytest.raises(DataError, match=message) as caught:
        cifar.load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.npz does not exist; copy it again or make it again"):
        cifar.load(tmp_path / "none.npz")


def test_a_missing_embedded_file_has_to_be_checked_out_again(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "EMBEDDED", tmp_path / "none.npz")
    with pytest.raises(DataError, match="does not exist; check it out again"):
        cifar.find("cifar10")


def test_a_directory(tmp_path):
    with pytest.raises(DataError, match="choose a readable file"):
        cifar.load(tmp_path)


def test_truncated_files(tmp_path):
    path, content = tmp_path / "cut.npz", cifar.EMBEDDED.read_bytes()
    for size in (0, 10, 1000, 2_000_000, len(content) - 1000):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=r"cut\.npz cannot be read \(not an \.npz file, or it is cut off\)"):
            cifar.load(path)
        assert path.read_bytes() == content[:size]


def test_a_single_array_is_not_a_feature_file(tmp_path):
    np.save(tmp_path / "a.npy", GOOD["features"])
    with pytest.raises(DataError, match=r"not an \.npz file"):
        cifar.load(tmp_path / "a.npy")


def test_text_in_place_of_an_array(tmp_path):
    with zipfile.ZipFile(write(tmp_path / "a.npz", features=None), "a") as file:
        file.writestr("features", "none")
    with pytest.raises(DataError, match=r"features are .S4\[\]"):
        cifar.load(tmp_path / "a.npz")


@pytest.mark.parametrize("name", list(GOOD))
def test_objects_are_not_unpickled(tmp_path, name):
    with pytest.raises(DataError, match=r"evil\.npz holds pickled objects"):
        cifar.load(write(tmp_path / "evil.npz", **{name: GOOD[name].astype(object)}))


def test_the_embedded_source_is_cifar10():
    np.testing.assert_array_equal(cifar.find("cifar10").features, cifar.load().features)


def test_the_embedded_source_explains_how_to_get_cifar100():
    with pytest.raises(DataError, match="not distributed") as caught:
        cifar.find("cifar100")
    for way in ("python -m data.extract_cifar_features --dataset=cifar100", "--features_file", "RFHO2_CIFAR100_FEATURES"):
        assert way in str(caught.value)


def test_a_file_named_by_its_path_or_by_the_environment_variable(tmp_path, monkeypatch):
    monkeypatch.delenv("RFHO2_CIFAR100_FEATURES", raising=False)
    with pytest.raises(DataError, match="give --features_file or set the environment variable RFHO2_CIFAR100_FEATURES"):
        cifar.find("cifar100", "file")
    assert len(cifar.find("cifar100", "file", str(save(tmp_path / "given.npz", 100))).labels) == 700
    monkeypatch.setenv("RFHO2_CIFAR100_FEATURES", str(tmp_path / "named.npz"))
    with pytest.raises(DataError, match=r"named\.npz does not exist"):
        cifar.find("cifar100", "file")
    assert len(cifar.find("cifar100", "file", str(tmp_path / "given.npz")).labels) == 700


def test_the_tfds_source_is_the_output_of_the_command(tmp_path):
    with pytest.raises(
        DataError, match=r"does not exist; make it with: python -m data.extract_cifar_features --dataset=cifar10$"
    ):
        cifar.find("cifar10", "tfds", cache=tmp_path)
    save(cifar.cached("cifar10", tmp_path), 10)
    assert len(cifar.find("cifar10", "tfds", cache=tmp_path).labels) == 70


def test_the_number_of_classes_has_to_match(tmp_path):
    path = str(save(tmp_path / "a.npz", 10))
    with pytest.raises(DataError, match=r"a.npz has 10 classes, but cifar100 has 100"):
        cifar.find("cifar100", "file", path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cifar20",), "'cifar20'; choose cifar10 or cifar100"),
        (("cifar10", "web"), "'web'; choose one of embedded, file, tfds"),
        (("cifar10", "embedded", "a.npz"), "features_file is 'a.npz', but source is 'embedded'"),
    ],
)
def test_invalid_arguments(arguments, message):
    with pytest.raises(DataError, match=message):
        cifar.find(*arguments)


@pytest.mark.parametrize(("classes", "per_class"), [(10, 3), (3, 1), (2, 2)])
def test_the_split_is_stratified_and_uses_each_example_once(classes, per_class):
    data = of_classes(classes)
    split = cifar.split(data, 0, per_class)
    counts = [np.bincount(part.labels).tolist() for part in split]
    assert counts == [[per_class] * classes, [per_class] * classes, [7 - 2 * per_class] * classes]
    for part in split:
        np.testing.assert_array_equal(part.features[:, 0], part.labels)
    rows = np.concatenate([part.features for part in split])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, data.features))


def test_the_split_is_determined_by_the_seed():
    data = of_classes(10)
    first, same_seed, other_seed = (cifar.split(data, seed, 2) for seed in (0, 0, 1))
    for part, same, other in zip(first, same_seed, other_seed, strict=True):
        np.testing.assert_array_equal(part.features, same.features)
        np.testing.assert_array_equal(part.labels, same.labels)
        assert np.any(part.features != other.features)


def test_the_classes_of_a_part_are_shuffled():
    assert np.any(np.diff(cifar.split(of_classes(10), 0, 3).train.labels) < 0)


def test_the_sizes_of_the_paper():
    split = cifar.split(cifar.find("cifar10"), 0, cifar.PER_CLASS["cifar10"])
    assert [len(part.labels) for part in split] == [50, 50, 5900]
    split = cifar.split(of_classes(100), 0, cifar.PER_CLASS["cifar100"])
    assert [len(part.labels) for part in split] == [300, 300, 100]


def test_too_few_examples_to_split():
    with pytest.raises(
        DataError, match=r"class 0 \('0'\) has 7 examples, but 9 are needed .*: choose fewer than 4 per class"
    ):
        cifar.split(of_classes(2), 0, 4)
    with pytest.raises(DataError, match="per_class is 0"):
        cifar.split(of_classes(2), 0, 0)


def test_real_features_of_cifar100(real_cifar100):
    assert real_cifar100.is_file()
    features = cifar.find("cifar100", "file")
    assert len(features.class_names) == 100
    assert features.features.std(dtype=np.float64) == pytest.approx(1, abs=1e-2)
    split = cifar.split(features, 0, cifar.PER_CLASS["cifar100"])
    assert [len(part.labels) for part in split] == [300, 300, len(features.labels) - 600]
    assert np.bincount(split.train.labels).tolist() == [3] * 100
    # Features of a class are similar: the nearest training example has the right class far more often than by chance.
    test = split.test.features[:1000]
    distance = np.sum(test**2, 1)[:, None] - 2 * test @ split.train.features.T + np.sum(split.train.features**2, 1)
    assert np.mean(split.train.labels[np.argmin(distance, axis=1)] == split.test.labels[:1000]) > 0.1
