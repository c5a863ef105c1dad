"""Your own constraint set: shares of data sources that never fall below a floor and sum to 1.

python -m docs.examples.own_constraint
"""

import numpy as np
import tensorflow as tf

import rfho2 as rf


class Shares:
    """{x : x_i >= floor, sum x = 1}: the simplex, scaled and shifted. Any class with these two methods will do."""

    def __init__(self, floor: float, size: int):
        self.floor, self.simplex = floor, rf.Simplex(1.0 - floor * size)

    def project(self, x: tf.Tensor) -> tf.Tensor:
        return self.simplex.project(x - self.floor) + self.floor

    def contains(self, x: tf.Tensor, atol: float | None = None) -> tf.Tensor:
        return self.simplex.contains(x - self.floor, 1e-9 if atol is None else atol)


def main(iterations: int = 60) -> rf.Result:
    rng = np.random.default_rng(0)
    truth, noise = rng.normal(size=8), np.array([0.1, 0.1, 3.0, 3.0])  # two clean data sources, two noisy ones
    x = rng.normal(size=(4, 50, 8))
    y = x @ truth + noise[:, None] * rng.normal(size=(4, 50))
    xv = rng.normal(size=(100, 8))

    def loss(w, hypers, batch):
        errors = tf.square(tf.linalg.matvec(tf.constant(x), w) - y)
        return tf.reduce_sum(hypers["shares"] * tf.reduce_mean(errors, axis=1))

    def objective(w, hypers, batch):
        return tf.reduce_mean(tf.square(tf.linalg.matvec(tf.constant(xv), w) - xv @ truth))

    problem = rf.Problem(rf.gradient_descent(loss, 0.1), objective, steps=40)
    optimizer = rf.projected_adam(0.02, {"shares": Shares(0.05, 4)})
    result = rf.HyperOptimizer(rf.reverse(problem), optimizer).run(
        tf.zeros(8, tf.float64), {"shares": np.full(4, 0.25)}, iterations
    )
    shares = result.hypers["shares"].numpy()
    print("shares of the four sources:", np.round(shares, 3), "sum:", round(float(shares.sum()), 6))
    return result


if __name__ == "__main__":
    main()
