"""Training images through tensorflow-datasets, downloaded once, and balanced samples of them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data.errors import DataError, first_line

HOST = "storage.googleapis.com"  # serves the images of tensorflow-datasets and the weights of Keras
TIMEOUT = 4  # seconds


class Images(NamedTuple):
    """`images` uint8 [n, height, width, channels], `labels` integers [n], and the names of the K classes."""

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]


def training_images(dataset: str, description: str, remedy: str) -> Images:
    """The training images of a data set, downloaded once.

    Args:
      dataset: its name in tensorflow-datasets.
      description: its name in messages.
      remedy: what to do, other than connecting to the internet, if there is no download; for messages.
    """
    import tensorflow_datasets as tfds

    builder = tfds.builder(dataset)
    if not builder.is_prepared():
        require_host(description, remedy)
        try:
            builder.download_and_prepare()
        except Exception as error:  # of many kinds, from several libraries
            raise DataError(
                f"{description} cannot be downloaded ({first_line(error)}); try again later or {remedy}."
            ) from None
    examples = tfds.as_numpy(builder.as_dataset(split="train", batch_size=-1, shuffle_files=False))
    return Images(examples["image"], examples["label"], tuple(builder.info.features["label"].names))


def balanced(labels: np.ndarray, class_names: Sequence[str], per_class: int, seed: int, remedy: str) -> np.ndarray:
    """Indices of `per_class` images of each class, drawn without repetition and shuffled with `seed`.

    Args:
      remedy: what to do if a class has too few images, for the message.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for c, name in enumerate(class_names):
        of_class = np.flatnonzero(labels == c)
        if len(of_class) < per_class:
            raise DataError(
                f"there are only {len(of_class)} images of class {c} ('{name}'), but {per_class} are needed; {remedy}."
            )
        rows.append(rng.choice(of_class, per_class, replace=False))
    return rng.permutation(np.concatenate(rows))


def require_host(description: str, remedy: str) -> None:
    """Raises within seconds if a download would fail: tensorflow-datasets tries for minutes and Keras forever."""
    try:
        socket.create_connection((HOST, 443), TIMEOUT).close()
    except OSError as error:
        raise DataError(
            f"there is no copy of {description} on this disk, and {HOST} cannot be reached ({error}); "
            f"connect this machine to the internet or {remedy}."
        ) from None
