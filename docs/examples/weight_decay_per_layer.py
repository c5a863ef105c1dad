"""Learns one weight decay per layer, offline: each hyper-iteration is a whole training run, with better decays.

python -m docs.examples.weight_decay_per_layer
"""

import keras

import rfho2 as rf
from data import mnist

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def main(train: int = 300, steps: int = 300, iterations: int = 60) -> rf.Tuned:
    split = mnist.noisy_split(mnist.load(), seed=0, train=train, validation=2_000)

    def tune(iterations: int) -> rf.Tuned:
        keras.utils.set_random_seed(0)
        dense = [keras.layers.Dense(50, "relu"), keras.layers.Dense(50, "relu"), keras.layers.Dense(10)]
        return rf.tune(
            keras.Sequential([keras.Input([784]), *dense]),
            LOSS,
            train=(split.train.images, split.true_labels),
            validation=tuple(split.validation),
            hypers=["weight_decay"],
            method="reverse",
            per_layer=True,
            steps=steps,
            batch_size=50,
            iterations=iterations,
            hyper_rate=0.5,
            refit=False,
            callbacks=[rf.ProgressBar()],
        )

    for name, tuned in {"as it starts": tune(1), "tuned": tune(iterations)}.items():
        x, y = split.test
        test = float(LOSS(y, tuned.model(x)))
        decays = ", ".join(f"{decay:.2g}" for decay in tuned.hypers["weight_decay"])
        print(f"{name}: decays {decays}; validation loss {tuned.result.best.value:.3f}, test loss {test:.3f}")
    return tuned


if __name__ == "__main__":
    main()
