"""A weight decay for each of three layers, for a network of 300 digits.

python -m docs.gallery.decay_per_layer picture.png
"""

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import rfho2 as rf
from docs.gallery.digits import Shown, digits, error, network, show


def main(steps: int = 200, iterations: int = 40) -> Shown:
    train, valid, test = digits(300, 2_000)

    def squares(p):
        return tf.stack([tf.reduce_sum(p[f"w{i}"] ** 2) for i in range(3)])

    def loss(p, hypers, batch):
        return error(p, hypers, batch) + tf.reduce_sum(hypers["decay"] * squares(p))

    descent = rf.momentum(loss, learning_rate=0.05, momentum=0.9)
    batches = rf.batches.shuffled(train, 50, seed=0)
    problem = rf.Problem(descent, error, steps, batches, rf.batches.full(valid))
    history = []
    tuner = rf.HyperOptimizer(
        rf.reverse(problem),
        rf.projected_adam(0.3, log_scale=["decay"]),
        [rf.ProgressBar()],
        metrics=lambda state, hypers, k: history.append(hypers["decay"].numpy()) or {},
    )
    start, decay = network([784, 50, 50, 10]), np.full(3, 1e-4, "float32")
    one, each = (tuner.run(start, {"decay": decay[:n]}, iterations).best.hypers["decay"] for n in (1, 3))

    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.semilogy(history[iterations:], label=["first layer", "second layer", "third layer"])
    axis.set(xlabel="hyper-iteration", ylabel="decay")
    axis.legend()
    states = [problem.train(start, {"decay": tf.constant(values)}) for values in (decay, each, one)]
    return Shown(*(float(error(state.params, {}, test)) for state in states), "one tuned decay", "test loss", figure)


if __name__ == "__main__":
    show(main)
