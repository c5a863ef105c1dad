"""Five more tasks, on which an objective that was chosen on the first ten is confirmed once."""

from __future__ import annotations

import keras
import numpy as np

from experiments.keras_tasks import made_data
from experiments.keras_tasks.tasks import CLASSES, TWO_CLASSES, Parts, Task, divide, layers


def load_waveforms(seed: int) -> Parts:
    """A quarter of the examples to train on."""
    return divide(*made_data.waveforms(2000, np.random.default_rng(seed)), seed, 0.25, 0.25)


def waveform_model() -> keras.Model:
    """Two hidden layers."""
    return keras.Sequential([keras.Input([21]), layers.Dense(64, "relu"), layers.Dense(64, "relu"), layers.Dense(3)])


def load_spirals(seed: int) -> Parts:
    """Three arms that overlap a little."""
    return divide(*made_data.spirals(1500, np.random.default_rng(seed)), seed)


def spiral_model() -> keras.Model:
    """Two hidden layers."""
    return keras.Sequential([keras.Input([2]), layers.Dense(64, "relu"), layers.Dense(64, "relu"), layers.Dense(3)])


def load_snippets(seed: int) -> Parts:
    """Pieces of programs as bytes."""
    return divide(*made_data.snippets(), seed)


def snippet_model() -> keras.Model:
    """Convolutions over embedded bytes, and the maximum over all places."""
    return keras.Sequential(
        [
            keras.Input([made_data.SNIPPET], dtype="int32"),
            layers.Embedding(128, 16),
            layers.Conv1D(32, 5, activation="relu"),
            layers.GlobalMaxPooling1D(),
            layers.Dropout(0.2, seed=0),
            layers.Dense(len(made_data.LANGUAGES)),
        ]
    )


def load_patches(seed: int) -> Parts:
    """Patches of photographs; those of different parts may overlap."""
    return divide(*made_data.patches(3000, np.random.default_rng(seed)), seed)


def patch_model() -> keras.Model:
    """A CNN with batch norm."""
    return keras.Sequential(
        [
            keras.Input([12, 12, 1]),
            layers.Conv2D(16, 3, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(8),
        ]
    )


def load_repeats(seed: int) -> Parts:
    """Does a token occur twice?"""
    return divide(*made_data.repeats(3000, np.random.default_rng(seed)), seed)


def repeat_model() -> keras.Model:
    """One layer of attention."""
    inputs = keras.Input([8], dtype="int32")
    x = layers.Embedding(16, 24)(inputs)
    attended = layers.MultiHeadAttention(2, 24)(x, x)
    hidden = layers.Dense(32, "relu")(layers.concatenate([x, attended]))
    return keras.Model(inputs, layers.Dense(1)(layers.GlobalMaxPooling1D()(hidden)))


LATER = {
    "waveforms": Task(load_waveforms, waveform_model, CLASSES, 20),
    "spirals": Task(load_spirals, spiral_model, CLASSES, 30),
    "snippets": Task(load_snippets, snippet_model, CLASSES, 15),
    "patches": Task(load_patches, patch_model, CLASSES, 15),
    "repeats": Task(load_repeats, repeat_model, TWO_CLASSES, 25),
}
