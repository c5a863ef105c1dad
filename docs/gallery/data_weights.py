"""A weight for each training digit: 40 % of 500 labels are wrong, and 500 labels can be trusted.

python -m docs.gallery.data_weights picture.png
"""

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import rfho2 as rf
from docs.gallery.digits import Shown, digits, error, losses, network, show, wrong


def main(steps: int = 100, iterations: int = 60) -> Shown:
    (x, y), valid, test = digits(500, 500)
    rng = np.random.default_rng(0)
    noisy = rng.random(500) < 0.4
    y = np.where(noisy, (y + rng.integers(1, 10, 500)) % 10, y)

    def loss(p, hypers, batch):
        return tf.reduce_mean(hypers["weight"] * losses(p, batch))

    descent = rf.momentum(loss, learning_rate=0.05, momentum=0.9)
    problem = rf.Problem(descent, error, steps, rf.batches.full((x, y)), rf.batches.full(valid))
    optimizer = rf.projected_adam(0.05, {"weight": rf.Box(0.0, 1.0)})
    start, weight = network([784, 10]), np.ones(500, "float32")
    result = rf.HyperOptimizer(rf.reverse(problem), optimizer, [rf.ProgressBar()]).run(start, {"weight": weight}, iterations)

    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axis = figure.subplots()
    groups = [result.hypers["weight"].numpy()[mask] for mask in (~noisy, noisy)]
    axis.hist(groups, np.linspace(0, 1, 11), label=["right label", "wrong label"])
    axis.set(xlabel="learned weight", ylabel="digits")
    axis.legend()
    plain, tuned = (problem.train(start, {"weight": tf.constant(values)}) for values in (weight, result.hypers["weight"]))
    trusted = rf.Problem(descent, error, steps, rf.batches.full(valid)).train(start, {"weight": tf.constant(weight)})
    errors = [wrong(state.params, test) for state in (plain, tuned, trusted)]
    return Shown(*errors, "trained on the trusted digits alone", "test error, %", figure)


if __name__ == "__main__":
    show(main)
