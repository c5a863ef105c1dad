"""MNIST: the 20,000 digits distributed with this project, or a balanced sample through tensorflow-datasets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data import downloads, npz
from data.errors import DataError

EMBEDDED = Path(__file__).with_name("mnist20k.npz")
PER_CLASS = 2000
CLASSES = 10
REMEDY = "use --source=embedded"
TRAIN, VALIDATION = 5000, 5000  # the remaining digits are for testing

Reader = Callable[[], tuple[np.ndarray, np.ndarray]]


class Digits(NamedTuple):
    """Images as rows of 784 numbers in [0, 1], float32; labels 0..9, int32."""

    images: np.ndarray
    labels: np.ndarray


class NoisySplit(NamedTuple):
    """The data of the hyper-cleaning experiment; `noisy[i]` is True if training label i was replaced."""

    train: Digits
    true_labels: np.ndarray
    noisy: np.ndarray
    validation: Digits
    test: Digits


def load(source: str = "embedded", seed: int = 0, path: Path = EMBEDDED, reader: Reader | None = None) -> Digits:
    """20,000 digits, 2,000 of each class.

    Args:
      source: "embedded" reads `path`; "tfds" draws a balanced sample of the training set with `seed`.
      reader: returns (images, labels) in place of tensorflow-datasets.
    """
    if source == "embedded":
        return _digits(*_read_npz(path), origin=str(path))
    if source == "tfds":
        images, labels = (reader or _read_tfds)()
        rows = downloads.balanced(labels, [str(c) for c in range(CLASSES)], PER_CLASS, seed, REMEDY)
        return _digits(images[rows], labels[rows], origin="tensorflow-datasets mnist")
    raise DataError(f"source is '{source}'; choose 'embedded' or 'tfds'.")


def noisy_split(digits: Digits, seed: int, train: int = TRAIN, validation: int = VALIDATION) -> NoisySplit:
    """Training, validation and test digits, with exactly half of the training labels replaced.

    A replacement is drawn uniformly from the nine other classes. The result depends on `seed` alone.
    """
    if train + validation >= len(digits.labels):
        raise DataError(
            f"{len(digits.labels)} digits are too few to train on {train}, validate on {validation} and test on the others."
        )
    rng = np.random.default_rng(seed)
    parts = np.split(rng.permutation(len(digits.labels)), [train, train + validation])
    clean, validation_digits, test_digits = (Digits(digits.images[rows], digits.labels[rows]) for rows in parts)
    noisy = np.zeros(train, bool)
    noisy[rng.permutation(train)[: train // 2]] = True
    wrong_labels = (clean.labels + rng.integers(1, CLASSES, train)) % CLASSES
    labels = np.where(noisy, wrong_labels, clean.labels).astype(np.int32)
    return NoisySplit(Digits(clean.images, labels), clean.labels, noisy, validation_digits, test_digits)


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    arrays = npz.read(path, ("images", "labels"), "check it out again")
    if missing := [name for name in ("images", "labels") if name not in arrays]:
        raise DataError(f"{path} has no {' and no '.join(missing)}; check it out again.")
    return arrays["images"], arrays["labels"]


def _read_tfds() -> tuple[np.ndarray, np.ndarray]:
    images, labels, _ = downloads.training_images("mnist", "MNIST", REMEDY)
    return images, labels


def _digits(images: np.ndarray, labels: np.ndarray, origin: str) -> Digits:
    images, labels = np.asarray(images), np.asarray(labels)
    if (
        images.dtype != np.uint8
        or images.ndim < 3
        or not len(images)
        or images.shape[1:3] != (28, 28)
        or images.size != 784 * len(images)
    ):
        raise DataError(f"{origin}: images are {images.dtype}{list(images.shape)}; uint8[n, 28, 28] is needed.")
    if (
        labels.shape != images.shape[:1]
        or not np.issubdtype(labels.dtype, np.integer)
        or not np.all((labels >= 0) & (labels < CLASSES))
    ):
        raise DataError(
            f"{origin}: labels are {labels.dtype}{list(labels.shape)}; {len(images)} integers from 0 to 9 are needed."
        )
    return Digits(images.reshape(len(images), 784).astype(np.float32) / 255, labels.astype(np.int32))
