"""A learning rate for each of 200 steps, learned over four seeds at a time, judged on ten others.

python -m docs.gallery.schedule picture.png
"""

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import rfho2 as rf
from docs.gallery.digits import Shown, digits, error, network, show


def main(steps: int = 200, iterations: int = 40) -> Shown:
    train, valid, test = digits(500, 1_000)
    inits = [network([784, 20, 10], seed) for seed in range(50)]
    stacked = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *inits)

    def batches(t, k):  # another order of the digits in each episode
        rows = tf.cast(500 * rf.batches.uniform(tf.stack([k, t]), [20]), tf.int32)
        return tuple(tf.gather(part, rows) for part in train)

    momentum = rf.momentum(error, learning_rate=lambda hypers, t: tf.broadcast_to(hypers["rates"], [steps])[t], momentum=0.9)
    problem = rf.Problem(momentum, error, steps, batches, rf.batches.full(valid))
    tuner = rf.HyperOptimizer(
        rf.average(rf.reverse(problem), 4, together=True),
        rf.projected_adam(0.1, log_scale=["rates"]),
        [rf.ProgressBar()],
    )
    constant = np.full(steps, 0.02, "float32")

    def initial(k):
        return tf.nest.map_structure(lambda leaf: leaf[k % 40], stacked)

    one, schedule = (tuner.run(initial, {"rates": constant[:n]}, iterations).hypers["rates"] for n in (1, steps))

    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.semilogy(schedule, linewidth=1)
    axis.axhline(0.02, color="0.5", linestyle="--")
    axis.set(xlabel="step", ylabel="learning rate (dashed: at the start)")

    @tf.function
    def measured(rates, init, k):
        return error(problem.train(init, {"rates": rates}, k=k).params, {}, test)

    fresh = [
        [float(measured(tf.constant(r), inits[k], tf.constant(1000 + k))) for k in range(40, 50)]
        for r in (constant, schedule, one)
    ]
    return Shown(*np.mean(fresh, axis=1), "one tuned rate", "test loss", figure)


if __name__ == "__main__":
    show(main)
