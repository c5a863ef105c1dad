"""MNIST digits: 20,000 of them from the file beside this one, or a balanced draw through tensorflow-datasets."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data import npz
from data.errors import DataError

EMBEDDED = Path(__file__).with_name("mnist20k.npz")
HOST = "storage.googleapis.com"  # where tensorflow-datasets gets MNIST from
PER_CLASS = 2000
CLASSES = 10
TRAIN, VALIDATION = 5000, 5000  # the rest is for testing

Reader = Callable[[], tuple[np.ndarray, np.ndarray]]


class Digits(NamedTuple):
    """Images as rows of 784 numbers in [0, 1], float32; labels 0..9, int32."""

    images: np.ndarray
    labels: np.ndarray


class NoisySplit(NamedTuple):
    """The data of the hyper-cleaning experiment: `noisy[i]` says that training label i was replaced."""

    train: Digits
    true_labels: np.ndarray
    noisy: np.ndarray
    validation: Digits
    test: Digits


def load(source: str = "embedded", seed: int = 0, path: Path = EMBEDDED, reader: Reader | None = None) -> Digits:
    """20,000 digits, 2,000 of each class.

    Args:
      source: "embedded" reads `path`; "tfds" draws a balanced subset of the training set with `seed`.
      reader: returns (images, labels) instead of tensorflow-datasets.
    """
    if source == "embedded":
        return _digits(*_read_npz(path), where=str(path))
    if source == "tfds":
        images, labels = (reader or _read_tfds)()
        return _digits(*_balanced(images, labels, seed), where="tensorflow-datasets mnist")
    raise DataError(f"source is '{source}'; choose 'embedded' or 'tfds'.")


def noisy_split(digits: Digits, seed: int, train: int = TRAIN, validation: int = VALIDATION) -> NoisySplit:
    """Training, validation and test digits, with exactly half of the training labels replaced.

    A replaced label is a uniform draw from the nine other classes; everything is a function of `seed`.
    """
    if train + validation >= len(digits.labels):
        raise DataError(f"{len(digits.labels)} digits are too few for {train} to train on and {validation} to validate on.")
    rng = np.random.default_rng(seed)
    parts = np.split(rng.permutation(len(digits.labels)), [train, train + validation])
    first, second, third = (Digits(digits.images[rows], digits.labels[rows]) for rows in parts)
    noisy = np.zeros(train, bool)
    noisy[rng.permutation(train)[: train // 2]] = True
    others = (first.labels + rng.integers(1, CLASSES, train)) % CLASSES
    given = np.where(noisy, others, first.labels).astype(np.int32)
    return NoisySplit(Digits(first.images, given), first.labels, noisy, second, third)


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    arrays = npz.read(path, ("images", "labels"), "check it out again")
    if missing := [name for name in ("images", "labels") if name not in arrays]:
        raise DataError(f"{path} cannot be read (it has no {' and no '.join(missing)}); check it out again.")
    return arrays["images"], arrays["labels"]


def _read_tfds() -> tuple[np.ndarray, np.ndarray]:
    import tensorflow_datasets as tfds

    builder = tfds.builder("mnist")
    if not builder.is_prepared():
        try:  # or tensorflow-datasets would try for minutes
            socket.create_connection((HOST, 443), timeout=4).close()
        except OSError as error:
            raise DataError(
                f"MNIST is not on this disk and {HOST} cannot be reached ({error}); use --source=embedded."
            ) from None
        try:
            builder.download_and_prepare()
        except Exception as error:  # of many kinds, from several libraries
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(f"MNIST cannot be downloaded ({reason}); try again later or use --source=embedded.") from None
    both = tfds.as_numpy(builder.as_dataset(split="train", batch_size=-1))
    return both["image"], both["label"]


def _balanced(images: np.ndarray, labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = []
    for c in range(CLASSES):
        of_class = np.flatnonzero(labels == c)
        if len(of_class) < PER_CLASS:
            raise DataError(f"the source has only {len(of_class)} images of digit {c}; {PER_CLASS} are needed.")
        rows.append(rng.choice(of_class, PER_CLASS, replace=False))
    order = rng.permutation(np.concatenate(rows))
    return images[order], labels[order]


def _digits(images: np.ndarray, labels: np.ndarray, where: str) -> Digits:
    images, labels = np.asarray(images), np.asarray(labels)
    if (
        images.dtype != np.uint8
        or images.ndim < 3
        or not len(images)
        or images.shape[1:3] != (28, 28)
        or images.size != 784 * len(images)
    ):
        raise DataError(f"{where}: images are {images.dtype}{list(images.shape)}; uint8[n, 28, 28] is needed.")
    if (
        labels.shape != images.shape[:1]
        or not np.issubdtype(labels.dtype, np.integer)
        or not np.all((labels >= 0) & (labels < CLASSES))
    ):
        raise DataError(
            f"{where}: labels are {labels.dtype}{list(labels.shape)}; {len(images)} whole numbers from 0 to 9 are needed."
        )
    return Digits(images.reshape(len(images), 784).astype(np.float32) / 255, labels.astype(np.int32))
