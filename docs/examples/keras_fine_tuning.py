"""A new head on a frozen network, as keras.io fine-tunes; the tuner takes the place of `model.fit`.

python -m docs.examples.keras_fine_tuning
"""

import keras
from keras import layers

import rfho2 as rf
from data import mnist


def main(train: int = 3_000, epochs: int = 5) -> keras.callbacks.History:
    digits = mnist.load()
    images, labels = digits.images.reshape(-1, 28, 28, 1), digits.labels
    low, high = labels < 5, labels >= 5
    x, y = images[high][: train + 500], labels[high][: train + 500] - 5

    keras.utils.set_random_seed(0)
    base = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            *(layers.Conv2D(16, 3, strides=2, activation="relu"), layers.BatchNormalization()),
            *(layers.Conv2D(32, 3, strides=2, activation="relu"), layers.BatchNormalization()),
            layers.Flatten(),
        ],
        name="base",
    )
    pretrained = keras.Sequential([base, layers.Dense(5, "softmax")])  # knows the digits 0 to 4
    pretrained.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    pretrained.fit(images[low][:train], labels[low][:train], epochs=2, verbose=0)

    base.trainable = False
    inputs = keras.Input((28, 28, 1))
    features = base(inputs, training=False)
    model = keras.Model(inputs, layers.Dense(5, "softmax")(layers.Dropout(0.2)(features)))  # learns 5 to 9
    model.compile(keras.optimizers.Adam(1e-4), "sparse_categorical_crossentropy", metrics=["accuracy"])
    tuner = rf.RealTimeTuner(model)
    return tuner.fit(x[:train], y[:train], validation_data=(x[train:], y[train:]), epochs=epochs)


if __name__ == "__main__":
    main()
