"""Logistic regression with a penalty for each feature, as a scikit-learn estimator trained by Newton's method.

python -m docs.examples.logistic_per_feature
"""

import numpy as np
import tensorflow as tf
from sklearn import base, datasets, linear_model

import rfho2 as rf
from docs.examples.cross_validation import folds, print_scores


class LogisticPerFeature(base.ClassifierMixin, base.BaseEstimator):
    """Penalties that minimise the cross-validated loss, none below the best that all could share; for classes 0 and 1."""

    def __init__(self, folds=5, iterations=60):
        self.folds, self.iterations = folds, iterations

    def fit(self, x, y):
        self.classes_, data = np.unique(y), (np.hstack([x, np.ones((len(x), 1))]), y.astype(float))

        def newton(w, hypers, batch, t):
            (x, y), l2 = batch, tf.concat([hypers["l2"], [1e-6]], 0)  # the constant is free
            p = tf.sigmoid(tf.linalg.matvec(x, w))
            gradient = tf.linalg.matvec(x, p - y, transpose_a=True) / x.shape[0] + l2 * w
            hessian = tf.matmul(x, x * (p * (1 - p))[:, None], transpose_a=True) / x.shape[0] + tf.linalg.diag(l2)
            return w - tf.linalg.solve(hessian, gradient[:, None])[:, 0]

        def loss(w, hypers, batch):
            return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(batch[1], tf.linalg.matvec(batch[0], w)))

        shared = 1 / (len(x) * linear_model.LogisticRegressionCV(Cs=20, scoring="neg_log_loss").fit(x, y).C_[0])
        trained = rf.Dynamics(init=lambda w, hypers: w, step=newton, params=lambda w: w)
        engine = rf.average(rf.reverse(rf.Problem(trained, loss, 8, *folds(data, self.folds))), self.folds)
        optimizer = rf.projected_adam(0.2, {"l2": rf.Box(shared, 1e4 * shared)}, log_scale=["l2"])
        w, start = np.zeros(x.shape[1] + 1), {"l2": np.full(x.shape[1], 1.1 * shared)}
        best = rf.HyperOptimizer(engine, optimizer).run(w, start, self.iterations).best.hypers
        for t in range(8):
            w = newton(w, best, data, t)
        self.l2_, self.coef_ = best["l2"], w.numpy()
        return self

    def predict_proba(self, x):
        p = 1 / (1 + np.exp(-x @ self.coef_[:-1] - self.coef_[-1]))
        return np.stack([1 - p, p], 1)


def main(iterations=60, splits=5):
    sparse = datasets.make_classification(400, 100, n_informative=5, n_redundant=0, n_clusters_per_class=1, random_state=0)
    cases = {"breast cancer": datasets.load_breast_cancer(return_X_y=True), "5 of 100 features matter": sparse}
    like = {"Cs": 20, "scoring": "neg_log_loss", "solver": "liblinear"}
    shared = {f"L{2 - r}": linear_model.LogisticRegressionCV(l1_ratios=[r], **like) for r in (0, 1)}
    models = {"a penalty for each": LogisticPerFeature(iterations=iterations), **shared}
    print_scores(cases, models, splits, "neg_log_loss")


if __name__ == "__main__":
    main()
