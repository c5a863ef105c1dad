"""A weight for each class: 0 to 4 have 100 training digits each, 5 to 9 only 10, and all classes count the same.

python -m docs.gallery.class_weights picture.png
"""

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import rfho2 as rf
from docs.gallery.digits import Shown, digits, error, losses, network, show, wrong


def main(steps: int = 150, iterations: int = 60) -> Shown:
    (x, y), valid, test = digits(5_000, 1_000)
    kept = np.concatenate([np.flatnonzero(y == c)[: 100 if c < 5 else 10] for c in range(10)])

    def loss(p, hypers, batch):
        return tf.reduce_mean(tf.gather(hypers["weight"], batch[1]) * losses(p, batch))

    descent = rf.momentum(loss, learning_rate=0.05, momentum=0.9)
    problem = rf.Problem(descent, error, steps, rf.batches.full((x[kept], y[kept])), rf.batches.full(valid))
    tuner = rf.HyperOptimizer(rf.reverse(problem), rf.projected_adam(0.1, log_scale=["weight"]), [rf.ProgressBar()])
    start, weight = network([784, 10]), np.ones(10, "float32")
    result = tuner.run(start, {"weight": weight}, iterations)

    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.bar(range(10), result.hypers["weight"], color=["tab:blue"] * 5 + ["tab:orange"] * 5)
    axis.set(xlabel="class (orange: rare)", ylabel="learned weight", xticks=range(10))
    balanced = (len(kept) / 10 / np.bincount(y[kept])).astype("float32")
    each = (weight, result.hypers["weight"], balanced)
    errors = [wrong(problem.train(start, {"weight": tf.constant(values)}).params, test) for values in each]
    return Shown(*errors, "inverse frequencies", "test error, %", figure)


if __name__ == "__main__":
    show(main)
