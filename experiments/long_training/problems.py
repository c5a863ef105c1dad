"""Problems with long training runs: three on which methods may be developed, and six that are run once.

Each is a Keras model with examples, as a user might bring them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from data import cifar_features, mnist
from data.speech import timit
from experiments.keras_tasks.tasks import CLASSES, SQUARES, Examples, Parts, divide
from experiments.phone_classification import config as phone_config
from experiments.phone_classification import network
from experiments.phone_classification.experiment import find_corpus

L = keras.layers
CONTEXT = 16  # characters that the next one is predicted from


class Problem(NamedTuple):
    """Examples and a model.

    Attributes:
      load: (seed, folder for caches) -> the examples.
      build: a new model, given the training examples.
      loss: cross-entropy of logits, or the squared error.
      batch_size: of each step.
      steps: of real time in the shorter budget.
      optimizer: "momentum" or "adam".
    """

    load: Callable[[int, Path], Parts]
    build: Callable[[Examples], keras.Model]
    loss: keras.losses.Loss
    batch_size: int
    steps: int
    optimizer: str = "momentum"

    def score(self, outputs: np.ndarray, y: np.ndarray) -> float:
        """Accuracy, or the share of the variance that is explained, in per cent; at least 0, even after divergence."""
        if isinstance(self.loss, keras.losses.MeanSquaredError):
            return float(np.fmax(0.0, 100 * (1 - np.mean((outputs - y) ** 2) / np.var(y))))
        return float(100 * np.mean(outputs.argmax(1) == y))


def dense(train: Examples, *hidden: int, outputs: int) -> keras.Model:
    """Hidden layers of ReLUs."""
    sizes = [L.Dense(size, "relu") for size in hidden]
    return keras.Sequential([keras.Input(train[0].shape[1:]), *sizes, L.Dense(outputs)])


def teacher(seed: int, cache: Path, train: int = 100_000) -> Parts:
    """Points in 20 dimensions, classified by a random network of 30 hidden units; hardly any is seen twice."""
    rng = np.random.default_rng([seed, 10])
    x = rng.normal(size=(train + 10_000, 20)).astype(np.float32)
    weights = rng.normal(size=(20, 30)) / 20**0.5, rng.normal(size=(30, 5)) / 30**0.5
    y = np.argmax(np.tanh(3 * x @ weights[0]) @ weights[1], 1).astype(np.int32)
    return divide(x, y, seed, train / len(x), 2_000 / len(x))


def noisy_digits(seed: int, cache: Path) -> Parts:
    """MNIST digits; 20 % of the training labels are wrong."""
    digits = mnist.load()
    parts = divide(digits.images.astype(np.float32), digits.labels.astype(np.int32), seed, 0.25, 0.125)
    rng = np.random.default_rng([seed, 11])
    x, y = parts.train
    wrong = (y + rng.integers(1, 10, len(y))) % 10
    return parts._replace(train=(x, np.where(rng.random(len(y)) < 0.2, wrong, y).astype(np.int32)))


def digit_images(seed: int, cache: Path) -> Parts:
    """MNIST digits as images."""
    digits = mnist.load()
    images = digits.images.reshape(-1, 28, 28, 1).astype(np.float32)
    return divide(images, digits.labels.astype(np.int32), seed, 0.25, 0.125)


def cnn(train: Examples) -> keras.Model:
    """Two convolutions with stride 2 and a linear layer: 5,386 weights."""
    convolutions = [L.Conv2D(8, 5, 2, activation="relu"), L.Conv2D(16, 3, 2, activation="relu")]
    return keras.Sequential([keras.Input(train[0].shape[1:]), *convolutions, L.Flatten(), L.Dense(10)])


def image_features(seed: int, cache: Path) -> Parts:
    """Features of CIFAR-10 images."""
    loaded = cifar_features.load()
    x = (loaded.features / loaded.features.std()).astype(np.float32)
    return divide(x, loaded.labels.astype(np.int32), seed, 0.5, 0.25)


def speech(speakers: int, seed: int, cache: Path) -> Parts:
    """Frames of synthetic speech with their neighbours, and the state of each phone; the folds divide the speakers."""
    corpus = find_corpus(phone_config.Config(speakers=speakers), cache)
    data = network.speech(corpus, timit.split(corpus.utterances, seed))
    return Parts(*(_gathered(data, frames) for frames in (data.train, data.validation, data.test)))


def _gathered(data: network.Speech, frames: tf.Tensor, size: int = 10_000) -> Examples:
    """Inputs and classes, gathered part by part: all at once would hold several copies, of GB each."""
    x = np.empty((len(frames), timit.WINDOW * data.features.shape[1]), np.float32)
    for i in range(0, len(frames), size):
        x[i : i + size] = data.inputs(frames[i : i + size])
    return x, tf.gather(data.states, frames).numpy().astype(np.int32)


def characters(seed: int, cache: Path, train: int = 100_000) -> Parts:
    """Windows of the text of Python's language reference, and the character after each; test text comes last."""
    from pydoc_data.topics import topics

    text = re.sub(r"[^ -~]+", " ", " ".join(topics[name] for name in sorted(topics)))
    codes = np.frombuffer(text.encode(), np.uint8).astype(np.int32) - 32
    windows = np.lib.stride_tricks.sliding_window_view(codes, CONTEXT + 1)
    ends = [int(share * len(windows)) for share in (0.8, 0.9)]
    rng = np.random.default_rng([seed, 12])
    drawn = [
        part[rng.permutation(len(part))[:count]]
        for part, count in zip(np.split(windows, ends), (train, 5_000, 10_000), strict=True)
    ]
    return Parts(*((rows[:, :-1].astype(np.float32), rows[:, -1]) for rows in drawn))


def character_model(train: Examples) -> keras.Model:
    """Embeddings of the characters, and a hidden layer."""
    layers = [L.Embedding(95, 16), L.Flatten(), L.Dense(128, "relu"), L.Dense(95)]
    return keras.Sequential([keras.Input(train[0].shape[1:]), *layers])


def noisy_images(seed: int, cache: Path) -> Parts:
    """MNIST digits with noise, and without it, which is to be found."""
    digits = mnist.load()
    clean = digits.images.astype(np.float32)
    noise = np.random.default_rng([seed, 13]).normal(size=clean.shape).astype(np.float32)
    return divide(clean + 0.5 * noise, clean, seed, 0.25, 0.125)


DEVELOPMENT = {
    "teacher": Problem(teacher, lambda train: dense(train, 64, outputs=5), CLASSES, 100, 4_000),
    "digits, wrong labels": Problem(noisy_digits, lambda train: dense(train, 64, outputs=10), CLASSES, 100, 4_000),
    "speech, 16 speakers": Problem(
        functools.partial(speech, 16), lambda train: dense(train, 64, 64, outputs=network.CLASSES), CLASSES, 500, 2_000
    ),
}
FROZEN = {
    "speech, 64 speakers": DEVELOPMENT["speech, 16 speakers"]._replace(load=functools.partial(speech, 64), steps=4_000),
    "speech, 256 speakers": DEVELOPMENT["speech, 16 speakers"]._replace(load=functools.partial(speech, 256), steps=8_000),
    "digits, CNN": Problem(digit_images, cnn, CLASSES, 50, 20_000),
    "CIFAR features": Problem(image_features, lambda train: dense(train, 64, outputs=10), CLASSES, 50, 4_000),
    "characters": Problem(characters, character_model, CLASSES, 100, 8_000, "adam"),
    "noise removal": Problem(noisy_images, lambda train: dense(train, 128, outputs=784), SQUARES, 100, 4_000, "adam"),
}
PROBLEMS = DEVELOPMENT | FROZEN
