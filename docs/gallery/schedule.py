"""A learning rate for each of 200 steps, learned over four seeds at a time, judged on ten others.

python -m docs.gallery.schedule picture.png
"""

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import rfho2 as rf
from docs.gallery.digits import Shown, digits, error, network, show


def main(steps: int = 200, iterations: int = 60) -> Shown:
    train, valid, test = digits(500, 2_000)
    inits = [network([784, 20, 10], seed) for seed in range(50)]
    stacked = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *inits)

    def batches(t, k):  # another order of the digits in each episode
        rows = tf.random.stateless_uniform([20], [k, t], 0, 500, tf.int32)
        return tuple(tf.gather(part, rows) for part in train)

    momentum = rf.momentum(error, learning_rate=lambda hypers, t: hypers["schedule"][t], momentum=0.9)
    problem = rf.Problem(momentum, error, steps, batches, rf.batches.full(valid))
    tuner = rf.HyperOptimizer(
        rf.average(rf.reverse(problem), 4, together=True),
        rf.projected_adam(0.1, log_scale=["schedule"]),
        [rf.ProgressBar()],
    )
    constant = np.full(steps, 0.02, "float32")
    learned = tuner.run(
        lambda k: tf.nest.map_structure(lambda leaf: leaf[k % 40], stacked), {"schedule": constant}, iterations
    )
    schedule = learned.hypers["schedule"].numpy()

    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.semilogy(schedule, linewidth=1)
    axis.axhline(0.02, color="0.5", linestyle="--")
    axis.set(xlabel="step", ylabel="learning rate (dashed: at the start)")

    @tf.function
    def measured(rates, init, k):
        return error(problem.train(init, {"schedule": rates}, k=k).params, {}, test)

    fresh = [
        [float(measured(tf.constant(r), inits[k], tf.constant(1000 + k))) for k in range(40, 50)]
        for r in (constant, schedule)
    ]
    return Shown(*np.mean(fresh, axis=1), "test loss", figure)


if __name__ == "__main__":
    show(main)
