"""Tunes a learning-rate schedule in short training runs, and uses it for a long one in plain Keras.

python -m docs.examples.keras_schedule picture.png
"""

import sys

import keras
import matplotlib.pyplot as plt

import rfho2 as rf
from data import mnist


def main(steps: int = 300, iterations: int = 30, epochs: int = 20) -> tuple[rf.Tuned, keras.callbacks.History]:
    digits = mnist.load()
    x, y = digits.images.astype("float32"), digits.labels.astype("int32")
    train, validation, test = ((x[rows], y[rows]) for rows in (slice(5_000), slice(5_000, 7_500), slice(7_500, None)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([784]), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss, metrics=["accuracy"])
    options = {"steps": steps, "iterations": iterations, "batch_size": 50}
    tuned = rf.tune(model, train=train, validation=validation, schedule={"learning_rate": 6}, seeds=2, **options)

    rate = tuned.schedules["learning_rate"].stretched(epochs * len(x[:5_000]) // 50)
    model = keras.models.clone_model(model)  # with new initial weights
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), loss, metrics=["accuracy"])
    return tuned, model.fit(*train, 50, epochs, validation_data=test)


if __name__ == "__main__":
    tuned, history = main()
    rate, figure = tuned.schedules["learning_rate"], plt.figure(figsize=(5, 3.2), layout="constrained")
    axis = figure.add_subplot(xlabel="step", ylabel="learning rate", yscale="log")
    axis.plot([float(rate(step)) for step in range(rate.steps)])
    axis.axhline(0.01, color="0.5", linestyle="--", label="before tuning")
    axis.legend()
    figure.savefig(sys.argv[1], dpi=150)
