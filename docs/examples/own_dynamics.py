"""Your own training rule: gradients clipped smoothly by tanh, with the clipping size and the learning rate tuned.

python -m docs.examples.own_dynamics
"""

import numpy as np
import tensorflow as tf

import rfho2 as rf


def data(seed: int, examples: int) -> tuple[tf.Tensor, tf.Tensor]:
    """A linear model with heavy-tailed noise: a few wild outliers."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(examples, 5))
    y = x @ np.arange(1.0, 6.0) + rng.standard_t(1.5, size=examples)
    return tf.constant(x), tf.constant(y)


def main(steps: int = 50, iterations: int = 80) -> rf.Result:
    def loss(w, batch):
        return tf.reduce_mean(tf.square(tf.linalg.matvec(batch[0], w) - batch[1]))

    def step(w, hypers, batch, t):
        with tf.GradientTape() as tape:
            tape.watch(w)
            value = loss(w, batch)
        size = tf.exp(hypers["log_size"])
        return w - hypers["lr"] * size * tf.tanh(tape.gradient(value, w) / size)

    def objective(w, hypers, batch):  # robust: absolute, not squared, distances
        return tf.reduce_mean(tf.abs(tf.linalg.matvec(batch[0], w) - batch[1]))

    problem = rf.Problem(
        rf.Dynamics(init=lambda w, hypers: w, step=step, params=lambda state: state),
        objective,
        steps=steps,
        batches=rf.batches.shuffled(data(0, 200), 20, seed=0),
        validation=rf.batches.full(data(1, 500)),
    )
    initial = {"lr": 0.01, "log_size": 0.0}
    print(rf.check_hypergradient(problem, tf.zeros(5, tf.float64), initial))
    tuner = rf.HyperOptimizer(rf.forward(problem), rf.projected_adam({"lr": 0.01, "log_size": 0.1}, {"lr": rf.Box(0, 1)}))
    result = tuner.run(tf.zeros(5, tf.float64), initial, iterations)
    print(f"mean absolute error {result.history[0]['value']:.3f} -> {result.best.value:.3f}")
    return result


if __name__ == "__main__":
    main()
