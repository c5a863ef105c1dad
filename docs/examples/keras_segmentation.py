"""A U-Net that finds the pixels of digits in noise, as keras.io writes it; the tuner takes the place of `model.fit`.

python -m docs.examples.keras_segmentation
"""

import keras
import numpy as np
from keras import layers

import rfho2 as rf
from data import mnist


def noisy_digits(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Digits in noise, 28 x 28, and the class of each pixel: digit or background."""
    images = mnist.load().images[:number].reshape(-1, 28, 28, 1)
    noise = np.random.default_rng(0).normal(0, 0.5, images.shape)
    return (images + noise).astype("float32"), (images > 0.5).astype("int32")


def u_net() -> keras.Model:
    inputs = keras.Input((28, 28, 1))
    x, skipped = inputs, []
    for filters in (8, 16):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
        skipped.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.SeparableConv2D(32, 3, padding="same", activation="relu")(x)
    for filters, skip in zip((16, 8), reversed(skipped), strict=True):
        x = layers.UpSampling2D(interpolation="bilinear")(x)
        x = layers.Concatenate()([x, skip])
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return keras.Model(inputs, layers.Conv2D(2, 1, activation="softmax")(x))


def main(train: int = 1_000, epochs: int = 3, batch_size: int = 32) -> keras.callbacks.History:
    x, y = noisy_digits(train + 200)
    keras.utils.set_random_seed(0)
    model = u_net()
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    tuner = rf.RealTimeTuner(model)
    return tuner.fit(x[:train], y[:train], validation_data=(x[train:], y[train:]), epochs=epochs, batch_size=batch_size)


if __name__ == "__main__":
    main()
