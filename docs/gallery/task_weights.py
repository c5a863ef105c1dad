"""Weights of two tasks that share a layer: 60 digits have their class, 300 only their group: 0 or 1, 2 or 3, ...

python -m docs.gallery.task_weights picture.png
"""

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import rfho2 as rf
from docs.gallery.digits import Shown, digits, logits, network, show

LABELLED = 60


def split(p, x):
    return tf.split(logits(p, x), [10, 5], axis=1)


def class_error(p, hypers, batch):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(batch[1], tf.int32), split(p, batch[0])[0]))


def main(steps: int = 100, iterations: int = 40) -> Shown:
    (x, y), valid, test = digits(360, 500)

    def loss(p, hypers, batch):
        of_class, of_group = split(p, batch[0])
        labels = tf.cast(batch[1], tf.int32)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits
        classes = tf.reduce_mean(each(labels[:LABELLED], of_class[:LABELLED]))
        groups = tf.reduce_mean(each(labels[LABELLED:] // 2, of_group[LABELLED:]))
        return tf.reduce_sum(hypers["weights"] * tf.stack([classes, groups]))

    descent = rf.momentum(loss, learning_rate=0.05, momentum=0.9)
    problem = rf.Problem(descent, class_error, steps, rf.batches.full((x, y)), rf.batches.full(valid))
    tuner = rf.HyperOptimizer(rf.reverse(problem), rf.projected_adam(0.1, log_scale=["weights"]), [rf.ProgressBar()])
    start, weights = network([784, 50, 15]), np.ones(2, "float32")
    result = tuner.run(start, {"weights": weights}, iterations)

    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.bar(["class", "group"], result.hypers["weights"], color=["tab:blue", "tab:orange"])
    axis.set(ylabel="learned weight of the task")
    alone = np.array([1, 0], "float32")
    each = (weights, result.hypers["weights"], alone)
    states = [problem.train(start, {"weights": tf.constant(values)}) for values in each]
    return Shown(*(float(class_error(s.params, {}, test)) for s in states), "class alone", "test loss", figure)


if __name__ == "__main__":
    show(main)
