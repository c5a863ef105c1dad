"""The strength of an augmentation: how far to shift training digits at random, vertically and horizontally.

python -m docs.gallery.augmentation picture.png
"""

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import rfho2 as rf
from docs.gallery.digits import Shown, digits, error, network, show, wrong


def normal(key, shape):  # Box and Muller's
    first, second = tf.unstack(rf.batches.uniform(key, [2, *shape]))
    return tf.sqrt(-2 * tf.math.log(1 - first)) * tf.cos(2 * np.pi * second)


def shifted(images, pixels):
    """Images [n, 784], moved by pixels [n, 2]: linear interpolation, so that it has a derivative."""
    here = tf.range(28.0)
    weights = tf.nn.relu(1 - tf.abs(here[:, None] - here - pixels[..., None, None]))  # [n, 2, 28, 28]
    moved = weights[:, 0] @ tf.reshape(images, [-1, 28, 28]) @ tf.transpose(weights[:, 1], [0, 2, 1])
    return tf.reshape(moved, [-1, 784])


def main(steps: int = 150, iterations: int = 40) -> Shown:
    train, valid, test = digits(300, 1_000)

    def augmented(p, hypers, batch):
        (x, y), key = batch
        return error(p, {}, (shifted(x, hypers["shift"] * normal(key, [x.shape[0], 2])), y))

    descent = rf.momentum(augmented, learning_rate=0.03, momentum=0.9)
    batches = rf.batches.seeded(rf.batches.shuffled(train, 50, seed=0), seed=1)
    problem = rf.Problem(descent, error, steps, batches, rf.batches.full(valid))
    history = []
    tuner = rf.HyperOptimizer(
        rf.reverse(problem),
        rf.projected_adam(0.1, log_scale=["shift"]),
        [rf.ProgressBar()],
        metrics=lambda state, hypers, k: history.append(hypers["shift"].numpy()) or {},
    )
    start, shift = network([784, 50, 10]), np.full(2, 0.3, "float32")
    tuned = tuner.run(start, {"shift": shift}, iterations).hypers["shift"]

    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.plot(history, label=["vertically", "horizontally"])
    axis.set(xlabel="hyper-iteration", ylabel="standard deviation of the shift, pixels")
    axis.legend()
    each = (shift, tuned, np.ones(2, "float32"))
    errors = [wrong(problem.train(start, {"shift": tf.constant(values)}).params, test) for values in each]
    return Shown(*errors, "one pixel", "test error, %", figure)


if __name__ == "__main__":
    show(main)
