"""Finds wrong labels in training data, with any Keras classifier and some labels that can be trusted.

python -m docs.examples.clean_labels
python -m docs.examples.clean_labels suspects.png
"""

import sys

import keras
import numpy as np

import rfho2 as rf
from data import mnist


def main(train: int = 5_000, iterations: int = 20, hidden: int = 100, picture: str = "") -> float:
    split = mnist.noisy_split(mnist.load(), seed=0, train=train)
    rng = np.random.default_rng(0)
    wrong = rng.random(train) < 0.3  # these labels are replaced by another class
    labels = np.where(wrong, (split.true_labels + rng.integers(1, 10, train)) % 10, split.true_labels)

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([784]), keras.layers.Dense(hidden, "relu"), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    cleaned = rf.per_example_weights(
        model,
        loss,
        train=(split.train.images, labels),
        validation=tuple(split.validation),
        iterations=iterations,
        callbacks=[rf.ProgressBar()],
    )
    suspected = np.isin(np.arange(train), cleaned.suspects)
    hits = np.sum(suspected & wrong)
    f1 = 2 * hits / (np.sum(suspected) + np.sum(wrong))
    print(f"{np.sum(wrong)} labels are wrong; {len(cleaned.suspects)} are suspected, {hits} of them correctly: F1 {f1:.3f}")
    if picture:
        cleaned.plot((split.train.images.reshape(-1, 28, 28), labels)).savefig(picture, dpi=100)
    return float(f1)


if __name__ == "__main__":
    main(picture=" ".join(sys.argv[1:]))
