"""What the examples with a penalty for each feature share: folds as batches of a problem, and test scores."""

import numpy as np
import tensorflow as tf
from sklearn import model_selection, pipeline, preprocessing


def folds(data, number):
    """Training examples, (t, k) -> rows, and validation examples, k -> rows; hyper-iteration k has fold k % number."""
    size = len(data[0]) // number * number
    valid = np.random.default_rng(0).permutation(size).reshape(number, -1)
    train = np.stack([np.setdiff1d(np.arange(len(data[0])), fold) for fold in valid])

    def rows(indices, k):
        return tuple(tf.gather(part, tf.gather(indices, k % number)) for part in data)

    return (lambda t, k: rows(train, k)), (lambda k: rows(valid, k))


def print_scores(cases, models, splits, scoring):
    """Mean test scores of each model on each of the cases, with standardised features, over random halves."""
    halves = model_selection.ShuffleSplit(splits, test_size=0.5, random_state=0)
    for case, (x, y) in cases.items():
        for name, model in models.items():
            scaled = pipeline.make_pipeline(preprocessing.StandardScaler(), model)
            scores = model_selection.cross_val_score(scaled, x, y, cv=halves, scoring=scoring)
            print(f"{case}, {name}: test {scoring} {scores.mean():.3f}")
