"""A variational autoencoder of digits with `add_loss`; the tuner takes the place of `model.fit`.

python -m docs.examples.keras_vae
"""

import keras
import numpy as np
from keras import layers, ops

import rfho2 as rf
from data import mnist


class Sampling(layers.Layer):
    """Draws z from a normal distribution, and adds its divergence from the standard one to the loss."""

    def __init__(self, weight: float):
        super().__init__()
        self.weight = weight
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, inputs):
        mean, log_variance = inputs
        divergence = -0.5 * ops.sum(1 + log_variance - ops.square(mean) - ops.exp(log_variance), axis=-1)
        self.add_loss(self.weight * ops.mean(divergence))
        noise = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_variance) * noise


def main(train: int = 4_000, epochs: int = 5, batch_size: int = 64, latent: int = 8) -> keras.callbacks.History:
    images = np.clip(mnist.load().images[: train + 500], 0, 1).astype("float32")
    keras.utils.set_random_seed(0)
    encoder_input = keras.Input((784,))
    h = layers.Dense(128, "relu")(encoder_input)
    z = Sampling(weight=1 / 784)([layers.Dense(latent)(h), layers.Dense(latent)(h)])
    h = layers.Dense(128, "relu")(z)
    model = keras.Model(encoder_input, layers.Dense(784, "sigmoid")(h), name="vae")
    model.compile(keras.optimizers.Adam(1e-3), "binary_crossentropy")
    tuner = rf.RealTimeTuner(model)
    held_out = images[train:]
    return tuner.fit(images[:train], images[:train], (held_out, held_out), epochs=epochs, batch_size=batch_size)


if __name__ == "__main__":
    main()
