"""CIFAR images as features of a network trained on ImageNet, read from `.npz` files and split.

A file holds `features` float16, float32 or float64 [n, d]; `labels` integers [n], 0..K-1; and optionally `class_names`
strings [K].
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data import npz
from data.errors import DataError

EMBEDDED = Path(__file__).with_name("cifar10_features.npz")
CACHE = Path.home() / ".cache" / "rfho2"  # outside the checkout, because a file may take hours to make
CLASSES = {"cifar10": 10, "cifar100": 100}
PER_CLASS = {"cifar10": 5, "cifar100": 3}  # for training, and as many for validation: 50 + 50 or 300 + 300 (paper, 5.2)
SOURCES = ("embedded", "file", "tfds")
VEHICLES = ("airplane", "automobile", "ship", "truck")  # of CIFAR-10; the other six classes are animals


class Features(NamedTuple):
    """`features` float32 [n, d], as stored; `labels` int32 [n], 0..K-1; K names ("0".."K-1" if the file has none)."""

    features: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]


class Part(NamedTuple):
    """A subset of the examples: float32 [n, d] and int32 [n]."""

    features: np.ndarray
    labels: np.ndarray


class Split(NamedTuple):
    """The data of the task-interaction experiment."""

    train: Part
    validation: Part
    test: Part


def find(dataset: str, source: str = "embedded", path: str | None = None, cache: Path = CACHE) -> Features:
    """The features of "cifar10" or "cifar100".

    Args:
      source: "embedded" is the file distributed with this project (CIFAR-10 only); "file" is `path` or, without it, the
        file that the environment variable RFHO2_CIFAR10_FEATURES or RFHO2_CIFAR100_FEATURES names; "tfds" is the output
        of data.extract_cifar_features.
      cache: the directory that data.extract_cifar_features writes to.
    """
    if dataset not in CLASSES:
        raise DataError(f"dataset is '{dataset}'; choose {' or '.join(CLASSES)}.")
    file = _locate(dataset, source, path, cache)
    features = load(file)
    if len(features.class_names) != CLASSES[dataset]:
        raise DataError(
            f"{file} has {len(features.class_names)} classes, but {dataset} has {CLASSES[dataset]}; "
            "choose the other dataset or another file."
        )
    return features


def load(path: Path = EMBEDDED) -> Features:
    """Reads a file and validates its contents."""
    arrays = _read(path)
    return Features(*_checked(arrays["features"], arrays["labels"], path), _names(arrays, path))


def split(features: Features, seed: int, per_class: int) -> Split:
    """`per_class` examples of each class for training, as many for validation, and the rest for testing.

    The result depends on `seed` alone; the examples of each part are in random order.
    """
    if per_class < 1:
        raise DataError(f"per_class is {per_class}; choose 1 or more.")
    rng = np.random.default_rng(seed)
    chosen: list[list[np.ndarray]] = [[], [], []]
    for c, name in enumerate(features.class_names):
        of_class = rng.permutation(np.flatnonzero(features.labels == c))
        if len(of_class) < 2 * per_class + 1:
            raise DataError(
                f"class {c} ('{name}') has {len(of_class)} examples, but {2 * per_class + 1} are needed to train and to "
                f"validate on {per_class} each and to test on 1: choose fewer than {per_class} per class or a larger file."
            )
        for rows, part in zip(chosen, np.split(of_class, [per_class, 2 * per_class]), strict=True):
            rows.append(part)
    orders = [rng.permutation(np.concatenate(rows)) for rows in chosen]
    return Split(*(Part(features.features[rows], features.labels[rows]) for rows in orders))


def cached(dataset: str, cache: Path = CACHE) -> Path:
    """The default output of data.extract_cifar_features."""
    return cache / f"{dataset}_features.npz"


def _locate(dataset: str, source: str, path: str | None, cache: Path) -> Path:
    variable, command = f"RFHO2_{dataset.upper()}_FEATURES", f"python -m data.extract_cifar_features --dataset={dataset}"
    if source not in SOURCES:
        raise DataError(f"source is '{source}'; choose one of {', '.join(SOURCES)}.")
    if path and source != "file":
        raise DataError(f"features_file is '{path}', but source is '{source}'; a file is only read with --source=file.")
    if source == "file":
        if chosen := path or os.environ.get(variable):
            return Path(chosen).expanduser()
        raise DataError(
            f"source is 'file', but no file is named; give --features_file or set the environment variable {variable}."
        )
    if source == "tfds":
        file = cached(dataset, cache)
        if file.exists():
            return file
        raise DataError(f"{file} does not exist; make it with: {command}")
    if dataset == "cifar10":
        return EMBEDDED
    raise DataError(
        "the CIFAR-100 features are not distributed with this project; make them with "
        f"`{command}` and use --source=tfds, or name a file with --source=file and "
        f"--features_file or the environment variable {variable}."
    )


def _read(path: Path) -> dict[str, np.ndarray]:
    remedy = "check it out again" if path == EMBEDDED else "copy it again or make it again (see data/README.md)"
    arrays = npz.read(path, ("features", "labels", "class_names"), remedy)
    if missing := [name for name in ("features", "labels") if name not in arrays]:
        raise DataError(f"{path} has no {' and no '.join(missing)}; data/README.md describes the layout.")
    return arrays


def _checked(features: np.ndarray, labels: np.ndarray, path: Path) -> tuple[np.ndarray, np.ndarray]:
    if features.dtype.kind != "f" or features.dtype.itemsize > 8 or features.ndim != 2 or not features.size:
        raise DataError(f"{path}: features are {_kind(features)}; float16, float32 or float64 [n, d] is needed.")
    if labels.shape != features.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{path}: labels are {_kind(labels)}; {len(features)} integers are needed, one per example.")
    with np.errstate(over="ignore"):  # a float64 too large for float32 is reported below
        features = features.astype(np.float32)
    if wrong := int(np.sum(~np.isfinite(features).all(axis=1))):
        raise DataError(
            f"{path}: {wrong} of {len(features)} rows of features are not finite in float32; make the file again."
        )
    classes = np.unique(labels)
    if not np.array_equal(classes, np.arange(len(classes))):
        raise DataError(
            f"{path}: labels have {len(classes)} values from {classes[0]} to {classes[-1]}; "
            "they should be 0 to K-1, with an example of each class."
        )
    return features, labels.astype(np.int32)


def _names(arrays: dict[str, np.ndarray], path: Path) -> tuple[str, ...]:
    classes = int(arrays["labels"].max()) + 1
    names = arrays.get("class_names", np.array([str(c) for c in range(classes)]))
    if names.shape != (classes,) or names.dtype.kind != "U":
        raise DataError(f"{path}: class_names are {_kind(names)}; {classes} strings are needed, one per class.")
    return tuple(map(str, names))


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
