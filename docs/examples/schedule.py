"""Learns a whole learning-rate schedule: T numbers, one per training step, with one reverse sweep per hypergradient.

python -m docs.examples.schedule
"""

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist


def main(steps: int = 100, iterations: int = 60) -> rf.Result:
    split = mnist.noisy_split(mnist.load(), seed=0)
    train = split.train.images, split.true_labels

    def loss(p, hypers, batch):
        x, y = batch
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ p["w"] + p["b"]))

    problem = rf.Problem(
        rf.momentum(loss, learning_rate=lambda hypers, t: hypers["schedule"][t], momentum=0.9),
        loss,
        steps=steps,
        batches=rf.batches.shuffled(train, 100, seed=0),
        validation=rf.batches.full(tuple(split.validation)),
    )
    optimizer = rf.projected_adam(0.02, {"schedule": rf.Box(0.0, 2.0)})
    tuner = rf.HyperOptimizer(rf.reverse(problem), optimizer, callbacks=[rf.ProgressBar()])
    weights = {"w": tf.zeros([784, 10]), "b": tf.zeros(10)}
    result = tuner.run(weights, {"schedule": np.full(steps, 0.05)}, iterations)
    quarters = [float(np.mean(part)) for part in np.array_split(result.best.hypers["schedule"], 4)]
    print(f"validation loss {result.history[0]['value']:.4f} -> {result.best.value:.4f}")
    print("mean learning rate in each quarter of training:", " ".join(f"{rate:.3f}" for rate in quarters))
    return result


if __name__ == "__main__":
    main()
