"""KerasTuner chooses the architecture; learning rate and weight decay of each candidate are tuned by hypergradients.

python -m docs.examples.with_keras_tuner   # pip install keras-tuner
"""

import keras
import keras_tuner

import rfho2 as rf
from data import mnist

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Network(keras_tuner.HyperModel):
    """`build` has the discrete choices; `fit`, which would train with `model.fit`, tunes everything else."""

    def build(self, hp):
        keras.utils.set_random_seed(0)
        width, activation = hp.Choice("width", [20, 50, 100]), hp.Choice("activation", ["relu", "tanh"])
        hidden = [keras.layers.Dense(width, activation) for _ in range(hp.Int("layers", 1, 2))]
        return keras.Sequential([keras.Input([784]), *hidden, keras.layers.Dense(10)])

    def fit(self, hp, model, train, validation, steps, iterations, **kwargs):
        tuned = rf.tune(
            model,
            LOSS,
            train=train,
            validation=validation,
            hypers=["learning_rate", "weight_decay"],
            method="reverse",
            steps=steps,
            batch_size=50,
            iterations=iterations,
            refit=False,
        )
        return {"val_loss": tuned.result.best.value, **{name: float(value) for name, value in tuned.hypers.items()}}


def main(trials=6, steps=200, iterations=15, folder="."):
    split = mnist.noisy_split(mnist.load(), seed=0, train=500, validation=1_000)
    objective = keras_tuner.Objective("val_loss", "min")
    settings = {"directory": folder, "project_name": "rfho2_keras_tuner", "overwrite": True}
    tuner = keras_tuner.RandomSearch(Network(), objective, max_trials=trials, seed=0, **settings)
    tuner.search((split.train.images, split.true_labels), tuple(split.validation), steps, iterations)
    best = tuner.oracle.get_best_trials(1)[0]
    found = {name: best.metrics.get_best_value(name) for name in ("val_loss", "learning_rate", "weight_decay")}
    print(best.hyperparameters.values, found)  # no weights are kept: train the winner again
    return tuner, found


if __name__ == "__main__":
    main()
