"""Weights from which five steps on ten digits tell any two classes apart, judged on digits that were not learned from.

python -m docs.gallery.initialisation picture.png
"""

import itertools

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import rfho2 as rf
from docs.gallery.digits import Shown, digits, error, network, show, wrong

SHOTS, QUERIES, DIGITS = 5, 20, 400


def main(steps: int = 5, iterations: int = 200) -> Shown:
    train, _, test = digits(5_000, 1_000)
    pairs = list(itertools.permutations(range(10), 2))

    def tasks(x, y):  # k -> digits of two classes to learn from, and others of them to be told apart
        images = np.concatenate([x[y == c][:DIGITS] for c in range(10)])

        def task(k):
            drawn = tf.cast(DIGITS // 2 * rf.batches.uniform(tf.stack([0, k]), [2, SHOTS + QUERIES]), tf.int32)
            shots, queries = tf.split(DIGITS * tf.gather(pairs, k % len(pairs))[:, None] + drawn, [SHOTS, QUERIES], axis=1)
            parts = shots, queries + DIGITS // 2  # from two halves of the digits
            return [(tf.gather(images, tf.reshape(part, [-1])), tf.repeat([0, 1], part.shape[1])) for part in parts]

        return task

    def problem(dynamics, task, steps):
        return rf.Problem(dynamics, error, steps, lambda t, k: task(k)[0], lambda k: task(k)[1])

    start, descent = network([784, 40, 2]), rf.gradient_descent(error, 0.1)
    learned = descent._replace(init=lambda params, hypers: {name: hypers[name] for name in params})
    engine = rf.average(rf.reverse(problem(learned, tasks(*train), steps)), 8, together=True)
    result = rf.HyperOptimizer(engine, rf.projected_adam(0.003), [rf.ProgressBar()]).run(start, start, iterations)

    task = tasks(*test)

    def measured(init, steps):
        train = tf.function(lambda k: problem(descent, task, steps).train(init, {}, k=k))
        numbers = [tf.constant(k) for k in range(len(pairs))]
        return np.mean([wrong(train(k), [part.numpy() for part in task(k)[1]]) for k in numbers])

    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axis = figure.subplots()
    values = np.array([row["value"] for row in result.history])
    axis.plot(np.convolve(values, np.full(10, 0.1), "valid"))
    axis.set(xlabel="hyper-iteration", ylabel="error after five steps, mean of ten")
    errors = [measured(start, steps), measured(result.hypers, steps), measured(start, 200)]
    return Shown(*errors, "200 steps from random weights", "test error, %", figure)


if __name__ == "__main__":
    show(main)
