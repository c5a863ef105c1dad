"""A transformer that classifies text, as keras.io writes it; the tuner takes the place of `model.fit`.

python -m docs.examples.keras_text
"""

import keras
import numpy as np
from keras import layers, ops

import rfho2 as rf

WORDS, LENGTH = 22, 15  # token 0 is padding, 1 is "not", 2 to 11 are good words, 12 to 21 bad ones


def reviews(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic reviews: "not" turns the next word around, and the majority decides."""
    rng = np.random.default_rng(seed)
    x = rng.choice(WORDS - 1, size=(number, LENGTH), p=[0.1, *[0.9 / 20] * 20]) + 1
    meaning = np.where(x >= 12, -1, np.where(x >= 2, 1, 0))
    turned = np.roll(x == 1, 1, axis=1)
    turned[:, 0] = False
    return x, (np.sum(np.where(turned, -meaning, meaning), 1) > 0).astype("int32")


class TransformerBlock(layers.Layer):
    def __init__(self, width: int, heads: int, hidden: int, rate: float = 0.1):
        super().__init__()
        self.attention = layers.MultiHeadAttention(heads, width // heads)
        self.feed_forward = keras.Sequential([layers.Dense(hidden, "relu"), layers.Dense(width)])
        self.norms = [layers.LayerNormalization(epsilon=1e-6) for _ in range(2)]
        self.dropouts = [layers.Dropout(rate) for _ in range(2)]

    def call(self, x, training=False):
        x = self.norms[0](x + self.dropouts[0](self.attention(x, x), training=training))
        return self.norms[1](x + self.dropouts[1](self.feed_forward(x), training=training))


def main(train: int = 4_000, epochs: int = 5, batch_size: int = 32) -> keras.callbacks.History:
    (x_train, y_train), validation = reviews(train, 0), reviews(1_000, 1)
    keras.utils.set_random_seed(0)
    inputs = keras.Input((LENGTH,))
    positions = layers.Embedding(LENGTH, 32)(ops.arange(LENGTH))
    x = TransformerBlock(32, 2, 32)(layers.Embedding(WORDS, 32)(inputs) + positions)
    x = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))
    model = keras.Model(inputs, layers.Dense(2, "softmax")(x))
    rate = keras.optimizers.schedules.CosineDecay(1e-3, epochs * (train // batch_size))
    model.compile(keras.optimizers.AdamW(rate, clipnorm=1.0), "sparse_categorical_crossentropy", metrics=["accuracy"])
    tuner = rf.RealTimeTuner(model)
    return tuner.fit(x_train, y_train, validation_data=validation, epochs=epochs, batch_size=batch_size)


if __name__ == "__main__":
    main()
