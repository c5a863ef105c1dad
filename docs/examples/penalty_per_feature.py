"""Ridge regression with a penalty for each feature, as a scikit-learn estimator whose training is one exact solution.

python -m docs.examples.penalty_per_feature
"""

import numpy as np
import tensorflow as tf
from sklearn import base, datasets, linear_model, model_selection, pipeline, preprocessing

import rfho2 as rf


class RidgePerFeature(base.RegressorMixin, base.BaseEstimator):
    """Penalties that minimise the cross-validated error; for standardised features."""

    def __init__(self, folds=5, iterations=60):
        self.folds, self.iterations = folds, iterations

    def fit(self, x, y):
        self.mean_, data = np.mean(y), (x, y - np.mean(y))
        valid = np.random.default_rng(0).permutation(len(x) // self.folds * self.folds).reshape(self.folds, -1)
        train = np.stack([np.setdiff1d(np.arange(len(x)), fold) for fold in valid])

        def rows(indices, k):
            return tuple(tf.gather(part, tf.gather(indices, k % self.folds)) for part in data)

        def solve(w, hypers, batch, t):
            x, y = batch
            gram = tf.matmul(x, x, transpose_a=True) + tf.linalg.diag(x.shape[0] * hypers["l2"])
            return tf.linalg.solve(gram, tf.matmul(x, y[:, None], transpose_a=True))[:, 0]

        def error(w, hypers, batch):
            return tf.reduce_mean((tf.linalg.matvec(batch[0], w) - batch[1]) ** 2)

        exact = rf.Dynamics(init=lambda w, hypers: w, step=solve, params=lambda w: w)
        problem = rf.Problem(exact, error, 1, batches=lambda t, k: rows(train, k), validation=lambda k: rows(valid, k))
        tuner = rf.HyperOptimizer(rf.average(rf.reverse(problem), self.folds), rf.projected_adam(0.2, log_scale=["l2"]))
        self.l2_ = tuner.run(np.zeros(x.shape[1]), {"l2": np.full(x.shape[1], 0.01)}, self.iterations).best.hypers["l2"]
        self.coef_ = solve(None, {"l2": self.l2_}, data, 0).numpy()
        return self

    def predict(self, x):
        return x @ self.coef_ + self.mean_


def main(iterations=60, splits=5):
    sparse = datasets.make_regression(300, 100, n_informative=5, noise=50.0, random_state=0)
    cases = {"diabetes": datasets.load_diabetes(return_X_y=True), "5 of 100 features matter": sparse}
    shuffled = model_selection.ShuffleSplit(splits, test_size=0.5, random_state=0)
    for case, (x, y) in cases.items():
        models = RidgePerFeature(iterations=iterations), linear_model.RidgeCV(np.logspace(-3, 3, 25)), linear_model.LassoCV()
        for model in models:
            scaled = pipeline.make_pipeline(preprocessing.StandardScaler(), model)
            scores = model_selection.cross_val_score(scaled, x, (y - y.mean()) / y.std(), cv=shuffled)
            print(f"{case}, {type(model).__name__}: test R2 {scores.mean():.3f}")


if __name__ == "__main__":
    main()
