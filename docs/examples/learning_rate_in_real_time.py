"""Tunes the learning rate of a CNN while it trains, from a value that is 100 times too small.

python -m docs.examples.learning_rate_in_real_time
"""

import keras

import rfho2 as rf
from data import mnist


def main(epochs: int = 5, train: int = 10_000) -> keras.callbacks.History:
    split = mnist.noisy_split(mnist.load(), seed=0, train=train, validation=2_500)
    x, y = split.train.images.reshape(-1, 28, 28, 1), split.true_labels
    validation = split.validation.images.reshape(-1, 28, 28, 1), split.validation.labels

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input([28, 28, 1]),
            keras.layers.Conv2D(8, 5, strides=2, activation="relu"),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    tuner = rf.RealTimeTuner(model, loss, hypers={"learning_rate": 1e-4}, metrics=["accuracy"])
    history = tuner.fit(x, y, validation_data=validation, epochs=epochs, batch_size=50)
    rates = history.trajectories["learning_rate"]
    print(f"learning rate {rates[0]:.1e} -> {rates.max():.1e} -> {rates[-1]:.1e}")
    print(f"validation accuracy {100 * history.history['val_accuracy'][-1]:.1f} %")
    return history


if __name__ == "__main__":
    main()
