"""Ways to find wrong labels; each returns which training examples it suspects, by name."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np

import rfho2 as rf
from experiments.label_cleaning.problems import Labelled, Labels

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
EPOCHS = 20
FOLDS = 5
IMPROBABLE = 0.2
THRESHOLD = 0.25  # the default of `rf.per_example_weights`

Build = Callable[[], keras.Model]
Suspected = dict[str, np.ndarray]


def probabilities(build: Build, examples: Labelled, x: np.ndarray) -> np.ndarray:
    """The predictions for other examples of a model that Keras's Adam fits to these."""
    model = build()
    model.compile("adam", LOSS)
    model.fit(*examples, epochs=EPOCHS, batch_size=32, verbose=0)
    return np.asarray(keras.ops.softmax(model.predict(x, batch_size=500, verbose=0)))


def out_of_fold(build: Build, labels: Labels, seed: int) -> np.ndarray:
    """The predictions for training examples of models that did not see them; all models see the trusted ones."""
    x, y = labels.train
    folds = np.random.default_rng(seed).permutation(np.arange(len(x)) % FOLDS)
    predicted = np.zeros([len(x), int(y.max()) + 1])
    for fold in range(FOLDS):
        seen = folds != fold
        both = [np.concatenate(pair) for pair in zip((x[seen], y[seen]), labels.trusted, strict=True)]
        predicted[~seen] = probabilities(build, (both[0], both[1]), x[~seen])
    return predicted


def disagreement(build: Build, labels: Labels, seed: int, iterations: int) -> Suspected:
    """A model of the trusted examples predicts another class, or gives the label a low probability."""
    x, y = labels.train
    predicted = probabilities(build, labels.trusted, x)
    return {
        "model of the trusted: another class": predicted.argmax(1) != y,
        f"model of the trusted: p < {IMPROBABLE}": predicted[np.arange(len(y)), y] < IMPROBABLE,
    }


def cleanlab(build: Build, labels: Labels, seed: int, iterations: int) -> Suspected:
    """Confident learning, with predictions out of fold."""
    from cleanlab.filter import find_label_issues

    predicted = out_of_fold(build, labels, seed)
    # n_jobs=1: a process forked while a thread of TensorFlow holds a lock hangs.
    return {"cleanlab, out of fold": np.asarray(find_label_issues(labels.train[1], predicted, n_jobs=1))}


def refits_alone(build: Build, labels: Labels, seed: int, iterations: int) -> Suspected:
    """The refits of `rf.per_example_weights`, without learned weights."""
    cleaned = rf.per_example_weights(build(), LOSS, labels.train, labels.trusted, iterations=0, seed=seed, verbose=0)
    return {"refits from the trusted": np.isin(np.arange(len(labels.wrong)), cleaned.suspects)}


def learned_weights(build: Build, labels: Labels, seed: int, iterations: int) -> Suspected:
    """`rf.per_example_weights`: what the weights alone say, and what the refits after them do."""
    train, trusted = labels.train, labels.trusted
    cleaned = rf.per_example_weights(build(), LOSS, train, trusted, iterations=iterations, seed=seed, verbose=0)
    refitted = np.isin(np.arange(len(labels.wrong)), cleaned.suspects)
    return {"learned weights": cleaned.weights < THRESHOLD, "learned weights, then refits": refitted}


def f1(suspected: np.ndarray, wrong: np.ndarray) -> float:
    """The F1 score of finding the wrong labels."""
    return float(2 * np.sum(suspected & wrong) / max(1, np.sum(suspected) + np.sum(wrong)))
