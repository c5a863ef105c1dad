"""Learns one weight decay per layer, offline: each hyper-iteration is a whole training run, with better decays.

python -m docs.examples.weight_decay_per_layer
"""

import keras

import rfho2 as rf
from data import mnist


def main(train: int = 1_000, steps: int = 300, iterations: int = 25) -> rf.Tuned:
    split = mnist.noisy_split(mnist.load(), seed=0, train=train, validation=2_000)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([784]), keras.layers.Dense(50, "tanh"), keras.layers.Dense(10)])
    tuned = rf.tune(
        model,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        train=(split.train.images, split.true_labels),
        validation=tuple(split.validation),
        hypers=["weight_decay"],
        per_layer=True,
        steps=steps,
        batch_size=50,
        iterations=iterations,
        callbacks=[rf.ProgressBar()],
    )
    first, best = tuned.result.history[0]["value"], tuned.result.best.value
    print(f"validation loss {first:.4f} -> {best:.4f}; decay of each layer {tuned.hypers['weight_decay']}")
    return tuned


if __name__ == "__main__":
    main()
