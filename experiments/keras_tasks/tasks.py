"""The ten tasks: five on which the tuner may be developed, and five that are evaluated only once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from sklearn import datasets

from data import cifar_features
from experiments.keras_tasks import made_data

Examples = tuple[np.ndarray, np.ndarray]
layers = keras.layers


class Parts(NamedTuple):
    """The examples of a task."""

    train: Examples
    validation: Examples
    test: Examples


class Task(NamedTuple):
    """A data set and a model, as a user might bring them.

    Attributes:
      load: the examples, divided by a seed.
      build: a new model.
      loss: cross-entropy of logits, or the squared error.
      epochs, batch_size: of every training.
    """

    load: Callable[[int], Parts]
    build: Callable[[], keras.Model]
    loss: keras.losses.Loss
    epochs: int
    batch_size: int = 32

    def score(self, model: keras.Model, examples: Examples) -> float:
        """Accuracy, or the share of the variance that is explained (at least 0, even after divergence), in per cent."""
        x, y = examples
        outputs = model.predict(x, batch_size=256, verbose=0)
        if isinstance(self.loss, keras.losses.MeanSquaredError):
            return float(np.fmax(0, 100 * (1 - np.mean((outputs - y) ** 2) / np.var(y))))
        guesses = outputs > 0 if isinstance(self.loss, keras.losses.BinaryCrossentropy) else outputs.argmax(1)
        return float(100 * np.mean(guesses == y))


CLASSES = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
TWO_CLASSES = keras.losses.BinaryCrossentropy(from_logits=True)
SQUARES = keras.losses.MeanSquaredError()


def divide(x: np.ndarray, y: np.ndarray, seed: int, train: float = 0.6, validation: float = 0.2) -> Parts:
    """Random parts; the last one gets the remainder."""
    ends = [round(train * len(x)), round((train + validation) * len(x))]
    order = np.random.default_rng(seed).permutation(len(x))
    return Parts(*((x[part], y[part]) for part in np.split(order, ends)))


def standardised(parts: Parts, labels: bool = False) -> Parts:
    """Inputs, and labels if those are numbers, with mean 0 and standard deviation 1 on the training examples."""

    def scale(values: np.ndarray, reference: np.ndarray) -> np.ndarray:
        deviation = np.where(reference.std(0) > 0, reference.std(0) + 1e-6, 1)  # a pixel may be constant in training
        return ((values - reference.mean(0)) / deviation).astype(np.float32)

    (x, y), *_ = parts
    return Parts(*((scale(part_x, x), scale(part_y, y) if labels else part_y) for part_x, part_y in parts))


def table_of(load: Callable[..., Any], seed: int, column: bool = False, labels: bool = False) -> Parts:
    """A table that scikit-learn ships.

    Args:
      load: a function of `sklearn.datasets`.
      column: whether the labels are a column of numbers.
      labels: whether they are to be standardised.
    """
    x, y = load(return_X_y=True)
    y = y[:, None].astype(np.float32) if column else y.astype(np.int32)
    return standardised(divide(x, y, seed), labels)


def mlp(inputs: int, width: int, outputs: int) -> keras.Model:
    """One hidden layer of ReLUs."""
    return keras.Sequential([keras.Input([inputs]), layers.Dense(width, "relu"), layers.Dense(outputs)])


def load_texts(seed: int) -> Parts:
    """Docstrings; the vocabulary is that of the training texts."""
    texts, labels = made_data.docstrings()
    parts = divide(np.arange(len(texts)), labels, seed)
    known = [texts[i] for i in parts.train[0]]
    return Parts(*((made_data.as_numbers([texts[i] for i in numbers], known), y) for numbers, y in parts))


def text_classifier() -> keras.Model:
    """A mean of embeddings and one hidden layer."""
    return keras.Sequential(
        [
            keras.Input([made_data.LENGTH], dtype="int32"),
            layers.Embedding(made_data.WORDS, 32),
            layers.GlobalAveragePooling1D(),
            layers.Dense(32, "relu"),
            layers.Dense(len(made_data.PACKAGES)),
        ]
    )


def load_series(seed: int, window: int = 32, ahead: int = 6) -> Parts:
    """Windows of a series and the value six steps after each; validation and test come later in time."""
    rng = np.random.default_rng(seed)
    pieces = [made_data.mackey_glass(2200, rng)[start:end] for start, end in ((0, 1200), (1250, 1650), (1700, 2200))]

    def windows(series: np.ndarray) -> Examples:
        count = len(series) - window - ahead
        x = np.stack([series[i : i + window] for i in range(count)])
        return x[..., None].astype(np.float32), series[window + ahead - 1 : -1, None].astype(np.float32)

    return Parts(*map(windows, pieces))


def series_model() -> keras.Model:
    """Two convolutions in time."""
    return keras.Sequential(
        [
            keras.Input([32, 1]),
            layers.Conv1D(16, 5, strides=2, activation="relu"),
            layers.Conv1D(16, 5, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )


def load_shapes(seed: int) -> Parts:
    """400 images to train on, which is why they are augmented."""
    x, y = made_data.shapes(1600, np.random.default_rng(seed))
    return divide(x, y, seed, train=0.25, validation=0.25)


def shape_model() -> keras.Model:
    """A CNN whose training images are mirrored and shifted."""
    return keras.Sequential(
        [
            keras.Input([20, 20, 1]),
            layers.RandomFlip("horizontal", seed=0),
            layers.RandomTranslation(0.1, 0.1, fill_mode="nearest", seed=1),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )


def load_cifar(seed: int) -> Parts:
    """6,000 CIFAR-10 images, as features of an ImageNet network."""
    features = cifar_features.load()
    parts = divide(features.features.astype(np.float32), features.labels.astype(np.int32), seed, 0.25, 0.1)
    return standardised(parts)


def cifar_model() -> keras.Model:
    """A hidden layer with batch norm and dropout."""
    hidden = [layers.Dense(64, use_bias=False), layers.BatchNormalization(), layers.ReLU(), layers.Dropout(0.3, seed=0)]
    return keras.Sequential([keras.Input([256]), *hidden, layers.Dense(10)])


def load_brackets(seed: int) -> Parts:
    """Strings that match or do not."""
    return divide(*made_data.brackets(2500, np.random.default_rng(seed)), seed)


def bracket_model() -> keras.Model:
    """A recurrent network."""
    return keras.Sequential(
        [keras.Input([10], dtype="int32"), layers.Embedding(4, 8), layers.GRU(24), layers.Dense(1)],
    )


def load_upper_digits(seed: int) -> Parts:
    """The digits 5 to 9 of 8 x 8 pixels, a fifth of them to train on."""
    images, labels = _images_of_digits()
    upper = labels >= 5
    return divide(images[upper], labels[upper] - 5, seed, 0.2, 0.2)


def _images_of_digits() -> Examples:
    x, y = datasets.load_digits(return_X_y=True)
    return (x.reshape(-1, 8, 8, 1) / 8 - 1).astype(np.float32), y.astype(np.int32)


@functools.cache
def _pretrained() -> list[np.ndarray]:
    """The weights of a backbone that has learned the digits 0 to 4."""
    keras.utils.set_random_seed(0)
    images, labels = _images_of_digits()
    backbone = _backbone()
    model = keras.Sequential([backbone, layers.Dense(5)])
    model.compile("adam", CLASSES)
    model.fit(images[labels < 5], labels[labels < 5], epochs=5, verbose=0)
    return backbone.get_weights()


def _backbone() -> keras.Model:
    convolutions = [
        layer
        for width in (16, 32)
        for layer in (layers.Conv2D(width, 3, padding="same"), layers.BatchNormalization(), layers.ReLU())
    ]
    return keras.Sequential([keras.Input([8, 8, 1]), *convolutions, layers.GlobalMaxPooling2D()])


def transfer_model() -> keras.Model:
    """A new head on a frozen backbone that has learned other classes."""
    backbone = _backbone()
    backbone.set_weights(_pretrained())
    backbone.trainable = False
    return keras.Sequential([backbone, layers.Dense(32, "relu"), layers.Dense(5)])


DEVELOPMENT = {
    "digits": Task(functools.partial(table_of, datasets.load_digits), functools.partial(mlp, 64, 64, 10), CLASSES, 15),
    "breast cancer": Task(
        functools.partial(table_of, datasets.load_breast_cancer, column=True),
        functools.partial(mlp, 30, 32, 1),
        TWO_CLASSES,
        25,
    ),
    "docstrings": Task(load_texts, text_classifier, CLASSES, 12),
    "series": Task(load_series, series_model, SQUARES, 12),
    "shapes": Task(load_shapes, shape_model, CLASSES, 20),
}
FROZEN = {
    "wine": Task(functools.partial(table_of, datasets.load_wine), functools.partial(mlp, 13, 32, 3), CLASSES, 30, 16),
    "diabetes": Task(
        functools.partial(table_of, datasets.load_diabetes, column=True, labels=True),
        functools.partial(mlp, 10, 32, 1),
        SQUARES,
        25,
    ),
    "CIFAR features": Task(load_cifar, cifar_model, CLASSES, 12),
    "brackets": Task(load_brackets, bracket_model, TWO_CLASSES, 12),
    "transfer": Task(load_upper_digits, transfer_model, CLASSES, 20, 16),
}
