"""Logs a run to Weights & Biases, offline, with a callback of ten lines.

python -m docs.examples.with_wandb   # pip install wandb; `wandb sync wandb/offline-run-*` sends it
"""

import numpy as np
import tensorflow as tf
import wandb

import rfho2 as rf


class WandB(rf.Callback):
    """Logs the settings, and at each hyper-iteration the objective, scalar hypers and metrics, and histograms of arrays."""

    def on_start(self, run):
        wandb.config.update(run.config)

    def on_hyper_iteration(self, k, hypers, hypergradient, extra):
        numbers = {"objective": hypergradient.value, **hypers, **extra}
        wandb.log({name: float(v) if np.ndim(v) == 0 else wandb.Histogram(v) for name, v in numbers.items()}, step=k)

    def on_end(self, result):
        if result.best is not None:
            wandb.summary["best"] = float(result.best.value)


def main(iterations: int = 50, folder: str = ".") -> rf.Result:
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(200, 20)), rng.normal(size=200)
    y = x[:, 0] - x[:, 1] + noise
    train, valid = (x[:40], y[:40]), (x[40:], y[40:])

    def error(w, hypers, batch):
        return tf.reduce_mean((tf.linalg.matvec(batch[0], w) - batch[1]) ** 2)

    def loss(w, hypers, batch):
        return error(w, hypers, batch) + hypers["l2"] * tf.reduce_sum(w**2)

    descent = rf.gradient_descent(loss, "lr")
    problem = rf.Problem(descent, error, 100, rf.batches.full(train), rf.batches.full(valid))
    optimizer = rf.projected_adam(0.1, log_scale=["lr", "l2"])
    with wandb.init(mode="offline", project="rfho2", name="ridge regression", dir=folder):
        tuner = rf.HyperOptimizer(rf.reverse(problem), optimizer, [WandB(), rf.ProgressBar()])
        return tuner.run(tf.zeros(20, tf.float64), {"lr": 0.01, "l2": 0.001}, iterations)


if __name__ == "__main__":
    main()
