"""CIFAR images as the numbers that a network trained on ImageNet makes of them, read from `.npz` files and split.

`features` float16, float32 or float64 [n, d]; `labels` integers [n], 0..K-1; `class_names` strings [K], may be missing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data import npz
from data.errors import DataError

EMBEDDED = Path(__file__).with_name("cifar10_features.npz")
CACHE = Path.home() / ".cache" / "rfho2"  # not in the checkout: a file may take hours to make
CLASSES = {"cifar10": 10, "cifar100": 100}
PER_CLASS = {"cifar10": 5, "cifar100": 3}  # of training, and again of validation: 50 and 50, 300 and 300 (paper, 5.2)
SOURCES = ("embedded", "file", "tfds")
VEHICLES = ("airplane", "automobile", "ship", "truck")  # of CIFAR-10; the six others are animals


class Features(NamedTuple):
    """`features` float32 [n, d], as stored; `labels` int32 [n], 0..K-1; K names ("0".."K-1" where the file has none)."""

    features: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]


class Part(NamedTuple):
    """Some of the examples: float32 [n, d] and int32 [n]."""

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
      source: "embedded" is the file beside this one (CIFAR-10 alone); "file" is `path`, or else what the environment
        variable RFHO2_CIFAR10_FEATURES or RFHO2_CIFAR100_FEATURES names; "tfds" is what data.extract_cifar_features made.
      cache: where data.extract_cifar_features writes.
    """
    if dataset not in CLASSES:
        raise DataError(f"dataset is '{dataset}'; choose {' or '.join(CLASSES)}.")
    where = _where(dataset, source, path, cache)
    found = load(where)
    if len(found.class_names) != CLASSES[dataset]:
        raise DataError(
            f"{where} has {len(found.class_names)} classes, but {dataset} has {CLASSES[dataset]}; "
            "choose the other dataset or another file."
        )
    return found


def load(path: Path = EMBEDDED) -> Features:
    """Reads a file and checks all of it."""
    arrays = _read(path)
    return Features(*_checked(arrays["features"], arrays["labels"], path), _names(arrays, path))


def split(features: Features, seed: int, per_class: int) -> Split:
    """`per_class` examples of each class to train on, as many others for validation, the rest for testing.

    Everything is a function of `seed`; the examples of each part come in random order.
    """
    if per_class < 1:
        raise DataError(f"per_class is {per_class}; at least 1 example of each class is needed.")
    rng = np.random.default_rng(seed)
    chosen: list[list[np.ndarray]] = [[], [], []]
    for c, name in enumerate(features.class_names):
        of_class = rng.permutation(np.flatnonzero(features.labels == c))
        if len(of_class) < 2 * per_class + 1:
            raise DataError(
                f"class {c} ('{name}') has {len(of_class)} examples; {per_class} to train on, {per_class} to validate on "
                f"and 1 to test on need {2 * per_class + 1}: choose fewer than {per_class} per class or a larger file."
            )
        for rows, part in zip(chosen, np.split(of_class, [per_class, 2 * per_class]), strict=True):
            rows.append(part)
    orders = [rng.permutation(np.concatenate(rows)) for rows in chosen]
    return Split(*(Part(features.features[rows], features.labels[rows]) for rows in orders))


def cached(dataset: str, cache: Path = CACHE) -> Path:
    """Where data.extract_cifar_features writes when it is not told."""
    return cache / f"{dataset}_features.npz"


def _where(dataset: str, source: str, path: str | None, cache: Path) -> Path:
    variable, command = f"RFHO2_{dataset.upper()}_FEATURES", f"python -m data.extract_cifar_features --dataset={dataset}"
    if source not in SOURCES:
        raise DataError(f"source is '{source}'; choose one of {', '.join(SOURCES)}.")
    if path and source != "file":
        raise DataError(f"features_file is '{path}', but source is '{source}'; it is read with --source=file alone.")
    if source == "file":
        if chosen := path or os.environ.get(variable):
            return Path(chosen).expanduser()
        raise DataError(f"source is 'file', but which one? Give --features_file or set the environment variable {variable}.")
    if source == "tfds":
        made = cached(dataset, cache)
        if made.exists():
            return made
        raise DataError(f"{made} is not there; make it with: {command}")
    if dataset == "cifar10":
        return EMBEDDED
    raise DataError(
        "the CIFAR-100 features are not distributed with this project; make them with "
        f"`{command}` and use --source=tfds, or name a file with --source=file and "
        f"--features_file or the environment variable {variable}."
    )


def _read(path: Path) -> dict[str, np.ndarray]:
    again = "check it out again" if path == EMBEDDED else "copy it or make it (data/README.md) again"
    found = npz.read(path, ("features", "labels", "class_names"), again)
    if missing := [name for name in ("features", "labels") if name not in found]:
        raise DataError(f"{path} has no {' and no '.join(missing)}; data/README.md says what it should have.")
    return found


def _checked(features: np.ndarray, labels: np.ndarray, path: Path) -> tuple[np.ndarray, np.ndarray]:
    if features.dtype.kind != "f" or features.dtype.itemsize > 8 or features.ndim != 2 or not features.size:
        raise DataError(f"{path}: features are {_kind(features)}; float16, float32 or float64 [n, d] is needed.")
    if labels.shape != features.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{path}: labels are {_kind(labels)}; {len(features)} integers are needed, one for each example.")
    with np.errstate(over="ignore"):  # a float64 too large for float32 is told below
        features = features.astype(np.float32)
    if wrong := int(np.sum(~np.isfinite(features).all(axis=1))):
        raise DataError(f"{path}: {wrong} of {len(features)} rows of features are not finite float32; make the file again.")
    there = np.unique(labels)
    if not np.array_equal(there, np.arange(len(there))):
        raise DataError(
            f"{path}: labels have {len(there)} values from {there[0]} to {there[-1]}; "
            "they should be 0 to K-1 with an example of each class."
        )
    return features, labels.astype(np.int32)


def _names(arrays: dict[str, np.ndarray], path: Path) -> tuple[str, ...]:
    classes = int(arrays["labels"].max()) + 1
    names = arrays.get("class_names", np.array([str(c) for c in range(classes)]))
    if names.shape != (classes,) or names.dtype.kind != "U":
        raise DataError(f"{path}: class_names are {_kind(names)}; {classes} strings are needed, one for each class.")
    return tuple(map(str, names))


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
