"""Examples with some wrong labels, some trusted examples, and the models that learn them."""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np

from data import cifar_features, mnist
from experiments.keras_real_time.experiment import cnn

CLASSES = 10
NOISES = ("uniform", "class-dependent")
MODELS = {"digits": ("linear", "CNN"), "CIFAR features": ("linear", "MLP")}
Labelled = tuple[np.ndarray, np.ndarray]


class Labels(NamedTuple):
    """Training examples, whose labels are partly wrong, and trusted ones."""

    train: Labelled
    trusted: Labelled
    wrong: np.ndarray


def load(name: str, train: int, trusted: int, noise: str, share: float, seed: int) -> Labels:
    """Examples of a data set with a share of wrong labels.

    Args:
      name: "digits" (images) or "CIFAR features" (vectors).
      noise: "uniform", where a wrong label is any other class, or "class-dependent", where it is the next class.
    """
    x, y = _digits() if name == "digits" else _cifar()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))[: train + trusted]
    first, second = order[:train], order[train:]
    wrong = rng.random(train) < share
    shift = rng.integers(1, CLASSES, train) if noise == "uniform" else 1
    labels = np.where(wrong, (y[first] + shift) % CLASSES, y[first]).astype(np.int32)
    return Labels((x[first], labels), (x[second], y[second]), wrong)


def _digits() -> Labelled:
    digits = mnist.load()
    return digits.images.reshape(-1, 28, 28, 1), digits.labels.astype(np.int32)


def _cifar() -> Labelled:
    features = cifar_features.load()
    return features.features.astype(np.float32), features.labels.astype(np.int32)


def build(name: str, model: str, seed: int) -> keras.Model:
    """A new model, which gives logits."""
    if model == "CNN":
        return cnn(seed)
    keras.utils.set_random_seed(seed)
    shape = [28, 28, 1] if name == "digits" else [256]
    hidden = [keras.layers.Dense(100, "relu")] if model == "MLP" else []
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), *hidden, keras.layers.Dense(CLASSES)])
