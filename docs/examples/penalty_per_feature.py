"""Ridge regression with a penalty for each feature, as a scikit-learn estimator whose training is one exact solution.

python -m docs.examples.penalty_per_feature
"""

import numpy as np
import tensorflow as tf
from sklearn import base, datasets, linear_model

import rfho2 as rf
from docs.examples.cross_validation import folds, print_scores


class RidgePerFeature(base.RegressorMixin, base.BaseEstimator):
    """Penalties that minimise the cross-validated error; for standardised features."""

    def __init__(self, folds=5, iterations=60):
        self.folds, self.iterations = folds, iterations

    def fit(self, x, y):
        self.mean_, data = np.mean(y), (x, y - np.mean(y))

        def solve(w, hypers, batch, t):
            x, y = batch
            gram = tf.matmul(x, x, transpose_a=True) + tf.linalg.diag(x.shape[0] * hypers["l2"])
            return tf.linalg.solve(gram, tf.matmul(x, y[:, None], transpose_a=True))[:, 0]

        def error(w, hypers, batch):
            return tf.reduce_mean((tf.linalg.matvec(batch[0], w) - batch[1]) ** 2)

        exact = rf.Dynamics(init=lambda w, hypers: w, step=solve, params=lambda w: w)
        problem = rf.Problem(exact, error, 1, *folds(data, self.folds))
        tuner = rf.HyperOptimizer(rf.average(rf.reverse(problem), self.folds), rf.projected_adam(0.2, log_scale=["l2"]))
        self.l2_ = tuner.run(np.zeros(x.shape[1]), {"l2": np.full(x.shape[1], 0.01)}, self.iterations).best.hypers["l2"]
        self.coef_ = solve(None, {"l2": self.l2_}, data, 0).numpy()
        return self

    def predict(self, x):
        return x @ self.coef_ + self.mean_


def main(iterations=60, splits=5):
    sparse = datasets.make_regression(300, 100, n_informative=5, noise=50.0, random_state=0)
    sparse = sparse[0], sparse[1] / sparse[1].std()
    diabetes = datasets.load_diabetes(return_X_y=True)
    cases = {"diabetes": (diabetes[0], diabetes[1] / diabetes[1].std()), "5 of 100 features matter": sparse}
    models = {"a penalty for each": RidgePerFeature(iterations=iterations)}
    models |= {"one penalty": linear_model.RidgeCV(np.logspace(-3, 3, 25)), "L1": linear_model.LassoCV()}
    print_scores(cases, models, splits, "r2")


if __name__ == "__main__":
    main()
