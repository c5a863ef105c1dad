"""Optuna chooses what is discrete and where the hypers start, hypergradients do the rest; beside it, Optuna alone.

python -m docs.examples.with_optuna   # pip install optuna; two minutes for each of the two
"""

import functools

import optuna
import tensorflow as tf

import rfho2 as rf
from data import mnist


@functools.cache  # each network is compiled once
def network(width, f):
    split = mnist.noisy_split(mnist.load(), seed=0, train=300, validation=1_000)
    train, valid = ((x, y.astype("int32")) for x, y in ((split.train.images, split.true_labels), split.validation))
    w0 = [tf.initializers.GlorotNormal(seed=0)(shape) for shape in ([784, width], [width, width], [width, 10])]

    def error(w, hypers, batch):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], f(f(batch[0] @ w[0]) @ w[1]) @ w[2]))

    def loss(weights, hypers, batch):
        return error(weights, hypers, batch) + tf.reduce_sum(hypers["decays"] * [tf.reduce_sum(w**2) for w in weights])

    descent, batches = rf.momentum(loss, lambda h, t: h["rates"][t // 20], 0.9), rf.batches.shuffled(train, 50, seed=0)
    problem = rf.Problem(descent, error, 200, batches, rf.batches.full(valid))
    return w0, rf.reverse(problem), tf.function(lambda h: error(problem.train(w0, h).params, {}, valid), jit_compile=True)


def suggested(trial):
    choose = trial.suggest_categorical
    return network(choose("width", [10, 30, 100]), getattr(tf.nn, choose("activation", ["relu", "tanh"])))


def alone(trial):
    decays = [trial.suggest_float(f"decay {i}", 1e-6, 0.1, log=True) for i in range(3)]
    rates = [trial.suggest_float(f"rate {i}", 1e-3, 0.3, log=True) for i in range(10)]  # each for 20 of the 200 steps
    return float(suggested(trial)[2]({"rates": tf.constant(rates), "decays": tf.constant(decays)}))


def inside(trial):
    w0, engine, _ = suggested(trial)
    tuner = rf.HyperOptimizer(engine, rf.projected_adam(0.3, log_scale=["rates", "decays"]), on_divergence="backtrack")
    rate, decay = trial.suggest_float("rate", 1e-3, 0.3, log=True), trial.suggest_float("decay", 1e-6, 0.1, log=True)
    return tuner.run(w0, {"rates": [rate] * 10, "decays": [decay] * 3}, 25).best.value


def main(seconds=120, seed=0):
    studies = [optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed)) for _ in range(2)]
    for objective, study in zip((alone, inside), studies, strict=True):
        study.optimize(objective, timeout=seconds, catch=rf.DivergenceError)
        print(f"{objective.__name__}: validation loss {study.best_value:.4f} after {len(study.trials)} trials")
    return studies


if __name__ == "__main__":
    main()
