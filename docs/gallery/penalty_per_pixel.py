"""An L2 penalty for each pixel: 784 hypers, learned on 2,000 validation digits, for a linear model of 300 digits.

python -m docs.gallery.penalty_per_pixel picture.png
"""

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import rfho2 as rf
from docs.gallery.digits import Shown, digits, error, network, show, wrong


def main(steps: int = 100, iterations: int = 60) -> Shown:
    train, valid, test = digits(300, 2_000)

    def loss(p, hypers, batch):
        return error(p, hypers, batch) + tf.reduce_sum(hypers["l2"][:, None] * p["w0"] ** 2)

    descent = rf.momentum(loss, learning_rate=0.1, momentum=0.9)
    problem = rf.Problem(descent, error, steps, rf.batches.full(train), rf.batches.full(valid))
    tuner = rf.HyperOptimizer(rf.reverse(problem), rf.projected_adam(0.2, log_scale=["l2"]), [rf.ProgressBar()])
    start, l2 = network([784, 10]), np.full(784, 1e-3, "float32")
    one, each = (tuner.run(start, {"l2": l2[:n]}, iterations).hypers["l2"] for n in (1, 784))

    figure = Figure(figsize=(4, 3.4), layout="constrained")
    axis = figure.subplots()
    axis.set(title="logarithm of the penalty of each pixel", xticks=[], yticks=[])
    figure.colorbar(axis.imshow(np.log10(each).reshape(28, 28)))
    errors = [wrong(problem.train(start, {"l2": tf.constant(values)}).params, test) for values in (l2, each, one)]
    return Shown(*errors, "one tuned penalty", "test error, %", figure)


if __name__ == "__main__":
    show(main)
